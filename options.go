package fuel

// Options are the rarer wishes of an allocation. The zero value and nil are
// the defaults.
type Options struct {
	// Encoding says how the bytes represent the elements. The zero value is
	// plain: one element after another.
	Encoding Encoding

	// Scope counts the memory, and refuses it above the Scope's limit. nil is
	// none. A private copy and a copy by To count in the same Scope.
	Scope *Scope

	// HugePages asks the system to back the memory with huge pages: host
	// memory of 2 MiB and more, on Linux (madvise). They make access to much
	// memory faster and stall or bloat a program that touches little of it,
	// so they are off by default, which leaves the system as it is set.
	// RegionInfo.HugePages says what came of it; a refusal is no error.
	HugePages bool

	// Pinned asks that memory on the CPU be page-locked for a GPU: what is
	// copied to and from that device then goes directly, without staging, at
	// the full speed of its link. Copies still return when they are done. The
	// zero value is no wish. On another device than the CPU it is ErrMismatch.
	//
	// Such a Storage takes whole pages for itself (Stats.Padding, Stats.Pinned),
	// which are not swapped out where the driver locks them (a processor as a
	// Vulkan device locks none), and no huge ones. That takes about as long as
	// writing to all of them: allocate it once and use it often. A system may
	// allow little of it (WSL), or none. Where it is refused, or there is no
	// such device, the memory is ordinary, and RegionInfo.Pinned and
	// PinnedRefused say so. Private copies are page-locked as well where they
	// can be. Storage.Pin is for memory that is there already.
	Pinned Device

	// PinnedOnly makes an allocation fail with ErrPinned where the memory cannot
	// be page-locked, and so with the error behind that: see Storage.Pin. No
	// bytes are no failure.
	PinnedOnly bool
}

func (o *Options) encoding() Encoding {
	if o == nil {
		return Plain()
	}
	return o.Encoding
}

// wishes are what of Options stays with the memory.
type wishes struct {
	scope  *Scope
	huge   bool
	pinned Device
}

func (o *Options) wishes() wishes {
	if o == nil {
		return wishes{}
	}
	return wishes{scope: o.Scope, huge: o.HugePages, pinned: o.Pinned}
}
