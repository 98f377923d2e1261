package fuel

import (
	"fmt"
	"math"
	"strings"
)

// A DType says what one logical element is. It is a tag: it holds no size in
// bytes, because elements may be narrower than a byte. The zero DType is
// invalid, so that a forgotten field is an error and never a silent U8.
//
// The numbers behind the constants may change between versions; what may be
// stored or sent is the text form (String, ParseDType, MarshalText).
//
//	DType          bits  text           what
//	Bool           8     bool           0 is false, 1 is true; we write no other byte
//	I8             8     i8             two's complement
//	I16            16    i16            two's complement
//	I32            32    i32            two's complement
//	I64            64    i64            two's complement
//	U8             8     u8             unsigned
//	U16            16    u16            unsigned
//	U32            32    u32            unsigned
//	U64            64    u64            unsigned
//	F16            16    f16            IEEE 754 binary16
//	BF16           16    bf16           the upper half of binary32
//	F32            32    f32            IEEE 754 binary32
//	F64            64    f64            IEEE 754 binary64
//	Complex64      64    complex64      two F32, real part first
//	Complex128     128   complex128     two F64, real part first
//	F8E3M4         8     f8e3m4         bias 3; infinities and NaNs as in IEEE 754
//	F8E4M3         8     f8e4m3         bias 7; infinities and NaNs as in IEEE 754
//	F8E4M3B11FNUZ  8     f8e4m3b11fnuz  bias 11; no infinity, no -0, NaN is 0x80
//	F8E4M3FN       8     f8e4m3fn       bias 7; no infinity, NaN is all ones: OCP E4M3
//	F8E4M3FNUZ     8     f8e4m3fnuz     bias 8; no infinity, no -0, NaN is 0x80
//	F8E5M2         8     f8e5m2         bias 15; infinities and NaNs as in IEEE 754: OCP E5M2
//	F8E5M2FNUZ     8     f8e5m2fnuz     bias 16; no infinity, no -0, NaN is 0x80
//	F8E8M0FNU      8     f8e8m0fnu      2^(code-127); no sign, no zero, NaN is 0xFF: OCP MX scale
//	F8E6M2         8     f8e6m2         bias 48; no sign, no zero, NaN is 0xFF: see Float8E6M2
//	F6E2M3         6     f6e2m3         bias 1; every code is a number: OCP MX FP6 E2M3
//	F6E3M2         6     f6e3m2         bias 3; every code is a number: OCP MX FP6 E3M2
//	F4E2M1         4     f4e2m1         bias 1; every code is a number: OCP MX FP4
//	I4             4     i4             two's complement
//	I2             2     i2             two's complement
//	U4             4     u4             unsigned
//	U2             2     u2             unsigned
//	U1             1     u1             unsigned
//
// Elements of a byte or more lie in the host's byte order. Elements narrower
// than a byte are packed without gaps, low bits first: element i of width b
// occupies bits i·b up to (i+1)·b of the bytes read as one little-endian
// number, on every host. So the first of two F4E2M1 is the low nibble, the
// second of four F6E2M3 is in the top two bits of byte 0 and the low four bits
// of byte 1. The bits after the last element are padding and zero. DLPack packs
// in the same order.
//
// A DType may be used from several goroutines at once, as any number may.
type DType uint8

// The element types. Their properties are in the table at [DType].
const (
	_ DType = iota // invalid

	Bool

	I8
	I16
	I32
	I64
	U8
	U16
	U32
	U64

	F16
	BF16
	F32
	F64

	Complex64
	Complex128

	F8E3M4
	F8E4M3
	F8E4M3B11FNUZ
	F8E4M3FN
	F8E4M3FNUZ
	F8E5M2
	F8E5M2FNUZ
	F8E8M0FNU
	F8E6M2

	F6E2M3
	F6E3M2
	F4E2M1

	I4
	I2
	U4
	U2
	U1

	dtypeEnd // one past the last
)

type dtypeClass uint8

const (
	classInvalid dtypeClass = iota
	classBool
	classSigned // two's complement
	classUnsigned
	classFloat
	classUnsignedFloat
	classComplex
)

// dtypeInfo is all that is known about one DType. Empty names and negative
// codes mean that the format has no such type.
type dtypeInfo struct {
	name        string // canonical text
	alias       string // as NumPy and ml_dtypes spell it
	class       dtypeClass
	bits        uint8
	align       uint8
	safetensors string
	ggml        int8
	dlpack      int8
}

