// Package track remembers which Regions are alive and where they were
// allocated, for the leak check of tests and for checked mode. While nobody
// asks, it costs one atomic load per allocation.
package track

import (
	"fmt"
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

// Add records a new Region. It returns nil, which Remove accepts, where
// nobody asked for records.
func Add(device, memory string, bytes int) *Record {
	if wanted.Load() == 0 && !check.On() {
		return nil
	}
	pc := make([]uintptr, 32)
	r := &Record{Device: device, Memory: memory, Bytes: bytes, stack: pc[:runtime.Callers(3, pc)]}
	mu.Lock()
	defer mu.Unlock()
	seq++
	r.seq = seq
	live[r] = struct{}{}
	return r
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
