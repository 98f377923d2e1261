package safetensors

import "fmt"

// A Placement says how a tensor came into memory.
type Placement uint8

const (
	// ZeroCopy: the Storage is the file's own bytes, where they lie.
	ZeroCopy Placement = iota

	// Realigned: copied to a fresh Storage, for want of alignment.
	Realigned

	// Swapped: copied to a fresh Storage in the byte order of this
	// (big-endian) host.
	Swapped

	// Loaded: read into memory, since nothing is mapped.
	Loaded
)

// String returns the placement in words.
func (p Placement) String() string {
	switch p {
	case ZeroCopy:
		return "zero-copy"
	case Realigned:
		return "realigned"
	case Swapped:
		return "byte order swapped"
	case Loaded:
		return "loaded"
	}
	return fmt.Sprintf("Placement(%d)", uint8(p))
}

// MarshalText implements encoding.TextMarshaler.
func (p Placement) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// An AlignmentReport says what opening a file cost: which tensors are used
// where they lie and which had to be copied.
type AlignmentReport struct {
	// Mapped is whether the bytes of a file, or of Wrap's slice, are used where
	// they are. NotMapped says why they are not.
	Mapped    bool   `json:"mapped"`
	NotMapped string `json:"notMapped,omitempty"`

	// ZeroCopyTensors are the tensors used where they lie, ZeroCopyBytes what
	// they take together. A tensor without elements is one of these.
	ZeroCopyTensors int   `json:"zeroCopyTensors"`
	ZeroCopyBytes   int64 `json:"zeroCopyBytes"`

	// RealignedTensors are the tensors that were copied within memory, whether
	// for their alignment or for the byte order, RealignedBytes what they take
	// together.
	RealignedTensors int   `json:"realignedTensors"`
	RealignedBytes   int64 `json:"realignedBytes"`

	// LoadedTensors are the tensors that were read because nothing is mapped,
	// LoadedBytes what they take together. No tensor counts twice.
	LoadedTensors int   `json:"loadedTensors"`
	LoadedBytes   int64 `json:"loadedBytes"`

	// Tensors has one row for each, in the order of their bytes in the file.
	Tensors []TensorAlignment `json:"tensors"`
}

// A TensorAlignment is the row of one tensor in an AlignmentReport.
type TensorAlignment struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`

	// Offset is where the bytes begin, from the start of the file.
	Offset int64 `json:"offset"`

	// Required is the alignment in bytes that was asked for: the element's
	// own, or Options.MinAlignment where that is more.
	Required int `json:"required"`

	// Found is the alignment in bytes that the tensor has where the file is in
	// memory, at most 4096; 0 where each tensor was read by itself.
	Found int `json:"found"`

	Placement Placement `json:"placement"`
}

// String is a summary in one line.
func (r AlignmentReport) String() string {
	s := fmt.Sprintf("tensors: %d (%d bytes) without a copy, %d (%d bytes) realigned",
		r.ZeroCopyTensors, r.ZeroCopyBytes, r.RealignedTensors, r.RealignedBytes)
	if !r.Mapped {
		s += fmt.Sprintf(", %d (%d bytes) loaded: %s", r.LoadedTensors, r.LoadedBytes, r.NotMapped)
	}
	return s
}
