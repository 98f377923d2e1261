package fuel

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/track"
)

// A quota counts bytes, and may have a limit for them.
type quota struct {
	used, peak atomic.Int64
	limit      atomic.Int64 // one more than the limit, so that 0 is none
	sites      track.Sites  // where what is used was allocated
}

// take counts the memory, unless it goes beyond the limit.
func (q *quota) take(m *memory) bool {
	n := int64(m.size)
	for {
		used, limit := q.used.Load(), q.limit.Load()
		if limit > 0 && (used > limit-1 || n > limit-1-used) {
			return false
		}
		if q.used.CompareAndSwap(used, used+n) {
			q.sites.Add(m, m.size)
			return true
		}
	}
}

// note raises the peak, once the memory that take counted is there.
func (q *quota) note() {
	used := q.used.Load()
	for {
		peak := q.peak.Load()
		if peak >= used || q.peak.CompareAndSwap(peak, used) {
			return
		}
	}
}

func (q *quota) give(m *memory) {
	q.sites.Remove(m)
	q.used.Add(-int64(m.size))
}

func (q *quota) setLimit(n int64) {
	if n < 0 {
		n = -1
	}
	q.limit.Store(min(n, 1<<63-2) + 1)
}

// most is the limit, -1 where there is none.
func (q *quota) most() int64 { return q.limit.Load() - 1 }

// A Scope counts the memory of what belongs together, as the weights of a
// model, a cache, or scratch space, on all devices, and may limit it. Name it
// in Options. It lives as long as somebody uses it; there is nothing to close.
// Its methods are safe for use by several goroutines. nil is no Scope: it has
// no name and counts nothing, and SetLimit of it panics.
//
// Memory counts from its allocation until the last Storage that has it is
// closed. Queued work may keep it for longer: see SetLimit.
type Scope struct {
	name    string
	quota   quota
	regions atomic.Int64
	refused atomic.Int64
}

// NewScope makes a Scope that allows limit bytes at a time; below zero there
// is no limit. The name is for people and need not be unique.
func NewScope(name string, limit int64) *Scope {
	s := &Scope{name: name}
	s.quota.setLimit(limit)
	return s
}

// Name returns the name.
func (s *Scope) Name() string {
	if s == nil {
		return ""
	}
	return s.name
}

// SetLimit changes the limit, below zero to none. What is allocated stays.
func (s *Scope) SetLimit(bytes int64) {
	if s == nil {
		panic("fuel.Scope.SetLimit: the Scope is nil")
	}
	s.quota.setLimit(bytes)
}

// ScopeStats are the figures of a Scope.
type ScopeStats struct {
	Name    string `json:"name"`
	InUse   int64  `json:"inUse"`   // bytes allocated now
	Peak    int64  `json:"peak"`    // the most that InUse was
	Limit   int64  `json:"limit"`   // bytes, -1 where there is none
	Regions int64  `json:"regions"` // pieces of memory
	Refused int64  `json:"refused"` // allocations that the limit refused, since the start
}

// Stats returns the figures.
func (s *Scope) Stats() ScopeStats {
	if s == nil {
		return ScopeStats{Limit: -1}
	}
	return ScopeStats{
		Name: s.name, InUse: s.quota.used.Load(), Peak: s.quota.peak.Load(), Limit: s.quota.most(),
		Regions: s.regions.Load(), Refused: s.refused.Load(),
	}
}

// charge counts the memory against the limits of its device and Scope.
func (m *memory) charge() error {
	n := int64(m.size)
	if s := m.wishes.scope; s != nil {
		if !s.quota.take(m) {
			s.refused.Add(1)
			c := m.dev.cache()
			return &OutOfMemoryError{
				Device: m.dev.id, Scope: s.name, Requested: n, Free: m.dev.be.Memory().Free,
				Limit: s.quota.most(), InUse: s.quota.used.Load(), Cached: c.Bytes, LargestCached: c.Largest,
				TopSites: allocSites(s.quota.sites.Top(sitesTold)),
			}
		}
		s.regions.Add(1)
	}
	if !m.dev.quota.take(m) {
		m.leaveScope()
		return m.dev.outOfMemory(n, nil)
	}
	m.charged = true
	return nil
}

