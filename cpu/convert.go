package cpu

import (
	"strconv"
	"unsafe"

	"github.com/go-fuel/fuel/internal/race"
)

// A Conversion makes numbers of one representation from those of another.
// Elements are in the host's byte order; the blocks of ggml are little-endian,
// as their format says, and mean what it computes in float32. The others to F32
// are exact.
type Conversion uint8

// The conversions.
const (
	BF16ToF32     Conversion = iota // keeps the bits of a NaN
	F32ToBF16                       // to nearest, ties to even; a NaN becomes quiet, its sign and upper payload stay
	F16ToF32                        // a NaN becomes quiet, its sign and payload stay
	F32ToF16                        // to nearest, ties to even; from 65520 up to infinity; NaNs as in F32ToBF16
	F8E4M3FNToF32                   // a NaN keeps its sign and has no payload
	F8E5M2ToF32                     // a NaN keeps its sign and has no payload
	Q8_0ToF32                       // the blocks of ggml, of 32 elements
	Q4_0ToF32
	Q4_KToF32 // of 256 elements
	Q6_KToF32

	conversionEnd
)

// conversions has the name of each, and the bytes of a block on each side: of
// an element, where there are no blocks.
var conversions = [conversionEnd]struct {
	name     string
	src, dst int
}{
	BF16ToF32:     {"BF16ToF32", 2, 4},
	F32ToBF16:     {"F32ToBF16", 4, 2},
	F16ToF32:      {"F16ToF32", 2, 4},
	F32ToF16:      {"F32ToF16", 4, 2},
	F8E4M3FNToF32: {"F8E4M3FNToF32", 1, 4},
	F8E5M2ToF32:   {"F8E5M2ToF32", 1, 4},
	Q8_0ToF32:     {"Q8_0ToF32", 2 + 32, 4 * 32},
	Q4_0ToF32:     {"Q4_0ToF32", 2 + 16, 4 * 32},
	Q4_KToF32:     {"Q4_KToF32", 2 + 2 + 12 + 128, 4 * 256},
	Q6_KToF32:     {"Q6_KToF32", 128 + 64 + 16 + 2, 4 * 256},
}

// String returns the name of the constant.
func (c Conversion) String() string {
	if c >= conversionEnd {
		return "Conversion(" + strconv.Itoa(int(c)) + ")"
	}
	return conversions[c].name
}

// Block returns the bytes that belong together on each side: of one element,
// or of one block. Both are 0 where c is none of the constants.
func (c Conversion) Block() (src, dst int) {
	if c >= conversionEnd {
		return 0, 0
	}
	return conversions[c].src, conversions[c].dst
}

// Convert writes to dst what c makes of src. It panics where they are not the
// same number of whole blocks, or overlap. Any address will do, also one that
// does not suit the elements. Zero length is fine.
func (c Conversion) Convert(dst, src []byte) {
	from, to := c.check("cpu.Convert", dst, src)
	whole := len(dst) + len(src)
	// Pieces end where blocks do. After the first they begin at a multiple of
	// Align, where dst suits its elements.
	per := Piece / max(from, to)
	n := per - int(uintptr(unsafe.Pointer(unsafe.SliceData(dst)))%Align)/to
	for n*to < len(dst) {
		c.part(dst[:n*to], src[:n*from], whole)
		dst, src = dst[n*to:], src[n*from:]
		n = per
		yield(len(dst), 1)
	}
	c.part(dst, src, whole)
}

// ConvertPart does what Convert does, with a piece of a range that is to be
// converted: how that is done best depends on the range, of whole bytes, source
// and destination together. It does not yield, so keep both at most Piece long.
func (c Conversion) ConvertPart(dst, src []byte, whole int) {
	c.check("cpu.ConvertPart", dst, src)
	c.part(dst, src, whole)
}

// check panics for broken arguments, and returns the bytes of a block.
func (c Conversion) check(who string, dst, src []byte) (from, to int) {
	if c >= conversionEnd {
		panic(who + ": unknown conversion")
	}
	from, to = conversions[c].src, conversions[c].dst
	switch {
	case len(src)%from != 0 || len(dst)%to != 0:
		panic(who + ": dst or src is no whole number of blocks")
	case len(src)/from != len(dst)/to:
		panic(who + ": dst and src differ in the number of blocks")
	case Overlap(dst, src):
		panic(who + ": dst and src overlap")
	}
	return from, to
}

