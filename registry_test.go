package fuel

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-fuel/fuel/internal/backend"
)

// stub is a driver that finds and opens nothing, until a test changes it.
func stub(kind Kind) *backend.Driver {
	return &backend.Driver{
		Kind: backend.Kind(kind), Package: "example.test/driver",
		Probe: func(context.Context) (backend.Info, error) { return backend.Info{}, nil },
		Open:  func(context.Context, int) (backend.Device, error) { return nil, errors.New("none") },
	}
}

// install puts a driver in for one test.
func install(t *testing.T, d *backend.Driver) {
	t.Helper()
	t.Cleanup(replace(d.Kind, d))
}

func panicText(f func()) (text string) {
	defer func() { text, _ = recover().(string) }()
	f()
	return ""
}

// Report 77: a registry that panics with a text that helps nobody, or that
// overwrites.
func TestRegisterRefusesWhatIsWrongAndSaysWhatToDo(t *testing.T) {
	second := stub(CPU)
	lacking := stub(CUDA)
	lacking.Open = nil
	blind := stub(CUDA)
	blind.Probe = nil
	nameless := stub(CUDA)
	nameless.Package = ""
	for what, c := range map[string]struct {
		kind Kind
		d    *backend.Driver
		want []string
	}{
		"unknown kind":  {Kind(200), stub(CUDA), []string{"unknown kind 200", "another version"}},
		"nil":           {CUDA, nil, []string{"nil driver", "cuda"}},
		"second driver": {CPU, second, []string{"two drivers for cpu", "github.com/go-fuel/fuel", "example.test/driver", "Import one", "vendored"}},
		"another kind":  {Vulkan, stub(CUDA), []string{"example.test/driver", "vulkan", "cuda"}},
		"no Open":       {CUDA, lacking, []string{"example.test/driver", "lacks Open"}},
		"no Probe":      {CUDA, blind, []string{"example.test/driver", "lacks Probe"}},
		"no package":    {CUDA, nameless, []string{"cuda", "package"}},
	} {
		text := panicText(func() { Register(c.kind, c.d) })
		for _, part := range append(c.want, "fuel.Register") {
			if !strings.Contains(text, part) {
				t.Errorf("%s: %q does not say %q", what, text, part)
			}
		}
	}
	if CUDA.Linked() || !CPU.Linked() || Kind(99).Linked() {
		t.Error("a refused driver is registered, or the CPU is not")
	}
}

// A later Register only makes the next Probe look again.
func TestRegisterAfterAProbeIsSeen(t *testing.T) {
	if row := Probe(t.Context())[Metal]; row.State != NotLinked {
		t.Fatalf("%+v", row)
	}
	defer replace(backend.Metal, nil)() // takes away what is registered below
	d := stub(Metal)
	d.Probe = func(context.Context) (backend.Info, error) {
		return backend.Info{Devices: []backend.DeviceInfo{{Name: "x"}}}, nil
	}
	if err := register(Metal, d); err != nil {
		t.Fatal(err)
	}
	if row := Probe(t.Context())[Metal]; row.State != Available {
		t.Errorf("%+v", row)
	}
}

// Report 78: deadlock of the first use from many threads.
func TestTheFirstUseFrom64GoroutinesDoesNotDeadlock(t *testing.T) {
	var probes, opens int
	d := stub(Vulkan)
	d.Probe = func(ctx context.Context) (backend.Info, error) {
		probes++
		time.Sleep(20 * time.Millisecond)
		MemStats(Device{}) // calls fuel, as a plugin may
		for _, row := range []Kind{CPU, CUDA} {
			start(row)
		}
		return backend.Info{Devices: []backend.DeviceInfo{{Name: "x"}}}, nil
	}
	d.Open = func(context.Context, int) (backend.Device, error) {
		opens++
		time.Sleep(20 * time.Millisecond)
		return nil, errors.New("no device today")
	}
	install(t, d)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			if row := Probe(t.Context())[Vulkan]; row.State != Available {
				t.Errorf("%+v", row)
			}
			_, err := Alloc(Device{Vulkan, 0}, F32, 1, nil)
			if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "no device today") {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if probes != 1 || opens != 1 {
		t.Errorf("%d probes, %d opens", probes, opens)
	}
}

func TestAHangingDriverDoesNotHangProbe(t *testing.T) {
	hang := make(chan struct{})
	d := stub(CUDA)
	d.Probe = func(context.Context) (backend.Info, error) { <-hang; return backend.Info{}, nil }
	install(t, d)
	defer close(hang)
	for range 2 { // also while the first is still at it
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		rows := Probe(ctx)
		if row := rows[CUDA]; row.State != Probing || !errors.Is(row.Err, context.DeadlineExceeded) || row.Reason == "" {
			t.Errorf("%+v", row)
		}
		if rows[CPU].State != Available {
			t.Errorf("the CPU waits for CUDA: %+v", rows[CPU])
		}
		list, err := Devices(ctx)
		if len(list) != 1 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Devices: %v, %v", list, err)
		}
		cancel()
	}
	s, err := FromSlice(Device{}, []uint8{1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.To(ctx, Device{CUDA, 0}, nil); !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("To: %v", err)
	}
}

