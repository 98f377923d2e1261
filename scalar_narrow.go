package fuel

// The types of this file are bit patterns: Float8E5M2(0x3C) is 1. Arithmetic on
// the Go value is arithmetic on bits, not on the number; convert with Float32
// first. The 6- and 4-bit types hold their code in the low bits of a byte, one
// code a byte, which is not how a Storage packs them (see DType); the upper
// bits are ignored by Float32 and Bits, and zero in what the constructors make.
//
// All conversions are the same code, scalar_minifloat.go, with the format as
// its parameter. NaNs carry no payload either way: what is kept is that it is
// NaN, and its sign where the format has a NaN for each.

// A Float8E3M4 is an 8-bit float with a sign, three bits of exponent (bias 3)
// and four of mantissa, and infinities and NaNs as IEEE 754 has them: its
// largest value is 15.5.
type Float8E3M4 uint8

// Float8E3M4FromFloat32 rounds x to the nearest Float8E3M4, ties to even.
// Numbers that round beyond the largest value, infinity too, become infinite. A
// NaN stays NaN.
func Float8E3M4FromFloat32(x float32) Float8E3M4 { return Float8E3M4(f8e3m4.narrow(x, false)) }

// Float8E3M4FromFloat32Saturate is [Float8E3M4FromFloat32], but what is too
// large, infinity too, becomes the largest value with the sign of x. A NaN
// stays NaN.
func Float8E3M4FromFloat32Saturate(x float32) Float8E3M4 { return Float8E3M4(f8e3m4.narrow(x, true)) }

// Float32 returns f as a float32, exactly.
func (f Float8E3M4) Float32() float32 { return f8e3m4.widen(uint8(f)) }

// Bits returns the bit pattern of f. Float8E3M4(b) is the way back.
func (f Float8E3M4) Bits() uint8 { return uint8(f) }

// A Float8E4M3 is an 8-bit float with a sign, four bits of exponent (bias 7)
// and three of mantissa, and infinities and NaNs as IEEE 754 has them: its
// largest value is 240. What OCP and most model files call E4M3 is
// [Float8E4M3FN].
type Float8E4M3 uint8

// Float8E4M3FromFloat32 rounds x to the nearest Float8E4M3, ties to even.
// Numbers that round beyond the largest value, infinity too, become infinite. A
// NaN stays NaN.
func Float8E4M3FromFloat32(x float32) Float8E4M3 { return Float8E4M3(f8e4m3.narrow(x, false)) }

// Float8E4M3FromFloat32Saturate is [Float8E4M3FromFloat32], but what is too
// large, infinity too, becomes the largest value with the sign of x. A NaN
// stays NaN.
func Float8E4M3FromFloat32Saturate(x float32) Float8E4M3 { return Float8E4M3(f8e4m3.narrow(x, true)) }

// Float32 returns f as a float32, exactly.
func (f Float8E4M3) Float32() float32 { return f8e4m3.widen(uint8(f)) }

// Bits returns the bit pattern of f. Float8E4M3(b) is the way back.
func (f Float8E4M3) Bits() uint8 { return uint8(f) }

// A Float8E4M3B11FNUZ is an 8-bit float with a sign, four bits of exponent
// (bias 11) and three of mantissa, without infinities and negative zero: 0x80
// is its one NaN, and its largest value is 30.
type Float8E4M3B11FNUZ uint8

// Float8E4M3B11FNUZFromFloat32 rounds x to the nearest Float8E4M3B11FNUZ, ties
// to even. Numbers that round beyond the largest value, infinity too, become
// NaN. A NaN stays NaN.
func Float8E4M3B11FNUZFromFloat32(x float32) Float8E4M3B11FNUZ {
	return Float8E4M3B11FNUZ(f8e4m3b11fnuz.narrow(x, false))
}

// Float8E4M3B11FNUZFromFloat32Saturate is [Float8E4M3B11FNUZFromFloat32], but
// what is too large, infinity too, becomes the largest value with the sign of
// x. A NaN stays NaN.
func Float8E4M3B11FNUZFromFloat32Saturate(x float32) Float8E4M3B11FNUZ {
	return Float8E4M3B11FNUZ(f8e4m3b11fnuz.narrow(x, true))
}

// Float32 returns f as a float32, exactly.
func (f Float8E4M3B11FNUZ) Float32() float32 { return f8e4m3b11fnuz.widen(uint8(f)) }

