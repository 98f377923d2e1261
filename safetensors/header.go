package safetensors

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-fuel/fuel"
)

const (
	// MaxHeader is the most bytes that a header may have, padding included.
	MaxHeader = 100_000_000

	lengthBytes  = 8
	metadataName = "__metadata__"
)

// An Info says what a tensor is and where in the file its bytes are.
type Info struct {
	Name  string     `json:"name"`
	DType fuel.DType `json:"dtype"`

	// Shape is the length of each dimension, the last varying fastest. It is
	// empty, not nil, for a scalar. The slice is the caller's own.
	Shape []int `json:"shape"`

	// Len is the number of elements, the product of Shape.
	Len int `json:"len"`

	// Offset is where the tensor's bytes begin, from the start of the file.
	Offset int64 `json:"offset"`

	// Bytes is how many there are.
	Bytes int `json:"bytes"`
}

// A Header is the table of contents of a file: what tensors it has and where
// they are, without their bytes. It is safe for use by several goroutines.
type Header struct {
	entries   []entry // by where the bytes are
	index     map[string]int
	metadata  map[string]string
	dataStart int64
	size      int64
}

type entry struct {
	name       string
	dtype      fuel.DType
	shape      []int
	n          int   // elements
	begin, end int64 // from dataStart
	at         int64 // where the name stands in the file
}

func (e *entry) bytes() int { return int(e.end - e.begin) }

// Parse reads and checks the header of a file of size bytes, and nothing of
// the data. Every rule of the format is checked that the header and the size
// decide, so that a file which Parse takes is valid.
//
// A file that breaks a rule is a *FormatError or a *DuplicateTensorError; one
// that ends too early also is fuel.ErrTruncated, and a *fuel.TruncatedError in
// the chain has the figures. Errors of r are returned as they are.
//
// Parse allocates in proportion to the header, which is inside size, never to
// numbers that stand in it.
func Parse(r io.ReaderAt, size int64) (*Header, error) {
	text, err := readHeader(r, size)
	if err != nil {
		return nil, err
	}
	h := &Header{dataStart: lengthBytes + int64(len(text)), size: size}
	if err := h.parse(text); err != nil {
		return nil, err
	}
	h.sort()
	if err := h.validate(); err != nil {
		return nil, err
	}
	return h, nil
}

// readHeader returns the JSON text, padding included.
func readHeader(r io.ReaderAt, size int64) (string, error) {
	if size < lengthBytes {
		return "", truncated("no room for the header's length", lengthBytes, size)
	}
	var length [lengthBytes]byte
	if err := readAt(r, length[:], 0, size); err != nil {
		return "", err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > MaxHeader {
		return "", &FormatError{Msg: fmt.Sprintf("this may be no safetensors file: its first eight bytes tell of a header of %d bytes, and %d are allowed", n, MaxHeader), Err: fuel.ErrTooLarge}
	}
	if int64(n) > size-lengthBytes {
		return "", truncated("the header goes past the end", lengthBytes+int64(n), size)
	}
	header := make([]byte, n)
	if err := readAt(r, header, lengthBytes, size); err != nil {
		return "", err
	}
	if !utf8.Valid(header) {
		at := 0
		for {
			r, n := utf8.DecodeRune(header[at:])
			if r == utf8.RuneError && n == 1 {
				return "", &FormatError{Offset: lengthBytes + int64(at), Msg: "header is not valid UTF-8"}
			}
			at += n
		}
	}
	return string(header), nil
}

// readAt fills p. That r has less than size promises is a truncation.
func readAt(r io.ReaderAt, p []byte, off, size int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return truncated(fmt.Sprintf("shorter than the %d bytes it was said to have", size), off+int64(len(p)), off+int64(n))
	}
	return err
}

func truncated(msg string, want, have int64) error {
	return &FormatError{Offset: have, Msg: msg, Err: &fuel.TruncatedError{Want: want, Have: have}}
}