func TestAPanickingDriverIsAReason(t *testing.T) {
	d := stub(Metal)
	d.Probe = func(context.Context) (backend.Info, error) { panic("broken stack") }
	install(t, d)
	row := Probe(t.Context())[Metal]
	if row.State != Unavailable || !strings.Contains(row.Reason, "broken stack") || row.Err == nil {
		t.Errorf("%+v", row)
	}
}

// Reports 79 and 80: "no backends are loaded", without a reason.
func TestProbeAlwaysSaysWhy(t *testing.T) {
	d := stub(Vulkan)
	missing := errors.New(`libvulkan.so.1 1.2.3: missing symbol "vkGetInstanceProcAddr"`)
	d.Probe = func(context.Context) (backend.Info, error) {
		return backend.Info{Library: "libvulkan.so.1", DriverVersion: "1.2.3"}, missing
	}
	install(t, d)
	install(t, stub(Metal))
	rows := Probe(t.Context())
	if len(rows) != len(Kinds()) {
		t.Fatalf("%d rows", len(rows))
	}
	for i, row := range rows {
		if row.Kind != Kind(i) {
			t.Errorf("row %d is of %s", i, row.Kind)
		}
		if row.State != Available && row.Reason == "" {
			t.Errorf("%s is %s without a reason", row.Kind, row.State)
		}
	}
	if row := rows[CPU]; row.State != Available || row.Tier == "" || len(row.Devices) != 1 || row.Import == "" {
		t.Errorf("%+v", row)
	}
	if row := rows[Vulkan]; row.State != Unavailable || row.Err != missing || row.Library == "" || row.DriverVersion != "1.2.3" {
		t.Errorf("%+v", row)
	}
	if row := rows[Metal]; row.State != Unavailable || row.Reason != "no device found" {
		t.Errorf("%+v", row)
	}
	if row := rows[CUDA]; row.State != NotLinked {
		t.Errorf("%+v", row)
	}
	_, err := Alloc(Device{Vulkan, 0}, F32, 1, nil)
	if !errors.Is(err, ErrUnavailable) || !errors.Is(err, missing) {
		t.Errorf("Alloc: %v", err)
	}
	if _, err := Alloc(Device{CUDA, 0}, F32, 1, nil); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Alloc on a kind that is not linked: %v", err)
	}
	for _, id := range []Device{{Kind(77), 0}, {CPU, 1}, {CPU, -1}} {
		if _, err := Alloc(id, F32, 1, nil); !errors.Is(err, ErrUnavailable) {
			t.Errorf("Alloc on %s: %v", id, err)
		}
	}
}

func TestReprobeLooksAgain(t *testing.T) {
	n := 0
	d := stub(CUDA)
	d.Probe = func(context.Context) (backend.Info, error) {
		n++
		return backend.Info{Devices: make([]backend.DeviceInfo, n-1)}, nil
	}
	install(t, d)
	for range 3 {
		if row := Probe(t.Context())[CUDA]; row.State != Unavailable {
			t.Fatalf("%+v", row)
		}
	}
	if row := Reprobe(t.Context())[CUDA]; row.State != Available || n != 2 {
		t.Errorf("%+v after %d probes", row, n)
	}
}

// A Reason must not send a person to an import that is not there.
func TestProbeNeverNamesAMissingImport(t *testing.T) {
	for _, k := range Kinds() {
		path := k.Import()
		if path == "" {
			continue
		}
		dir := "." + strings.TrimPrefix(path, "github.com/go-fuel/fuel")
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s is said to come from %s, which has no files: %v", k, path, err)
		}
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
	}
}

func TestDeviceTextRoundTrips(t *testing.T) {
	for text, want := range map[string]Device{
		"cpu": {}, "cuda:0": {CUDA, 0}, "vulkan:1": {Vulkan, 1}, "metal:10": {Metal, 10},
	} {
		d, err := ParseDevice(text)
		if err != nil || d != want || d.String() != text {
			t.Errorf("%q: %v (%s), %v", text, d, d, err)
		}
		var e Device
		b, err := d.MarshalText()
		if err != nil || e.UnmarshalText(b) != nil || e != d {
			t.Errorf("%q: %s, %v, %v", text, b, e, err)
		}
	}
	for _, also := range []string{"cuda", "cpu:0"} {
		if d, err := ParseDevice(also); err != nil || d.Index != 0 {
			t.Errorf("%q: %v, %v", also, d, err)
		}
	}
	for _, bad := range []string{"", "gpu", "CUDA:0", "cuda:", "cuda:-1", "cuda:+1", "cuda:01", "cuda:1x", "cpu:1", "cuda:99999999999999999999", "cuda:0:0"} {
		if d, err := ParseDevice(bad); err == nil {
			t.Errorf("%q is %v", bad, d)
		}
	}
}

