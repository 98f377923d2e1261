package fueltest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/race"
)

// TestDriver runs the conformance suite on a device: everything that a Storage
// promises, through the exported API only. open is called once for each of
// some twenty subtests and returns the device to use; it may be the same each
// time. The device should have 64 MiB free, and nothing else use fuel
// meanwhile. With -short it does less.
//
// What it fails on is wrong: there are no false positives. What it passes may
// still have faults: a driver that mixes up the order of work only under load,
// writes far beside an allocation, or breaks above the sizes used here (a few
// MiB) can get through. On a Fake the device itself looks for more. Data races
// show with -race; run it that way as well.
//
// The subtest "external" needs work outside fuel, which only the CPU and a
// Fake have: elsewhere it is skipped.
func TestDriver(t *testing.T, open func(t *testing.T) fuel.Device) {
	runSuite(t, open, testing.Short())
}

func runSuite(t *testing.T, open func(t *testing.T) fuel.Device, short bool) {
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) { p.run(t, open(t), short) })
	}
}

// A part is one subtest of the suite.
type part struct {
	name string
	f    func(x *subject)
}

var parts = []part{
	{"alloc", checkAlloc},
	{"alloc too much", checkAllocTooMuch},
	{"construct", checkConstruct},
	{"fill", checkFill},
	{"fill borders", checkFillBorders},
	{"copy", checkCopy},
	{"copy mapped", checkCopyMapped},
	{"plan", checkPlan},
	{"copy mismatch", checkCopyMismatch},
	{"overlap", checkOverlap},
	{"ranges", checkRanges},
	{"sub-byte", checkSubByte},
	{"encodings", checkEncodings},
	{"clone", checkClone},
	{"clone and every write", checkCloneAndEveryWrite},
	{"clone of view", checkCloneOfView},
	{"view", checkView},
	{"one private copy", checkOnePrivateCopy},
	{"take", checkTake},
	{"reinterpret", checkReinterpret},
	{"bundle", checkBundle},
	{"equal", checkEqual},
	{"reader and writer", checkReaderWriter},
	{"to", checkTo},
	{"import", checkImport},
	{"pin", checkPin},
	{"context", checkContext},
	{"zero length", checkZeroLength},
	{"closed", checkClosed},
	{"close while running", checkCloseWhileRunning},
	{"queue", checkQueue},
	{"queue and storages", checkQueueAndStorages},
	{"queue errors", checkQueueErrors},
	{"external", checkExternal},
	{"visit", checkVisit},
	{"host access", checkHostAccess},
	{"load", checkLoad},
}

// run runs one part, and looks that it leaves nothing behind.
func (p part) run(t testing.TB, dev fuel.Device, short bool) {
	LeakCheck(t)
	seed := fnv.New64a()
	seed.Write([]byte(p.name)) // the same data each time: a failure comes again
	x := &subject{
		TB: t, dev: dev, ctx: context.Background(), short: short,
		rng: newRand(seed.Sum64()),
	}
	host, there := x.stats(fuel.Device{}), x.stats(dev)
	p.f(x)
	if t.Failed() {
		return // what it holds is not given back then
	}
	x.settled(fuel.Device{}, host)
	x.settled(dev, there)
}

// A subject is a device under test, and the test that failures go to.
type subject struct {
	testing.TB
	dev   fuel.Device
	ctx   context.Context
	short bool
	rng   *rand.Rand // not for several goroutines
}

func (x *subject) stats(dev fuel.Device) fuel.Stats {
	x.Helper()
	s, err := fuel.MemStats(dev)
	x.ok(err)
	return s
}

// settled fails unless a device's figures get back to what they were.
func (x *subject) settled(dev fuel.Device, before fuel.Stats) {
	x.Helper()
	var now fuel.Stats
	if !patiently(func() bool {
		now = x.stats(dev)
		return now.InUse == before.InUse && now.Regions == before.Regions
	}) {
		x.Errorf("%s: %d bytes in %d Regions are in use, and it began with %d in %d", dev, now.InUse, now.Regions, before.InUse, before.Regions)
	}
	if now.Leaks != before.Leaks {
		x.Errorf("%s: %d Storages were dropped without Close", dev, now.Leaks-before.Leaks)
	}
}

