//go:build !purego

package cpu

// Direct calls, so that nothing escapes: see tier.

func bf16ToF32(dst, src []byte, stream bool) {
	switch {
	case useAVX512 && stream:
		bf16ToF32StreamAVX512(dst, src)
	case useAVX512:
		bf16ToF32AVX512(dst, src)
	case useAVX2 && stream:
		bf16ToF32StreamAVX2(dst, src)
	case useAVX2:
		bf16ToF32AVX2(dst, src)
	default:
		bf16ToF32Generic(dst, src)
	}
}

func f32ToBF16(dst, src []byte, stream bool) {
	switch {
	case useAVX512 && stream:
		f32ToBF16StreamAVX512(dst, src)
	case useAVX512:
		f32ToBF16AVX512(dst, src)
	case useAVX2 && stream:
		f32ToBF16StreamAVX2(dst, src)
	case useAVX2:
		f32ToBF16AVX2(dst, src)
	default:
		f32ToBF16Generic(dst, src)
	}
}

func f16ToF32(dst, src []byte, stream bool) {
	switch {
	case useAVX512 && stream:
		f16ToF32StreamAVX512(dst, src)
	case useAVX512:
		f16ToF32AVX512(dst, src)
	case useAVX2 && stream:
		f16ToF32StreamAVX2(dst, src)
	case useAVX2:
		f16ToF32AVX2(dst, src)
	default:
		f16ToF32Generic(dst, src)
	}
}

func f32ToF16(dst, src []byte, stream bool) {
	switch {
	case useAVX512 && stream:
		f32ToF16StreamAVX512(dst, src)
	case useAVX512:
		f32ToF16AVX512(dst, src)
	case useAVX2 && stream:
		f32ToF16StreamAVX2(dst, src)
	case useAVX2:
		f32ToF16AVX2(dst, src)
	default:
		f32ToF16Generic(dst, src)
	}
}

func q8_0ToF32(dst, src []byte, stream bool) {
	switch {
	case useAVX512 && stream:
		q8_0ToF32StreamAVX512(dst, src)
	case useAVX512:
		q8_0ToF32AVX512(dst, src)
	case useAVX2 && stream:
		q8_0ToF32StreamAVX2(dst, src)
	case useAVX2:
		q8_0ToF32AVX2(dst, src)
	default:
		q8_0ToF32Generic(dst, src)
	}
}

func q4_0ToF32(dst, src []byte, stream bool) {
	switch {
	case useAVX512 && stream:
		q4_0ToF32StreamAVX512(dst, src)
	case useAVX512:
		q4_0ToF32AVX512(dst, src)
	case useAVX2 && stream:
		q4_0ToF32StreamAVX2(dst, src)
	case useAVX2:
		q4_0ToF32AVX2(dst, src)
	default:
		q4_0ToF32Generic(dst, src)
	}
}

func swap2(dst, src []byte, stream bool) {
	switch {
	case useAVX512 && stream:
		swap2StreamAVX512(dst, src)
	case useAVX512:
		swap2AVX512(dst, src)
	case useAVX2 && stream:
		swap2StreamAVX2(dst, src)
	case useAVX2:
		swap2AVX2(dst, src)
	default:
		swap2Generic(dst, src)
	}
}

func swap4(dst, src []byte, stream bool) {
	switch {
	case useAVX512 && stream:
		swap4StreamAVX512(dst, src)
	case useAVX512:
		swap4AVX512(dst, src)
	case useAVX2 && stream:
		swap4StreamAVX2(dst, src)
	case useAVX2:
		swap4AVX2(dst, src)
	default:
		swap4Generic(dst, src)
	}
}

func swap8(dst, src []byte, stream bool) {
	switch {
	case useAVX512 && stream:
		swap8StreamAVX512(dst, src)
	case useAVX512:
		swap8AVX512(dst, src)
	case useAVX2 && stream:
		swap8StreamAVX2(dst, src)
	case useAVX2:
		swap8AVX2(dst, src)
	default:
		swap8Generic(dst, src)
	}
}

