package fuel

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/internal/backend"
)

// importTo returns a Storage on d whose memory is that of s on the host, or
// says why there is none. An error is one that a copy would meet as well.
//
// The memory gets one more owner, as by a Clone, so that nobody writes to it;
// that owner leaves when the driver has done with it. To the device it is
// read-only, so that a write there makes a private copy, too.
func (s *Storage) importTo(ctx context.Context, d *device, opt *CopyOptions) (t *Storage, why string, err error) {
	r, err := s.share(ctx)
	if err != nil {
		return nil, "", err
	}
	if err := r.settle(ctx); err != nil {
		r.unshare()
		return nil, "", err
	}
	mem, skew, why := s.importable(r, d, opt)
	if why != "" {
		r.unshare()
		return nil, "not imported: " + why, nil
	}
	m := &memory{dev: d, size: s.size, kind: MemoryImported, file: r.mem.buf.MayFault, wishes: r.mem.wishes}
	m.ro.Store(true)
	m.buf, err = d.be.(backend.Importer).Import(mem, m.file, r.dropOwner)
	if err != nil {
		r.unshare()
		return nil, fmt.Sprintf("not imported: %s refuses: %v", d.id, d.noted(err, len(mem))), nil
	}
	if opt.Report != nil {
		*opt.Report = CopyReport{Path: PathImport}
	}
	// The device sees whole pages: those before the window have coordinates
	// below it.
	return newStorage(newRegion(m, -skew), 0, s.size, s.n, s.dtype, s.enc, s.bundle), "", nil
}

// importable returns the memory around the window of s that d can import, and
// how many bytes into it the window begins, or says why there is none.
func (s *Storage) importable(r *region, d *device, opt *CopyOptions) (mem []byte, skew int, why string) {
	h, ok := r.mem.dev.be.(*host)
	if !ok {
		return nil, 0, fmt.Sprintf("it is on %s, and not host memory", r.mem.dev.id)
	}
	align := 0
	if i, ok := d.be.(backend.Importer); ok {
		align = i.ImportAlign()
	}
	if align == 0 {
		return nil, 0, fmt.Sprintf("%s cannot use host memory", d.id)
	}
	var all []byte
	switch r.mem.kind {
	case MemoryMapped:
		if !opt.ImportMapped {
			return nil, 0, "it is a mapped file, and CopyOptions.ImportMapped is not set"
		}
		all = cpu.Pages(r.mem.buf.Host)
	case MemoryHeap, MemoryAnonymous:
		if all, why = h.extent(r.mem.buf); why != "" {
			return nil, 0, why
		}
	default:
		return nil, 0, fmt.Sprintf("%s memory is not imported", r.mem.kind)
	}
	mem, skew, ok = around(all, r.bytes(s.off, s.size), align)
	if !ok {
		return nil, 0, fmt.Sprintf("%s imports whole %d bytes, and not all around it are its own", d.id, align)
	}
	return mem, skew, ""
}

// around widens part, which lies in all, to a multiple of align at both ends,
// and returns how far into that it begins. It fails where that would leave all.
func around(all, part []byte, align int) (mem []byte, skew int, ok bool) {
	base := uintptr(unsafe.Pointer(unsafe.SliceData(all)))
	at := uintptr(unsafe.Pointer(unsafe.SliceData(part)))
	skew = int(at & uintptr(align-1))
	first := int(at-base) - skew
	n, ok := cpu.AlignUp(skew+len(part), align)
	if !ok || first < 0 || n > len(all)-first {
		return nil, 0, false
	}
	return all[first : first+n : first+n], skew, true
}