func (c Conversion) part(dst, src []byte, whole int) {
	race.Read(src)
	race.Write(dst)
	stream := whole >= limits.convertStream
	switch c {
	case BF16ToF32:
		bf16ToF32(dst, src, stream)
	case F32ToBF16:
		f32ToBF16(dst, src, stream)
	case F16ToF32:
		f16ToF32(dst, src, stream)
	case F32ToF16:
		f32ToF16(dst, src, stream)
	case F8E4M3FNToF32:
		f8ToF32Generic(dst, src, &f8e4m3fn)
	case F8E5M2ToF32:
		f8ToF32Generic(dst, src, &f8e5m2)
	case Q8_0ToF32:
		q8_0ToF32(dst, src, stream)
	case Q4_0ToF32:
		q4_0ToF32(dst, src, stream)
	case Q4_KToF32:
		q4_KToF32Generic(dst, src)
	case Q6_KToF32:
		q6_KToF32Generic(dst, src)
	}
}

// ScaleI8 writes to dst the float32 of each int8 of src, times scale. It panics
// where dst has not four bytes for each of src, or they overlap. Any address
// will do; zero length is fine.
func ScaleI8(dst, src []byte, scale float32) {
	checkScale("cpu.ScaleI8", dst, src)
	scaleI8(dst, src, scale)
}

// ScaleU8 writes to dst the float32 of the difference of each uint8 of src from
// zero, times scale. Otherwise it is as ScaleI8.
func ScaleU8(dst, src []byte, scale float32, zero uint8) {
	checkScale("cpu.ScaleU8", dst, src)
	scaleU8(dst, src, scale, zero)
}

func checkScale(who string, dst, src []byte) {
	switch {
	case len(dst)%4 != 0 || len(dst)/4 != len(src):
		panic(who + ": dst has not four bytes for each of src")
	case Overlap(dst, src):
		panic(who + ": dst and src overlap")
	}
}

// Swap writes to dst the elements of src, of width 2, 4 or 8 bytes, with the
// bytes of each in the opposite order. dst may be src; otherwise they must not
// overlap. It panics where they do, where their lengths differ or are no
// multiple of width, and for another width. Any address will do; zero length is
// fine.
func Swap(dst, src []byte, width int) {
	checkSwap("cpu.Swap", dst, src, width)
	whole := len(dst) + len(src)
	n := Piece - int(uintptr(unsafe.Pointer(unsafe.SliceData(dst)))%Align)&^(width-1)
	for n < len(dst) {
		swapPart(dst[:n], src[:n], width, whole)
		dst, src = dst[n:], src[n:]
		n = Piece
		yield(len(dst), 1)
	}
	swapPart(dst, src, width, whole)
}

// SwapPart does what Swap does, with a piece of a range, of whole bytes, source
// and destination together, that is to be swapped: how that is done best
// depends on the range. It does not yield, so keep dst at most Piece long.
func SwapPart(dst, src []byte, width, whole int) {
	checkSwap("cpu.SwapPart", dst, src, width)
	swapPart(dst, src, width, whole)
}

func checkSwap(who string, dst, src []byte, width int) {
	switch {
	case width != 2 && width != 4 && width != 8:
		panic(who + ": the width is not 2, 4 or 8")
	case len(dst) != len(src):
		panic(who + ": dst and src differ in length")
	case len(dst)%width != 0:
		panic(who + ": the width does not divide the length")
	case unsafe.SliceData(dst) != unsafe.SliceData(src) && Overlap(dst, src):
		panic(who + ": dst and src overlap")
	}
}

func swapPart(dst, src []byte, width, whole int) {
	race.Read(src)
	race.Write(dst)
	stream := whole >= limits.convertStream
	switch width {
	case 2:
		swap2(dst, src, stream)
	case 4:
		swap4(dst, src, stream)
	case 8:
		swap8(dst, src, stream)
	}
}