// conversionsAVX512 are those of that tier.
var conversionsAVX512 = []conversion{
	{"bf16ToF32", bf16ToF32AVX512, bf16ToF32Generic, 2, 4}, {"bf16ToF32Stream", bf16ToF32StreamAVX512, bf16ToF32Generic, 2, 4},
	{"f32ToBF16", f32ToBF16AVX512, f32ToBF16Generic, 4, 2}, {"f32ToBF16Stream", f32ToBF16StreamAVX512, f32ToBF16Generic, 4, 2},
	{"f16ToF32", f16ToF32AVX512, f16ToF32Generic, 2, 4}, {"f16ToF32Stream", f16ToF32StreamAVX512, f16ToF32Generic, 2, 4},
	{"f32ToF16", f32ToF16AVX512, f32ToF16Generic, 4, 2}, {"f32ToF16Stream", f32ToF16StreamAVX512, f32ToF16Generic, 4, 2},
	{"q8_0ToF32", q8_0ToF32AVX512, q8_0ToF32Generic, 34, 128}, {"q8_0ToF32Stream", q8_0ToF32StreamAVX512, q8_0ToF32Generic, 34, 128},
	{"q4_0ToF32", q4_0ToF32AVX512, q4_0ToF32Generic, 18, 128}, {"q4_0ToF32Stream", q4_0ToF32StreamAVX512, q4_0ToF32Generic, 18, 128},
	{"swap2", swap2AVX512, swap2Generic, 2, 2}, {"swap2Stream", swap2StreamAVX512, swap2Generic, 2, 2},
	{"swap4", swap4AVX512, swap4Generic, 4, 4}, {"swap4Stream", swap4StreamAVX512, swap4Generic, 4, 4},
	{"swap8", swap8AVX512, swap8Generic, 8, 8}, {"swap8Stream", swap8StreamAVX512, swap8Generic, 8, 8},
}

// conversionsAVX2 are those of that tier.
var conversionsAVX2 = []conversion{
	{"bf16ToF32", bf16ToF32AVX2, bf16ToF32Generic, 2, 4}, {"bf16ToF32Stream", bf16ToF32StreamAVX2, bf16ToF32Generic, 2, 4},
	{"f32ToBF16", f32ToBF16AVX2, f32ToBF16Generic, 4, 2}, {"f32ToBF16Stream", f32ToBF16StreamAVX2, f32ToBF16Generic, 4, 2},
	{"f16ToF32", f16ToF32AVX2, f16ToF32Generic, 2, 4}, {"f16ToF32Stream", f16ToF32StreamAVX2, f16ToF32Generic, 2, 4},
	{"f32ToF16", f32ToF16AVX2, f32ToF16Generic, 4, 2}, {"f32ToF16Stream", f32ToF16StreamAVX2, f32ToF16Generic, 4, 2},
	{"q8_0ToF32", q8_0ToF32AVX2, q8_0ToF32Generic, 34, 128}, {"q8_0ToF32Stream", q8_0ToF32StreamAVX2, q8_0ToF32Generic, 34, 128},
	{"q4_0ToF32", q4_0ToF32AVX2, q4_0ToF32Generic, 18, 128}, {"q4_0ToF32Stream", q4_0ToF32StreamAVX2, q4_0ToF32Generic, 18, 128},
	{"swap2", swap2AVX2, swap2Generic, 2, 2}, {"swap2Stream", swap2StreamAVX2, swap2Generic, 2, 2},
	{"swap4", swap4AVX2, swap4Generic, 4, 4}, {"swap4Stream", swap4StreamAVX2, swap4Generic, 4, 4},
	{"swap8", swap8AVX2, swap8Generic, 8, 8}, {"swap8Stream", swap8StreamAVX2, swap8Generic, 8, 8},
}
