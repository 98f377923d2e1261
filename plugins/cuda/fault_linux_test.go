//go:build !fuel_static && !android && (amd64 || arm64)

package cuda

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/gpu"
)

// port opens the first device of a stand-in without the core.
func (f *fake) port() *port {
	f.t.Helper()
	if _, err := f.drv.probe(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	p, err := openPort(f.drv.devices[0])
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

// hold queues a gate, which is closed.
func (f *fake) hold(p *port) {
	f.call("fakecuda_gate", 1)
	is(f.t, p.in(func() error { f.call("fakecuda_hold", p.stream); return nil }), nil)
}

// within fails where f does not return.
func within(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { f(); close(done) }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatalf("%s hangs", what)
	}
}

func TestWaitNeverWaitsForLaterWork(t *testing.T) {
	f := newFake(t, "late 0")
	p := f.port()
	b, err := p.Allocate(4096, gpu.Storage)
	is(t, err, nil)
	is(t, p.Submit(1, []gpu.Op{{Kind: gpu.OpFill, Dst: b, N: 4096}}), nil)
	if at, err := p.Reached(); at != 1 || err != nil {
		t.Fatal(at, err)
	}
	f.hold(p)
	is(t, p.Submit(2, []gpu.Op{{Kind: gpu.OpFill, Dst: b, N: 4096}}), nil)
	within(t, "a wait for work that has passed", func() { is(t, p.Await(context.Background(), 1), nil) })
	f.call("fakecuda_gate", 0)
	is(t, p.Await(context.Background(), 2), nil)
	p.Release(b)
	is(t, p.Close(), nil)
}

// Results after which the process, or what made the event, is at its end.
func TestDeadContextIsALostDevice(t *testing.T) {
	for _, code := range []string{"810", "911", "400"} {
		for _, call := range []string{"cuEventSynchronize", "cuEventQuery"} {
			f := newFake(t, "late 1000000")
			p := f.port()
			d := gpu.New(p, p.limits(), gpu.Config{})
			b, err := d.Alloc(100, true)
			is(t, err, nil)
			f.script("sticky " + call + " 1 " + code)
			if _, err = d.Download(make([]byte, 10), b, 0); !errors.Is(err, backend.ErrLost) {
				t.Errorf("%s of %s: %v", code, call, err)
			}
			within(t, "Close after "+code, func() { _ = d.Close() })
		}
	}
}

// A peer copy whose wait fails still reads its source.
func TestFailedWaitNeverFreesThePeer(t *testing.T) {
	f := newFake(t, "peer 1;late 1000000")
	f.use(0)
	dev := [2]fuel.Device{{Kind: fuel.CUDA}, {Kind: fuel.CUDA, Index: 1}}
	s, o := from(t, dev[0], make([]byte, 70<<20)), from(t, dev[1], make([]byte, 70<<20))
	opt := &fuel.CopyOptions{Peer: true}
	is(t, o.CopyFrom(t.Context(), s, opt), nil)
	f.script("fail cuEventSynchronize 1 1;fail cuEventSynchronize 1 1")
	if err := o.CopyFrom(t.Context(), s, opt); err == nil {
		t.Error("no wait failed")
	}
	is(t, s.Close(), nil)
	_, err := fuel.Trim(dev[0], 0) // the stand-in ends the process where it is in use
	is(t, err, nil)
	is(t, o.Close(), nil)
}

func TestFailedTrialNeverFreesWhatIsInUse(t *testing.T) {
	f := newFake(t, "peer 1;late 1000000")
	f.use(0)
	dev := [2]fuel.Device{{Kind: fuel.CUDA}, {Kind: fuel.CUDA, Index: 1}}
	s, o := from(t, dev[0], make([]byte, 1<<20)), from(t, dev[1], make([]byte, 1<<20))
	f.script("fail cuStreamSynchronize 1 1;fail cuStreamSynchronize 3 1;fail cuStreamSynchronize 4 1")
	var r fuel.CopyReport
	is(t, o.CopyFrom(t.Context(), s, &fuel.CopyOptions{Peer: true, Report: &r}), nil)
	if r.Path != fuel.PathBounce || !strings.Contains(r.Note, "cuStreamSynchronize") {
		t.Errorf("%+v", r)
	}
	is(t, errors.Join(s.Close(), o.Close()), nil)
}

// A stream that is gone has no work to wait for.
func TestWorkOfAResetDeviceIsNeverWaitedFor(t *testing.T) {
	f := newFake(t, "")
	p := f.port()
	f.script("always cuStreamSynchronize 400")
	within(t, "a copy between devices", func() {
		err := p.alone(func(uintptr) error { return nil })
		if err == nil || strings.Count(err.Error(), "400") != 1 {
			t.Error(err)
		}
	})
	f.script("clear")
	is(t, p.Close(), nil)
}

// Another's loss that nobody knew of is not this device's.
func TestLossOfAnotherIsNeverThisDevices(t *testing.T) {
	for _, met := range []bool{false, true} {
		f := newFake(t, "peer 1")
		f.use(0)
		dev := [2]fuel.Device{{Kind: fuel.CUDA}, {Kind: fuel.CUDA, Index: 1}}
		s, o := from(t, dev[0], make([]byte, 1000)), from(t, dev[1], make([]byte, 1000))
		opt := &fuel.CopyOptions{Peer: true}
		if met {
			is(t, o.CopyFrom(t.Context(), s, opt), nil)
		}
		u := newUser(t, f.dl, dev[0])
		event := u.event
		u.inside(func() {
			f.script("sticky cuStreamSynchronize 1 700")
			u.proc("cuStreamSynchronize").Call(u.stream)
		})
		u.dead = true
		if err := o.CopyFrom(t.Context(), s, opt); err == nil {
			t.Errorf("met %v: a copy from a dead device succeeded", met)
		}
		q, err := fuel.QueueOf(dev[1])
		is(t, err, nil)
		if _, err := q.WaitExternal(fuel.External{Handle: uint64(event)}); err == nil {
			t.Error("a wait for an event of a dead device succeeded")
		}
		if _, err := o.WriteAt([]byte{1}, 0); err != nil {
			t.Errorf("met %v: the other device, which is well: %v", met, err)
		}
		s.Close()
		is(t, o.Close(), nil)
	}
}

// A device that cannot be described keeps its index, so that nobody gets another
// for it.
func TestDeviceThatIsLeftOutKeepsItsIndex(t *testing.T) {
	f := newFake(t, "")
	f.use(0)
	first := row(t).Devices
	f.script("fail cuDeviceGetName 1 801")
	r := row(t)
	if r.State != fuel.Available || len(r.Devices) != 1 || r.Devices[0] != first[1] || !strings.Contains(r.Reason, "left out: cuda:0") {
		t.Errorf("%+v", r)
	}
	_, err := fuel.Alloc(fuel.Device{Kind: fuel.CUDA}, fuel.U8, 1, nil)
	if is(t, err, fuel.ErrUnavailable); err != nil && !strings.Contains(err.Error(), "cuDeviceGetName") {
		t.Error(err)
	}
	s := from(t, fuel.Device{Kind: fuel.CUDA, Index: 1}, []byte("bytes"))
	is(t, s.Close(), nil)
	if list, err := fuel.Devices(t.Context()); err != nil || len(list) != 2 || list[1].Device.Index != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	f.script("always cuDeviceGetName 801")
	if r := row(t); r.State != fuel.Unavailable || !strings.Contains(r.Reason, "cuDeviceGetName") {
		t.Errorf("%+v", r)
	}
}

// New memory is cleared by the device, whatever its length.
func TestClearedAllocIsNeverStaged(t *testing.T) {
	f := newFake(t, "")
	dev := f.use(0)
	for _, n := range []int{1, 2, 3, 1000, 1001, 100_003} {
		s, err := fuel.Alloc(dev, fuel.U8, n, nil)
		is(t, err, nil)
		if c := f.count("cuMemHostAlloc"); c != 0 {
			t.Fatalf("%d bytes: %d calls of cuMemHostAlloc", n, c)
		}
		defer s.Close()
	}
}

// What a device that is gone knew of its peers goes with it.
func TestPeersOfClosedDevicesAreForgotten(t *testing.T) {
	f := newFake(t, "peer 1")
	if _, err := f.drv.probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := openPort(f.drv.devices[0])
	is(t, err, nil)
	for range 3 {
		o, err := openPort(f.drv.devices[1])
		is(t, err, nil)
		is(t, p.Reaches(o), nil)
		is(t, o.Close(), nil)
	}
	if n := len(p.peers.known); n > 1 {
		t.Errorf("%d are known", n)
	}
	is(t, p.Close(), nil)
}
