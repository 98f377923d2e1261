package fuel

import (
	"math"
	"math/bits"
)

// A minifloat describes a floating-point format of at most eight bits: a sign
// bit (unless the format is unsigned), exponent, mantissa. Its codes without
// the sign, read as integers, are in the order of their values, so rounding
// may carry from the mantissa into the exponent and from there to what follows
// the largest finite value.
type minifloat struct {
	width   uint8 // bits of a code
	man     uint8 // bits of the mantissa
	bias    uint8
	special special
}

// special says what a format does with the codes and values at its ends.
type special uint8

const (
	// ieee: an exponent of all ones is infinity (mantissa 0) or NaN.
	ieee special = iota
	// fn: no infinity; all ones, apart from the sign, is NaN.
	fn
	// fnuz: no infinity and no negative zero; the code of -0 is the one NaN.
	fnuz
	// finite: every code is a number.
	finite
	// fnu: no sign, no infinity, no zero and no subnormals; all ones is NaN.
	fnu
)

// Widths, biases and special values are those of ml_dtypes 0.6.0, which agree
// with OCP OFP8 1.0 and OCP MX 1.0 on the formats that those define. F8E6M2 is
// explained at its type.
var (
	f8e3m4        = minifloat{8, 4, 3, ieee}
	f8e4m3        = minifloat{8, 3, 7, ieee}
	f8e4m3b11fnuz = minifloat{8, 3, 11, fnuz}
	f8e4m3fn      = minifloat{8, 3, 7, fn}
	f8e4m3fnuz    = minifloat{8, 3, 8, fnuz}
	f8e5m2        = minifloat{8, 2, 15, ieee}
	f8e5m2fnuz    = minifloat{8, 2, 16, fnuz}
	f8e8m0fnu     = minifloat{8, 0, 127, fnu}
	f8e6m2        = minifloat{8, 2, 48, fnu}
	f6e2m3        = minifloat{6, 3, 1, finite}
	f6e3m2        = minifloat{6, 2, 3, finite}
	f4e2m1        = minifloat{4, 1, 1, finite}
)

// mag returns the mask of a code without its sign.
func (f minifloat) mag() uint8 {
	if f.special == fnu {
		return 0xFF
	}
	return 1<<(f.width-1) - 1
}

// inf returns the code of infinity in an ieee format.
func (f minifloat) inf() uint8 { return f.mag() &^ (1<<f.man - 1) }

// max returns the code of the largest finite value.
func (f minifloat) max() uint8 {
	switch f.special {
	case ieee:
		return f.inf() - 1
	case fn, fnu:
		return f.mag() - 1
	default:
		return f.mag()
	}
}

// nan returns the code that the format writes for NaN, without a sign.
func (f minifloat) nan() uint8 {
	switch f.special {
	case ieee:
		return f.inf() | 1<<(f.man-1)
	case fnuz:
		return f.mag() + 1
	default:
		return f.mag()
	}
}

// widen returns the value of a code, exactly. Bits above the width are
// ignored. Every NaN becomes the quiet float32 NaN without payload, with the
// sign of the code.
func (f minifloat) widen(code uint8) float32 {
	mag := code & f.mag()
	sign := uint32(code>>(f.width-1)&1) << 31
	switch f.special {
	case ieee:
		if mag == f.inf() {
			return math.Float32frombits(sign | f32Inf)
		}
		if mag > f.inf() {
			return math.Float32frombits(sign | f32NaN)
		}
	case fn:
		if mag == f.mag() {
			return math.Float32frombits(sign | f32NaN)
		}
	case fnuz:
		if code == f.nan() {
			return math.Float32frombits(sign | f32NaN)
		}
	case fnu:
		if code == f.nan() {
			return math.Float32frombits(f32NaN)
		}
		if code == 0 && f.bias == 127 {
			return 0x1p-127 // the one value that is subnormal as a float32
		}
		sign = 0
	}
	e, m := uint32(mag>>f.man), uint32(mag)&(1<<f.man-1)
	if e == 0 && f.special != fnu {
		unit := math.Float32frombits(uint32(127+1-int(f.bias)-int(f.man)) << 23)
		return math.Float32frombits(sign | math.Float32bits(float32(m)*unit))
	}
	return math.Float32frombits(sign | (e+127-uint32(f.bias))<<23 | m<<(23-f.man))
}

// narrow returns the code nearest to x, ties to the even code. Where rounding
// goes beyond the largest finite value, saturate gives that value; without it
// the format says: infinity, NaN, or the largest value where it has neither.
//
// Between two codes without mantissa bits no code is even; the tie then goes
// to the larger, as IEEE 754-2019, 4.3.1, has it for one digit.
func (f minifloat) narrow(x float32, saturate bool) uint8 {
	u := math.Float32bits(x)
	a := u &^ f32Sign
	var sign uint8
	if a != u {
		sign = f.mag() + 1 // 0 in an fnu format
	}

	if a > f32Inf {
		switch {
		case f.special == finite && saturate:
			return f.max()
		case f.special == finite: // as ml_dtypes: NaN is -0 and -NaN is 0
			return sign ^ (f.mag() + 1)
		case f.special == fnuz:
			return f.nan()
		}
		return sign | f.nan()
	}
	if f.special == fnu {
		switch {
		case a == 0 && (saturate || f.bias != 127):
			return 0 // the smallest value stands for zero
		case a == 0 || a != u:
			return f.nan()
		}
	}

	code, over := f.round(a)
	switch {
	case over && (saturate || f.special == finite):
		return sign | f.max()
	case over && f.special == ieee:
		return sign | f.inf()
	case over && f.special == fnuz:
		return f.nan()
	case over:
		return sign | f.nan()
	case code == 0 && f.special == fnuz:
		return 0
	}
	return sign | code
}

// round returns the code nearest to the float32 with the bits a, which has no
// sign and is no NaN, and whether that is beyond the largest finite value.
func (f minifloat) round(a uint32) (code uint8, over bool) {
	if a == f32Inf {
		return 0, true
	}
	// a is m·2^(e-23) with bit 23 of m set, unless it is zero.
	e, m := int(a>>23)-127, a&(1<<23-1)
	if e == -127 {
		shift := max(bits.LeadingZeros32(m)-8, 0)
		e, m = -126-shift, m<<shift
	} else {
		m |= 1 << 23
	}

	low := 1 - int(f.bias) // exponent of the smallest normal value
	if f.special == fnu {
		low--
		if e < low {
			return 0, false // nothing is smaller than code 0
		}
	}
	drop := 23 - int(f.man) + max(low-e, 0)
	if drop > 25 {
		return 0, false // less than half of the smallest value
	}
	// The hidden bit of m adds 1 to the exponent field, which is as it should
	// be unless that starts at 0.
	c := int(roundShift(m, uint32(drop))) + max(e-low, 0)<<f.man
	if f.special == fnu {
		c -= 1 << f.man
	}
	if c > int(f.max()) {
		return 0, true
	}
	return uint8(c), false
}
