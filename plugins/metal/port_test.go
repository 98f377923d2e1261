//go:build linux && amd64 && !fuel_static

package metal

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/go-fuel/fuel"
)

// row is what Probe says of Metal.
func row(t *testing.T) fuel.BackendStatus {
	t.Helper()
	for _, r := range fuel.Reprobe(t.Context()) {
		if r.Kind == fuel.Metal {
			return r
		}
	}
	t.Fatal("no row for Metal")
	panic("")
}

func TestProbeNeverMissesADevice(t *testing.T) {
	for name, c := range map[string]struct {
		m    machine
		want string
	}{
		"one":        {machine{}, "Fake Metal 0"},
		"default":    {machine{devices: 3}, "Fake Metal 0, Fake Metal 2, Fake Metal 1"},
		"no default": {machine{devices: 2, noDefault: true}, "Fake Metal 1, Fake Metal 0"},
	} {
		t.Run(name, func(t *testing.T) {
			newFake(t, c.m).use(t, c.m)
			for range 2 {
				r := row(t)
				var names []string
				for _, d := range r.Devices {
					names = append(names, d.Name)
				}
				if got := strings.Join(names, ", "); got != c.want || r.State != fuel.Available {
					t.Errorf("%s: %q, want %q (%s)", r.State, got, c.want, r.Reason)
				}
			}
			d := row(t).Devices[0]
			if !d.Unified || d.Memory.Total != 256<<20 || d.MaxAlloc != 128<<20 || d.Alignment != 256 || !d.HostImport {
				t.Errorf("%+v", d)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		f := newFake(t, machine{})
		f.gnu.setup.Call(0, 0, 1, 1<<20, 1<<20, 1<<20)
		f.use(t, machine{})
		if r := row(t); r.State != fuel.Unavailable || !strings.Contains(r.Reason, "no Metal device") {
			t.Errorf("%s: %q", r.State, r.Reason)
		}
	})
	t.Run("working set", func(t *testing.T) {
		m := machine{workingSet: 64 << 20}
		newFake(t, m).use(t, m)
		if d := row(t).Devices[0]; d.MaxAlloc != 64<<20 || d.Memory.Total != 64<<20 {
			t.Errorf("%+v", d)
		}
	})
}

// A nil that Metal may answer is an error, leaves nothing behind, and is over
// when Metal has changed its mind.
func TestNilNeverGoesUnseen(t *testing.T) {
	for msg, want := range map[message]error{
		newCommandQueue: nil, newSharedEvent: nil, newBuffer: fuel.ErrOutOfMemory, contents: nil, commandBuffer: nil, blitCommandEncoder: nil,
	} {
		t.Run(messages[msg].selector, func(t *testing.T) {
			m := machine{private: msg == commandBuffer || msg == blitCommandEncoder}
			f := newFake(t, m)
			dev := f.use(t, m)
			try := func() error {
				s, err := fuel.FromBytes(dev, fuel.U8, []byte{1, 2, 3})
				if err != nil {
					return err
				}
				defer s.Close()
				q, err := fuel.QueueOf(dev)
				if err != nil {
					return err
				}
				p, err := q.Zero(s)
				if err != nil {
					return err
				}
				return q.Wait(t.Context(), p)
			}
			f.nilAt(msg, 1)
			err := try()
			if err == nil || !strings.Contains(err.Error(), messages[msg].selector) || want != nil && !errors.Is(err, want) {
				t.Errorf("%v", err)
			}
			f.nilAt(msg, 0)
			fuel.Reprobe(t.Context())
			if err := try(); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

func TestFailedWorkNeverPasses(t *testing.T) {
	m := machine{private: true, delay: 1000}
	f := newFake(t, m)
	dev := f.use(t, m)
	s, err := fuel.FromBytes(dev, fuel.U8, make([]byte, 64))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	q, err := fuel.QueueOf(dev)
	if err != nil {
		t.Fatal(err)
	}
	f.failAt(3, 8)
	var last fuel.Point
	for i := range 6 {
		p, err := q.Fill(s, []byte{byte(i)})
		if err != nil {
			break
		}
		last = p
	}
	start := time.Now()
	err = q.Wait(t.Context(), last)
	if !errors.Is(err, fuel.ErrDeviceLost) || !strings.Contains(err.Error(), "MTLCommandBufferErrorOutOfMemory (8): the script says 8") {
		t.Errorf("%v", err)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("it took %v", d)
	}
	if _, err := fuel.Alloc(dev, fuel.U8, 1, nil); !errors.Is(err, fuel.ErrDeviceLost) {
		t.Errorf("Alloc: %v", err)
	}
	if _, err := s.ReadAt(make([]byte, 1), 0); !errors.Is(err, fuel.ErrDeviceLost) {
		t.Errorf("ReadAt: %v", err)
	}
}

func TestWaitExternalNeverPassesEarly(t *testing.T) {
	for name, m := range map[string]machine{"shared": {}, "private": {private: true}} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, m)
			dev := f.use(t, m)
			q, err := fuel.QueueOf(dev)
			if err != nil {
				t.Fatal(err)
			}
			s, err := fuel.FromBytes(dev, fuel.U8, bytes.Repeat([]byte{1}, 100))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			var event object
			d := f.defaultDevice()
			f.pool(func() { event = f.get(d, newSharedEvent); f.send(d, release) })
			defer f.pool(func() { f.send(event, release) })
			if _, err := q.WaitExternal(fuel.External{Handle: uint64(event), Value: 7}); err != nil {
				t.Fatal(err)
			}
			var p fuel.Point
			// More than the 64 that Metal's queues have by default, and more
			// than ours, too.
			queued := make(chan error)
			go func() {
				var err error
				for i := 0; i < 2*inFlight && err == nil; i++ {
					p, err = q.Fill(s, []byte{byte(i), byte(i >> 8)})
				}
				queued <- err
			}()
			brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			select {
			case err := <-queued:
				t.Fatalf("all of it is queued: %v", err)
			case <-brief.Done():
			}
			f.pool(func() { f.send(event, setSignaledValue, 7) })
			if err := <-queued; err != nil {
				t.Fatal(err)
			}
			if err := q.Wait(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 100)
			last := 2*inFlight - 1
			if _, err := s.ReadAt(got, 0); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{byte(last), byte(last >> 8)}, 50)) {
				t.Errorf("%v: %x", err, got)
			}
		})
	}
}

