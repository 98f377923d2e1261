package cpu

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// The generic twins of the conversions, and those that have no other form. dst
// and src are the same number of whole blocks. What assembly does must be the
// same, bit by bit, NaNs included.

// host is the byte order of elements, ggml that of blocks.
var (
	host = binary.NativeEndian
	ggml = binary.LittleEndian
)

// Parts of a float32.
const (
	f32Sign = 1 << 31
	f32Inf  = 0xFF << 23
	f32NaN  = 0x1FF << 22
)

func bf16ToF32Generic(dst, src []byte) {
	for ; len(dst) >= 16 && len(src) >= 8; dst, src = dst[16:], src[8:] {
		host.PutUint32(dst, uint32(host.Uint16(src))<<16)
		host.PutUint32(dst[4:], uint32(host.Uint16(src[2:]))<<16)
		host.PutUint32(dst[8:], uint32(host.Uint16(src[4:]))<<16)
		host.PutUint32(dst[12:], uint32(host.Uint16(src[6:]))<<16)
	}
	for ; len(dst) >= 4; dst, src = dst[4:], src[2:] {
		host.PutUint32(dst, uint32(host.Uint16(src))<<16)
	}
}

// f32ToBF16Generic rounds to nearest, ties to even. A NaN becomes quiet and
// keeps its sign and the upper six bits of its payload.
func f32ToBF16Generic(dst, src []byte) {
	for ; len(dst) >= 8 && len(src) >= 16; dst, src = dst[8:], src[16:] {
		host.PutUint16(dst, f32ToBF16Bits(host.Uint32(src)))
		host.PutUint16(dst[2:], f32ToBF16Bits(host.Uint32(src[4:])))
		host.PutUint16(dst[4:], f32ToBF16Bits(host.Uint32(src[8:])))
		host.PutUint16(dst[6:], f32ToBF16Bits(host.Uint32(src[12:])))
	}
	for ; len(dst) >= 2; dst, src = dst[2:], src[4:] {
		host.PutUint16(dst, f32ToBF16Bits(host.Uint32(src)))
	}
}

func f32ToBF16Bits(u uint32) uint16 {
	if u&^f32Sign > f32Inf {
		return uint16(u>>16 | 0x40)
	}
	return uint16((u + 0x7FFF + u>>16&1) >> 16)
}

func f16ToF32Generic(dst, src []byte) {
	for ; len(dst) >= 4 && len(src) >= 2; dst, src = dst[4:], src[2:] {
		host.PutUint32(dst, f16ToF32Bits(host.Uint16(src)))
	}
}

// f16ToF32Bits returns the bits of the float32 that is the float16 with the
// bits h. A NaN becomes quiet and keeps its sign and payload.
func f16ToF32Bits(h uint16) uint32 {
	sign, mag := uint32(h&0x8000)<<16, uint32(h&0x7FFF)
	if mag-0x400 < 0x7C00-0x400 { // normal
		return sign | (mag<<13 + (127-15)<<23)
	}
	switch {
	case mag > 0x7C00:
		return sign | f32NaN | mag<<13
	case mag == 0x7C00:
		return sign | f32Inf
	}
	return sign | math.Float32bits(float32(int32(mag))*0x1p-24)
}

func f32ToF16Generic(dst, src []byte) {
	for ; len(dst) >= 2 && len(src) >= 4; dst, src = dst[2:], src[4:] {
		host.PutUint16(dst, f32ToF16Bits(host.Uint32(src)))
	}
}

// f32ToF16Bits rounds the float32 with the bits u to a float16, to nearest,
// ties to even. A NaN becomes quiet and keeps its sign and the upper nine bits
// of its payload.
func f32ToF16Bits(u uint32) uint16 {
	const (
		least = (127 - 14) << 23 // 2^-14, the smallest normal float16
		above = (127 + 16) << 23 // 2^16
		half  = (127 - 25) << 23 // 2^-25, half of the smallest subnormal one
	)
	sign, a := uint16(u>>16&0x8000), u&^f32Sign
	if a-least < above-least { // normal; a carry goes on to the exponent, up to infinity
		return sign | uint16((a+0x0FFF+a>>13&1-(127-15)<<23)>>13)
	}
	switch {
	case a > f32Inf:
		return sign | 0x7E00 | uint16(a>>13&0x1FF)
	case a >= above:
		return sign | 0x7C00
	case a <= half:
		return sign
	}
	// The result counts units of 2^-24, and a is m·2^(e-150).
	e, m := a>>23, a&(1<<23-1)|1<<23
	shift := 126 - e
	return sign | uint16((m+1<<(shift-1)-1+m>>shift&1)>>shift)
}

