package fuel

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// An Encoding says how bytes represent logical elements: one after the other
// (Plain, the zero Encoding), or quantized in blocks. It is independent of the
// [DType], which says what an element is after decoding: blocks of Q4_K are
// elements of F32. Encodings are values: they compare with ==, and any number
// of goroutines may use them.
//
// Blocks are decoded to floats, so the logical type of every encoding but Plain
// is F32, BF16 or F16, whichever the kernels compute in; it does not change the
// bytes. Other pairs are [ErrMismatch].
//
// Plain has no scales. All others have them either inside the bytes of a block
// or beside them, in a Storage of their own that the byte counts here leave
// out: [Encoding.ScalesInside] says which.
//
//	Encoding         elements of a block  bytes of a block
//	Plain            1                    DType.Bytes
//	GGMLBlock(t)     t.BlockLen()         t.BlockBytes(), scales inside
//	MX, inside       32                   1 for the E8M0 scale, then the packed elements
//	MX, beside       32                   the packed elements
//	Affine, inside   Block[1]             scale, then zero point, then the packed elements
//	Affine, beside   1                    the packed elements
//
// Packed elements lie as at [DType]: low bits first.
type Encoding struct {
	kind   encodingKind
	ggml   GGMLType
	affine AffineSpec // of an MX encoding: Packed and Scales
}

type encodingKind uint8

const (
	encodingPlain encodingKind = iota
	encodingGGML
	encodingAffine
	encodingMX
)

// mxBlock is the number of elements that share a scale: OCP MX 1.0, 5.1.
const mxBlock = 32

// ScalePlace says where the scales (and zero points) of an encoding are.
type ScalePlace uint8

const (
	// ScalesBeside: in a Storage of their own. The zero ScalePlace.
	ScalesBeside ScalePlace = iota
	// ScalesInside: in front of the elements of each block.
	ScalesInside
)

// String returns "beside" or "inside".
func (p ScalePlace) String() string {
	switch p {
	case ScalesBeside:
		return "beside"
	case ScalesInside:
		return "inside"
	}
	return "ScalePlace(" + strconv.Itoa(int(p)) + ")"
}

// An AffineSpec describes elements that are (q - zero) · scale, where q is
// what the bytes hold and scale and zero are shared by a block.
type AffineSpec struct {
	// Packed is the type of q: an integer or a float with a sign, of at most
	// eight bits.
	Packed DType

	// Block is the number of rows and of columns that share a scale; 0 is all
	// of them. {1, 128} is groups of 128 in a row, {128, 128} square blocks,
	// {1, 0} a scale for each row, and {0, 0} one scale for the whole tensor.
	Block [2]int

	// Scale is the type of a scale: a float of eight bits or more.
	Scale DType

	// Zero is the type of a zero point: an integer, F16, BF16 or F32; the zero
	// DType where q has none.
	Zero DType

	// Scales is where scales and zero points are. Inside needs blocks of one
	// row and a fixed number of columns whose elements fill whole bytes. A
	// block is then: the scale, the zero point (in a byte of its own, upper
	// bits zero, where it is narrower than one), the elements. There is no
	// padding between them, so what follows may be misaligned.
	Scales ScalePlace
}

// Plain returns the encoding of elements that lie one after the other. It is
// the zero Encoding.
func Plain() Encoding { return Encoding{} }

// GGMLBlock returns the encoding of ggml's blocks of type t. Scales are inside;
// what a file keeps in further tensors, as the tensor scale of NVFP4, is beyond
// it.
//
// There is no error here, but for a t that is plain, removed or unknown all
// methods that return one give an *[UnknownDTypeError]. A tensor of a plain
// type has the encoding Plain: see [GGMLType.Layout].
func GGMLBlock(t GGMLType) Encoding { return Encoding{kind: encodingGGML, ggml: t} }