// parse fills entries, in the order of the text, and metadata.
func (h *Header) parse(text string) error {
	s := &scanner{text: text, base: lengthBytes}
	if text == "" || text[0] != '{' {
		return s.unexpected("the '{' that begins a header")
	}
	h.index = make(map[string]int)
	haveMetadata := false
	err := s.object(func(key string, at int64) error {
		if key == metadataName {
			if haveMetadata {
				return duplicateKey(key, at)
			}
			haveMetadata = true
			return h.parseMetadata(s)
		}
		if _, ok := h.index[key]; ok {
			return &DuplicateTensorError{Name: strings.Clone(key), Offset: at}
		}
		e := entry{name: strings.Clone(key), at: at}
		if err := e.parse(s); err != nil {
			return inTensor(err, e.name)
		}
		h.index[e.name] = len(h.entries)
		h.entries = append(h.entries, e)
		return nil
	})
	if err != nil {
		return err
	}
	for ; s.pos < len(s.text); s.pos++ {
		if s.text[s.pos] != ' ' {
			return s.unexpected("padding (spaces)")
		}
	}
	return nil
}

// inTensor adds a tensor's name to an error about its entry.
func inTensor(err error, name string) error {
	if f, ok := errors.AsType[*FormatError](err); ok {
		f.Tensor = name
	}
	return err
}

func (h *Header) parseMetadata(s *scanner) error {
	if s.literal("null") {
		return nil
	}
	h.metadata = make(map[string]string)
	return s.object(func(key string, at int64) error {
		if _, ok := h.metadata[key]; ok {
			return duplicateKey(key, at)
		}
		value, err := s.string("a string, as every value in " + metadataName)
		if err != nil {
			return err
		}
		h.metadata[strings.Clone(key)] = strings.Clone(value)
		return nil
	})
}

// The keys of a tensor's entry, as bits of those seen.
const (
	keyDType = 1 << iota
	keyShape
	keyOffsets
)

// parse reads the object that follows a tensor's name. Keys that it does not
// know are skipped.
func (e *entry) parse(s *scanner) error {
	seen := 0
	var others map[string]struct{}
	err := s.object(func(key string, at int64) error {
		known, read := 0, (func(*scanner) error)(nil)
		switch key {
		case "dtype":
			known, read = keyDType, e.parseDType
		case "shape":
			known, read = keyShape, e.parseShape
		case "data_offsets":
			known, read = keyOffsets, e.parseOffsets
		default:
			if _, ok := others[key]; ok {
				return duplicateKey(key, at)
			}
			if others == nil {
				others = make(map[string]struct{})
			}
			others[key] = struct{}{}
			return s.skip(2)
		}
		if seen&known != 0 {
			return duplicateKey(key, at)
		}
		seen |= known
		return read(s)
	})
	if err != nil {
		return err
	}
	for i, key := range []string{"dtype", "shape", "data_offsets"} {
		if seen&(1<<i) == 0 {
			return &FormatError{Offset: e.at, Msg: "no " + key}
		}
	}
	return nil
}

func (e *entry) parseDType(s *scanner) error {
	s.peek()
	at := s.at()
	code, err := s.string("a dtype in quotes")
	if err != nil {
		return err
	}
	// No name is as long as that; an error text should not be longer either.
	code = strings.Clone(code[:min(len(code), 40)])
	d, err := fuel.DTypeFromSafetensors(code)
	if err != nil {
		return &FormatError{Offset: at, Err: err}
	}
	e.dtype = d
	return nil
}

func (e *entry) parseShape(s *scanner) error {
	e.shape = []int{}
	return s.array(func() error {
		n, err := s.integer(math.MaxInt)
		e.shape = append(e.shape, int(n))
		return err
	})
}

func (e *entry) parseOffsets(s *scanner) error {
	s.peek()
	at := s.at()
	var offsets [2]int64
	i := 0
	err := s.array(func() error {
		if i == len(offsets) {
			return s.fail("more than two data_offsets")
		}
		n, err := s.integer(math.MaxInt64)
		offsets[i] = n
		i++
		return err
	})
	if err != nil {
		return err
	}
	if i < len(offsets) {
		return &FormatError{Offset: at, Msg: "fewer than two data_offsets"}
	}
	e.begin, e.end = offsets[0], offsets[1]
	if e.end < e.begin {
		return &FormatError{Offset: at, Msg: fmt.Sprintf("data_offsets [%d,%d] end before they begin", e.begin, e.end)}
	}
	return nil
}

// sort puts the entries in the order of their bytes, and those at one place in
// the order of the header.
func (h *Header) sort() {
	order := func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end), cmp.Compare(a.at, b.at))
	}
	if slices.IsSortedFunc(h.entries, order) {
		return
	}
	slices.SortFunc(h.entries, order)
	for i := range h.entries {
		h.index[h.entries[i].name] = i
	}
}

