package vulkan

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"

	"github.com/go-fuel/fuel"
	hostmem "github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/fueltest"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/gpu"
	"github.com/go-fuel/fuel/internal/race"
	"github.com/go-fuel/fuel/internal/require"
)

// hostMemory makes Storages that can be imported. Those of race builds are on the
// Go heap, but for mapped files.
func hostMemory(t *testing.T, b []byte) *fuel.Storage {
	t.Helper()
	if !race.Enabled {
		s, err := fuel.FromBytes(fuel.Device{}, fuel.U8, b)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	return mappedFile(t, b)
}

func mappedFile(t *testing.T, b []byte) *fuel.Storage {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	s, err := fuel.Map(f, fuel.U8, 0, len(b))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func needsImport(t *testing.T, dev fuel.Device) {
	t.Helper()
	for _, s := range fuel.Probe(t.Context()) {
		for _, d := range s.Devices {
			if d.Device == dev && !d.HostImport {
				require.Skip(t, "vulkan-import", d.Name+" cannot use host memory")
			}
		}
	}
}

func patterned(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + 1)
	}
	return b
}

// lavapipe reads the host's memory itself: what a raw slice writes there too late
// shows on the device, so there is no copy.
func TestImportNeverCopies(t *testing.T) {
	dev := use(t, newDriver(options{cpu: true}, gpu.Config{Staged: true}))
	needsImport(t, dev)
	if race.Enabled {
		require.Skip(t, "norace", "memory of race builds is on the Go heap")
	}
	fueltest.LeakCheck(t)
	b := patterned(3<<20 + 5)
	s := hostMemory(t, b)
	defer s.Close()
	raw, err := s.MutableBytes()
	if err != nil {
		t.Fatal(err)
	}
	var r fuel.CopyReport
	there, err := s.To(t.Context(), dev, &fuel.CopyOptions{Import: true, Report: &r})
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	if r != (fuel.CopyReport{Path: fuel.PathImport}) {
		t.Fatalf("%+v", r)
	}
	raw[1<<20]++
	got := make([]byte, len(b))
	if _, err := there.ReadAt(got, 0); err != nil {
		t.Fatal(err)
	}
	if b[1<<20]++; !bytes.Equal(got, b) {
		t.Error("the device has other bytes than the host")
	}
}

// A mapped file takes its second option, and comes back whole; a View begins
// where it begins.
func TestImportedFileIsTheFile(t *testing.T) {
	for name, c := range map[string]gpu.Config{"direct": {}, "staged": {Staged: true}} {
		t.Run(name, func(t *testing.T) {
			dev := use(t, newDriver(options{cpu: true}, c))
			needsImport(t, dev)
			fueltest.LeakCheck(t)
			b := patterned(100_001)
			s := mappedFile(t, b)
			defer s.Close()
			v, err := s.View(777, 90_001)
			if err != nil {
				t.Fatal(err)
			}
			defer v.Close()
			for _, o := range []fuel.CopyOptions{{Import: true}, {Import: true, ImportMapped: true}} {
				var r fuel.CopyReport
				o.Report = &r
				there, err := v.To(t.Context(), dev, &o)
				if err != nil {
					t.Fatal(err)
				}
				if (r.Path == fuel.PathImport) != o.ImportMapped {
					t.Errorf("%+v", r)
				}
				got := make([]byte, 90_001)
				if _, err := there.ReadAt(got, 0); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, b[777:][:90_001]) {
					t.Error("the device has other bytes than the file")
				}
				if err := there.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A refusing port is one whose driver takes no pointer: lavapipe takes any.
type refusing struct{ *port }

func (refusing) Import([]byte, bool) (gpu.Block, error) {
	return gpu.Block{}, failed("vkAllocateMemory", invalidHandle)
}

const invalidHandle result = -1000072003

// What the driver refuses is copied, and the report says so in its words.
func TestRefusedImportIsNeverSilent(t *testing.T) {
	d := newDriver(options{cpu: true}, gpu.Config{})
	dev := use(t, d)
	needsImport(t, dev)
	b := d.backend()
	b.Open = func(context.Context, int) (backend.Device, error) {
		d.current.take()
		p, err := openPort(d.current.devices[0], portOptions{}, d.current.drop)
		if err != nil {
			return nil, err
		}
		return gpu.New(refusing{p}, p.lim, gpu.Config{}), nil
	}
	t.Cleanup(backend.Replace(backend.Vulkan, b))
	fueltest.LeakCheck(t)
	bytes := patterned(2<<20 + 5)
	s := mappedFile(t, bytes)
	defer s.Close()
	var r fuel.CopyReport
	there, err := s.To(t.Context(), dev, &fuel.CopyOptions{Import: true, ImportMapped: true, Report: &r})
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	const want = "not imported: vulkan:0 refuses: vkAllocateMemory: VK_ERROR_INVALID_EXTERNAL_HANDLE (-1000072003)"
	if r.Path != fuel.PathUpload || r.Bytes != len(bytes) || r.Note != want {
		t.Errorf("%+v", r)
	}
}

// Where no type of memory is left the buffer goes again, and no memory is taken.
func TestImportWithoutATypeOfMemoryIsAnError(t *testing.T) {
	d := newDriver(options{cpu: true}, gpu.Config{})
	needsImport(t, use(t, d))
	d.current.take()
	p, err := openPort(d.current.devices[0], portOptions{}, d.current.drop)
	if err != nil {
		t.Fatal(err)
	}
	mem, err := hostmem.Reserve(8192)
	if err != nil {
		t.Fatal(err)
	}
	defer hostmem.Release(mem)
	b, err := p.Import(mem, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.importTo(b.ID, mem, 0); err == nil {
		t.Error("memory of no type was imported")
	}
	if _, err := p.importTo(b.ID, mem[:4096], ^uint32(0)); err == nil {
		t.Error("memory was imported that the buffer is larger than")
	}
	p.Release(b)
	if len(p.blocks) != 0 || p.used != [16]uint64{} {
		t.Errorf("%d blocks are left, and %v in use", len(p.blocks), p.used)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// The code of a driver that does not take a pointer.
func TestInvalidHandleIsNamed(t *testing.T) {
	err := failed("vkAllocateMemory", invalidHandle)
	if err == nil || err.Error() != "vkAllocateMemory: VK_ERROR_INVALID_EXTERNAL_HANDLE (-1000072003)" || errors.Unwrap(err) != nil {
		t.Error(err)
	}
}