// Bits returns the bit pattern of f. Float8E4M3B11FNUZ(b) is the way back.
func (f Float8E4M3B11FNUZ) Bits() uint8 { return uint8(f) }

// A Float8E4M3FN is the E4M3 of OCP OFP8: an 8-bit float with a sign, four bits
// of exponent (bias 7) and three of mantissa, without infinities: 0x7F and 0xFF
// are NaN, and its largest value is 448.
type Float8E4M3FN uint8

// Float8E4M3FNFromFloat32 rounds x to the nearest Float8E4M3FN, ties to even.
// Numbers that round beyond the largest value, infinity too, become NaN. A NaN
// stays NaN.
func Float8E4M3FNFromFloat32(x float32) Float8E4M3FN { return Float8E4M3FN(f8e4m3fn.narrow(x, false)) }

// Float8E4M3FNFromFloat32Saturate is [Float8E4M3FNFromFloat32], but what is too
// large, infinity too, becomes the largest value with the sign of x. A NaN
// stays NaN.
func Float8E4M3FNFromFloat32Saturate(x float32) Float8E4M3FN {
	return Float8E4M3FN(f8e4m3fn.narrow(x, true))
}

// Float32 returns f as a float32, exactly.
func (f Float8E4M3FN) Float32() float32 { return f8e4m3fn.widen(uint8(f)) }

// Bits returns the bit pattern of f. Float8E4M3FN(b) is the way back.
func (f Float8E4M3FN) Bits() uint8 { return uint8(f) }

// A Float8E4M3FNUZ is an 8-bit float with a sign, four bits of exponent (bias
// 8) and three of mantissa, without infinities and negative zero: 0x80 is its
// one NaN, and its largest value is 240.
type Float8E4M3FNUZ uint8

// Float8E4M3FNUZFromFloat32 rounds x to the nearest Float8E4M3FNUZ, ties to
// even. Numbers that round beyond the largest value, infinity too, become NaN.
// A NaN stays NaN.
func Float8E4M3FNUZFromFloat32(x float32) Float8E4M3FNUZ {
	return Float8E4M3FNUZ(f8e4m3fnuz.narrow(x, false))
}

// Float8E4M3FNUZFromFloat32Saturate is [Float8E4M3FNUZFromFloat32], but what is
// too large, infinity too, becomes the largest value with the sign of x. A NaN
// stays NaN.
func Float8E4M3FNUZFromFloat32Saturate(x float32) Float8E4M3FNUZ {
	return Float8E4M3FNUZ(f8e4m3fnuz.narrow(x, true))
}

// Float32 returns f as a float32, exactly.
func (f Float8E4M3FNUZ) Float32() float32 { return f8e4m3fnuz.widen(uint8(f)) }

// Bits returns the bit pattern of f. Float8E4M3FNUZ(b) is the way back.
func (f Float8E4M3FNUZ) Bits() uint8 { return uint8(f) }

// A Float8E5M2 is the E5M2 of OCP OFP8: an 8-bit float with a sign, five bits
// of exponent (bias 15) and two of mantissa, and infinities and NaNs as IEEE
// 754 has them: its largest value is 57344.
type Float8E5M2 uint8

// Float8E5M2FromFloat32 rounds x to the nearest Float8E5M2, ties to even.
// Numbers that round beyond the largest value, infinity too, become infinite. A
// NaN stays NaN.
func Float8E5M2FromFloat32(x float32) Float8E5M2 { return Float8E5M2(f8e5m2.narrow(x, false)) }

// Float8E5M2FromFloat32Saturate is [Float8E5M2FromFloat32], but what is too
// large, infinity too, becomes the largest value with the sign of x. A NaN
// stays NaN.
func Float8E5M2FromFloat32Saturate(x float32) Float8E5M2 { return Float8E5M2(f8e5m2.narrow(x, true)) }

// Float32 returns f as a float32, exactly.
func (f Float8E5M2) Float32() float32 { return f8e5m2.widen(uint8(f)) }

// Bits returns the bit pattern of f. Float8E5M2(b) is the way back.
func (f Float8E5M2) Bits() uint8 { return uint8(f) }