// dtypes holds one row for each DType.
//
// Sources of the foreign names: safetensors 0.8.0, src/tensor.rs, enum Dtype;
// ggml.h, enum ggml_type, at ggml d99724f2b141; dlpack.h 1.1, DLDataTypeCode.
// The types that safetensors calls F8_E4M3 and F8_E8M0 are float8_e4m3fn and
// float8_e8m0fnu: its documentation cites the papers that define those.
var dtypes = [dtypeEnd]dtypeInfo{
	0: {ggml: -1, dlpack: -1},

	Bool: {"bool", "", classBool, 8, 1, "BOOL", -1, dlBool},

	I8:  {"i8", "int8", classSigned, 8, 1, "I8", int8(GGMLI8), dlInt},
	I16: {"i16", "int16", classSigned, 16, 2, "I16", int8(GGMLI16), dlInt},
	I32: {"i32", "int32", classSigned, 32, 4, "I32", int8(GGMLI32), dlInt},
	I64: {"i64", "int64", classSigned, 64, 8, "I64", int8(GGMLI64), dlInt},
	U8:  {"u8", "uint8", classUnsigned, 8, 1, "U8", -1, dlUInt},
	U16: {"u16", "uint16", classUnsigned, 16, 2, "U16", -1, dlUInt},
	U32: {"u32", "uint32", classUnsigned, 32, 4, "U32", -1, dlUInt},
	U64: {"u64", "uint64", classUnsigned, 64, 8, "U64", -1, dlUInt},

	F16:  {"f16", "float16", classFloat, 16, 2, "F16", int8(GGMLF16), dlFloat},
	BF16: {"bf16", "bfloat16", classFloat, 16, 2, "BF16", int8(GGMLBF16), dlBfloat},
	F32:  {"f32", "float32", classFloat, 32, 4, "F32", int8(GGMLF32), dlFloat},
	F64:  {"f64", "float64", classFloat, 64, 8, "F64", int8(GGMLF64), dlFloat},

	Complex64:  {"complex64", "", classComplex, 64, 4, "C64", -1, dlComplex},
	Complex128: {"complex128", "", classComplex, 128, 8, "", -1, dlComplex},

	F8E3M4:        {"f8e3m4", "float8_e3m4", classFloat, 8, 1, "", -1, 7},
	F8E4M3:        {"f8e4m3", "float8_e4m3", classFloat, 8, 1, "", -1, 8},
	F8E4M3B11FNUZ: {"f8e4m3b11fnuz", "float8_e4m3b11fnuz", classFloat, 8, 1, "", -1, 9},
	F8E4M3FN:      {"f8e4m3fn", "float8_e4m3fn", classFloat, 8, 1, "F8_E4M3", -1, 10},
	F8E4M3FNUZ:    {"f8e4m3fnuz", "float8_e4m3fnuz", classFloat, 8, 1, "F8_E4M3FNUZ", -1, 11},
	F8E5M2:        {"f8e5m2", "float8_e5m2", classFloat, 8, 1, "F8_E5M2", -1, 12},
	F8E5M2FNUZ:    {"f8e5m2fnuz", "float8_e5m2fnuz", classFloat, 8, 1, "F8_E5M2FNUZ", -1, 13},
	F8E8M0FNU:     {"f8e8m0fnu", "float8_e8m0fnu", classUnsignedFloat, 8, 1, "F8_E8M0", -1, 14},
	F8E6M2:        {"f8e6m2", "", classUnsignedFloat, 8, 1, "", -1, -1},

	F6E2M3: {"f6e2m3", "float6_e2m3fn", classFloat, 6, 1, "F6_E2M3", -1, 15},
	F6E3M2: {"f6e3m2", "float6_e3m2fn", classFloat, 6, 1, "F6_E3M2", -1, 16},
	F4E2M1: {"f4e2m1", "float4_e2m1fn", classFloat, 4, 1, "F4", -1, 17},

	I4: {"i4", "int4", classSigned, 4, 1, "", -1, dlInt},
	I2: {"i2", "int2", classSigned, 2, 1, "", -1, dlInt},
	U4: {"u4", "uint4", classUnsigned, 4, 1, "", -1, dlUInt},
	U2: {"u2", "uint2", classUnsigned, 2, 1, "", -1, dlUInt},
	U1: {"u1", "uint1", classUnsigned, 1, 1, "", -1, dlUInt},
}

// DLDataTypeCode of dlpack.h for the families that have several widths.
const (
	dlInt     = 0
	dlUInt    = 1
	dlFloat   = 2
	dlBfloat  = 4
	dlComplex = 5
	dlBool    = 6
)

