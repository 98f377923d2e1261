package dl

// MaxArgs is how many arguments a call may have, on every platform.
const MaxArgs = 15

// A Proc is a C function. The zero Proc is none, and calling it panics.
type Proc struct {
	addr uintptr
}

// At returns the function at an address that a library gave: the result of
// vkGetInstanceProcAddr or cuGetProcAddress. Address 0 is the zero Proc.
func At(addr uintptr) Proc { return Proc{addr} }

// Valid reports whether there is a function.
func (p Proc) Valid() bool { return p.addr != 0 }

// Call calls the function in C's convention, with integers and pointers as
// arguments and as result, no floating-point numbers and no structs by value. On
// macOS on arm64 two neighbours of less than 64 bits must not both come after the
// eighth argument: C packs them there.
// It blocks like a system call, on the goroutine's thread: functions with state
// of the thread need runtime.LockOSThread around the calls that belong together.
//
// A pointer into Go memory is converted in the argument list itself,
//
//	p.Call(uintptr(unsafe.Pointer(&x)))
//
// and then x is on the heap and stays alive until the call returns, and no
// longer. A pointer inside the memory that an argument points to needs a
// runtime.Pinner until then. What the library keeps after the call must not be
// Go memory.
//
// Call allocates its list of arguments, at most 120 bytes, and nothing else. It
// panics for the zero Proc and for more than MaxArgs arguments.
//
//go:uintptrescapes
func (p Proc) Call(args ...uintptr) Result {
	if p.addr == 0 {
		panic("dl: call of a function that was not found")
	}
	if len(args) > MaxArgs {
		panic("dl: call with more than 15 arguments")
	}
	return Result(call(p.addr, args...))
}

// A Result is what a C function left in the register for results, all 64 bits.
// Where the function's type is smaller, the others mean nothing.
type Result uint64

// Int32 returns the result of a function of type int, such as VkResult or
// CUresult.
func (r Result) Int32() int32 { return int32(r) }

// Bool returns the result of a function of C's type bool, or BOOL where that is
// one byte.
func (r Result) Bool() bool { return byte(r) != 0 }

// Uintptr returns the result of a function that returns an address or a size.
func (r Result) Uintptr() uintptr { return uintptr(r) }