// A Float8E5M2FNUZ is an 8-bit float with a sign, five bits of exponent (bias
// 16) and two of mantissa, without infinities and negative zero: 0x80 is its
// one NaN, and its largest value is 57344.
type Float8E5M2FNUZ uint8

// Float8E5M2FNUZFromFloat32 rounds x to the nearest Float8E5M2FNUZ, ties to
// even. Numbers that round beyond the largest value, infinity too, become NaN.
// A NaN stays NaN.
func Float8E5M2FNUZFromFloat32(x float32) Float8E5M2FNUZ {
	return Float8E5M2FNUZ(f8e5m2fnuz.narrow(x, false))
}

// Float8E5M2FNUZFromFloat32Saturate is [Float8E5M2FNUZFromFloat32], but what is
// too large, infinity too, becomes the largest value with the sign of x. A NaN
// stays NaN.
func Float8E5M2FNUZFromFloat32Saturate(x float32) Float8E5M2FNUZ {
	return Float8E5M2FNUZ(f8e5m2fnuz.narrow(x, true))
}

// Float32 returns f as a float32, exactly.
func (f Float8E5M2FNUZ) Float32() float32 { return f8e5m2fnuz.widen(uint8(f)) }

// Bits returns the bit pattern of f. Float8E5M2FNUZ(b) is the way back.
func (f Float8E5M2FNUZ) Bits() uint8 { return uint8(f) }

// A Float8E8M0FNU is the scale of OCP MX: eight bits of exponent and nothing
// else, so 2^(code-127), from 2^-127 to 2^127. It has no sign, no zero and no
// infinity; 0xFF is NaN.
type Float8E8M0FNU uint8

// Float8E8M0FNUFromFloat32 returns the power of two nearest to x, the larger in
// a tie. Positive numbers below the range become 2^-127. Zero, negative numbers
// and NaN, and numbers that round beyond the largest value, infinity too, are
// NaN. (ml_dtypes 0.6.0 differs between 2^-127 and 1.5·2^-127 only, where it
// gives 2^-126, which is not the nearest.)
func Float8E8M0FNUFromFloat32(x float32) Float8E8M0FNU {
	return Float8E8M0FNU(f8e8m0fnu.narrow(x, false))
}

// Float8E8M0FNUFromFloat32Saturate is [Float8E8M0FNUFromFloat32], but what is
// too large becomes the largest value, 2^127, and zero becomes the smallest,
// 2^-127. Negative numbers are NaN as there.
func Float8E8M0FNUFromFloat32Saturate(x float32) Float8E8M0FNU {
	return Float8E8M0FNU(f8e8m0fnu.narrow(x, true))
}

// Float32 returns f as a float32, exactly.
func (f Float8E8M0FNU) Float32() float32 { return f8e8m0fnu.widen(uint8(f)) }

// Bits returns the bit pattern of f. Float8E8M0FNU(b) is the way back.
func (f Float8E8M0FNU) Bits() uint8 { return uint8(f) }

// A Float8E6M2 is the scale of HiFloat4 (arXiv 2602.11287): six bits of exponent
// and two of mantissa, without a sign. Its value is 2^(e-48)·(1+m/4) for the
// code 4e+m, from 2^-48 (code 0) to 49152 (code 0xFE). It has no zero, no
// subnormals and no infinity; 0xFF is NaN.
//
// The definition is the one that the PTO instruction set description has under
// the name E6M2, with the conversions that its tests fix, and that the CANN
// operator tests use for the scales of HiFloat4. A signed float of six and two
// bits, which some papers write E6M2 too, is something else.
type Float8E6M2 uint8

// Float8E6M2FromFloat32 rounds x to the nearest Float8E6M2, ties to even. Zero
// and positive numbers below the range become the smallest value. Negative
// numbers and NaN, and numbers that round beyond the largest value, infinity
// too, are NaN. (The PTO description makes everything above 49152 a NaN, also
// what would round down to it; here it is rounded first, as in all other
// formats.)
func Float8E6M2FromFloat32(x float32) Float8E6M2 { return Float8E6M2(f8e6m2.narrow(x, false)) }

// Float8E6M2FromFloat32Saturate is [Float8E6M2FromFloat32], but what is too
// large becomes the largest value, 49152. Negative numbers are NaN as there.
func Float8E6M2FromFloat32Saturate(x float32) Float8E6M2 { return Float8E6M2(f8e6m2.narrow(x, true)) }

