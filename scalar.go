package fuel

import "math"

// Elem is the set of Go types that stand for one element of a [DType] of a
// byte or more. bool is missing on purpose: bytes other than 0 and 1, which a
// file may hold, are not valid Go bools. Elements narrower than a byte have no
// address, so their types ([Float6E2M3], [Float6E3M2], [Float4E2M1]) are
// values only.
type Elem interface {
	int8 | int16 | int32 | int64 |
		uint8 | uint16 | uint32 | uint64 |
		float32 | float64 | complex64 | complex128 |
		Float16 | BFloat16 |
		Float8E3M4 | Float8E4M3 | Float8E4M3B11FNUZ | Float8E4M3FN | Float8E4M3FNUZ |
		Float8E5M2 | Float8E5M2FNUZ | Float8E8M0FNU | Float8E6M2
}

// DTypeOf returns the DType whose elements are of type T. It allocates
// nothing.
func DTypeOf[T Elem]() DType {
	var zero T
	switch any(zero).(type) {
	case int8:
		return I8
	case int16:
		return I16
	case int32:
		return I32
	case int64:
		return I64
	case uint8:
		return U8
	case uint16:
		return U16
	case uint32:
		return U32
	case uint64:
		return U64
	case float32:
		return F32
	case float64:
		return F64
	case complex64:
		return Complex64
	case complex128:
		return Complex128
	case Float16:
		return F16
	case BFloat16:
		return BF16
	case Float8E3M4:
		return F8E3M4
	case Float8E4M3:
		return F8E4M3
	case Float8E4M3B11FNUZ:
		return F8E4M3B11FNUZ
	case Float8E4M3FN:
		return F8E4M3FN
	case Float8E4M3FNUZ:
		return F8E4M3FNUZ
	case Float8E5M2:
		return F8E5M2
	case Float8E5M2FNUZ:
		return F8E5M2FNUZ
	case Float8E8M0FNU:
		return F8E8M0FNU
	case Float8E6M2:
		return F8E6M2
	}
	panic("BUG: fuel: DTypeOf lacks an Elem")
}

// Parts of a float32.
const (
	f32Sign = 1 << 31
	f32Inf  = 0xFF << 23 // also the mask of the exponent
	f32NaN  = 0x1FF << 22
)

// A Float16 is an IEEE 754 binary16 number as its bit pattern: Float16(0x3C00)
// is 1. Arithmetic on the Go value is arithmetic on bits, not on the number;
// convert with Float32 first.
type Float16 uint16

// Float16FromFloat32 rounds x to the nearest Float16, ties to even. Numbers
// from 65520 up become infinite. A NaN stays one: it keeps its sign and the
// upper nine bits of its payload, and becomes quiet.
func Float16FromFloat32(x float32) Float16 {
	u := math.Float32bits(x)
	sign := Float16(u >> 16 & 0x8000)
	a := u &^ f32Sign
	switch {
	case a > f32Inf:
		return sign | 0x7E00 | Float16(a>>13&0x1FF)
	case a >= (127+16)<<23: // 2^16 and infinity
		return sign | 0x7C00
	case a >= (127-14)<<23: // normal; a carry goes on to the exponent, up to infinity
		a += 0x0FFF + a>>13&1
		return sign | Float16((a-(127-15)<<23)>>13)
	case a <= (127-25)<<23: // at most half of the smallest subnormal
		return sign
	}
	// The result counts units of 2^-24, and x is m·2^(e-150).
	e, m := a>>23, a&(1<<23-1)|1<<23
	return sign | Float16(roundShift(m, 126-e))
}

// Float32 returns h as a float32, which holds every Float16 exactly. A NaN
// keeps sign and payload and becomes quiet.
func (h Float16) Float32() float32 {
	sign := uint32(h&0x8000) << 16
	e, m := uint32(h>>10&0x1F), uint32(h&0x3FF)
	switch {
	case e == 0x1F && m != 0:
		return math.Float32frombits(sign | f32NaN | m<<13)
	case e == 0x1F:
		return math.Float32frombits(sign | f32Inf)
	case e == 0: // m·2^-24, exactly; the sign also for zero
		return math.Float32frombits(sign | math.Float32bits(float32(m)*0x1p-24))
	}
	return math.Float32frombits(sign | (e+127-15)<<23 | m<<13)
}

// Bits returns the bit pattern of h. Float16(b) is the way back.
func (h Float16) Bits() uint16 { return uint16(h) }

// A BFloat16 is the upper half of a float32 as its bit pattern:
// BFloat16(0x3F80) is 1. Arithmetic on the Go value is arithmetic on bits, not
// on the number; convert with Float32 first.
type BFloat16 uint16

// BFloat16FromFloat32 rounds x to the nearest BFloat16, ties to even;
// subnormals are rounded as all others, not flushed. Numbers nearer to 2^128
// than to the largest BFloat16 become infinite. A NaN stays one: it keeps its
// sign and the upper six bits of its payload, and becomes quiet.
func BFloat16FromFloat32(x float32) BFloat16 {
	u := math.Float32bits(x)
	if u&^f32Sign > f32Inf {
		return BFloat16(u>>16 | 0x40)
	}
	return BFloat16((u + 0x7FFF + u>>16&1) >> 16)
}

// Float32 returns b as a float32, which holds every BFloat16 exactly. The bits
// of a NaN are kept as they are, also those of a signalling one.
func (b BFloat16) Float32() float32 { return math.Float32frombits(uint32(b) << 16) }

// Bits returns the bit pattern of b. BFloat16(v) is the way back.
func (b BFloat16) Bits() uint16 { return uint16(b) }

// roundShift returns v·2^-shift rounded to the nearest integer, ties to even.
// shift is at least 1 and at most 31.
func roundShift(v, shift uint32) uint32 {
	q, rest, half := v>>shift, v&(1<<shift-1), uint32(1)<<(shift-1)
	if rest > half || rest == half && q&1 != 0 {
		q++
	}
	return q
}
