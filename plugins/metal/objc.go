package metal

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/go-fuel/fuel/internal/dl"
)

// An object is an Objective-C object, or 0, which is nil.
type object uintptr

// An objc is an Objective-C runtime with Metal in it. Tests have another than
// Apple's.
type objc interface {
	// selector returns the runtime's own name for that of a message.
	selector(name string) uintptr

	// send sends a message with integers and pointers. An object that is nil
	// answers 0 to everything.
	send(to object, selector uintptr, args ...uintptr) dl.Result

	// push begins an autorelease pool of this thread, pop ends it.
	push() uintptr
	pop(pool uintptr)

	// defaultDevice returns a device that the caller owns, or nil; allDevices
	// an array that it owns, or nil.
	defaultDevice() object
	allDevices() object
}

// A metal is an objc with the selectors looked up.
type metal struct {
	objc
	path      string
	selectors [numMessages]uintptr
}

func newMetal(o objc, path string) *metal {
	m := &metal{objc: o, path: path}
	for i, s := range messages {
		m.selectors[i] = o.selector(s.selector)
	}
	return m
}

// send sends a message. What it returns without giving it away lives no longer
// than the pool.
func (m *metal) send(to object, msg message, args ...uintptr) dl.Result {
	return m.objc.send(to, m.selectors[msg], args...)
}

// get is send for a result that is an object.
func (m *metal) get(to object, msg message, args ...uintptr) object {
	return object(m.send(to, msg, args...).Uintptr())
}

// pool calls f on one thread, in an autorelease pool of its own. Every message
// is sent in one.
func (m *metal) pool(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pool := m.push()
	defer m.pop(pool)
	f()
}

// text returns what is in an NSString.
func (m *metal) text(s object) string {
	addr := m.send(s, utf8String).Uintptr()
	if addr == 0 {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(foreign(addr), n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(foreign(addr)), n))
}

// foreign is the pointer to memory that is not Go's.
func foreign(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// apple is the system's own runtime.
type apple struct {
	sendMessage, registerName, pushPool, popPool, createDevice, copyDevices dl.Proc
}

// Where macOS has the libraries. They are in no file: dyld knows them by name.
const (
	pathObjC         = "/usr/lib/libobjc.A.dylib"
	pathCoreGraphics = "/System/Library/Frameworks/CoreGraphics.framework/CoreGraphics"
	pathMetal        = "/System/Library/Frameworks/Metal.framework/Metal"
)

// openApple loads the system's Metal.
func openApple() (*metal, error) {
	if err := supported(runtime.GOOS); err != nil {
		return nil, err
	}
	if err := dl.Supported(); err != nil {
		return nil, err
	}
	// Without CoreGraphics MTLCreateSystemDefaultDevice finds nothing
	// (huggingface/candle#3449).
	if _, err := dl.Open(pathCoreGraphics); err != nil {
		return nil, err
	}
	lib, err := dl.Open(pathMetal)
	if err != nil {
		return nil, err
	}
	objc, err := dl.Open(pathObjC)
	if err != nil {
		return nil, err
	}
	a := &apple{}
	var missing []error
	for _, f := range []struct {
		lib  *dl.Library
		name string
		proc *dl.Proc
	}{
		{objc, "objc_msgSend", &a.sendMessage},
		{objc, "sel_registerName", &a.registerName},
		{objc, "objc_autoreleasePoolPush", &a.pushPool},
		{objc, "objc_autoreleasePoolPop", &a.popPool},
		{lib, "MTLCreateSystemDefaultDevice", &a.createDevice},
		{lib, "MTLCopyAllDevices", &a.copyDevices},
	} {
		if *f.proc, err = f.lib.Lookup(f.name); err != nil {
			missing = append(missing, err)
		}
	}
	if missing != nil {
		return nil, errors.Join(missing...)
	}
	return newMetal(a, lib.Path()), nil
}

// supported says what is missing on other systems than macOS.
func supported(goos string) error {
	switch goos {
	case "darwin":
		return nil
	case "ios":
		return errors.New("on iOS libraries cannot be opened without cgo, which fuel does not use: the CPU is what there is")
	}
	return fmt.Errorf("Metal is Apple's, and this is %s: CUDA and Vulkan are for other systems", goos)
}

func (a *apple) selector(name string) uintptr {
	s := append([]byte(name), 0)
	return a.registerName.Call(uintptr(unsafe.Pointer(unsafe.SliceData(s)))).Uintptr()
}

func (a *apple) send(to object, selector uintptr, args ...uintptr) dl.Result {
	return a.sendMessage.Call(append([]uintptr{uintptr(to), selector}, args...)...)
}

func (a *apple) push() uintptr { return a.pushPool.Call().Uintptr() }

func (a *apple) pop(pool uintptr) { a.popPool.Call(pool) }

func (a *apple) defaultDevice() object { return object(a.createDevice.Call().Uintptr()) }

func (a *apple) allDevices() object { return object(a.copyDevices.Call().Uintptr()) }
