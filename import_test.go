package fuel_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/fueltest"
)

// importer registers a fake that can use host memory, and makes host memory such
// that it can be used.
func importer(t *testing.T, opt fueltest.FakeOptions) *fueltest.Fake {
	t.Helper()
	fuel.ForcePool(t)
	if opt.ImportAlign == 0 {
		opt.ImportAlign = os.Getpagesize()
	}
	fake := fueltest.Register(t, fuel.Vulkan, opt)
	fueltest.LeakCheck(t)
	return fake
}

// imported returns s on dev without a copy.
func imported(t testing.TB, s *fuel.Storage, dev fuel.Device) *fuel.Storage {
	t.Helper()
	var r fuel.CopyReport
	there := value(s.To(t.Context(), dev, &fuel.CopyOptions{Import: true, ImportMapped: true, Report: &r}))(t)
	if r != (fuel.CopyReport{Path: fuel.PathImport}) {
		t.Fatalf("%+v", r)
	}
	return there
}

func closeAll(t testing.TB, list ...*fuel.Storage) {
	t.Helper()
	for _, s := range list {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// inUse is what the host has in use.
func inUse(t testing.TB) int64 { return value(fuel.MemStats(cpu))(t).InUse }

// eventually waits for what other goroutines do.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

const large = 2<<20 + 5 // bytes of a block with a mapping of its own

func TestImportNeverCopies(t *testing.T) {
	fake := importer(t, fueltest.FakeOptions{})
	b := count(large)
	s := must(t)(fuel.FromBytes(cpu, fuel.U8, b))
	id, before := s.ID(), inUse(t)
	there := imported(t, s, fake.Device(0))
	if n, _ := fake.Live(); n != 1 || fake.Calls(fueltest.OpAlloc)+fake.Calls(fueltest.OpUpload) != 0 || fake.Calls(fueltest.OpImport) != 1 {
		t.Errorf("%d allocations, %d uploads, %d imports", fake.Calls(fueltest.OpAlloc), fake.Calls(fueltest.OpUpload), fake.Calls(fueltest.OpImport))
	}
	if in := s.Region(); in.Owners != 2 || s.ID() != id || inUse(t) != before {
		t.Errorf("the host's memory: %+v", in)
	}
	in := there.Region()
	if in.Memory != fuel.MemoryImported || in.Owners != 1 || in.Bytes != large || !in.ReadOnly {
		t.Errorf("the device's memory: %+v", in)
	}
	if st := value(fuel.MemStats(fake.Device(0)))(t); st.InUse != large || st.Allocated != 0 {
		t.Errorf("%+v", st)
	}
	wantBytes(t, "imported", there, b)
	closeAll(t, there)
	eventually(t, "the host's memory stays shared", func() bool { return s.Region().Owners == 1 })
	copies := value(fuel.MemStats(cpu))(t).PrivateCopies
	fill(t, s, 1)
	if value(fuel.MemStats(cpu))(t).PrivateCopies != copies {
		t.Error("a write after the device's Close made a private copy")
	}
}

// Rule 5 across devices: what one side writes the other never sees.
func TestImportIsASnapshotBothWays(t *testing.T) {
	for name, opt := range map[string]fueltest.FakeOptions{"staged": {}, "non-coherent": {NonCoherent: true, Lazy: true}, "unified": {Unified: true}} {
		t.Run(name, func(t *testing.T) {
			fake := importer(t, opt)
			dev := fake.Device(0)
			b := count(large)
			s := must(t)(fuel.FromBytes(cpu, fuel.U8, b))
			there := imported(t, s, dev)
			view := must(t)(there.View(100, 1000))
			clone := must(t)(there.Clone())
			fill(t, s, 0xEE) // the host moves away
			wantBytes(t, "the device after the host's write", there, b)
			if in := s.Region(); in.Owners != 1 || in.Memory == fuel.MemoryImported {
				t.Errorf("the host after its write: %+v", in)
			}

			uploads := fake.Calls(fueltest.OpUpload)
			if _, err := view.WriteAt([]byte{1, 2, 3}, 5); err != nil { // the device moves away
				t.Fatal(err)
			}
			if fake.Calls(fueltest.OpUpload) != uploads+1 || fake.Calls(fueltest.OpCopy) == 0 {
				t.Errorf("the private copy was not made on the device")
			}
			changed := bytes.Clone(b)
			copy(changed[105:], []byte{1, 2, 3})
			wantBytes(t, "the device after its write", there, changed)
			wantBytes(t, "a clone after the device's write", clone, b)
			if in := there.Region(); in.Memory != fuel.MemoryDevice || in.ReadOnly {
				t.Errorf("the device after its write: %+v", in)
			}
			if in := clone.Region(); in.Memory != fuel.MemoryImported {
				t.Errorf("a clone: %+v", in)
			}
			closeAll(t, view, clone, there, s)
		})
	}
}

// A write of the host that runs is waited for: half of it never shows.
func TestImportWaitsForWriters(t *testing.T) {
	fake := importer(t, fueltest.FakeOptions{})
	s := must(t)(fuel.FromBytes(cpu, fuel.U8, make([]byte, large)))
	writing, go_ := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		err := s.Mutate(func(b []byte) error {
			b[0] = 1
			close(writing)
			<-go_
			b[large-1] = 1
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-writing
	time.AfterFunc(10*time.Millisecond, func() { close(go_) })
	there := imported(t, s, fake.Device(0))
	want := make([]byte, large)
	want[0], want[large-1] = 1, 1
	wantBytes(t, "imported during a write", there, want)
	wg.Wait()
	closeAll(t, there)
}

// Queued work of the host that writes the memory comes before.
func TestImportWaitsForTheHostsQueue(t *testing.T) {
	fake := importer(t, fueltest.FakeOptions{})
	q := value(fuel.QueueOf(cpu))(t)
	gate := make(chan struct{})
	value(q.WaitExternal(fuel.External{Done: gate}))(t)
	s := must(t)(fuel.FromBytes(cpu, fuel.U8, make([]byte, large)))
	value(q.Fill(s, []byte{7}))(t)
	time.AfterFunc(10*time.Millisecond, func() { close(gate) })
	there := imported(t, s, fake.Device(0))
	if !all(contents(t, there), 7) {
		t.Error("the device sees what was there before")
	}
	closeAll(t, there)
}

// The memory is not reused while the device reads it, whoever closed what.
func TestImportedMemoryIsNeverReusedEarly(t *testing.T) {
	fake := importer(t, fueltest.FakeOptions{})
	fuel.Unchecked(t) // the pool hands out what was freed last
	dev := fake.Device(0)
	b := count(large)
	for _, hostFirst := range []bool{true, false} {
		s := value(fuel.FromBytes(cpu, fuel.U8, b))(t)
		there := imported(t, s, dev)
		to := value(fuel.AllocUninit(dev, fuel.U8, large, nil))(t)
		q := value(fuel.QueueOf(dev))(t)
		before := inUse(t)
		fake.Hold()
		p := value(q.Copy(to, there))(t)
		if hostFirst {
			closeAll(t, s, there)
		} else {
			closeAll(t, there, s)
		}
		if now := inUse(t); now != before {
			t.Errorf("%d bytes of the host are in use while the device reads, want %d", now, before)
		}
		junk := value(fuel.FromBytes(cpu, fuel.U8, bytes.Repeat([]byte{0xBD}, large)))(t)
		fake.Release()
		if err := q.Wait(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		wantBytes(t, "what was queued before Close", to, b)
		// Nobody calls the driver: the share goes by itself.
		eventually(t, "the host's memory stays", func() bool { return inUse(t) == before })
		closeAll(t, junk, to)
	}
}

// What is refused, for whatever reason, is copied, and the report says why.
func TestImportThatIsNoneIsNeverSilent(t *testing.T) {
	fake := importer(t, fueltest.FakeOptions{Devices: 2})
	dev := fake.Device(0)
	try := func(name string, s *fuel.Storage, opt fuel.CopyOptions, path fuel.CopyPath, note string) {
		t.Helper()
		var r fuel.CopyReport
		opt.Import, opt.Report = true, &r
		want := contents(t, s)
		there := value(s.To(t.Context(), dev, &opt))(t)
		wantBytes(t, name, there, want)
		if r.Path != path || r.Bytes != s.LenBytes() || !strings.HasPrefix(r.Note, "not imported: ") || !strings.Contains(r.Note, note) {
			t.Errorf("%s: %+v, want a note with %q", name, r, note)
		}
		closeAll(t, there, s)
	}
	whole := func() *fuel.Storage { return value(fuel.FromBytes(cpu, fuel.U8, count(large)))(t) }
	t.Run("small", func(t *testing.T) {
		fuel.Unchecked(t)
		try("a small block", value(fuel.FromBytes(cpu, fuel.U8, count(100)))(t), fuel.CopyOptions{}, fuel.PathUpload, "small block")
	})
	try("wrapped memory", value(fuel.Wrap(fuel.U8, count(large), nil))(t), fuel.CopyOptions{}, fuel.PathUpload, "wrapped memory")
	try("memory of a device", value(fuel.FromBytes(fake.Device(1), fuel.U8, count(large)))(t), fuel.CopyOptions{}, fuel.PathBounce, "it is on vulkan:1")
	if file := memories["mapped"](t, count(large)); file.Region().Memory == fuel.MemoryMapped {
		try("a mapped file", file, fuel.CopyOptions{}, fuel.PathUpload, "ImportMapped is not set")
	}
	fake.Fail(fueltest.OpImport, 1, nil)
	try("refused", whole(), fuel.CopyOptions{}, fuel.PathUpload, "vulkan:0 refuses: fueltest: injected failure")
	fake.Fail(fueltest.OpImport, 1, fuel.ErrOutOfMemory)
	try("refused for memory", whole(), fuel.CopyOptions{}, fuel.PathUpload, "vulkan:0 refuses")

	// An import that finds the device lost is one that fails.
	fake.Fail(fueltest.OpImport, 1, fuel.ErrDeviceLost)
	s := whole()
	defer s.Close()
	var r fuel.CopyReport
	_, err := s.To(t.Context(), dev, &fuel.CopyOptions{Import: true, Report: &r})
	wantErr(t, "To a device that is lost meanwhile", err, fuel.ErrDeviceLost)
	if s.Region().Owners != 1 {
		t.Errorf("after a failure the host's memory has %d owners", s.Region().Owners)
	}
}

func TestDeviceThatCannotImportIsNamed(t *testing.T) {
	fuel.ForcePool(t)
	for unit, note := range map[int]string{0: "vulkan:0 cannot use host memory", 1 << 30: "imports whole 1073741824 bytes"} {
		t.Run(strconv.Itoa(unit), func(t *testing.T) {
			fake := fueltest.Register(t, fuel.Vulkan, fueltest.FakeOptions{ImportAlign: unit})
			fueltest.LeakCheck(t)
			s := value(fuel.FromBytes(cpu, fuel.U8, count(large)))(t)
			var r fuel.CopyReport
			there := value(s.To(t.Context(), fake.Device(0), &fuel.CopyOptions{Import: true, Report: &r}))(t)
			if r.Path != fuel.PathUpload || !strings.Contains(r.Note, note) {
				t.Errorf("%+v", r)
			}
			closeAll(t, s, there)
		})
	}
}

// A device that is lost lets go of the host's memory.
func TestLostDeviceNeverKeepsHostMemory(t *testing.T) {
	fake := importer(t, fueltest.FakeOptions{Lazy: true})
	dev := fake.Device(0)
	before := inUse(t)
	s := value(fuel.FromBytes(cpu, fuel.U8, count(large)))(t)
	there := imported(t, s, dev)
	to := value(fuel.Alloc(dev, fuel.U8, large, nil))(t)
	value(value(fuel.QueueOf(dev))(t).Copy(to, there))(t)
	fake.Lose()
	if _, err := there.ReadAt(make([]byte, 1), 0); !errors.Is(err, fuel.ErrDeviceLost) {
		t.Errorf("a read of a lost device: %v", err)
	}
	closeAll(t, s, there, to)
	eventually(t, "the host's memory stays", func() bool { return inUse(t) == before })
}

// Everything at once, for the race detector and the counts.
func TestImportUnderLoad(t *testing.T) {
	fake := importer(t, fueltest.FakeOptions{})
	dev := fake.Device(0)
	b := count(large)
	s := must(t)(fuel.FromBytes(cpu, fuel.U8, b))
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			for range 8 {
				c, err := s.Clone()
				if err != nil {
					t.Error(err)
					return
				}
				there, err := c.To(context.Background(), dev, &fuel.CopyOptions{Import: true})
				if err != nil {
					t.Error(err)
					return
				}
				switch i % 3 {
				case 0:
					err = errors.Join(c.Close(), there.FillRange(context.Background(), i, 10, []byte{9}))
				case 1:
					err = errors.Join(c.FillRange(context.Background(), i, 10, []byte{9}), c.Close())
				case 2:
					err = c.Close()
				}
				got := make([]byte, large)
				if _, e := there.ReadAt(got, 0); e != nil || err != nil {
					t.Error(e, err)
				}
				want := b
				if i%3 == 0 {
					want = bytes.Clone(b)
					copy(want[i:i+10], bytes.Repeat([]byte{9}, 10))
				}
				if !bytes.Equal(got, want) {
					t.Errorf("goroutine %d: other bytes", i)
				}
				if err := there.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "shares are left", func() bool { return s.Region().Owners == 1 })
	wantBytes(t, "the source", s, b)
}
