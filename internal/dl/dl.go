package dl

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

var (
	// ErrUnsupported: this program cannot load libraries; the text says why,
	// and what to build instead.
	ErrUnsupported = errors.New("dl: this program cannot load libraries")
	// ErrNoSymbol: the library has no function of that name. Where the
	// function is optional, do without.
	ErrNoSymbol = errors.New("dl: no such symbol")
	// ErrClosed: the Library was closed.
	ErrClosed = errors.New("dl: library is closed")
)

// A loader is one way to libraries. Each platform's file has one, in system.
type loader interface {
	// open loads the library of a name that checkName accepts. path is the file
	// that it was, or empty where the system does not say.
	open(name string) (handle uintptr, path string, err error)
	lookup(handle uintptr, symbol string) (uintptr, error)
	close(handle uintptr) error
}

// A Library is an open library. Its methods are safe to call from several
// goroutines.
type Library struct {
	name, path string
	changed    []string
	loader     loader

	mu     sync.Mutex // held while a handle is in use
	handle uintptr    // 0: closed
}

// Supported returns nil where libraries can be opened, and otherwise an error
// that wraps [ErrUnsupported] and says why not.
func Supported() error {
	if unsupported == "" {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrUnsupported, unsupported)
}

// Open opens the first of these libraries that it can, with all its symbols
// resolved and none of them given to other libraries.
//
// A name is an absolute path, or a file name alone, which is looked for where
// the system keeps its libraries: on Linux as dlopen does (LD_LIBRARY_PATH, the
// loader's cache, its folders), on macOS in /usr/lib, /opt/homebrew/lib and
// /usr/local/lib, on Windows in System32 only. Relative paths are refused: the
// current directory is never searched. An empty name is passed over, so that
// the value of an environment variable can come first.
//
// Open blocks as long as the library's initializers run, and must not be called
// from an init function. What they did to the program's signals is put right as
// in [Guarded]; [Library.Changed] tells. The error names every attempt with what
// the loader said to it.
func Open(names ...string) (*Library, error) {
	if err := Supported(); err != nil {
		return nil, err
	}
	return open(system, names)
}

func open(from loader, names []string) (*Library, error) {
	var failed openError
	lib := &Library{loader: from}
	changed := Guarded(func() {
		for _, given := range names {
			for _, name := range places(given) {
				handle, path, err := uintptr(0), "", checkName(name)
				if err == nil {
					handle, path, err = from.open(name)
				}
				if err == nil {
					lib.name, lib.path, lib.handle = name, path, handle
					return
				}
				failed = append(failed, fmt.Errorf("%s: %w", name, err))
			}
		}
	})
	switch {
	case lib.handle != 0:
		lib.changed = changed
		return lib, nil
	case len(failed) == 0:
		return nil, errors.New("dl: no library named")
	}
	for _, c := range changed {
		failed = append(failed, errors.New(c))
	}
	return nil, failed
}

// checkName refuses what a loader would look for in the current directory.
func checkName(name string) error {
	switch {
	case strings.ContainsRune(name, 0):
		return errors.New("the name has a zero byte")
	case !filepath.IsAbs(name) && strings.ContainsAny(name, `/\:`):
		return errors.New("a relative path is not looked for")
	}
	return nil
}

// An openError is every attempt that failed.
type openError []error

func (e openError) Error() string {
	var b strings.Builder
	b.WriteString("dl: no library could be opened")
	separator := ": "
	for _, err := range e {
		b.WriteString(separator + err.Error())
		separator = "; "
	}
	return b.String()
}

func (e openError) Unwrap() []error { return e }

// Name returns the name under which the library was found, one of those given
// to Open (on macOS with its folder).
func (l *Library) Name() string { return l.name }

// Path returns the path of the library's file, or Name where the system does
// not tell.
func (l *Library) Path() string {
	if l.path == "" {
		return l.name
	}
	return l.path
}

// Changed says in words what opening the library did to the program's signals
// and was put right; it is empty where that was nothing.
func (l *Library) Changed() []string { return slices.Clone(l.changed) }

// Lookup returns the function of that name. The error wraps [ErrNoSymbol] where
// the library has none, or is [ErrClosed].
func (l *Library) Lookup(symbol string) (Proc, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.handle == 0 {
		return Proc{}, ErrClosed
	}
	addr, err := l.loader.lookup(l.handle, symbol)
	if err != nil {
		return Proc{}, fmt.Errorf("%w: %s in %s: %w", ErrNoSymbol, symbol, l.Path(), err)
	}
	return At(addr), nil
}

// Close gives the library back to the system, which may unload it (musl never
// does): no function of it may run or be called any more, no thread of its own
// may be left, and no handler of its own may be installed. A driver can promise
// none of this, so what it opened stays open. The second Close returns
// [ErrClosed].
func (l *Library) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.handle == 0 {
		return ErrClosed
	}
	handle := l.handle
	l.handle = 0
	if err := l.loader.close(handle); err != nil {
		return fmt.Errorf("dl: closing %s: %w", l.Path(), err)
	}
	return nil
}
