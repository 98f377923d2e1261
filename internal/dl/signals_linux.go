//go:build !fuel_static && !android && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package dl

import (
	"fmt"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	lastSignal = 64
	onStack    = 0x08000000 // SA_ONSTACK
	setMask    = 2          // SIG_SETMASK
)

// An action is the kernel's struct sigaction as it is: the handler, the flags,
// and two words that only the kernel reads, and in an order that differs.
type action [4]uint64

func (a *action) isFunction() bool { return a[0] > 1 } // neither SIG_DFL nor SIG_IGN

// isGo reports whether the handler is the Go runtime's.
func (a *action) isGo() bool {
	f := runtime.FuncForPC(uintptr(a[0]))
	return a.isFunction() && f != nil && strings.HasPrefix(f.Name(), "runtime.")
}

func getAction(sig uintptr, a *action) {
	syscall.RawSyscall6(unix.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(a)), 8, 0, 0)
}

func setAction(sig uintptr, a *action) syscall.Errno {
	_, _, errno := syscall.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(a)), 0, 8, 0, 0)
	return errno
}

type actions [lastSignal + 1]action

func (a *actions) get() {
	for sig := 1; sig <= lastSignal; sig++ {
		getAction(uintptr(sig), &a[sig])
	}
}

// guards is what all running calls of Guarded share. They compare with what the
// first of them found, so that none takes what another's library just did for
// the state to go back to. No lock is held while a library runs: it may hang.
var guards struct {
	sync.Mutex
	running int
	before  actions
}

// Guarded calls f, which initializes a library: cuInit, vkCreateInstance. Then
// it puts right what that did to the program's signals, and says in words what
// this was:
//
//   - a handler in the place of Go's, or Go's for a signal ignored: Go's is put
//     back;
//   - a handler for another signal that would run on the goroutine's stack: it
//     stays, with SA_ONSTACK;
//   - the thread's signal mask and its alternate stack are put back.
//
// f runs on one thread. Calls may run at the same time and inside each other;
// as long as one has not ended, others compare with what it found.
// A signal that another goroutine gives to os/signal's Ignore stays ignored.
func Guarded(f func()) (changed []string) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	guards.Lock()
	if guards.running++; guards.running == 1 {
		guards.before.get()
	}
	guards.Unlock()
	thread := getThread()
	defer func() {
		changed = thread.restore()
		guards.Lock()
		defer guards.Unlock()
		guards.running--
		changed = append(changed, putRight(&guards.before)...)
	}()
	f()
	return nil
}

func putRight(before *actions) (changed []string) {
	var after actions
	after.get()
	for sig := 1; sig <= lastSignal; sig++ {
		was, is := &before[sig], &after[sig]
		if *was == *is {
			continue
		}
		var what string
		var errno syscall.Errno
		switch {
		case was.isGo() && !signal.Ignored(syscall.Signal(sig)):
			what, errno = "Go's handler put back", setAction(uintptr(sig), was)
		case is.isFunction() && is[1]&onStack == 0:
			is[1] |= onStack
			what, errno = "the library's handler set to use the signal stack", setAction(uintptr(sig), is)
		default:
			continue
		}
		if errno != 0 {
			what = fmt.Sprintf("changed by the library, and cannot be put right: %v", errno)
		}
		changed = append(changed, signalName(sig)+": "+what)
	}
	return changed
}

func signalName(sig int) string {
	if s := unix.SignalName(syscall.Signal(sig)); s != "" {
		return s
	}
	return fmt.Sprintf("signal %d", sig)
}

// A thread is what the kernel keeps of signals for the calling thread.
type thread struct {
	mask  uint64
	stack [3]uint64 // stack_t: address; flags in 32 bits; size
}

func getThread() (t thread) {
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, setMask, 0, uintptr(unsafe.Pointer(&t.mask)), 8, 0, 0)
	syscall.RawSyscall(unix.SYS_SIGALTSTACK, 0, uintptr(unsafe.Pointer(&t.stack)), 0)
	return t
}

func (t thread) restore() (changed []string) {
	now := getThread()
	if now.stack != t.stack {
		syscall.RawSyscall(unix.SYS_SIGALTSTACK, uintptr(unsafe.Pointer(&t.stack)), 0, 0)
		changed = append(changed, "the thread's signal stack put back")
	}
	if now.mask != t.mask {
		syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, setMask, uintptr(unsafe.Pointer(&t.mask)), 0, 8, 0, 0)
		changed = append(changed, "the thread's signal mask put back")
	}
	return changed
}