// MX returns the encoding of OCP Microscaling 1.0: blocks of 32 elements of
// type packed, F8E4M3FN, F8E5M2, F6E2M3, F6E3M2, F4E2M1 or I8 (MXINT8, whose
// q counts units of 2^-6), with a scale of F8E8M0FNU for each. OCP leaves open
// where the scales are; here they are beside, one for each block in order, or
// inside, one byte in front of each block.
//
// ggml's MXFP4 is not MX(F4E2M1, ScalesInside): it interleaves the two halves
// of a block. Any other packed or place is [ErrMismatch].
func MX(packed DType, place ScalePlace) (Encoding, error) {
	switch packed {
	case F8E4M3FN, F8E5M2, F6E2M3, F6E3M2, F4E2M1, I8:
	default:
		return Encoding{}, fmt.Errorf("%w: MX has no elements of %v", ErrMismatch, packed)
	}
	if place > ScalesInside {
		return Encoding{}, fmt.Errorf("%w: %v", ErrMismatch, place)
	}
	return Encoding{kind: encodingMX, affine: AffineSpec{Packed: packed, Scales: place}}, nil
}

// Affine returns the encoding that spec describes. A spec that breaks the rules
// of [AffineSpec] is [ErrMismatch], and [ErrOverflow] where the elements of a
// block are negative in number or more than an int holds.
func Affine(spec AffineSpec) (Encoding, error) {
	e := Encoding{kind: encodingAffine, affine: spec}
	refuse := func(why string) (Encoding, error) {
		return Encoding{}, fmt.Errorf("%w: %v: %s", ErrMismatch, e, why)
	}
	switch p := spec.Packed; {
	case !p.IsInteger() && !(p.IsFloat() && p.IsSigned()), p.Bits() > 8:
		return refuse("packed elements are integers or signed floats of at most 8 bits")
	case !spec.Scale.IsFloat() || spec.Scale.IsSubByte():
		return refuse("a scale is a float of 8 bits or more")
	case spec.Scales > ScalesInside:
		return refuse("scales are inside or beside")
	}
	switch z := spec.Zero; {
	case z == 0, z.IsInteger(), z == F16, z == BF16, z == F32:
	default:
		return refuse("a zero point is an integer, f16, bf16 or f32")
	}
	rows, cols := spec.Block[0], spec.Block[1]
	if rows < 0 || cols < 0 || rows > 0 && cols > math.MaxInt/rows {
		return Encoding{}, fmt.Errorf("%w: %v", ErrOverflow, e)
	}
	if spec.Scales == ScalesInside {
		if rows != 1 || cols == 0 {
			return refuse("scales inside need blocks of one row and a fixed length")
		}
		if per, _ := spec.Packed.granule(); cols%per != 0 {
			return refuse("the elements of a block do not fill whole bytes")
		}
		if _, _, err := e.block(F32); err != nil {
			return Encoding{}, err
		}
	}
	return e, nil
}

// GGML returns the block type of an encoding made by [GGMLBlock], and whether
// it is one.
func (e Encoding) GGML() (GGMLType, bool) { return e.ggml, e.kind == encodingGGML }

// Affine returns the description of an encoding made by [Affine], and whether
// it is one.
func (e Encoding) Affine() (AffineSpec, bool) {
	if e.kind != encodingAffine {
		return AffineSpec{}, false
	}
	return e.affine, true
}

// MX returns the type of the packed elements of an encoding made by [MX], and
// whether it is one.
func (e Encoding) MX() (DType, bool) {
	if e.kind != encodingMX {
		return 0, false
	}
	return e.affine.Packed, true
}

// IsPlain reports whether e is Plain.
func (e Encoding) IsPlain() bool { return e == Encoding{} }

// ScalesInside reports whether the bytes that [Encoding.Bytes] counts include
// the scales. It is false for Plain, which has none.
func (e Encoding) ScalesInside() bool {
	return e.kind == encodingGGML || e.kind != encodingPlain && e.affine.Scales == ScalesInside
}

// Check returns nil where elements of d can have the encoding e.
func (e Encoding) Check(d DType) error {
	_, _, err := e.block(d)
	return err
}

// BlockLen returns of how many elements the length of a Storage must be a
// multiple: 1 for Plain and for Affine with scales beside, the elements of a
// block for the others, 0 where e is not valid.
func (e Encoding) BlockLen() int {
	switch e.kind {
	case encodingGGML:
		if e.ggml.Plain() {
			return 0
		}
		return e.ggml.BlockLen()
	case encodingMX:
		return mxBlock
	case encodingAffine:
		if e.affine.Scales == ScalesInside {
			return e.affine.Block[1]
		}
	}
	return 1
}

