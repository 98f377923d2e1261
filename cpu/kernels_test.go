package cpu

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"github.com/go-fuel/fuel/internal/guard"
	"github.com/go-fuel/fuel/internal/race"
)

// canary is what a kernel must leave around its range.
const canary = 0xA5

// edge is how many bytes on each side are looked at.
const edge = 128

// A subject is a kernel under test: what it makes of b, at b[i], from src,
// which is as long as b.
type subject struct {
	name string
	run  func(b, src []byte)
	want func(b, src []byte)

	step  int  // every length is a multiple
	reads bool // src matters
}

// subjects are the kernels of a tier, one by one.
func subjects(k *tier) []subject {
	seed := turned(newSeed([]byte("0123456789abcdef")), 5)
	zero := func(b, _ []byte) { clear(b) }
	fill := func(b, _ []byte) {
		for i := range b {
			b[i] = seed[i%16]
		}
	}
	return []subject{
		{"zero", func(b, _ []byte) { k.zero(b) }, zero, 1, false},
		{"zeroStream", func(b, _ []byte) { k.zeroStream(b) }, zero, 1, false},
		{"fill", func(b, _ []byte) { k.fill(b, &seed) }, fill, 1, false},
		{"fillStream", func(b, _ []byte) { k.fillStream(b, &seed) }, fill, 1, false},
		{"copy", k.copy, func(b, src []byte) { copy(b, src) }, 1, true},
		{"copyStream", k.copyStream, func(b, src []byte) { copy(b, src) }, 1, true},
	}
}

// brokenTiers are what a kernel gets wrong: k, each time with one mistake.
func brokenTiers(k *tier) map[string]tier {
	less := func(b []byte) []byte { return b[:max(len(b)-1, 0)] }
	more := func(b []byte) []byte { return unsafe.Slice(unsafe.SliceData(b), len(b)+1) }
	late := func(b []byte) []byte { return b[min(1, len(b)):] }
	with := func(change func(*tier)) tier { bad := *k; change(&bad); return bad }
	return map[string]tier{
		"zero ends a byte early":      with(func(b *tier) { b.zero = func(p []byte) { k.zero(less(p)) } }),
		"zero ends a byte late":       with(func(b *tier) { b.zero = func(p []byte) { k.zero(more(p)) } }),
		"zeroStream begins late":      with(func(b *tier) { b.zeroStream = func(p []byte) { k.zeroStream(late(p)) } }),
		"fill ends a byte early":      with(func(b *tier) { b.fill = func(p []byte, s *[32]byte) { k.fill(less(p), s) } }),
		"fillStream ends a byte late": with(func(b *tier) { b.fillStream = func(p []byte, s *[32]byte) { k.fillStream(more(p), s) } }),
		"fill is out of phase":        with(func(b *tier) { b.fill = func(p []byte, s *[32]byte) { r := turned(*s, 1); k.fill(p, &r) } }),
		"copy ends a byte early":      with(func(b *tier) { b.copy = func(d, s []byte) { k.copy(less(d), less(s)) } }),
		"copy ends a byte late":       with(func(b *tier) { b.copy = func(d, s []byte) { k.copy(more(d), more(s)) } }),
		"copyStream reads a byte late": with(func(b *tier) {
			b.copyStream = func(d, s []byte) { k.copyStream(d, unsafe.Slice(unsafe.SliceData(more(s)), len(s)+1)[1:]) }
		}),
	}
}

// everyAlignment, and those at which vector code goes wrong.
var (
	everyAlignment = func() (all []int) {
		for a := range 128 {
			all = append(all, a)
		}
		return all
	}()
	someAlignments = []int{0, 1, 15, 31, 32, 63, 64, 65, 127}
)

// smallLengths are all up to 320: they take each path of every kernel.
var smallLengths = func() (ns []int) {
	for n := range 321 {
		ns = append(ns, n)
	}
	return ns
}()

// borderLengths lie around each multiple of what the loops do at a time, up to
// eight rounds, around pages, and around the seed of fillGeneric.
var borderLengths = func() (ns []int) {
	for n := 384; n <= 2048; n += 64 {
		ns = append(ns, n-1, n, n+1)
	}
	return append(ns, 2048+63, 2048+65, 4095, 4096, 4097, 8191, 8192, 8193+64, 20000)
}()

