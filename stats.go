package fuel

import "context"

// Stats counts the memory that live Storages of this process have on one
// device. Memory that several share counts once.
type Stats struct {
	InUse   int64 `json:"inUse"`   // bytes of live Regions
	Peak    int64 `json:"peak"`    // the most that InUse was
	Regions int64 `json:"regions"` // live Regions

	// Leaks counts the Regions that were dropped without Close, and Leaked
	// their bytes, since the start. They were freed unless a raw slice of
	// them had been handed out.
	Leaks  int64 `json:"leaks"`
	Leaked int64 `json:"leaked"`

	// PrivateCopies counts the copies that a write to shared or read-only
	// memory made, since the start.
	PrivateCopies int64 `json:"privateCopies"`
}

// MemStats returns the figures of a device, opening it where it was not used
// yet. For errors see Alloc. The garbage collector's limit, GOMEMLIMIT, knows
// of none of these bytes but those of the Go heap.
func MemStats(dev Device) (Stats, error) {
	d, err := openDevice(context.Background(), dev)
	if err != nil {
		return Stats{}, opError("MemStats", dev, 0, err)
	}
	return Stats{
		InUse: d.bytes.Load(), Peak: d.peak.Load(), Regions: d.regions.Load(),
		Leaks: d.leaks.Load(), Leaked: d.leaked.Load(), PrivateCopies: d.copies.Load(),
	}, nil
}
