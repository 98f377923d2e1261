package fuel

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/go-fuel/fuel/internal/backend"
)

// A Plan says what CopyFrom would do, before it does.
type Plan struct {
	Bytes  int      `json:"bytes"`  // that would be copied
	Path   CopyPath `json:"path"`   // how
	Staged int      `json:"staged"` // bytes that would go through host memory in between

	// Staging is the bytes of that host memory: the most that are on their
	// way in it at once. 0 where Staged is.
	Staging int `json:"staging"`

	// Private says that the destination would first get memory of its own,
	// since others share what it has or it is read-only, and PrivateBytes how
	// much. WouldFit tells whether there is room.
	Private      bool `json:"private"`
	PrivateBytes int  `json:"privateBytes"`

	// Guarded says that reading the source may fault, as a mapped file does
	// that is truncated, so that each read is guarded; a fault is ErrMapFault.
	Guarded bool `json:"guarded"`

	// Reason tells a person why it is so. Programs go by the other fields.
	Reason string `json:"reason"`
}

// String returns the path, the bytes and the reason.
func (p Plan) String() string {
	if p.Path == PathNone {
		return p.Path.String() + ": " + p.Reason
	}
	return fmt.Sprintf("%s of %s: %s", p.Path, byteCount(p.Bytes), p.Reason)
}

// PlanCopy tells how dst.CopyFrom(src) would go if it came now. It copies,
// allocates and changes nothing, does not block, and either may be used
// meanwhile. The errors are those of CopyFrom that can be known beforehand:
// ErrClosed, ErrMismatch, ErrDeviceLost, ErrReadOnly (see OpenShared).
//
// What others do may change the answer until the copy runs: a Clone may share
// dst or be closed, and a device whose queue is busy with dst stages what the
// host would else write itself. CopyReport tells what happened.
func PlanCopy(dst, src *Storage) (Plan, error) {
	p, err := planCopy(dst, src)
	return p, dst.fail("PlanCopy", err)
}

func planCopy(dst, src *Storage) (Plan, error) {
	if err := dst.matches(src); err != nil {
		return Plan{}, err
	}
	from, err := src.pin()
	if err != nil {
		return Plan{}, err
	}
	defer from.unpin()
	to, err := dst.pin()
	if err != nil {
		return Plan{}, err
	}
	defer to.unpin()
	if dst.size == 0 {
		return Plan{Reason: "there are no bytes"}, nil
	}
	for _, r := range []*region{to, from} {
		if err := r.mem.dev.usable(); err != nil {
			return Plan{}, err
		}
	}
	if to.mem.ro.Load() && to.mem.unsealed() {
		return Plan{}, errOpenedReadOnly
	}
	var why []string
	p := Plan{Bytes: dst.size, Path: copyPath(to, from), Guarded: from.mem.buf.MayFault}
	before, at := to.mem.buf, dst.off-to.origin // where the bytes go
	pins := 1                                   // those of this function
	if to == from {
		pins++
	}
	if reason := to.shared(pins); reason != "" {
		p.Private = true
		p.PrivateBytes = dst.own.size + dst.own.skew(to)
		before, at = backend.Buffer{}, dst.off-dst.own.off+dst.own.skew(to)
		why = append(why, fmt.Sprintf("the destination %s, so it first gets %s of its own", reason, byteCount(p.PrivateBytes)))
		if dst.own == src.own {
			p.Guarded = false // src moves there as well
		}
	}
	there, here := to.mem.dev, from.mem.dev
	mapped := "the source is a mapped file, which may be truncated"
	stage := func(dev *device, size int, reason string) {
		if size > 0 {
			p.Staged, p.Staging = p.Bytes, size
			reason = fmt.Sprintf("%s: %s, so %s go through %s of staging memory", dev.id, reason, byteCount(p.Bytes), byteCount(size))
		}
		why = append(why, reason)
	}
	switch p.Path {
	case PathHost:
		if p.Guarded {
			why = append(why, mapped+", so each read of it is guarded")
		}
		why = append(why, "both are in host memory")
	case PathDevice:
		why = append(why, fmt.Sprintf("both are on %s, which copies itself", there.id))
	case PathUpload:
		if p.Guarded {
			why = append(why, mapped+", so each read of it is guarded")
		}
		if size, reason := there.be.Staging(before, at, from.bytes(src.off, src.size), false); size > 0 {
			stage(there, size, reason)
		} else {
			why = append(why, there.reached(from, "writes"))
		}
	case PathDownload:
		mem := to.bytes(dst.off, dst.size)
		if pin := to.mem.pinning.Load(); p.Private && (pin.held() != nil || pin.d != here) {
			mem = nil // else the new memory is as this is
		}
		if size, reason := here.be.Staging(from.mem.buf, src.off-from.origin, mem, true); size > 0 {
			stage(here, size, reason)
		} else {
			why = append(why, here.reached(to, "reads"))
		}
	case PathBounce:
		p.Staged, p.Staging = p.Bytes, min(p.Bytes, bounceSize)
		why = append(why, fmt.Sprintf("%s and %s do not reach each other's memory, so %s go through %s of host memory", here.id, there.id, byteCount(p.Bytes), byteCount(p.Staging)))
	}
	p.Reason = strings.Join(why, "; ")
	return p, nil
}

// reached says why no staging is needed between d and memory of the host, which
// reads or writes that of d.
func (d *device) reached(r *region, does string) string {
	if p := r.mem.pinning.Load(); p.held() == nil && p.d == d {
		return fmt.Sprintf("the host's memory is page-locked for %s", d.id)
	}
	return fmt.Sprintf("the host %s the memory of %s itself", does, d.id)
}

// shared says why the region's owner needs memory of its own before it writes,
// or is "". pins readers are the caller's own.
func (r *region) shared(pins int) string {
	w := r.word.Load()
	switch others := int(w&ownersMask) - 1; {
	case r.mem.kind == MemoryMapped:
		return "is a mapped file, which is never written"
	case r.mem.ro.Load():
		return "is memory that is not written"
	case others > 0:
		return fmt.Sprintf("is shared with %d more", others)
	case w&parted != 0 && int(w&pinsMask/onePin) > pins:
		return "may still be read by a clone that was closed"
	}
	return ""
}

// byteCount is n in the largest unit that it is a whole number of, or about so.
func byteCount(n int) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	v, u := float64(n), 0
	for u < len(units)-1 && v >= 1024 {
		v /= 1024
		u++
	}
	if u == 0 && n == 1 {
		return "1 byte"
	}
	return strconv.FormatFloat(v, 'g', 4, 64) + " " + units[u]
}
