package fuel_test

import (
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/go-fuel/fuel/internal/race"
	"github.com/go-fuel/fuel/internal/require"
)

func init() {
	for name := range memories {
		children["race "+name] = func() { racing(name) }
	}
}

// racing reads and writes one Storage in two goroutines that nothing orders:
// one may well end before the other begins.
func racing(name string) {
	s := memories[name](&childT{}, make([]byte, 100_000))
	var wg sync.WaitGroup
	wg.Go(func() { s.ReadAt(make([]byte, 1000), 500) })
	wg.Go(func() { s.WriteAt(make([]byte, 1000), 1400) })
	wg.Wait()
}

// childT is a testing.TB for a child: errors end it.
type childT struct{ testing.TB }

func (*childT) Helper()           {}
func (*childT) Cleanup(func())    {}
func (*childT) Fatal(args ...any) { panic(args) }
func (*childT) Error(args ...any) { panic(args) }
func (*childT) TempDir() string   { return os.Getenv("FUEL_TEST_TEMP") }

// Rule 13: the race detector does not see mapped memory by itself.
func TestADeliberateRaceIsReported(t *testing.T) {
	if !race.Enabled {
		require.Skip(t, "race", "built without -race")
	}
	for name := range memories {
		out, err := child(t, "race "+name, "GORACE=halt_on_error=1 exitcode=66", "FUEL_TEST_TEMP="+t.TempDir())
		if err == nil || !strings.Contains(out, "WARNING: DATA RACE") {
			t.Errorf("%s memory: no race is reported: %v\n%s", name, err, out)
		}
	}
}

// A false report would be as bad: what the package says is safe together.
func TestSafeUseIsNotReportedAsARace(t *testing.T) {
	for name, open := range memories {
		t.Run(name, func(t *testing.T) {
			s := open(t, make([]byte, 10_000))
			var wg sync.WaitGroup
			for i := range 10 {
				wg.Go(func() {
					for range 20 {
						if _, err := s.WriteAt(make([]byte, 500), int64(i*1000)); err != nil {
							t.Error(err)
						}
						c, err := s.Clone()
						if err != nil {
							t.Error(err)
							return
						}
						if _, err := c.ReadAt(make([]byte, 10_000), 0); err != nil {
							t.Error(err)
						}
						v, err := c.View(0, 5000)
						if err != nil {
							t.Error(err)
							return
						}
						c.Close()
						if _, err := v.WriteAt(make([]byte, 100), 0); err != nil {
							t.Error(err)
						}
						v.Close()
					}
				})
			}
			wg.Wait()
			_ = must(t)(s.Clone())
		})
	}
}
