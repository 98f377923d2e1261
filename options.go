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
}

func (o *Options) encoding() Encoding {
	if o == nil {
		return Plain()
	}
	return o.Encoding
}

// wishes are what of Options stays with the memory.
type wishes struct {
	scope *Scope
	huge  bool
}

func (o *Options) wishes() wishes {
	if o == nil {
		return wishes{}
	}
	return wishes{scope: o.Scope, huge: o.HugePages}
}