// BlockBytes returns how many bytes one block, that is BlockLen elements, takes
// on its own. Elements narrower than a byte whose BlockLen is 1 share bytes, so
// n of them take less than n·BlockBytes: see [Encoding.Bytes] and
// [Encoding.Granule]. The errors are those of Bytes.
func (e Encoding) BlockBytes(d DType) (int, error) { return e.Bytes(d, e.BlockLen()) }

// Granule returns the shortest run of elements that starts and ends on a byte
// (or block) border wherever it is repeated, as its number of elements and of
// bytes. Offsets and lengths of ranges must be multiples of it: 1 and 4 for
// plain F32, 2 and 1 for plain F4E2M1, 256 and 144 for blocks of Q4_K. The
// errors are those of Bytes.
func (e Encoding) Granule(d DType) (n, bytes int, err error) { return e.block(d) }

// block is Granule; Affine calls it before the encoding is known to be valid.
func (e Encoding) block(d DType) (n, bytes int, err error) {
	if err := d.known(); err != nil {
		return 0, 0, err
	}
	if e.kind == encodingPlain {
		n, bytes = d.granule()
		return n, bytes, nil
	}
	if e.kind == encodingGGML && (!e.ggml.Valid() || e.ggml.Plain()) {
		if e.ggml.Plain() {
			return 0, 0, e.ggml.unknown(", which has no blocks")
		}
		return 0, 0, e.ggml.unknown(", removed from ggml")
	}
	if d != F32 && d != BF16 && d != F16 {
		return 0, 0, fmt.Errorf("%w: %v decodes to f32, bf16 or f16, not to %v", ErrMismatch, e, d)
	}
	switch e.kind {
	case encodingGGML:
		return e.ggml.BlockLen(), e.ggml.BlockBytes(), nil
	case encodingMX:
		n, bytes = mxBlock, mxBlock*e.affine.Packed.Bits()/8
		if e.affine.Scales == ScalesInside {
			bytes++
		}
		return n, bytes, nil
	}
	if e.affine.Scales == ScalesBeside {
		n, bytes = e.affine.Packed.granule()
		return n, bytes, nil
	}
	n = e.affine.Block[1]
	bytes, err = e.affine.Packed.Bytes(n)
	if err != nil {
		return 0, 0, err
	}
	head, _ := e.affine.Scale.Bytes(1)
	if e.affine.Zero != 0 {
		zero, _ := e.affine.Zero.Bytes(1)
		head += zero
	}
	if bytes > math.MaxInt-head {
		return 0, 0, fmt.Errorf("%w: a block of %v", ErrOverflow, e)
	}
	return n, bytes + head, nil
}

// Bytes returns how many bytes n elements of d take in the encoding e. Scales
// are counted where they are inside.
//
// An n that is no multiple of [Encoding.BlockLen] is [ErrMismatch], never
// rounded; so is a d that e does not decode to. A negative n, and a result that
// an int cannot hold, is [ErrOverflow]. A d or a ggml type that is not valid is
// [ErrUnknownDType].
func (e Encoding) Bytes(d DType, n int) (int, error) {
	per, size, err := e.block(d)
	switch {
	case err != nil:
		return 0, err
	case n < 0:
		return 0, fmt.Errorf("%w: %d elements", ErrOverflow, n)
	case e.kind == encodingPlain:
		return d.Bytes(n)
	case e.kind == encodingAffine && e.affine.Scales == ScalesBeside:
		return e.affine.Packed.Bytes(n)
	case n%per != 0:
		return 0, fmt.Errorf("%w: %d elements are no whole number of blocks of %d (%v)", ErrMismatch, n, per, e)
	case n/per > math.MaxInt/size:
		return 0, fmt.Errorf("%w: %d elements of %v", ErrOverflow, n, e)
	}
	return n / per * size, nil
}

