package cpu

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/go-fuel/fuel/internal/impl"
	"github.com/go-fuel/fuel/internal/require"
)

// generic is the reference as a tier.
var generic = tier{
	name: impl.Generic,
	zero: zeroGeneric, zeroStream: zeroGeneric,
	copy: copyGeneric, copyStream: copyGeneric,
	fill: fillGeneric, fillStream: fillGeneric,
	conversions: genericConversions,
}

// eachTier calls f with each implementation in use. One that this machine
// cannot run is a skip, and a failure where FUEL_REQUIRE names it.
func eachTier(t *testing.T, f func(t *testing.T, k *tier)) {
	use := func(k *tier) {
		t.Run(k.name, func(t *testing.T) {
			restore, ok := impl.Select("cpu", k.name)
			defer restore()
			if !ok {
				require.Skip(t, k.name, "this processor or its system has not what it needs")
			}
			f(t, k)
		})
	}
	use(&generic)
	for i := range tiers {
		use(&tiers[i])
	}
}

// FUEL_REQUIRE may name a tier that this build does not even have.
func TestRequiredTiersAreBuilt(t *testing.T) {
	for _, name := range []string{"avx512", "avx2", "neon"} {
		if require.Listed(name) && !slices.Contains(impl.List("cpu"), name) {
			t.Errorf("FUEL_REQUIRE names %s, and this build has %v", name, impl.List("cpu"))
		}
	}
	if require.Listed("no-vectors") && Tier() != impl.Generic {
		t.Errorf("FUEL_REQUIRE says that there are no vector registers, and the tier is %s", Tier())
	}
	t.Logf("tier %s %s", Tier(), TierNote())
}

// fakeTiers are three that work: the best is avoided, the worst cannot run.
func fakeTiers() []tier {
	var ts []tier
	for _, name := range []string{"avoided", "good", "plain", "absent"} {
		k := generic
		k.name, k.use, k.can = name, new(bool), name != "absent"
		if name == "avoided" {
			k.avoid = "it is slow"
		}
		ts = append(ts, k)
	}
	return ts
}

func TestTheBestTierIsChosenUnlessFUEL_CPUNamesAnother(t *testing.T) {
	for want, is := range map[string]struct{ tier, note string }{
		"":        {"good", ""},
		"good":    {"good", ""},
		"plain":   {"plain", ""},
		"avoided": {"avoided", ""},
		"generic": {"generic", ""},
		"absent":  {"good", "FUEL_CPU=absent was ignored: this processor or its system has no absent"},
		"AVX9":    {"good", "FUEL_CPU=AVX9 is unknown here and was ignored; there is generic, avoided, good, plain, absent"},
	} {
		ts := fakeTiers()
		name, note := choose(want, ts)
		if name != is.tier || note != is.note {
			t.Errorf("FUEL_CPU=%s: %s, %q; want %s, %q", want, name, note, is.tier, is.note)
		}
		for _, k := range ts {
			if *k.use != (k.name == name) {
				t.Errorf("FUEL_CPU=%s chose %s, but use of %s is %v", want, name, k.name, *k.use)
			}
		}
	}
}

func TestATierThatFailsItsCheckIsNotUsed(t *testing.T) {
	eachTier(t, func(t *testing.T, k *tier) {
		if err := check(k); err != nil {
			t.Fatalf("the kernels as they are: %v", err)
		}
		for what, bad := range brokenTiers(k) {
			bad.use, bad.can, bad.avoid = new(bool), true, ""
			name, note := choose("", []tier{bad})
			if name != impl.Generic || *bad.use || !strings.Contains(note, "failed their check") {
				t.Errorf("%s: tier %s in use (%v), note %q", what, name, *bad.use, note)
			}
		}
	})
}

// The environment is looked at when the program starts, so in another one.
func TestFUEL_CPUForcesATier(t *testing.T) {
	const child = "FUEL_TEST_TIER"
	if os.Getenv(child) != "" {
		os.Stdout.WriteString("tier " + Tier() + "\nnote " + TierNote() + "\n")
		os.Exit(0)
	}
	self, err := os.Executable()
	if err != nil {
		require.Skip(t, "self-exec", err.Error())
	}
	run := func(value string) string {
		command := []string{self, "-test.run=^TestFUEL_CPUForcesATier$"}
		if emulator := os.Getenv("FUEL_TEST_EXEC"); emulator != "" {
			command = append(strings.Fields(emulator), command...)
		}
		c := exec.Command(command[0], command[1:]...)
		c.Env = append(os.Environ(), child+"=1", "FUEL_CPU="+value)
		out, err := c.CombinedOutput()
		if err != nil && len(out) == 0 {
			require.Skip(t, "self-exec", err.Error())
		}
		return string(out)
	}
	best, _ := choose("", slices.Clone(fakeUses()))
	for value, want := range map[string]string{
		"generic": "tier generic\nnote \n",
		"":        "tier " + best + "\nnote \n",
		"nonsense": "tier " + best + "\nnote FUEL_CPU=nonsense is unknown here and was ignored; there is " +
			strings.Join(append([]string{impl.Generic}, impl.List("cpu")...), ", ") + "\n",
	} {
		if got := run(value); got != want {
			t.Errorf("FUEL_CPU=%s: %q, want %q", value, got, want)
		}
	}
	for _, k := range tiers {
		want := "tier " + k.name + "\nnote \n"
		if !k.can {
			want = "tier " + best + "\nnote FUEL_CPU=" + k.name + " was ignored: this processor or its system has no " + k.name + "\n"
		}
		if got := run(k.name); got != want {
			t.Errorf("FUEL_CPU=%s: %q, want %q", k.name, got, want)
		}
	}
}

// fakeUses are the real tiers, but choosing among them changes nothing.
func fakeUses() []tier {
	ts := slices.Clone(tiers[:])
	for i := range ts {
		ts[i].use = new(bool)
	}
	return ts
}
