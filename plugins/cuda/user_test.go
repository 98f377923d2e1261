package cuda

import (
	"bytes"
	"context"
	"math/rand/v2"
	"runtime"
	"testing"
	"unsafe"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/dl"
)

func random(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(5, seed)) }

func from(t testing.TB, dev fuel.Device, b []byte) *fuel.Storage {
	t.Helper()
	s, err := fuel.FromBytes(dev, fuel.U8, b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func content(t testing.TB, s *fuel.Storage) []byte {
	t.Helper()
	b := make([]byte, s.LenBytes())
	if _, err := s.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

func text(s string) *byte { return unsafe.SliceData(append([]byte(s), 0)) }

// addPTX is a kernel: add adds v to each of n bytes at p.
const addPTX = `.version 6.0
.target sm_50
.address_size 64

.visible .entry add(.param .u64 p, .param .u32 n, .param .u32 v)
{
	.reg .pred %past;
	.reg .b32 %r<8>;
	.reg .b64 %a<4>;
	ld.param.u64 %a1, [p];
	ld.param.u32 %r1, [n];
	ld.param.u32 %r2, [v];
	mov.u32 %r3, %ctaid.x;
	mov.u32 %r4, %ntid.x;
	mov.u32 %r5, %tid.x;
	mad.lo.u32 %r6, %r3, %r4, %r5;
	setp.ge.u32 %past, %r6, %r1;
	@%past bra done;
	cvta.to.global.u64 %a2, %a1;
	cvt.u64.u32 %a3, %r6;
	add.u64 %a2, %a2, %a3;
	ld.global.u8 %r7, [%a2];
	add.u32 %r7, %r7, %r2;
	st.global.u8 [%a2], %r7;
done:
	ret;
}
`

// A user is a program with kernels of its own, on one device. Its methods fail
// the test.
type user struct {
	t       testing.TB
	lib     *dl.Library
	context uintptr
	stream  uintptr // its own
	module  uintptr
	add     uintptr
	event   uintptr
	dead    bool // its context is broken, and ends with it
}

func (u *user) proc(name string) dl.Proc {
	p, err := u.lib.Lookup(name)
	if err != nil {
		u.t.Fatal(err)
	}
	return p
}

func (u *user) ok(r dl.Result) {
	u.t.Helper()
	if r.Int32() != 0 {
		u.t.Error(result(r.Int32()))
	}
}

// inside runs f with the context of the device.
func (u *user) inside(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before uintptr
	u.ok(u.proc("cuCtxGetCurrent").Call(uintptr(unsafe.Pointer(&before))))
	u.ok(u.proc("cuCtxSetCurrent").Call(u.context))
	defer u.proc("cuCtxSetCurrent").Call(before)
	f()
}

func newUser(t testing.TB, lib *dl.Library, dev fuel.Device) *user {
	u := &user{t: t, lib: lib}
	s := from(t, dev, []byte{1})
	_, err := fuel.Dispatch(s, fuel.Cases[int]{CUDA: func(m fuel.CUDAMemory) (int, error) {
		u.context = m.Context
		return 0, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	u.inside(func() {
		u.ok(u.proc("cuModuleLoadData").Call(uintptr(unsafe.Pointer(&u.module)), uintptr(unsafe.Pointer(text(addPTX)))))
		u.ok(u.proc("cuModuleGetFunction").Call(uintptr(unsafe.Pointer(&u.add)), u.module, uintptr(unsafe.Pointer(text("add")))))
		u.ok(u.proc("cuStreamCreate").Call(uintptr(unsafe.Pointer(&u.stream)), 1))
		u.ok(u.proc("cuEventCreate").Call(uintptr(unsafe.Pointer(&u.event)), 2))
	})
	t.Cleanup(func() {
		if u.dead {
			return
		}
		u.inside(func() {
			u.ok(u.proc("cuStreamSynchronize").Call(u.stream))
			u.ok(u.proc("cuEventDestroy_v2").Call(u.event))
			u.ok(u.proc("cuStreamDestroy_v2").Call(u.stream))
			u.ok(u.proc("cuModuleUnload").Call(u.module))
		})
	})
	return u
}

// launch queues the kernel over a Storage, on fuel's stream or its own, and
// records the event behind it. Every clone stays as it is.
func (u *user) launch(s *fuel.Storage, v uint32, own bool) {
	u.t.Helper()
	_, err := fuel.VisitMutable(s, &fuel.Cases[int]{CUDA: func(m fuel.CUDAMemory) (int, error) {
		stream := m.Stream
		u.inside(func() {
			if own { // after what fuel has queued
				u.ok(u.proc("cuEventRecord").Call(u.event, m.Stream))
				u.ok(u.proc("cuStreamWaitEvent").Call(u.stream, u.event, 0))
				stream = u.stream
			}
			p, n := m.Pointer, uint32(m.Bytes)
			var pin runtime.Pinner
			defer pin.Unpin()
			params := [3]unsafe.Pointer{unsafe.Pointer(&p), unsafe.Pointer(&n), unsafe.Pointer(&v)}
			for _, x := range params {
				pin.Pin(x)
			}
			u.ok(u.proc("cuLaunchKernel").Call(u.add, uintptr(n+255)/256, 1, 1, 256, 1, 1, 0, stream, uintptr(unsafe.Pointer(&params)), 0))
			u.ok(u.proc("cuEventRecord").Call(u.event, stream))
		})
		return 0, nil
	}})
	if err != nil {
		u.t.Fatal(err)
	}
}

// known makes fuel's later work wait for the kernel.
func (u *user) known(s *fuel.Storage) {
	u.t.Helper()
	q, err := fuel.QueueOf(s.Device())
	if err != nil {
		u.t.Fatal(err)
	}
	p, err := q.WaitExternal(fuel.External{Handle: uint64(u.event)})
	if err == nil {
		err = s.UsedUntil(p)
	}
	if err != nil {
		u.t.Fatal(err)
	}
}

func plus(b []byte, v byte) []byte {
	b = bytes.Clone(b)
	for i := range b {
		b[i] += v
	}
	return b
}

// checkKernels runs kernels of a user over Storages of dev.
func checkKernels(t *testing.T, lib *dl.Library, dev fuel.Device, unified bool) {
	u := newUser(t, lib, dev)
	for _, own := range []bool{false, true} {
		for _, n := range []int{1, 1000, 300<<10 + 1} {
			b := random(newRand(uint64(n)), n)
			s := from(t, dev, b)
			c, err := s.Clone()
			if err != nil {
				t.Fatal(err)
			}
			u.launch(s, 3, own)
			if own || unified {
				u.known(s)
			}
			if !bytes.Equal(content(t, c), b) {
				t.Error("the clone changed")
			}
			if !bytes.Equal(content(t, s), plus(b, 3)) {
				t.Errorf("the kernel's bytes are not there: own %v, %d bytes", own, n)
			}
			// Over and over, with fuel's writes between: in order.
			want := plus(b, 3)
			for i := range 5 {
				if err := s.FillRange(context.Background(), 0, 1, []byte{byte(i)}); err != nil {
					t.Fatal(err)
				}
				want[0] = byte(i)
				u.launch(s, 1, own)
				if own || unified {
					u.known(s)
				}
				want = plus(want, 1)
			}
			if !bytes.Equal(content(t, s), want) {
				t.Errorf("out of order: own %v, %d bytes", own, n)
			}
			c.Close()
			s.Close()
		}
	}
}