func (d DType) info() *dtypeInfo {
	if d >= dtypeEnd {
		d = 0
	}
	return &dtypes[d]
}

// known returns nil for a valid d and an *[UnknownDTypeError] otherwise.
func (d DType) known() error {
	if d.Valid() {
		return nil
	}
	if d == 0 {
		return fmt.Errorf("%w: none was given", ErrUnknownDType)
	}
	return &UnknownDTypeError{Format: "text", Code: d.String()}
}

// Valid reports whether d is one of the constants of this package.
func (d DType) Valid() bool { return d.info().class != classInvalid }

// Bits returns the width of one element in bits, from 1 to 128, and 0 for an
// invalid d. A byte length comes from [DType.Bytes], not from Bits()/8.
func (d DType) Bits() int { return int(d.info().bits) }

// Align returns the natural alignment of one element in bytes, a power of two:
// the width of an integer or float, the width of one part of a complex number,
// and 1 for everything of a byte or less. It is the same on every host, also
// where Go aligns 8-byte values to 4. It is 0 for an invalid d.
func (d DType) Align() int { return int(d.info().align) }

// IsBool reports whether d is Bool.
func (d DType) IsBool() bool { return d == Bool }

// IsInteger reports whether d is a signed or unsigned integer. Bool is none.
func (d DType) IsInteger() bool {
	c := d.info().class
	return c == classSigned || c == classUnsigned
}

// IsFloat reports whether d is a real floating-point type, of any width, with
// or without a sign. The complex types are none.
func (d DType) IsFloat() bool {
	c := d.info().class
	return c == classFloat || c == classUnsignedFloat
}

// IsComplex reports whether d is Complex64 or Complex128.
func (d DType) IsComplex() bool { return d.info().class == classComplex }

// IsSigned reports whether d has negative values. F8E8M0FNU and F8E6M2 are
// floats that have none.
func (d DType) IsSigned() bool {
	c := d.info().class
	return c == classSigned || c == classFloat || c == classComplex
}

// IsSubByte reports whether several elements of d share a byte.
func (d DType) IsSubByte() bool { b := d.Bits(); return 0 < b && b < 8 }

// Bytes returns how many bytes n elements of d take: ⌈n·Bits/8⌉. Any n is
// allowed, also an odd number of elements narrower than a byte; 0 takes 0.
//
// A negative n, and a result that an int cannot hold (also on a host where int
// has 32 bits), is [ErrOverflow]; an invalid d is [ErrUnknownDType].
func (d DType) Bytes(n int) (int, error) {
	if err := d.known(); err != nil {
		return 0, err
	}
	if n < 0 {
		return 0, fmt.Errorf("%w: %d elements", ErrOverflow, n)
	}
	bits := d.Bits()
	if bits < 8 {
		return n/8*bits + (n%8*bits+7)/8, nil
	}
	size := bits / 8
	if n > math.MaxInt/size {
		return 0, fmt.Errorf("%w: %d elements of %v", ErrOverflow, n, d)
	}
	return n * size, nil
}

// Len returns how many elements of d fill the given number of bytes exactly,
// without padding. It undoes [DType.Bytes] wherever n·Bits is a multiple of 8;
// an odd count of elements narrower than a byte cannot be found again from its
// byte length, only be kept beside it.
//
// A length that is no whole number of elements is [ErrMismatch], never rounded
// down. A negative length, and a count that an int cannot hold, is
// [ErrOverflow]; an invalid d is [ErrUnknownDType].
func (d DType) Len(bytes int) (int, error) {
	if err := d.known(); err != nil {
		return 0, err
	}
	if bytes < 0 {
		return 0, fmt.Errorf("%w: %d bytes", ErrOverflow, bytes)
	}
	per, size := d.granule()
	if bytes%size != 0 {
		return 0, fmt.Errorf("%w: %d bytes are no whole number of %v elements", ErrMismatch, bytes, d)
	}
	if bytes/size > math.MaxInt/per {
		return 0, fmt.Errorf("%w: %d bytes of %v", ErrOverflow, bytes, d)
	}
	return bytes / size * per, nil
}

// granule returns the shortest run of elements that fills whole bytes, as its
// number of elements and of bytes. d must be valid.
func (d DType) granule() (n, bytes int) {
	switch bits := d.Bits(); bits {
	case 6:
		return 4, 3
	case 1, 2, 4:
		return 8 / bits, 1
	default:
		return 1, bits / 8
	}
}

