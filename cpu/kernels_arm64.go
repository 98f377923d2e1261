//go:build !purego

package cpu

import "github.com/klauspost/cpuid/v2"

// Whether NEON is used. Set once, when the program starts, and by tests.
var useNEON bool

// tiers are the implementations, best first. NEON has no stores that go
// around the caches: what the architecture calls non-temporal is a hint that
// most processors ignore, and DC ZVA reads nothing to begin with.
var tiers = [...]tier{{
	name: "neon", use: &useNEON,
	can:  cpuid.CPU.Has(cpuid.ASIMD),
	zero: zeroNEON, zeroStream: zeroNEON,
	copy: copyNEON, copyStream: copyNEON,
	fill: fillNEON, fillStream: fillNEON,
	conversions: conversionsNEON,
}}

func zero(b []byte) {
	if useNEON {
		zeroNEON(b)
		return
	}
	zeroGeneric(b)
}

func zeroStream(b []byte) { zero(b) }

func copyCached(dst, src []byte) {
	if useNEON {
		copyNEON(dst, src)
		return
	}
	copyGeneric(dst, src)
}

func copyStream(dst, src []byte) { copyCached(dst, src) }

func fill(b []byte, seed *[32]byte) {
	if useNEON {
		fillNEON(b, seed)
		return
	}
	fillGeneric(b, seed)
}

func fillStream(b []byte, seed *[32]byte) { fill(b, seed) }

func fence() {} // there is nothing to order