// Float32 returns f as a float32, exactly.
func (f Float8E6M2) Float32() float32 { return f8e6m2.widen(uint8(f)) }

// Bits returns the bit pattern of f. Float8E6M2(b) is the way back.
func (f Float8E6M2) Bits() uint8 { return uint8(f) }

// A Float6E2M3 is the FP6 E2M3 of OCP MX: a 6-bit float with a sign, two bits
// of exponent (bias 1) and three of mantissa. Every code is a number; the
// largest is 7.5.
type Float6E2M3 uint8

// Float6E2M3FromFloat32 rounds x to the nearest Float6E2M3, ties to even. The
// format has neither infinity nor NaN: what is too large, infinity too, becomes
// the largest value with the sign of x; NaN becomes -0, and NaN with a sign 0,
// as in ml_dtypes.
func Float6E2M3FromFloat32(x float32) Float6E2M3 { return Float6E2M3(f6e2m3.narrow(x, false)) }

// Float6E2M3FromFloat32Saturate is [Float6E2M3FromFloat32], but NaN becomes the
// largest positive value, as in CUDA's conversions, so that it does not pass
// for zero.
func Float6E2M3FromFloat32Saturate(x float32) Float6E2M3 { return Float6E2M3(f6e2m3.narrow(x, true)) }

// Float32 returns f as a float32, exactly.
func (f Float6E2M3) Float32() float32 { return f6e2m3.widen(uint8(f)) }

// Bits returns the bit pattern of f, in the low 6 bits. Float6E2M3(b) is the
// way back.
func (f Float6E2M3) Bits() uint8 { return uint8(f) & 0x3F }

// A Float6E3M2 is the FP6 E3M2 of OCP MX: a 6-bit float with a sign, three bits
// of exponent (bias 3) and two of mantissa. Every code is a number; the largest
// is 28.
type Float6E3M2 uint8

// Float6E3M2FromFloat32 rounds x to the nearest Float6E3M2, ties to even. The
// format has neither infinity nor NaN: what is too large, infinity too, becomes
// the largest value with the sign of x; NaN becomes -0, and NaN with a sign 0,
// as in ml_dtypes.
func Float6E3M2FromFloat32(x float32) Float6E3M2 { return Float6E3M2(f6e3m2.narrow(x, false)) }

// Float6E3M2FromFloat32Saturate is [Float6E3M2FromFloat32], but NaN becomes the
// largest positive value, as in CUDA's conversions, so that it does not pass
// for zero.
func Float6E3M2FromFloat32Saturate(x float32) Float6E3M2 { return Float6E3M2(f6e3m2.narrow(x, true)) }

// Float32 returns f as a float32, exactly.
func (f Float6E3M2) Float32() float32 { return f6e3m2.widen(uint8(f)) }

// Bits returns the bit pattern of f, in the low 6 bits. Float6E3M2(b) is the
// way back.
func (f Float6E3M2) Bits() uint8 { return uint8(f) & 0x3F }

// A Float4E2M1 is the FP4 of OCP MX: a 4-bit float with a sign, two bits of
// exponent (bias 1) and one of mantissa. Its values are 0, 0.5, 1, 1.5, 2, 3,
// 4, 6 and their negatives.
type Float4E2M1 uint8

// Float4E2M1FromFloat32 rounds x to the nearest Float4E2M1, ties to even. The
// format has neither infinity nor NaN: what is too large, infinity too, becomes
// the largest value with the sign of x; NaN becomes -0, and NaN with a sign 0,
// as in ml_dtypes.
func Float4E2M1FromFloat32(x float32) Float4E2M1 { return Float4E2M1(f4e2m1.narrow(x, false)) }

// Float4E2M1FromFloat32Saturate is [Float4E2M1FromFloat32], but NaN becomes the
// largest positive value, as in CUDA's conversions, so that it does not pass
// for zero.
func Float4E2M1FromFloat32Saturate(x float32) Float4E2M1 { return Float4E2M1(f4e2m1.narrow(x, true)) }

// Float32 returns f as a float32, exactly.
func (f Float4E2M1) Float32() float32 { return f4e2m1.widen(uint8(f)) }

// Bits returns the bit pattern of f, in the low 4 bits. Float4E2M1(b) is the
// way back.
func (f Float4E2M1) Bits() uint8 { return uint8(f) & 0xF }
