// Package track remembers which Regions are alive and where they were
// allocated, for the leak check of tests and for checked mode. While nobody
// asks, it costs one atomic load per allocation.
package track

import (
	"cmp"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-fuel/fuel/internal/check"
)

// A Record is one live Region: what it is, how many bytes, who allocated it.
type Record struct {
	Device string
	Memory string
	Bytes  int
	seq    uint64
	stack  []uintptr
	drop   bool
}

var (
	wanted atomic.Int32 // leak checks that are running
	mu     sync.Mutex
	seq    uint64
	live   = map[*Record]struct{}{}
)

// Start makes Add keep records until the returned function is called.
func Start() (stop func()) {
	wanted.Add(1)
	return sync.OnceFunc(func() { wanted.Add(-1) })
}

// Mark returns a place in the sequence of records, for Since.
func Mark() uint64 {
	mu.Lock()
	defer mu.Unlock()
	return seq
}

// On reports whether anybody asked for records.
func On() bool { return wanted.Load() != 0 || check.On() }

// Add records a new Region. It returns nil, which Remove accepts, where
// nobody asked for records.
func Add(device, memory string, bytes int) *Record {
	if !On() {
		return nil
	}
	r := newRecord(device, memory, bytes)
	mu.Lock()
	defer mu.Unlock()
	seq++
	r.seq = seq
	live[r] = struct{}{}
	return r
}

// newRecord has the stack above the caller of its caller.
func newRecord(device, memory string, bytes int) *Record {
	pc := make([]uintptr, 32)
	return &Record{Device: device, Memory: memory, Bytes: bytes, stack: pc[:runtime.Callers(4, pc)]}
}

// Remove ends the record of a Region that is gone. One that was dropped stays,
// for the leak check to find.
func Remove(r *Record) {
	if r == nil {
		return
	}
	mu.Lock()
	defer mu.Unlock()
	if !r.drop {
		delete(live, r)
	}
}

// Drop notes that the Region was dropped without a Close.
func Drop(r *Record) {
	if r == nil {
		return
	}
	mu.Lock()
	defer mu.Unlock()
	r.drop = true
}

// Forget ends a record whatever became of its Region.
func Forget(r *Record) {
	mu.Lock()
	defer mu.Unlock()
	delete(live, r)
}

// Since lists the records made after mark whose Regions are alive or were
// dropped, oldest first.
func Since(mark uint64) []*Record {
	mu.Lock()
	defer mu.Unlock()
	var rs []*Record
	for r := range live {
		if r.seq > mark {
			rs = append(rs, r)
		}
	}
	slices.SortFunc(rs, func(a, b *Record) int {
		if a.seq < b.seq {
			return -1
		}
		return 1
	})
	return rs
}

// A Site is a place that holds memory.
type Site struct {
	Bytes   int64
	Regions int
	At      string
}

// Top returns the n sites that hold most of a device's memory by the records
// of live Regions, the greatest first. A site is the first three functions of a stack
// outside of package fuel.
func Top(device string, n int) []Site {
	mu.Lock()
	defer mu.Unlock()
	sums := sums{}
	for r := range live {
		if r.Device == device && !r.drop {
			sums.add(r.site(), r.Bytes)
		}
	}
	return sums.top(n)
}

// Sites remembers the places that hold what counts for one limit. The zero value
// has none.
type Sites struct {
	n    atomic.Int64 // of held, so that Remove is cheap while nobody asks
	mu   sync.Mutex
	held map[any]*Record
}

// Add notes that what, which is compared, is there and has so many bytes, if
// anybody asked for records.
func (s *Sites) Add(what any, bytes int) {
	if On() {
		s.add(what, bytes)
	}
}

func (s *Sites) add(what any, bytes int) {
	r := newRecord("", "", bytes)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		s.held = map[any]*Record{}
	}
	s.held[what] = r
	s.n.Store(int64(len(s.held)))
}

// Remove notes that what is gone. It need not have been there.
func (s *Sites) Remove(what any) {
	if s.n.Load() != 0 {
		s.remove(what)
	}
}

func (s *Sites) remove(what any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, what)
	s.n.Store(int64(len(s.held)))
}

// Top returns the n sites that hold most, as the function Top.
func (s *Sites) Top(n int) []Site {
	s.mu.Lock()
	defer s.mu.Unlock()
	sums := sums{}
	for _, r := range s.held {
		sums.add(r.site(), r.Bytes)
	}
	return sums.top(n)
}

// sums are Sites by their place.
type sums map[string]*Site

func (sums sums) add(at string, bytes int) {
	s := sums[at]
	if s == nil {
		s = &Site{At: at}
		sums[at] = s
	}
	s.Bytes += int64(bytes)
	s.Regions++
}

func (sums sums) top(n int) []Site {
	top := make([]Site, 0, len(sums))
	for _, s := range sums {
		top = append(top, *s)
	}
	slices.SortFunc(top, func(a, b Site) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.At, b.At))
	})
	return top[:min(n, len(top))]
}

func (r *Record) site() string {
	const ours = "github.com/go-fuel/fuel."
	var at []string
	for frames := runtime.CallersFrames(r.stack); len(at) < 3; {
		f, more := frames.Next()
		inside := strings.HasPrefix(f.Function, ours) && !strings.HasSuffix(f.File, "_test.go")
		if f.Function != "" && !inside && !strings.HasPrefix(f.Function, "runtime.") {
			at = append(at, fmt.Sprintf("%s (%s:%d)", f.Function, filepath.Base(f.File), f.Line))
		}
		if !more {
			break
		}
	}
	return strings.Join(at, " < ")
}

// String gives the record on one line and its allocation stack on those after.
func (r *Record) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d bytes of %s memory on %s, allocated at", r.Bytes, r.Memory, r.Device)
	for frames := runtime.CallersFrames(r.stack); ; {
		f, more := frames.Next()
		if f.Function != "" {
			fmt.Fprintf(&b, "\n\t%s\n\t\t%s:%d", f.Function, f.File, f.Line)
		}
		if !more {
			return b.String()
		}
	}
}