// validate checks the sorted entries against one another, against their own
// shapes and against the size of the file.
func (h *Header) validate() error {
	end := int64(0)
	for i := range h.entries {
		e := &h.entries[i]
		fail := func(err error, format string, args ...any) error {
			return &FormatError{Offset: e.at, Tensor: e.name, Msg: fmt.Sprintf(format, args...), Err: err}
		}
		if e.begin < end {
			return fail(nil, "data_offsets [%d,%d] overlap the tensor before, which ends at %d", e.begin, e.end, end)
		}
		if e.begin > end {
			return fail(nil, "data_offsets [%d,%d] leave %d bytes before them unused", e.begin, e.end, e.begin-end)
		}
		var bytes int
		var err error
		if e.n, bytes, err = plainSize(e.dtype, e.shape); err != nil {
			return fail(err, "shape %s of %s", shapeText(e.shape), e.dtype)
		}
		if e.end-e.begin != int64(bytes) {
			return fail(nil, "shape %s of %s takes %d bytes, data_offsets give %d", shapeText(e.shape), e.dtype, bytes, e.end-e.begin)
		}
		end = e.end
	}
	switch have := h.size - h.dataStart; {
	case end > have:
		if end > math.MaxInt64-h.dataStart {
			return &FormatError{Offset: h.size, Msg: "end of the data", Err: fuel.ErrOverflow}
		}
		return truncated("the data goes past the end", h.dataStart+end, h.size)
	case end < have:
		return &FormatError{Offset: h.dataStart + end, Msg: fmt.Sprintf("%d bytes at the end belong to no tensor", have-end)}
	}
	return nil
}

// plainSize returns how many elements a shape has and how many bytes these
// take. The dimensions are multiplied from the left, as the reference
// implementation does, so that [0,a,b] is empty whatever a and b are, and
// [a,b,0] overflows where a·b does.
func plainSize(d fuel.DType, shape []int) (n, bytes int, err error) {
	n = 1
	for _, dim := range shape {
		if dim < 0 || dim > 0 && n > math.MaxInt/dim {
			return 0, 0, fuel.ErrOverflow
		}
		n *= dim
	}
	if n%8*d.Bits()%8 != 0 {
		return 0, 0, ErrSubByte
	}
	bytes, err = d.Bytes(n)
	return n, bytes, err
}

// shapeText is a shape for an error text, shortened where it is hostile.
func shapeText(shape []int) string {
	const most = 16
	if len(shape) > most {
		return fmt.Sprintf("%v… (%d dimensions)", shape[:most], len(shape))
	}
	return fmt.Sprint(shape)
}

// Len returns the number of tensors.
func (h *Header) Len() int { return len(h.entries) }

// Names returns the names of all tensors, in the order of their bytes in the
// file. The slice is the caller's own.
func (h *Header) Names() []string {
	names := make([]string, len(h.entries))
	for i := range h.entries {
		names[i] = h.entries[i].name
	}
	return names
}

// Info describes one tensor; false means that there is none of that name.
func (h *Header) Info(name string) (Info, bool) {
	i, ok := h.index[name]
	if !ok {
		return Info{}, false
	}
	return h.info(i), true
}

func (h *Header) info(i int) Info {
	e := &h.entries[i]
	return Info{
		Name:   e.name,
		DType:  e.dtype,
		Shape:  append([]int{}, e.shape...),
		Len:    e.n,
		Offset: h.dataStart + e.begin,
		Bytes:  e.bytes(),
	}
}

// All goes through the tensors in the order of their bytes in the file.
func (h *Header) All() iter.Seq[Info] {
	return func(yield func(Info) bool) {
		for i := range h.entries {
			if !yield(h.info(i)) {
				return
			}
		}
	}
}

// Metadata returns the free-form texts of the file, nil where it has none. The
// map is the caller's own.
func (h *Header) Metadata() map[string]string { return maps.Clone(h.metadata) }

// DataOffset returns where the data begins, in bytes from the start of the
// file. A writer that means well makes it a multiple of 8; Write makes it one
// of 64.
func (h *Header) DataOffset() int64 { return h.dataStart }

// Size returns how many bytes the file has.
func (h *Header) Size() int64 { return h.size }