// ok ends the test where there is an error.
func (x *subject) ok(err error) {
	x.Helper()
	if err != nil {
		x.Fatal(err)
	}
}

// check is ok for other goroutines than the test's own: it goes on.
func (x *subject) check(err error) {
	x.Helper()
	if err != nil {
		x.Error(err)
	}
}

// is fails unless err is target and comes from an operation, as *OpError.
func (x *subject) is(err, target error, format string, args ...any) {
	x.Helper()
	if !errors.Is(err, target) {
		x.Errorf("%s: got error %v, want %v", fmt.Sprintf(format, args...), err, target)
		return
	}
	if op := (*fuel.OpError)(nil); !errors.As(err, &op) || op.Op == "" {
		x.Errorf("%s: error %v (%T) is no *OpError that names the operation", fmt.Sprintf(format, args...), err, err)
	}
}

// must is for calls that return a Storage.
func (x *subject) must(s *fuel.Storage, err error) *fuel.Storage {
	x.Helper()
	x.ok(err)
	return s
}

func (x *subject) close(list ...*fuel.Storage) {
	x.Helper()
	for _, s := range list {
		x.ok(s.Close())
	}
}

func (x *subject) random(n int) []byte {
	b := make([]byte, 0, n+8)
	for len(b) < n {
		b = binary.NativeEndian.AppendUint64(b, x.rng.Uint64())
	}
	return b[:n:n]
}

// from returns a Storage of bytes on the device.
func (x *subject) from(b []byte) *fuel.Storage {
	x.Helper()
	return x.must(fuel.FromBytes(x.dev, fuel.U8, b))
}

// content reads all bytes.
func (x *subject) content(s *fuel.Storage) []byte {
	x.Helper()
	b := make([]byte, s.LenBytes())
	if n, err := s.ReadAt(b, 0); n != len(b) || err != nil {
		x.Fatalf("ReadAt of %d bytes: %d, %v", len(b), n, err)
	}
	return b
}

// holds fails unless the bytes of s are want, and returns whether they are.
func (x *subject) holds(s *fuel.Storage, want []byte, format string, args ...any) bool {
	x.Helper()
	return x.same(x.content(s), want, format, args...)
}

func (x *subject) same(got, want []byte, format string, args ...any) bool {
	x.Helper()
	if bytes.Equal(got, want) {
		return true
	}
	what := fmt.Sprintf(format, args...)
	if len(got) != len(want) {
		x.Errorf("%s: %d bytes, want %d", what, len(got), len(want))
		return false
	}
	wrong := 0
	first := -1
	for i := range got {
		if got[i] != want[i] {
			if first < 0 {
				first = i
			}
			wrong++
		}
	}
	end := min(first+16, len(got))
	x.Errorf("%s: %d of %d bytes are wrong, from byte %d on:\n got %x\nwant %x", what, wrong, len(got), first, got[first:end], want[first:end])
	return false
}

// each calls f in n goroutines at once and waits for all.
func each(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

// sizes are lengths in bytes around what implementations treat apart.
func (x *subject) sizes() []int {
	s := []int{0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 257, 4095, 4096, 4097, 64<<10 - 1, 64 << 10}
	if x.short {
		return append(s, 128<<10+1)
	}
	return append(s, 256<<10+1, 1<<20+1)
}

// big is a length with several pieces on every path.
func (x *subject) big() int {
	if x.short || race.Enabled || x.dev.Kind != fuel.CPU {
		return 1<<20 + 77
	}
	return 4<<20 + 77
}

// A countdown is a context that is canceled when it is looked at once more
// than it may.
type countdown struct {
	context.Context
	left atomic.Int64
	done chan struct{}
	once sync.Once
}

func newCountdown(looks int64) *countdown {
	c := &countdown{Context: context.Background(), done: make(chan struct{})}
	c.left.Store(looks)
	return c
}

func (c *countdown) Done() <-chan struct{} { return c.done }

func (c *countdown) Err() error {
	if c.left.Add(-1) >= 0 {
		return nil
	}
	c.once.Do(func() { close(c.done) })
	return context.Canceled
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(1, seed)) }