// String returns the text form, as the table at [DType] has it, such as "f32".
// An invalid d gives "DType(n)", which [ParseDType] refuses.
func (d DType) String() string {
	if !d.Valid() {
		return fmt.Sprintf("DType(%d)", uint8(d))
	}
	return d.info().name
}

// ParseDType returns the DType that s names: its text form, such as "f32" or
// "f8e4m3fn", or the name that NumPy and ml_dtypes use, such as "float32" or
// "float8_e4m3fn", in upper or lower case.
//
// Names of file formats are not accepted, because they do not mean the same
// everywhere: "F8_E4M3" is [F8E4M3FN] in a safetensors file. Use
// [DTypeFromSafetensors], [GGMLType.DType] and [DLPackType.DType] for those.
//
// Everything else is an *[UnknownDTypeError], which is [ErrUnknownDType].
func ParseDType(s string) (DType, error) {
	for d := range dtypeEnd {
		info := &dtypes[d]
		if info.name != "" && strings.EqualFold(s, info.name) ||
			info.alias != "" && strings.EqualFold(s, info.alias) {
			return d, nil
		}
	}
	return 0, &UnknownDTypeError{Format: "text", Code: s}
}

// MarshalText implements [encoding.TextMarshaler] with the form of String. An
// invalid d is [ErrUnknownDType].
func (d DType) MarshalText() ([]byte, error) {
	if err := d.known(); err != nil {
		return nil, err
	}
	return []byte(d.info().name), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler] with what [ParseDType]
// accepts. After an error d is as it was.
func (d *DType) UnmarshalText(text []byte) error {
	v, err := ParseDType(string(text))
	if err != nil {
		return err
	}
	*d = v
	return nil
}

// Safetensors returns the name that a safetensors file has for d, such as
// "F32" or "F8_E4M3". A DType that the format lacks is an
// *[UnknownDTypeError]; nothing near it is chosen instead.
func (d DType) Safetensors() (string, error) {
	if name := d.info().safetensors; name != "" {
		return name, nil
	}
	return "", &UnknownDTypeError{Format: "safetensors", Code: d.String()}
}

// DTypeFromSafetensors returns the DType of a name in a safetensors header.
// The format spells its names in one way only, so case matters. An unknown
// name is an *[UnknownDTypeError].
func DTypeFromSafetensors(name string) (DType, error) {
	if name != "" {
		for d := range dtypeEnd {
			if dtypes[d].safetensors == name {
				return d, nil
			}
		}
	}
	return 0, &UnknownDTypeError{Format: "safetensors", Code: name}
}

// GGML returns the ggml type, as GGUF files number them, that holds plain
// elements of d. A DType that ggml lacks is an *[UnknownDTypeError].
func (d DType) GGML() (GGMLType, error) {
	if id := d.info().ggml; id >= 0 {
		return GGMLType(id), nil
	}
	return 0, &UnknownDTypeError{Format: "gguf", Code: d.String()}
}

// A DLPackType is DLPack's description of an element, DLDataType: a type code,
// the bits of one lane, and the number of lanes.
type DLPackType struct {
	Code  uint8
	Bits  uint8
	Lanes uint16
}

// String returns the three numbers.
func (t DLPackType) String() string {
	return fmt.Sprintf("code %d, %d bits, %d lanes", t.Code, t.Bits, t.Lanes)
}

// DLPack returns DLPack's description of d, always with one lane. Elements
// narrower than a byte are packed, low bits first, which is DLPack's default.
// A DType that DLPack lacks is an *[UnknownDTypeError].
func (d DType) DLPack() (DLPackType, error) {
	info := d.info()
	if info.dlpack < 0 {
		return DLPackType{}, &UnknownDTypeError{Format: "dlpack", Code: d.String()}
	}
	return DLPackType{Code: uint8(info.dlpack), Bits: info.bits, Lanes: 1}, nil
}

// DType returns the element type that t describes. Vectors (more than one
// lane), a width that the code does not have, opaque handles and codes that
// are not known here are an *[UnknownDTypeError].
func (t DLPackType) DType() (DType, error) {
	if t.Lanes == 1 {
		for d := range dtypeEnd {
			if dtypes[d].dlpack == int8(t.Code) && t.Code < 128 && dtypes[d].bits == t.Bits {
				return d, nil
			}
		}
	}
	return 0, &UnknownDTypeError{Format: "dlpack", Code: t.String()}
}