// sweep runs a kernel on every length and every pair of alignments, between
// canaries, and returns the first thing that is wrong.
func sweep(s subject, lengths, alignments []int) error {
	longest := slices.Max(lengths)
	block := func() []byte {
		b := make([]byte, longest+2*edge+256)
		return b[-int(uintptr(unsafe.Pointer(unsafe.SliceData(b))))&127:]
	}
	got, want, src := block(), make([]byte, longest+2*edge), block()
	blank := bytes.Repeat([]byte{canary}, longest+2*edge)
	for i := range src {
		src[i] = byte(i*7 + i>>8)
	}
	before := slices.Clone(src)
	for _, n := range lengths {
		if n%s.step != 0 {
			continue
		}
		for _, from := range alignments {
			if from > 0 && !s.reads {
				break
			}
			from := src[from : from+n : from+n]
			want := want[:n+2*edge]
			copy(want, blank)
			s.want(want[edge:edge+n], from)
			for _, to := range alignments {
				whole := got[to : to+n+2*edge] // edge is a multiple of every alignment
				copy(whole, blank)
				s.run(whole[edge:edge+n:edge+n], from)
				if !bytes.Equal(whole, want) {
					for i := range whole {
						if whole[i] != want[i] {
							return fmt.Errorf("%s of %d bytes at %d mod 128: byte %d is %#x, want %#x", s.name, n, to, i-edge, whole[i], want[i])
						}
					}
				}
			}
		}
		if !bytes.Equal(src, before) {
			return fmt.Errorf("%s of %d bytes changed its source", s.name, n)
		}
	}
	return nil
}

// full reports whether a sweep of everything takes seconds here, not minutes.
func full() bool { return !testing.Short() && !race.Enabled }

// Report 11: aligned moves on addresses that are not.
func TestKernelsTakeAnyAddressAndLength(t *testing.T) {
	eachTier(t, func(t *testing.T, k *tier) {
		for _, s := range subjects(k) {
			alignments := someAlignments
			if full() {
				alignments = everyAlignment
			}
			if err := sweep(s, smallLengths, alignments); err != nil {
				t.Error(err)
			}
			if err := sweep(s, borderLengths, someAlignments); err != nil {
				t.Error(err)
			}
		}
	})
}

// A sweep that a wrong kernel passes proves nothing.
func TestSweepCatchesBrokenKernels(t *testing.T) {
	eachTier(t, func(t *testing.T, k *tier) {
		for what, bad := range brokenTiers(k) {
			var found error
			for _, s := range subjects(&bad) {
				if err := sweep(s, smallLengths, []int{0, 1}); found == nil {
					found = err
				}
			}
			if found == nil {
				t.Errorf("%s, and the sweep passes", what)
			}
		}
	})
}

func TestKernelsStayBetweenGuardPages(t *testing.T) {
	lengths := append(slices.Clone(smallLengths), borderLengths...)
	dst, src := guard.New(t, slices.Max(lengths)), guard.New(t, slices.Max(lengths))
	for i := range src {
		src[i] = byte(i*7 + i>>8)
	}
	eachTier(t, func(t *testing.T, k *tier) {
		for _, s := range subjects(k) {
			for _, n := range lengths {
				for _, b := range [][]byte{dst.First(n), dst.Last(n)} {
					for _, from := range [][]byte{src.First(n), src.Last(n)} {
						if err := Guard(func() { s.run(b, from) }); err != nil {
							t.Fatalf("%s of %d bytes: %v", s.name, n, err)
						}
					}
				}
			}
		}
	})
}

// A guard page that does not fault would make the test above prove nothing,
// and a fault in assembly must be an error as one in Go is.
func TestGuardPagesFault(t *testing.T) {
	dst, src := guard.New(t, 1<<16), guard.New(t, 1<<16)
	eachTier(t, func(t *testing.T, k *tier) {
		for _, s := range subjects(k) {
			for _, n := range []int{0, 3, 7, 15, 31, 63, 64, 100, 1000, 10000} {
				b, from := dst.Last(n+1), src.Last(n+1)
				over := unsafe.Slice(unsafe.SliceData(b), n+2)
				err := Guard(func() { s.run(over, src.First(n+2)) })
				if fault, ok := err.(*FaultError); !ok || fault.Addr == 0 {
					t.Errorf("%s: writing one byte of %d into the guard page: %v", s.name, n+2, err)
				}
				if !s.reads {
					continue
				}
				over = unsafe.Slice(unsafe.SliceData(from), n+2)
				if _, ok := Guard(func() { s.run(dst.First(n+2), over) }).(*FaultError); !ok {
					t.Errorf("%s: reading one byte of %d from the guard page is no fault", s.name, n+2)
				}
			}
		}
	})
}

