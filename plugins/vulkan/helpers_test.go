package vulkan

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/gpu"
	"github.com/go-fuel/fuel/internal/require"
)

// cpu is the host.
var cpu = fuel.Device{}

// children are programs that tests run in a process of their own, being the
// test binary with FUEL_TEST_CHILD set.
var children = map[string]func(){}

func TestMain(m *testing.M) {
	if name := os.Getenv("FUEL_TEST_CHILD"); name != "" {
		children[name]()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// self is the test binary as a command. FUEL_TEST_EXEC names the emulator where
// the system cannot run it by itself.
func self(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		require.Skip(t, "self-exec", err.Error())
	}
	if emulator := os.Getenv("FUEL_TEST_EXEC"); emulator != "" {
		args, exe = append([]string{exe}, args...), emulator
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = os.Environ()
	return cmd
}

// child runs one of the children and returns what it prints and its error.
func child(t testing.TB, name string, env ...string) (string, error) {
	t.Helper()
	cmd := self(t)
	cmd.Env = append(append(cmd.Env, "FUEL_TEST_CHILD="+name), env...)
	out, err := cmd.CombinedOutput()
	if _, ran := err.(*exec.ExitError); err != nil && !ran {
		require.Skip(t, "self-exec", err.Error())
	}
	return string(out), err
}

// check and assert are for children.
func check(err error) {
	if err != nil {
		fmt.Println("FAIL:", err)
		os.Exit(1)
	}
}

func assert(ok bool, format string, args ...any) {
	if !ok {
		check(fmt.Errorf(format, args...))
	}
}

// testDriver is a driver that takes processors for devices.
func testDriver(c gpu.Config) *driver { return newDriver(options{cpu: true}, c) }

// ways are what a transfer can be: on the memory itself, or through staging
// memory as with a GPU that the host does not reach.
var ways = map[string]gpu.Config{"direct": {}, "staged": {Staged: true}}

// use makes d the driver for one test and returns its first device.
func use(t testing.TB, d *driver) fuel.Device {
	t.Helper()
	useUnasked(t, d)
	for _, s := range fuel.Probe(t.Context()) {
		if s.Kind == fuel.Vulkan && len(s.Devices) == 0 {
			require.Skip(t, "vulkan", s.Reason)
		}
	}
	return fuel.Device{Kind: fuel.Vulkan}
}

// useUnasked is use before anybody has asked for a device. The instance goes with
// the test.
func useUnasked(t testing.TB, d *driver) {
	t.Helper()
	t.Cleanup(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.current != nil {
			d.current.drop()
			d.current = nil
		}
	})
	t.Cleanup(backend.Replace(backend.Vulkan, d.backend()))
}

// openRaw opens a port of the first device, without fuel. The caller closes it.
func openRaw(t testing.TB, o portOptions) *port {
	t.Helper()
	d := testDriver(gpu.Config{})
	if _, err := d.probe(t.Context()); err != nil {
		require.Skip(t, "vulkan", err.Error())
	}
	return value(openPort(d.current.devices[0], o, d.current.drop))(t)
}

// useRaw makes a port of the first device the only Vulkan device of fuel for one
// test, with what wrap makes of it.
func useRaw(t testing.TB, c gpu.Config, wrap func(*port) gpu.Port) fuel.Device {
	t.Helper()
	p := openRaw(t, portOptions{})
	info := backend.Info{Devices: []backend.DeviceInfo{p.phys.info()}}
	t.Cleanup(backend.Replace(backend.Vulkan, &backend.Driver{
		Kind: backend.Vulkan, Package: "test",
		Probe: func(context.Context) (backend.Info, error) { return info, nil },
		Open:  func(context.Context, int) (backend.Device, error) { return gpu.New(wrap(p), p.lim, c), nil },
	}))
	return fuel.Device{Kind: fuel.Vulkan}
}

// value returns a function that fails the test on an error and else gives v.
func value[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// closed closes a Storage at the end of the test, if the test has not.
func closed(t testing.TB, s *fuel.Storage) *fuel.Storage {
	t.Helper()
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, fuel.ErrClosed) {
			t.Error(err)
		}
	})
	return s
}

// contents reads all bytes.
func contents(t testing.TB, s *fuel.Storage) []byte {
	t.Helper()
	b := make([]byte, s.LenBytes())
	if n, err := s.ReadAt(b, 0); n != len(b) {
		t.Fatalf("ReadAt: %d, %v", n, err)
	}
	return b
}

// count returns n bytes that differ from their neighbours and repeat late.
func count(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + 1)
	}
	return b
}

// all reports whether every byte is v.
func all(b []byte, v byte) bool { return len(bytes.Trim(b, string([]byte{v}))) == 0 }
