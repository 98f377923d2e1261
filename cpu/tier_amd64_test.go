//go:build !purego

package cpu

import (
	_ "embed"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/cpuid/v2"
	syscpu "golang.org/x/sys/cpu"
)

//go:embed bytes_avx2_amd64.s
var sourceAVX2 string

//go:embed bytes_avx512_amd64.s
var sourceAVX512 string

//go:embed convert_avx2_amd64.s
var convertAVX2 string

//go:embed convert_avx512_amd64.s
var convertAVX512 string

// A kernel must not be called where an instruction of it is missing.
func TestGateCoversWhatTheAssemblyRequires(t *testing.T) {
	_, copyStream, _ := strings.Cut(sourceAVX2, "// func copyStreamAVX2(")
	copyStream, _, _ = strings.Cut(copyStream, "// func ")
	for _, c := range []struct {
		name, source string
		need         []cpuid.FeatureID
		least        int
	}{
		{"avx2", sourceAVX2, needAVX2, 6}, {"avx512", sourceAVX512, needAVX512, 5},
		{"avx2", convertAVX2, needAVX2, 6}, {"avx512", convertAVX512, needAVX512, 6},
		{"avx512", copyStream, needAVX512, 1}, // it has none of its own
	} {
		functions := strings.Count(c.source, "\nTEXT ")
		lines := 0
		for line := range strings.SplitSeq(c.source, "\n") {
			list, ok := strings.CutPrefix(line, "// Requires: ")
			if !ok {
				continue
			}
			lines++
			for name := range strings.SplitSeq(list, ", ") {
				if slices.Contains([]string{"MMX+", "SSE", "SSE2", "CMOV"}, name) {
					continue // amd64 has them
				}
				if id := cpuid.ParseFeature(name); id == cpuid.UNKNOWN || !slices.Contains(c.need, id) {
					t.Errorf("%s: the assembly requires %s, and the gate asks for %v", c.name, name, c.need)
				}
			}
		}
		if lines != functions || lines < c.least {
			t.Errorf("%s: %d functions, %d of them say what they require", c.name, functions, lines)
		}
	}
}

// Report 84: AVX-512 chosen by CPUID alone is an illegal instruction where the
// system does not save its registers. A second library that reads XCR0 must
// agree, and without OSXSAVE there must be no tier at all.
func TestNoTierWithoutTheRegistersStateInXCR0(t *testing.T) {
	x := syscpu.X86
	if want := x.HasOSXSAVE && x.HasAVX && x.HasAVX2 && x.HasF16C; canAVX2 != want {
		t.Errorf("AVX2 can be used: %v, and x/sys/cpu says %v", canAVX2, want)
	}
	if want := x.HasOSXSAVE && x.HasAVX512F && x.HasAVX512BW && x.HasBMI2; canAVX512 != want {
		t.Errorf("AVX-512 can be used: %v, and x/sys/cpu says %v", canAVX512, want)
	}
	if !x.HasOSXSAVE && Tier() != "generic" {
		t.Errorf("tier %s without OSXSAVE", Tier())
	}
	// Each term of the gate closes it.
	for _, need := range [][]cpuid.FeatureID{needAVX2, needAVX512} {
		for _, id := range need {
			var c cpuid.CPUInfo
			c.Enable(need...)
			if !c.Supports(need...) {
				t.Fatalf("all of %v is not enough", need)
			}
			c.Disable(id)
			if c.Supports(need...) {
				t.Errorf("without %v the gate of %v is open", id, need)
			}
		}
	}
}

func TestSkylakeServersAreSparedAVX512(t *testing.T) {
	for _, c := range []struct {
		vendor        cpuid.Vendor
		family, model int
		slow          bool
	}{
		{cpuid.Intel, 6, 0x55, true},  // Skylake-SP, Cascade Lake, Cooper Lake
		{cpuid.Intel, 6, 0x6A, false}, // Ice Lake-SP
		{cpuid.Intel, 6, 0x8F, false}, // Sapphire Rapids
		{cpuid.AMD, 25, 0x55, false},
		{cpuid.AMD, 25, 17, false}, // Genoa
	} {
		if got := slows512(c.vendor, c.family, c.model); (got != "") != c.slow {
			t.Errorf("%v family %d model %#x: %q", c.vendor, c.family, c.model, got)
		}
	}
	// And not where somebody asks for it.
	ts := fakeUses()
	ts[0].can, ts[0].avoid = true, slows512(cpuid.Intel, 6, 0x55)
	if canAVX512 {
		if name, note := choose("avx512", ts); name != "avx512" || note != "" {
			t.Errorf("FUEL_CPU=avx512 on Skylake-SP: %s, %q", name, note)
		}
		if name, _ := choose("", ts); name != "avx2" {
			t.Errorf("Skylake-SP chooses %s", name)
		}
	}
}

// What a clear leaves in the cache is what is read next.
func TestLongClearsKeepTheirBeginning(t *testing.T) {
	defer streams(cpuid.CPU.Cache.L3)
	streams(32 << 20)
	for whole, kept := range map[int]int{16 << 20: 16 << 20, 20 << 20: 12 << 20, 24 << 20: 8 << 20, 32 << 20: 0, 1 << 30: 0} {
		for off := 0; off < whole; off += Piece {
			if got := keeps(off, whole); got != (off < kept) {
				t.Fatalf("the piece at %d of %d is kept: %v", off, whole, got)
			}
		}
	}
}

func TestStreamsBeginWhereTheCacheIsTooSmall(t *testing.T) {
	defer streams(cpuid.CPU.Cache.L3)
	for cache, from := range map[int]int{32 << 20: 16 << 20, 8 << 20: 4 << 20, 0: 32 << 20, -1: 32 << 20} {
		if streams(cache); limits.zeroStream != from || limits.fillStream != from || limits.copyStream != from/2 || limits.convertStream != from {
			t.Errorf("%d bytes of cache: %+v", cache, limits)
		}
		if limits.cache != max(cache, 0) {
			t.Errorf("%d bytes of cache: %+v", cache, limits)
		}
	}
}