// f8e4m3fn and f8e5m2 have the bits of the float32 of every code of these
// formats of OCP OFP8 1.0. NaNs are quiet, with sign and without payload.
var (
	f8e4m3fn = f8Table(4, func(mag uint32) (inf, nan bool) { return false, mag == 0x7F })
	f8e5m2   = f8Table(5, func(mag uint32) (inf, nan bool) { return mag == 0x7C, mag > 0x7C })
)

// f8Table makes the table of a format with so many bits of exponent. special
// says which codes, without their sign, are infinity and NaN.
func f8Table(exponent uint32, special func(mag uint32) (inf, nan bool)) (table [256]uint32) {
	man := 7 - exponent
	bias := uint32(1)<<(exponent-1) - 1
	for code := range uint32(256) {
		mag, sign := code&0x7F, code>>7<<31
		inf, nan := special(mag)
		switch {
		case nan:
			table[code] = sign | f32NaN
		case inf:
			table[code] = sign | f32Inf
		case mag>>man == 0: // in units of the smallest subnormal
			unit := math.Float32frombits((127 + 1 - bias - man) << 23)
			table[code] = sign | math.Float32bits(float32(int32(mag))*unit)
		default:
			table[code] = sign | (mag<<(23-man) + (127-bias)<<23)
		}
	}
	return table
}

func f8ToF32Generic(dst, src []byte, table *[256]uint32) {
	for ; len(dst) >= 16 && len(src) >= 4; dst, src = dst[16:], src[4:] {
		host.PutUint32(dst, table[src[0]])
		host.PutUint32(dst[4:], table[src[1]])
		host.PutUint32(dst[8:], table[src[2]])
		host.PutUint32(dst[12:], table[src[3]])
	}
	for i, code := range src {
		host.PutUint32(dst[4*i:], table[code])
	}
}

// q8_0ToF32Generic: a block is a float16 d and 32 int8 q, which stand for d·q.
func q8_0ToF32Generic(dst, src []byte) {
	for ; len(src) >= 34; dst, src = dst[128:], src[34:] {
		d := math.Float32frombits(f16ToF32Bits(ggml.Uint16(src)))
		q, out := (*[32]byte)(src[2:]), (*[128]byte)(dst)
		for i := range q {
			host.PutUint32(out[4*i:], math.Float32bits(d*float32(int8(q[i]))))
		}
	}
}

// q4_0ToF32Generic: a block is a float16 d and 16 bytes, whose lower halves are
// the first 16 q and whose upper halves are the others, and stand for d·(q-8).
func q4_0ToF32Generic(dst, src []byte) {
	for ; len(src) >= 18; dst, src = dst[128:], src[18:] {
		d := math.Float32frombits(f16ToF32Bits(ggml.Uint16(src)))
		q, out := (*[16]byte)(src[2:]), (*[128]byte)(dst)
		var value [16]uint32
		for i := range value {
			value[i] = math.Float32bits(d * float32(i-8))
		}
		for i, b := range q {
			host.PutUint32(out[4*i:], value[b&15])
			host.PutUint32(out[4*i+64:], value[b>>4])
		}
	}
}

// q4_KToF32Generic: a block is the float16 d and dmin, eight scales and eight
// minima of six bits in 12 bytes, and 128 bytes of which each 32 are two runs
// of 32 q: first the lower halves, then the upper ones. q of run r stands for
// (d·scale[r])·q - dmin·min[r].
func q4_KToF32Generic(dst, src []byte) {
	for ; len(src) >= 144; dst, src = dst[1024:], src[144:] {
		d := math.Float32frombits(f16ToF32Bits(ggml.Uint16(src)))
		dmin := math.Float32frombits(f16ToF32Bits(ggml.Uint16(src[2:])))
		packed, q, out := (*[12]byte)(src[4:]), (*[128]byte)(src[16:]), (*[1024]byte)(dst)
		for r := range 8 {
			scale, least := q4_KScale(packed, r)
			// All products are exact, of 11, 6 and 4 bits: only the difference
			// is rounded, also where the processor does both in one step.
			dr, mr := d*float32(scale), dmin*float32(least)
			var value [16]uint32
			for i := range value {
				value[i] = math.Float32bits(dr*float32(i) - mr)
			}
			run, to, shift := (*[32]byte)(q[r/2*32:]), (*[128]byte)(out[r*128:]), r%2*4
			for i, b := range run {
				host.PutUint32(to[4*i:], value[b>>shift&15])
			}
		}
	}
}

