//go:build darwin && !ios && !fuel_static

package metal

import (
	"testing"
	"unsafe"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/fueltest"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/dl"
	"github.com/go-fuel/fuel/internal/gpu"
	"github.com/go-fuel/fuel/internal/require"
)

// These tests are for a Mac: the system's own Metal.

func openMac(t *testing.T) (*metal, []description) {
	t.Helper()
	m, err := openApple()
	if err != nil {
		t.Fatal(err)
	}
	list, err := m.devices()
	if err != nil {
		require.Skip(t, "metal", err.Error())
	}
	t.Cleanup(func() { m.drop(list) })
	return m, list
}

func TestMacConformance(t *testing.T) {
	_, list := openMac(t)
	for i, d := range list {
		t.Logf("metal:%d: %+v, %s", i, d, system())
	}
	for name, c := range map[string]struct {
		config  gpu.Config
		private bool
	}{
		"default": {},
		"staged":  {config: gpu.Config{Staged: true}},
		"private": {private: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(openApple, c.config)
			d.private = c.private
			restore := backend.Replace(backend.Metal, d.backend())
			t.Cleanup(func() {
				restore()
				d.metal.drop(d.current)
			})
			fueltest.TestDriver(t, func(*testing.T) fuel.Device { return fuel.Device{Kind: fuel.Metal} })
		})
	}
}

// The system's classes have the methods that this package calls, with the types
// that it takes them to have.
func TestMacNeverHasOtherSignatures(t *testing.T) {
	m, list := openMac(t)
	lib, err := dl.Open(pathObjC)
	if err != nil {
		t.Fatal(err)
	}
	function := func(name string) dl.Proc {
		p, err := lib.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	getClass, getMethod, getTypes := function("object_getClass"), function("class_getInstanceMethod"), function("method_getTypeEncoding")
	p, err := openPort(m, list[0], false)
	if err != nil {
		t.Fatal(err)
	}
	defer p.teardown()
	b, err := p.Allocate(64, gpu.Storage)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release(b)
	m.pool(func() {
		c := m.get(p.queue, commandBuffer)
		e := m.get(c, blitCommandEncoder)
		all := m.allDevices()
		defer m.send(all, release)
		defer m.send(e, endEncoding)
		// Of NSError there is none.
		objects := map[string]object{
			"NSObject": p.queue, "NSArray": all, "NSString": m.get(list[0].object, name), "MTLDevice": list[0].object,
			"MTLBuffer": object(b.ID), "MTLSharedEvent": p.event, "MTLCommandQueue": p.queue, "MTLCommandBuffer": c,
			"MTLBlitCommandEncoder": e, "MTLCommandEncoder": e,
		}
		n := 0
		for i, s := range messages {
			o := objects[s.class]
			if o == 0 {
				continue
			}
			method := getMethod.Call(getClass.Call(uintptr(o)).Uintptr(), m.selectors[i]).Uintptr()
			if method == 0 {
				t.Errorf("[%s %s]: there is no such method", s.class, s.selector)
				continue
			}
			checkEncoding(t, s, goText(getTypes.Call(method).Uintptr()))
			n++
		}
		t.Logf("%d of %d methods", n, len(messages))
	})
}

func goText(addr uintptr) string {
	n := 0
	for *(*byte)(unsafe.Add(foreign(addr), n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(foreign(addr)), n))
}
