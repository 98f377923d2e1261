package fuel

import (
	"context"

	"github.com/go-fuel/fuel/internal/backend"
)

// Stats counts the memory that live Storages of this process have on one
// device. What several Storages share counts once, for each Region: shared memory
// that a process opens twice, and a file that it maps twice, are two.
type Stats struct {
	InUse   int64 `json:"inUse"`   // bytes of live Regions
	Peak    int64 `json:"peak"`    // the most that InUse was
	Regions int64 `json:"regions"` // live Regions

	// Leaks counts the Regions that were dropped without Close and that the
	// collector found, and Leaked their bytes, since the start. They were
	// freed unless a raw slice of them had been handed out. Of the CPU's own
	// memory it finds those of 64 KiB and more, and all in checked mode: a
	// smaller one that is dropped stays in InUse and is not freed, but for
	// its bytes where they are the Go heap's.
	Leaks  int64 `json:"leaks"`
	Leaked int64 `json:"leaked"`

	// PrivateCopies counts the copies that a write to memory with several
	// owners or to read-only memory made, and a Clone of shared memory that is
	// not sealed, since the start.
	PrivateCopies int64 `json:"privateCopies"`

	Allocated int64 `json:"allocated"` // bytes of InUse that count for SetLimit: all but mapped files, wrapped and imported memory, and what OpenShared opened
	Limit     int64 `json:"limit"`     // bytes that SetLimit allows of them, -1 where there is none
	Padding   int64 `json:"padding"`   // bytes that blocks are larger than what was asked for

	// Pinned is the bytes of host memory that Storages have page-locked, in whole
	// pages, from then until they are closed. It is the CPU's to count.
	Pinned int64 `json:"pinned"`

	Cached        int64 `json:"cached"`        // bytes of freed memory that are kept for reuse
	LargestCached int64 `json:"largestCached"` // bytes of the largest block of it

	// PageableStaging says that the system refused page-locked memory for
	// transfers to and from the device: they go through ordinary memory, and
	// take longer.
	PageableStaging bool `json:"pageableStaging"`
}

// MemStats returns the figures of a device, opening it where it was not used
// yet. For errors see Alloc. The garbage collector's limit, GOMEMLIMIT, knows
// of none of these bytes but those of the Go heap.
func MemStats(dev Device) (Stats, error) {
	d, err := openDevice(context.Background(), dev)
	if err != nil {
		return Stats{}, opError("MemStats", dev, 0, err)
	}
	c := d.cache()
	stager, ok := d.be.(backend.Stager)
	pinned := int64(0)
	if h, ours := d.be.(*host); ours {
		pinned = h.pinned.Load()
	}
	return Stats{
		Pinned: pinned,

		PageableStaging: ok && stager.Pageable(),

		InUse: d.bytes.Load(), Peak: d.peak.Load(), Regions: d.regions.Load(),
		Leaks: d.leaks.Load(), Leaked: d.leaked.Load(), PrivateCopies: d.copies.Load(),
		Allocated: d.quota.used.Load(), Limit: d.quota.most(), Padding: c.Padding, Cached: c.Bytes, LargestCached: c.Largest,
	}, nil
}