// q4_KScale returns the scale and the minimum of run r. The first four of each
// are the lower six bits of bytes 0 to 3 and 4 to 7; the others have their
// lower four bits in bytes 8 to 11, scale below minimum, and their upper two
// above those of the first four.
func q4_KScale(packed *[12]byte, r int) (scale, least int32) {
	if r < 4 {
		return int32(packed[r] & 63), int32(packed[r+4] & 63)
	}
	low := packed[r+4]
	return int32(low&15 | packed[r-4]>>6<<4), int32(low>>4 | packed[r]>>6<<4)
}

// q6_KToF32Generic: a block is 128 bytes with the lower four bits of 256 q, 64
// bytes with their upper two, 16 int8 scales, and the float16 d. q stands for
// (d·scale)·(q-32), where every 16 share a scale. Each half of the block has
// four runs of 32. Those have their lower bits in 64 bytes: runs 0 and 1 in the
// lower halves, 2 and 3 in the upper ones; and their upper bits in 32 bytes: run
// r in bits 2r and 2r+1.
func q6_KToF32Generic(dst, src []byte) {
	for ; len(src) >= 210; dst, src = dst[1024:], src[210:] {
		low, high, scales := (*[128]byte)(src), (*[64]byte)(src[128:]), (*[16]byte)(src[192:])
		d := math.Float32frombits(f16ToF32Bits(ggml.Uint16(src[208:])))
		for part := range 16 { // of 16 elements
			half, run, at := part/8, part%8/2, part%2*16
			l := (*[16]byte)(low[half*64+run%2*32+at:])
			h := (*[16]byte)(high[half*32+at:])
			out := (*[64]byte)(dst[part*64:])
			scale := d * float32(int8(scales[part]))
			shiftLow, shiftHigh := run/2*4, run*2
			for i := range l {
				q := int32(l[i]>>shiftLow&15|h[i]>>shiftHigh&3<<4) - 32
				host.PutUint32(out[4*i:], math.Float32bits(scale*float32(q)))
			}
		}
	}
}

func scaleI8(dst, src []byte, scale float32) {
	for i, q := range src {
		host.PutUint32(dst[4*i:], math.Float32bits(float32(int8(q))*scale))
	}
}

func scaleU8(dst, src []byte, scale float32, zero uint8) {
	for i, q := range src {
		host.PutUint32(dst[4*i:], math.Float32bits(float32(int32(q)-int32(zero))*scale))
	}
}

// Bytes within lanes of a word are swapped alike in either byte order. dst may
// be src.

func swap2Generic(dst, src []byte) {
	const even = 0x00FF00FF00FF00FF
	for ; len(dst) >= 8 && len(src) >= 8; dst, src = dst[8:], src[8:] {
		x := host.Uint64(src)
		host.PutUint64(dst, x&even<<8|x>>8&even)
	}
	for ; len(dst) >= 2; dst, src = dst[2:], src[2:] {
		host.PutUint16(dst, bits.ReverseBytes16(host.Uint16(src)))
	}
}

func swap4Generic(dst, src []byte) {
	for ; len(dst) >= 8 && len(src) >= 8; dst, src = dst[8:], src[8:] {
		host.PutUint64(dst, bits.RotateLeft64(bits.ReverseBytes64(host.Uint64(src)), 32))
	}
	if len(dst) >= 4 {
		host.PutUint32(dst, bits.ReverseBytes32(host.Uint32(src)))
	}
}

func swap8Generic(dst, src []byte) {
	for ; len(dst) >= 8 && len(src) >= 8; dst, src = dst[8:], src[8:] {
		host.PutUint64(dst, bits.ReverseBytes64(host.Uint64(src)))
	}
}
