package cpu

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/go-fuel/fuel/internal/impl"
)

// A tier is one implementation of the kernels in assembly, as tests and the
// check at the start see it. Zero, Copy and Fill look at use instead, since a
// call through a function value would make their arguments escape.
type tier struct {
	name  string
	use   *bool
	can   bool   // the processor has it and the system keeps its registers
	avoid string // why it is not chosen unless FUEL_CPU names it

	zero, zeroStream func(b []byte)
	copy, copyStream func(dst, src []byte)
	fill, fillStream func(b []byte, seed *[32]byte)

	conversions []conversion
}

// A conversion is a kernel that makes dst from src, with its generic twin.
type conversion struct {
	name      string
	run, twin func(dst, src []byte)
	src, dst  int // bytes of a block
}

// What was chosen when the program started.
var chosen, chosenNote string

// Tier names the implementation of the kernels in use: "avx512", "avx2",
// "neon", or "generic", which is Go. The best that the processor and the
// system can run is chosen when the program starts; the environment variable
// FUEL_CPU names another one.
func Tier() string { return chosen }

// TierNote says what a person should know of that choice, and is empty where
// there is nothing: FUEL_CPU names what is not there, or the best kernels
// failed their check and generic ones are used instead.
func TierNote() string { return chosenNote }

func init() {
	for i := range tiers {
		impl.Register("cpu", tiers[i].name, tiers[i].can, tiers[i].use)
	}
	chosen, chosenNote = choose(os.Getenv("FUEL_CPU"), tiers[:])
}

// choose sets use of the best of all, which are in that order, or of the one
// that want names, unless it fails its check.
func choose(want string, all []tier) (name, note string) {
	var best, wanted *tier
	names := []string{impl.Generic}
	for i := range all {
		t := &all[i]
		*t.use = false
		names = append(names, t.name)
		if best == nil && t.can && t.avoid == "" {
			best = t
		}
		if t.name == want {
			wanted = t
		}
	}
	switch {
	case want == "":
	case want == impl.Generic:
		best = nil
	case wanted == nil:
		note = fmt.Sprintf("FUEL_CPU=%s is unknown here and was ignored; there is %s", want, strings.Join(names, ", "))
	case !wanted.can:
		note = fmt.Sprintf("FUEL_CPU=%s was ignored: this processor or its system has no %[1]s", want)
	default:
		best = wanted
	}
	if best == nil {
		return impl.Generic, note
	}
	if err := check(best); err != nil {
		if note != "" {
			note += "; "
		}
		return impl.Generic, note + fmt.Sprintf("the %s kernels failed their check and are not used: %v", best.name, err)
	}
	*best.use = true
	return best.name, note
}

// check compares what the kernels of t do with known answers, at lengths that
// take every path and at a few alignments.
func check(t *tier) error {
	const size, edge = 1200, 64
	pattern := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	seed := turned(newSeed(pattern), 3)
	var src, blank, got, want [size]byte
	for i := range src {
		src[i], blank[i] = byte(i*7+i>>8), 0xA5
	}
	for _, k := range []struct {
		name     string
		run, ref func(b []byte)
	}{
		{"zero", t.zero, zeroGeneric},
		{"zeroStream", t.zeroStream, zeroGeneric},
		{"fill", func(b []byte) { t.fill(b, &seed) }, func(b []byte) { fillGeneric(b, &seed) }},
		{"fillStream", func(b []byte) { t.fillStream(b, &seed) }, func(b []byte) { fillGeneric(b, &seed) }},
		{"copy", func(b []byte) { t.copy(b, src[1:][:len(b)]) }, func(b []byte) { copyGeneric(b, src[1:]) }},
		{"copyStream", func(b []byte) { t.copyStream(b, src[1:][:len(b)]) }, func(b []byte) { copyGeneric(b, src[1:]) }},
	} {
		for _, n := range []int{0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 63, 64, 65, 129, 321, 1023} {
			for _, at := range []int{0, 1, 63} {
				got, want = blank, blank
				k.run(got[edge+at:][:n])
				k.ref(want[edge+at:][:n])
				if !bytes.Equal(got[:], want[:]) {
					return fmt.Errorf("%s of %d bytes", k.name, n)
				}
			}
		}
	}
	return checkConversions(t)
}

// checkConversions is check for the conversions. Where dst begins with a line
// of the cache, and a little beside it, the kernels that go around the caches
// do so.
func checkConversions(t *tier) error {
	const size, edge = 2240, 64
	var src, blank, want [size]byte
	got := AlignedHeap(size)
	for i := range blank {
		blank[i] = 0xA5
	}
	varied(src[:])
	for _, k := range t.conversions {
		for _, n := range []int{0, 1, 2, 3, 7, 8, 15, 16, 17, 33, 65, 130, 250} {
			if n > 8 && k.dst > 8 {
				break // blocks have all their paths within
			}
			for _, at := range []int{0, 1, 56} {
				from := src[at:][:n*k.src]
				want = blank
				k.twin(want[edge+at:][:n*k.dst], from)
				copy(got, blank[:])
				k.run(got[edge+at:][:n*k.dst], from)
				if !bytes.Equal(got, want[:]) {
					return fmt.Errorf("%s of %d blocks", k.name, n)
				}
				if k.src != k.dst {
					continue
				}
				copy(got, blank[:])
				b := got[edge+at:][:n*k.dst]
				copy(b, from)
				k.run(b, b)
				if !bytes.Equal(got, want[:]) {
					return fmt.Errorf("%s of %d blocks in place", k.name, n)
				}
			}
		}
	}
	return nil
}

// varied fills b, whose length is even, with numbers of every class. They are
// halves of words that are special as float16, bfloat16 or the upper half of a
// float32 (zero, infinity, NaN, subnormal, too large, halfway) between random
// ones, always the same.
func varied(b []byte) {
	special := [...]uint16{0, 0x8000, 0x7C00, 0x7C01, 0xFE23, 0x0001, 0x83FF, 0x7F80, 0xFF81, 0x7FC0, 0x477F, 0x33C0, 0x3880, 0x0040}
	random := uint32(1)
	for i := 0; i < len(b); i += 2 {
		random = random*1664525 + 1013904223
		half := uint16(random >> 16)
		if random>>8&3 == 0 {
			half = special[i/2%len(special)]
		}
		host.PutUint16(b[i:], half)
	}
}