func TestVisitNeverHandsOutAnotherBuffer(t *testing.T) {
	m := machine{}
	f := newFake(t, m)
	dev := f.use(t, m)
	want := []byte("weights")
	s, err := fuel.FromBytes(dev, fuel.U8, want)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	v, err := s.View(2, 5)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	got, err := fuel.Dispatch(v, fuel.Cases[string]{Metal: func(m fuel.MetalMemory) (text string, err error) {
		f.pool(func() {
			p := foreign(f.send(object(m.Buffer), contents).Uintptr())
			text = string(unsafe.Slice((*byte)(unsafe.Add(p, m.Offset)), m.Bytes))
			if f.send(object(m.Device), registryID) != 0x100000000 || f.get(object(m.Queue), commandBuffer) == 0 {
				t.Error("another device or queue")
			}
		})
		return text, nil
	}})
	if got != "ights" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestLimitsAreNeverPassed(t *testing.T) {
	m := machine{heap: 40 << 20}
	dev := newFake(t, m).use(t, m)
	if _, err := fuel.AllocUninit(dev, fuel.U8, 128<<20+1, nil); !errors.Is(err, fuel.ErrTooLarge) {
		t.Errorf("more than a buffer has: %v", err)
	}
	if _, err := fuel.AllocUninit(dev, fuel.U8, 100<<20, nil); !errors.Is(err, fuel.ErrOutOfMemory) {
		t.Errorf("more than there is: %v", err)
	}
	s, err := fuel.AllocUninit(dev, fuel.U8, 20<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if free := row(t).Devices[0].Memory.Free; free != 256<<20-20<<20 {
		t.Errorf("%d bytes are free", free)
	}
}

func TestSharedMemoryNeverNeedsACommandBuffer(t *testing.T) {
	m := machine{}
	f := newFake(t, m)
	dev := f.use(t, m)
	s, err := fuel.Alloc(dev, fuel.U8, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f.nilAt(commandBuffer, 1)
	want := bytes.Repeat([]byte{7}, 1<<20)
	got := make([]byte, 1<<20)
	if _, err := s.WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Fatal(err)
	}
}

func TestOtherSystemsAreNeverLeftWithoutAReason(t *testing.T) {
	for goos, part := range map[string]string{"linux": "this is linux", "windows": "this is windows", "ios": "on iOS"} {
		if err := supported(goos); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", goos, err)
		}
	}
	if err := supported("darwin"); err != nil {
		t.Error(err)
	}
	if _, err := openApple(); err == nil || !strings.Contains(err.Error(), "linux") {
		t.Errorf("here: %v", err)
	}
}

func TestPrivateIsNeverSetByAFalseValue(t *testing.T) {
	for value, want := range map[string]bool{"": false, "0": false, "false": false, "1": true, "TRUE": true} {
		t.Run(value, func(t *testing.T) {
			t.Setenv("FUEL_METAL_PRIVATE", value)
			m := machine{mayBreak: true} // contents of private memory
			f := newFake(t, m)
			dev := f.use(t, m)
			s, err := fuel.FromBytes(dev, fuel.U8, []byte{1})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			buffer, err := fuel.Dispatch(s, fuel.Cases[uintptr]{Metal: func(m fuel.MetalMemory) (uintptr, error) { return m.Buffer, nil }})
			if err != nil {
				t.Fatal(err)
			}
			f.pool(func() {
				if addr := f.send(object(buffer), contents).Uintptr(); (addr == 0) != want {
					t.Errorf("private is %v", !want)
				}
			})
		})
	}
}

func TestImportNeverCopies(t *testing.T) {
	m := machine{}
	f := newFake(t, m)
	dev := f.use(t, m)
	file, err := os.Create(filepath.Join(t.TempDir(), "weights"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	want := bytes.Repeat([]byte("weights."), 8192)
	if _, err := file.Write(want); err != nil {
		t.Fatal(err)
	}
	s, err := fuel.Map(file, fuel.U8, 0, len(want))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var r fuel.CopyReport
	there, err := s.To(t.Context(), dev, &fuel.CopyOptions{Import: true, ImportMapped: true, Report: &r})
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	if r.Path != fuel.PathImport {
		t.Fatalf("%+v", r)
	}
	same, err := fuel.Dispatch(there, fuel.Cases[bool]{Metal: func(m fuel.MetalMemory) (same bool, err error) {
		f.pool(func() {
			bytes, err := s.Bytes()
			same = err == nil && f.send(object(m.Buffer), contents).Uintptr()+uintptr(m.Offset) == uintptr(unsafe.Pointer(unsafe.SliceData(bytes)))
		})
		return same, nil
	}})
	if !same || err != nil {
		t.Errorf("Metal's buffer is not the mapping: %v", err)
	}
	got := make([]byte, 3)
	if _, err := there.ReadAt(got, 8193); err != nil || string(got) != "eig" {
		t.Errorf("%q, %v", got, err)
	}
}