// Len returns how many elements of d fill the given number of bytes in the
// encoding e exactly; for elements narrower than a byte see [DType.Len].
//
// A length that is no whole number of elements or blocks is [ErrMismatch],
// never rounded down. A negative length, and a count that an int cannot hold,
// is [ErrOverflow]. The other errors are those of Bytes.
func (e Encoding) Len(d DType, bytes int) (int, error) {
	per, size, err := e.block(d)
	switch {
	case err != nil:
		return 0, err
	case bytes < 0:
		return 0, fmt.Errorf("%w: %d bytes", ErrOverflow, bytes)
	case e.kind == encodingPlain:
		return d.Len(bytes)
	case bytes%size != 0:
		return 0, fmt.Errorf("%w: %d bytes are no whole number of blocks of %d (%v)", ErrMismatch, bytes, size, e)
	case bytes/size > math.MaxInt/per:
		return 0, fmt.Errorf("%w: %d bytes of %v", ErrOverflow, bytes, e)
	}
	return bytes / size * per, nil
}

// String returns the text form of e:
//
//	plain
//	ggml:Q4_K
//	mx:f4e2m1,scales=beside
//	affine:u4,block=1x128,scale=f16,zero=u4,scales=inside
//
// where a block of 0 rows or columns, which is all of them, is "*", and a zero
// point that is not there is "none".
func (e Encoding) String() string {
	switch e.kind {
	case encodingGGML:
		return "ggml:" + e.ggml.String()
	case encodingMX:
		return "mx:" + e.affine.Packed.String() + ",scales=" + e.affine.Scales.String()
	case encodingAffine:
		extent := func(n int) string {
			if n == 0 {
				return "*"
			}
			return strconv.Itoa(n)
		}
		a, zero := e.affine, "none"
		if a.Zero != 0 {
			zero = a.Zero.String()
		}
		return fmt.Sprintf("affine:%v,block=%sx%s,scale=%v,zero=%s,scales=%v",
			a.Packed, extent(a.Block[0]), extent(a.Block[1]), a.Scale, zero, a.Scales)
	}
	return "plain"
}

// ParseEncoding returns the Encoding whose String is s, and only that: fields
// in another order or names in another case are [ErrMismatch]. Types that are
// not known are [ErrUnknownDType], and the rules of [MX] and [Affine] hold.
func ParseEncoding(s string) (Encoding, error) {
	e, err := parseEncoding(s)
	if err != nil {
		return Encoding{}, err
	}
	if e.String() != s {
		return Encoding{}, fmt.Errorf("%w: no encoding is written %q", ErrMismatch, s)
	}
	return e, nil
}

// parseEncoding reads s loosely; ParseEncoding compares the result with s.
func parseEncoding(s string) (Encoding, error) {
	kind, rest, _ := strings.Cut(s, ":")
	if kind == "ggml" {
		t, err := ParseGGMLType(rest)
		if err == nil && t.Plain() {
			err = GGMLBlock(t).Check(F32)
		}
		return GGMLBlock(t), err
	}
	if kind != "mx" && kind != "affine" {
		return Plain(), nil
	}
	first, rest, _ := strings.Cut(rest, ",")
	packed, err := ParseDType(first)
	if err != nil {
		return Encoding{}, err
	}
	spec := AffineSpec{Packed: packed}
	for field := range strings.SplitSeq(rest, ",") {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "block":
			rows, cols, _ := strings.Cut(value, "x")
			spec.Block[0], _ = strconv.Atoi(rows) // 0 for "*"; anything else shows in String
			spec.Block[1], _ = strconv.Atoi(cols)
		case "scale":
			spec.Scale, err = ParseDType(value)
		case "zero":
			if value != "none" {
				spec.Zero, err = ParseDType(value)
			}
		case "scales":
			if value == "inside" {
				spec.Scales = ScalesInside
			}
		}
		if err != nil {
			return Encoding{}, err
		}
	}
	if kind == "mx" {
		return MX(packed, spec.Scales)
	}
	return Affine(spec)
}

// MarshalText implements [encoding.TextMarshaler] with the form of String. A
// [GGMLBlock] of a type that has no blocks is [ErrUnknownDType].
func (e Encoding) MarshalText() ([]byte, error) {
	if err := e.Check(F32); err != nil {
		return nil, err
	}
	return []byte(e.String()), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler] with what
// [ParseEncoding] accepts. After an error e is as it was.
func (e *Encoding) UnmarshalText(text []byte) error {
	v, err := ParseEncoding(string(text))
	if err != nil {
		return err
	}
	*e = v
	return nil
}