// discharge undoes charge.
func (m *memory) discharge() {
	if m.charged {
		m.charged = false
		m.dev.quota.give(m)
		m.leaveScope()
	}
}

func (m *memory) leaveScope() {
	if s := m.wishes.scope; s != nil {
		s.quota.give(m)
		s.regions.Add(-1)
	}
}

// outOfMemory describes a refusal of the device, or of its limit where err is
// nil.
func (d *device) outOfMemory(n int64, err error) *OutOfMemoryError {
	c, sites := d.cache(), d.quota.sites.Top(sitesTold)
	if err != nil { // maybe for want of addresses, which memory that does not count has, too
		sites = track.Top(d.id.String(), sitesTold)
	}
	return &OutOfMemoryError{
		Device: d.id, Requested: n, Free: d.be.Memory().Free, Limit: d.quota.most(), InUse: d.quota.used.Load(),
		Cached: c.Bytes, LargestCached: c.Largest, TopSites: allocSites(sites), Err: err,
	}
}

// sitesTold is how many places an OutOfMemoryError names.
const sitesTold = 5

func allocSites(top []track.Site) []AllocSite {
	var sites []AllocSite
	for _, s := range top {
		sites = append(sites, AllocSite(s))
	}
	return sites
}

// holdLimit trims the cache so that it and what is in use stay below the limit.
func (d *device) holdLimit() {
	limit := d.quota.most()
	if limit < 0 {
		return
	}
	room := max(0, limit-d.quota.used.Load())
	if c, ok := d.be.(backend.Cacher); ok && c.Cached() > room {
		c.Trim(room)
	}
}

func (d *device) trim(target int64) int64 {
	if c, ok := d.be.(backend.Cacher); ok {
		return c.Trim(target)
	}
	return 0
}

func (d *device) cache() backend.CacheInfo {
	if c, ok := d.be.(backend.Cacher); ok {
		return c.Cache()
	}
	return backend.CacheInfo{}
}

// SetLimit lets this process allocate at most so many bytes on a device, and
// keep no more for reuse than what is left of them; below zero there is no
// limit, as at the start. An allocation that would go beyond it, also one for a
// private copy, is an *OutOfMemoryError with this Limit; nothing else refuses
// before the system does. What is allocated stays. Mapped files, wrapped and
// imported memory, and what OpenShared opened do not count.
//
// Memory stops counting when the last Storage that has it is closed, though
// queued work that uses it keeps it until that work has passed. So a program
// that queues work, closes what it uses and goes on is not refused for what is
// about to be free, and one that must not go beyond the limit even then waits
// for a Point. For errors see Alloc.
func SetLimit(dev Device, bytes int64) error {
	d, err := openDevice(context.Background(), dev)
	if err != nil {
		return opError("SetLimit", dev, 0, err)
	}
	d.quota.setLimit(bytes)
	d.holdLimit()
	return nil
}

// Trim gives memory that is kept for reuse back to the system, until at most
// target bytes are kept, and returns how many went. What was used last is kept
// longest. A device that keeps nothing returns 0, as the CPU does in checked
// mode: what is closed there keeps only its addresses, to make a late access
// fault, until there are 4096 such blocks or a Trim to 0. For errors see Alloc.
func Trim(dev Device, target int64) (freed int64, err error) {
	d, err := openDevice(context.Background(), dev)
	if err != nil {
		return 0, opError("Trim", dev, 0, err)
	}
	return d.trim(target), nil
}

