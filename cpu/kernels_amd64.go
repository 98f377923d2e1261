//go:build !purego

package cpu

import "github.com/klauspost/cpuid/v2"

// Which kernels are used: at most one is true. Set once, when the program
// starts, and by tests.
var useAVX512, useAVX2 bool

// What the kernels need: the "Requires:" lines of the generated files. SSE,
// which those name MMX+, and CMOV every amd64 has.
var (
	needAVX2 = []cpuid.FeatureID{cpuid.AVX, cpuid.AVX2,
		cpuid.F16C, // the conversions of float16; every processor with AVX2 that we know of has it
	}
	needAVX512 = []cpuid.FeatureID{cpuid.AVX, cpuid.AVX512F,
		cpuid.AVX512BW, // masks of bytes
		cpuid.BMI2,     // BZHI, which makes them
	}
)

// Supports asks for all of them, and cpuid has AVX only where OSXSAVE is set
// and XCR0 has the XMM and YMM state, AVX-512 only where it also has that of
// the masks and of ZMM: a processor may have what its system does not save.
var (
	canAVX2   = cpuid.CPU.Supports(needAVX2...)
	canAVX512 = cpuid.CPU.Supports(needAVX512...)
)

// tiers are the implementations, best first.
var tiers = [...]tier{
	{
		name: "avx512", use: &useAVX512, can: canAVX512, avoid: slows512(cpuid.CPU.VendorID, cpuid.CPU.Family, cpuid.CPU.Model),
		zero: zeroAVX512, zeroStream: zeroStreamAVX512,
		copy: copyAVX512, copyStream: copyStreamAVX2,
		fill: fillAVX512, fillStream: fillStreamAVX512,
		conversions: conversionsAVX512,
	},
	{
		name: "avx2", use: &useAVX2, can: canAVX2,
		zero: zeroAVX2, zeroStream: zeroStreamAVX2,
		copy: copyAVX2, copyStream: copyStreamAVX2,
		fill: fillAVX2, fillStream: fillStreamAVX2,
		conversions: conversionsAVX2,
	},
}

// slows512 says why 512-bit instructions are better left alone, or nothing.
//
// Skylake-SP and its descendants in that socket (Cascade Lake, Cooper Lake)
// lower the clock of a core for any of them, also for loads and stores, and
// for some 0.7 ms after; stores gain less than that costs everything else.
// Ice Lake and later do so by at most 100 MHz, and AMD not at all. Measured in
// https://travisdowns.github.io/blog/2020/01/17/avxfreq1.html and
// https://travisdowns.github.io/blog/2020/08/19/icl-avx512-freq.html.
func slows512(vendor cpuid.Vendor, family, model int) string {
	const skylakeServer = 0x55
	if vendor == cpuid.Intel && family == 6 && model == skylakeServer {
		return "512-bit instructions lower the clock of this processor"
	}
	return ""
}

func init() {
	streams(cpuid.CPU.Cache.L3)
	// From 2 KiB on the runtime's clear is REP STOSQ. The kernels are as good at
	// multiples of 8, and up to 1.6 times as fast elsewhere (BenchmarkZero).
	limits.clear = 2<<10 - 1
}

// streams sets the limits from which stores go around the caches, from the
// size in bytes of the last of them, or 0 or less where it is not known.
//
// A clear that goes around the caches is up to twice as fast, and leaves
// whoever reads the bytes next nothing there. With 32 MiB of cache
// BenchmarkZeroThenRead loses half at 16 MiB where all goes around it, a fifth
// at 20, and nothing at 24; with the beginning kept as far as there is room, it
// loses no more than noise, and BenchmarkZero gains 1.2 at 18 MiB, 1.4 at 20
// and 1.9 at 24. BenchmarkCopy goes through twice the bytes and gains from a
// quarter on. The runtime turns at 32 MiB, whatever the processor has, and in
// pieces it never would. Conversions gain from the same sum of what they read
// and write (BenchmarkConvert).
func streams(cache int) {
	limits.cache = max(cache, 0)
	if cache <= 0 {
		cache = 64 << 20 // so that we turn where the runtime does
	}
	limits.zeroStream = cache / 2
	limits.fillStream = cache / 2
	limits.copyStream = cache / 4
	limits.convertStream = cache / 2
}

func zero(b []byte) {
	switch {
	case useAVX512:
		zeroAVX512(b)
	case useAVX2:
		zeroAVX2(b)
	default:
		zeroGeneric(b)
	}
}

func zeroStream(b []byte) {
	switch {
	case useAVX512:
		zeroStreamAVX512(b)
	case useAVX2:
		zeroStreamAVX2(b)
	default:
		zeroGeneric(b)
	}
}

func copyCached(dst, src []byte) {
	switch {
	case useAVX512:
		copyAVX512(dst, src)
	case useAVX2:
		copyAVX2(dst, src)
	default:
		copyGeneric(dst, src)
	}
}

func copyStream(dst, src []byte) {
	switch {
	case useAVX512, useAVX2:
		copyStreamAVX2(dst, src)
	default:
		copyGeneric(dst, src)
	}
}

func fill(b []byte, seed *[32]byte) {
	switch {
	case useAVX512:
		fillAVX512(b, seed)
	case useAVX2:
		fillAVX2(b, seed)
	default:
		fillGeneric(b, seed)
	}
}

func fillStream(b []byte, seed *[32]byte) {
	switch {
	case useAVX512:
		fillStreamAVX512(b, seed)
	case useAVX2:
		fillStreamAVX2(b, seed)
	default:
		fillGeneric(b, seed)
	}
}
