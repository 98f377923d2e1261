//go:build !purego

package cpu

// conversionsNEON are those of that tier.
var conversionsNEON = []conversion{
	{"bf16ToF32", bf16ToF32NEON, bf16ToF32Generic, 2, 4}, {"f32ToBF16", f32ToBF16NEON, f32ToBF16Generic, 4, 2},
	{"f16ToF32", f16ToF32NEON, f16ToF32Generic, 2, 4}, {"f32ToF16", f32ToF16NEON, f32ToF16Generic, 4, 2},
	{"q8_0ToF32", q8_0ToF32NEON, q8_0ToF32Generic, 34, 128}, {"q4_0ToF32", q4_0ToF32NEON, q4_0ToF32Generic, 18, 128},
	{"swap2", swap2NEON, swap2Generic, 2, 2}, {"swap4", swap4NEON, swap4Generic, 4, 4}, {"swap8", swap8NEON, swap8Generic, 8, 8},
}

// The last argument says whether dst is better written around the caches,
// which NEON cannot; see tiers.

func bf16ToF32(dst, src []byte, _ bool) {
	if useNEON {
		bf16ToF32NEON(dst, src)
		return
	}
	bf16ToF32Generic(dst, src)
}

func f32ToBF16(dst, src []byte, _ bool) {
	if useNEON {
		f32ToBF16NEON(dst, src)
		return
	}
	f32ToBF16Generic(dst, src)
}

func f16ToF32(dst, src []byte, _ bool) {
	if useNEON {
		f16ToF32NEON(dst, src)
		return
	}
	f16ToF32Generic(dst, src)
}

func f32ToF16(dst, src []byte, _ bool) {
	if useNEON {
		f32ToF16NEON(dst, src)
		return
	}
	f32ToF16Generic(dst, src)
}

func q8_0ToF32(dst, src []byte, _ bool) {
	if useNEON {
		q8_0ToF32NEON(dst, src)
		return
	}
	q8_0ToF32Generic(dst, src)
}

func q4_0ToF32(dst, src []byte, _ bool) {
	if useNEON {
		q4_0ToF32NEON(dst, src)
		return
	}
	q4_0ToF32Generic(dst, src)
}

func swap2(dst, src []byte, _ bool) {
	if useNEON {
		swap2NEON(dst, src)
		return
	}
	swap2Generic(dst, src)
}

func swap4(dst, src []byte, _ bool) {
	if useNEON {
		swap4NEON(dst, src)
		return
	}
	swap4Generic(dst, src)
}

func swap8(dst, src []byte, _ bool) {
	if useNEON {
		swap8NEON(dst, src)
		return
	}
	swap8Generic(dst, src)
}
