package safetensors

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrNotFound means that a file has no tensor of the name asked for. The
	// name is in the text of the error that wraps it.
	ErrNotFound = errors.New("safetensors: no such tensor")

	// ErrSubByte means that the elements of a tensor do not fill whole bytes,
	// as an odd number of F4 elements. The format has no such tensors, though
	// memory has: pad the tensor before writing it.
	ErrSubByte = errors.New("safetensors: elements do not fill whole bytes")
)

// A FormatError says which rule of the format a file breaks, and where.
type FormatError struct {
	// Offset is the place in bytes from the start of the file: of the
	// offending text in the header, or of the data that belongs to nobody.
	Offset int64

	// Tensor is the name of the tensor concerned, "" where none is.
	Tensor string

	// Msg says what is wrong.
	Msg string

	// Err is the kind of fault where it has one: fuel.ErrOverflow,
	// fuel.ErrTooLarge, ErrSubByte, a *fuel.UnknownDTypeError or a
	// *fuel.TruncatedError. Otherwise it is nil.
	Err error
}

func (e *FormatError) Error() string {
	var b strings.Builder
	b.WriteString("safetensors: ")
	if e.Tensor != "" {
		b.WriteString("tensor " + quote(e.Tensor) + ": ")
	}
	b.WriteString(e.Msg)
	if e.Err != nil {
		if e.Msg != "" {
			b.WriteString(": ")
		}
		b.WriteString(e.Err.Error())
	}
	fmt.Fprintf(&b, " (at byte %d)", e.Offset)
	return b.String()
}

func (e *FormatError) Unwrap() error { return e.Err }

// A DuplicateTensorError reports a name that a file, or the arguments of a
// Write, give to more than one tensor.
type DuplicateTensorError struct {
	Name string

	// Offset is where a file's header repeats the name, in bytes from the
	// start of the file; 0 on writing.
	Offset int64
}

func (e *DuplicateTensorError) Error() string {
	if e.Offset == 0 {
		return "safetensors: more than one tensor is named " + quote(e.Name)
	}
	return fmt.Sprintf("safetensors: more than one tensor is named %s (at byte %d)", quote(e.Name), e.Offset)
}

// A NotZeroCopyError is what Options.RequireZeroCopy makes of tensors that
// would have to be copied.
type NotZeroCopyError struct {
	// Tensors are the names of all of them, in the order of the file, and
	// Bytes what they take together.
	Tensors []string
	Bytes   int64

	// Reason says why, for the first of them.
	Reason string
}

func (e *NotZeroCopyError) Error() string {
	const shown = 8
	names := e.Tensors[:min(shown, len(e.Tensors))]
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = quote(name)
	}
	list := strings.Join(quoted, ", ")
	if more := len(e.Tensors) - len(names); more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("safetensors: %d bytes of tensors cannot be used without a copy: %s: %s", e.Bytes, e.Reason, list)
}

// quote shortens what may be as long as a header to what fits an error text.
func quote(name string) string {
	const most = 120
	if len(name) > most {
		return fmt.Sprintf("%q…", name[:most])
	}
	return fmt.Sprintf("%q", name)
}
