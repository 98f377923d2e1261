package fuel

// Options are the rarer wishes of an allocation. The zero value and nil are
// the defaults.
type Options struct {
	// Encoding says how the bytes represent the elements. The zero value is
	// plain: one element after another.
	Encoding Encoding
}

func (o *Options) encoding() Encoding {
	if o == nil {
		return Plain()
	}
	return o.Encoding
}