// lower makes Zero, Copy and Fill leave the runtime's functions at once, and
// them and the conversions go around the caches from stream on, wholly.
func lower(t *testing.T, stream int) {
	before := limits
	t.Cleanup(func() { limits = before })
	limits.clear, limits.copy, limits.fill = -1, -1, -1
	limits.zeroStream, limits.copyStream, limits.fillStream, limits.convertStream = stream, stream, stream, stream
	limits.cache = 0
}

// whole are Zero, Copy and Fill with each length of pattern.
func whole() []subject {
	subjects := []subject{
		{"Zero", func(b, _ []byte) { Zero(b) }, func(b, _ []byte) { clear(b) }, 1, false},
		{"Copy", Copy, func(b, src []byte) { copy(b, src) }, 1, true},
		{"ZeroPart", func(b, _ []byte) { ZeroPart(b, len(b), 3*len(b)) }, func(b, _ []byte) { clear(b) }, 1, false},
		{"CopyPart", func(b, src []byte) { CopyPart(b, src, 3*len(b)) }, func(b, src []byte) { copy(b, src) }, 1, true},
	}
	for k := 1; k <= 16; k *= 2 {
		pattern := []byte("0123456789abcdef")[:k]
		subjects = append(subjects, subject{fmt.Sprint("Fill by ", k),
			func(b, _ []byte) { Fill(b, pattern) },
			func(b, _ []byte) {
				for i := range b {
					b[i] = pattern[i%k]
				}
			}, k, false})
		part := subjects[len(subjects)-1]
		part.name, part.run = "FillPart", func(b, _ []byte) { FillPart(b, pattern, len(b), 3*len(b)) }
		if k == 4 {
			subjects = append(subjects, part)
		}
	}
	return subjects
}

func TestZeroCopyAndFillTouchNothingOutside(t *testing.T) {
	const stream = 700
	near := []int{0, 1, 2, 16, 63, 64, 65, 160, 256, 320, stream - 16, stream - 1, stream, stream + 1, stream + 4, 8192}
	long := []int{Piece - 64, Piece - 1, Piece, Piece + 1, Piece + 64, 2*Piece + 16}
	few := []int{0, 1, 63}
	if testing.Short() { // in an emulator
		long, few = []int{Piece, 2*Piece + 16}, []int{0, 1}
	}
	eachTier(t, func(t *testing.T, k *tier) {
		for what, from := range map[string]int{"as it is": -1, "cached": never, "streamed": 0, "turning": stream, "in part": 0} {
			t.Run(what, func(t *testing.T) {
				if from >= 0 {
					lower(t, from)
				}
				if what == "in part" {
					limits.cache = 3 * Piece
				}
				for _, s := range whole() {
					if err := sweep(s, near, someAlignments); err != nil {
						t.Error(err)
					}
					if err := sweep(s, long, few); err != nil {
						t.Error(err)
					}
				}
			})
		}
	})
}

func TestCopyMovesOverlappingRanges(t *testing.T) {
	const size = 3*Piece + 100
	mem, want := make([]byte, size+200), make([]byte, size+200)
	eachTier(t, func(t *testing.T, k *tier) {
		lower(t, Piece)
		for _, shift := range []int{-200, -65, -1, 0, 1, 63, 64, 200} {
			for _, n := range []int{1, 64, 300, Piece, Piece + 1, size - 200} {
				for i := range mem {
					mem[i] = byte(i*13 + i>>7)
				}
				copy(want, mem)
				copy(want[200+shift:][:n], want[200:][:n])
				Copy(mem[200+shift:][:n], mem[200:][:n])
				if !bytes.Equal(mem, want) {
					t.Fatalf("%d bytes moved by %d differ from what copy makes", n, shift)
				}
			}
		}
	})
}

// A slice of an array on the stack must not make it escape.
func TestKernelsDoNotAllocate(t *testing.T) {
	probe := testing.AllocsPerRun(10, func() {
		var b [300]byte
		addressOf(b[:])
	})
	if race.Enabled || probe != 0 {
		t.Skip("this build (-race, -d=checkptr) lets whatever has its address taken escape")
	}
	eachTier(t, func(t *testing.T, k *tier) {
		for _, stream := range []int{never, 0} {
			lower(t, stream)
			n := testing.AllocsPerRun(100, func() {
				var dst, src [300]byte
				var pattern [4]byte
				Zero(dst[:])
				Copy(dst[:], src[:])
				Fill(dst[:], pattern[:])
				ZeroPart(dst[:], 0, Piece)
				CopyPart(dst[:], src[:], Piece)
				FillPart(dst[:], pattern[:], 0, Piece)
			})
			if n != 0 {
				t.Errorf("%v allocations per call of Zero, Copy and Fill", n)
			}
		}
	})
}

// address does with b what every look at alignment does, and no more.
//
//go:noinline
func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