// CacheOptions say what a device keeps of freed memory. The zero value is the
// default.
type CacheOptions struct {
	// MaxBytes is the most bytes to keep. 0 on the CPU means the smaller of 1
	// GiB and an eighth of what the host, its control groups and the limits of
	// the process (RLIMIT_AS, RLIMIT_DATA) allow; below zero, none.
	MaxBytes int64

	// Idle is how long memory may lie unused before it goes back to the
	// system; it takes up to a third more. 0 means 30 seconds; below zero, for
	// ever.
	Idle time.Duration
}

// SetCache changes what a device keeps of freed memory. On a device that keeps
// nothing it does nothing. For errors see Alloc.
func SetCache(dev Device, opt CacheOptions) error {
	d, err := openDevice(context.Background(), dev)
	if err != nil {
		return opError("SetCache", dev, 0, err)
	}
	if c, ok := d.be.(backend.Cacher); ok {
		c.SetCache(opt.MaxBytes, opt.Idle)
	}
	return nil
}

// A Fit says whether an allocation is likely to succeed, and the memory to be
// there when it is written to.
type Fit struct {
	State     FitState `json:"state"`
	Available int64    `json:"available"` // bytes; -1 is unknown

	// By names what sets Available: "host", "cgroup" with its directory,
	// "RLIMIT_AS", "RLIMIT_DATA", "device", or "limit"; where the state is
	// unknown, why.
	By string `json:"by"`
}

// FitState is the answer of WouldFit.
type FitState uint8

// The answers.
const (
	FitUnknown FitState = iota // nobody tells
	Fits
	FitsNot
)

var fitNames = []string{"unknown", "fits", "does not fit"}

// String returns the answer in lower case words.
func (f FitState) String() string { return name(f, fitNames, "answer") }

// MarshalText implements encoding.TextMarshaler.
func (f FitState) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *FitState) UnmarshalText(text []byte) error { return unname(f, text, fitNames, "answer") }

// WouldFit estimates whether so many more bytes fit on a device now: for the
// CPU into the least of what the host has available, what every control group
// of the process and each of its ancestors (version 1 and 2) leave, what is left
// of RLIMIT_AS (ulimit -v) and RLIMIT_DATA (ulimit -d) on Linux, and the limit of
// SetLimit; on another device into what its driver reports. What is kept for
// reuse counts as available, of the host also the part of it that nobody ever
// wrote to, and that the host has available as well. Nobody reserves anything:
// another program may take it.
//
// Linux gives memory that is not there and ends a program that writes to it,
// so ask before a big Alloc. Alloc itself never refuses because of this
// answer.
func WouldFit(dev Device, bytes int64) Fit {
	d, err := openDevice(context.Background(), dev)
	if err == nil {
		err = d.usable()
	}
	if err != nil {
		return Fit{Available: -1, By: err.Error()}
	}
	var b cpu.Budget
	if _, ours := d.be.(*host); ours {
		b = hostBudget()
	} else {
		b = cpu.Budget{Free: d.be.Memory().Free, By: "device"}
	}
	return d.fit(bytes, b)
}

// hostBudget is a variable for tests.
var hostBudget = cpu.HostBudget

func (d *device) fit(bytes int64, b cpu.Budget) Fit {
	f := Fit{Available: -1, By: "the system does not tell"}
	if b.Free >= 0 {
		f.Available, f.By = saturated(b.Free, d.cache().Bytes), b.By
	}
	limit := d.quota.most()
	if limit >= 0 {
		if left := max(0, limit-d.quota.used.Load()); f.Available < 0 || left < f.Available {
			f.Available, f.By = left, "limit"
		}
	}
	switch {
	case f.Available >= 0 && bytes > f.Available:
		f.State = FitsNot
	case b.Free >= 0:
		f.State = Fits
	}
	return f
}

// An AllocSite is a place in the program that holds memory.
type AllocSite struct {
	Bytes   int64  `json:"bytes"`
	Regions int    `json:"regions"`
	At      string `json:"at"` // function, file and line outside of this package, innermost first
}

func (s AllocSite) String() string {
	return fmt.Sprintf("%d bytes in %d by %s", s.Bytes, s.Regions, s.At)
}