func TestEnumerationsRoundTripAsText(t *testing.T) {
	roundTrip(t, CPU, CUDA, Vulkan, Metal)
	roundTrip(t, NotLinked, Unavailable, Probing, Available)
	roundTrip(t, MemoryHeap, MemoryAnonymous, MemoryMapped, MemoryWrapped, MemoryDevice, MemoryShared, MemoryImported)
	roundTrip(t, PathNone, PathHost, PathUpload, PathDownload, PathDevice, PathBounce, PathImport, PathPeer)
}

func roundTrip[T interface {
	~uint8
	MarshalText() ([]byte, error)
}, P interface {
	*T
	UnmarshalText([]byte) error
}](t *testing.T, values ...T) {
	t.Helper()
	for i, v := range values {
		text, err := v.MarshalText()
		got := T(99)
		if err != nil || int(v) != i || P(&got).UnmarshalText(text) != nil || got != v {
			t.Errorf("%d: %q, %d, %v", v, text, got, err)
		}
	}
	none := T(len(values))
	text, _ := none.MarshalText()
	if err := P(&none).UnmarshalText(text); err == nil {
		t.Errorf("%q is a value", text)
	}
}

func oneDevice(context.Context) (backend.Info, error) {
	return backend.Info{Devices: []backend.DeviceInfo{{Name: "fake", Alignment: 64}}}, nil
}

// openHost opens the host's memory under another Kind.
func openHost(context.Context, int) (backend.Device, error) { return &host{}, nil }

// A context that is done tells of no fault of a device that is known.
func TestDoneContextDoesNotHideKnownDevices(t *testing.T) {
	Probe(context.Background())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 100 {
		if rows := Probe(ctx); rows[CPU].State != Available {
			t.Fatalf("%+v", rows[CPU])
		}
	}
	installHost(t)
	if _, err := Alloc(Device{CUDA, 0}, U8, 1, nil); err != nil {
		t.Fatal(err)
	}
	unavailable := 0
	for range 100 {
		if _, err := openDevice(ctx, Device{CUDA, 0}); errors.Is(err, ErrUnavailable) {
			unavailable++
		}
	}
	if unavailable != 0 {
		t.Errorf("an open device is unavailable in %d of 100 calls", unavailable)
	}
}

func TestClosedDeviceStorageAnswersErrClosed(t *testing.T) {
	installHost(t)
	s, err := Alloc(Device{CUDA, 0}, U8, 4, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.MutableBytes(); !errors.Is(err, ErrNotHost) {
		t.Error(err)
	}
	s.Close()
	if _, err := s.MutableBytes(); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := s.Bytes(); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// A private copy that is made on a device, and everything in between, leaves
// nothing behind.
func TestDeviceStorageRoundTrip(t *testing.T) {
	installHost(t)
	ctx := context.Background()
	dev := Device{CUDA, 0}
	s, err := FromBytes(dev, U8, []byte("0123456789"))
	if err != nil {
		t.Fatal(err)
	}
	c, _ := s.Clone()
	if _, err := c.WriteAt([]byte("x"), 3); err != nil {
		t.Fatal(err)
	}
	h, err := c.To(ctx, Device{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := h.Bytes(); string(b) != "012x456789" {
		t.Errorf("%q", b)
	}
	b := make([]byte, 10)
	if _, err := s.ReadAt(b, 0); err != nil || string(b) != "0123456789" {
		t.Errorf("%q %v", b, err)
	}
	for _, x := range []*Storage{s, c, h} {
		x.Close()
	}
	if m, _ := MemStats(dev); m.InUse != 0 || m.Regions != 0 || m.PrivateCopies != 1 {
		t.Errorf("%+v", m)
	}
}

// installHost makes the host's memory a CUDA device for one test.
func installHost(t *testing.T) {
	d := stub(CUDA)
	d.Probe, d.Open = oneDevice, openHost
	install(t, d)
}

// A driver that returns no device must not take the program down later.
func TestADriverWithoutADeviceIsAnError(t *testing.T) {
	d := stub(CUDA)
	d.Probe = oneDevice
	d.Open = func(context.Context, int) (backend.Device, error) { return nil, nil }
	install(t, d)
	if _, err := Alloc(Device{CUDA, 0}, U8, 1, nil); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
}
