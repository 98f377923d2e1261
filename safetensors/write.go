package safetensors

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/cpu"
)

// dataAlignment is what the start of the data is a multiple of in files that
// Write makes.
const dataAlignment = 64

// A Tensor is a Storage with what the format keeps besides: a name, and a
// shape whose product is the Storage's length.
type Tensor struct {
	Name string

	// Shape is the length of each dimension, the last varying fastest. Empty
	// or nil is a scalar, of one element.
	Shape []int

	Data *fuel.Storage
}

// Write writes a file to w: the header, then the bytes of each tensor, from
// whatever device it is on. It holds no copy of the whole, and each tensor is
// written as it is when Write begins, whatever happens to it meanwhile.
//
// The data begins at a multiple of 64, and the tensors stand by falling
// element size and then by name, so that each is aligned to its element; two
// calls with the same tensors in any order write the same bytes. metadata may
// be nil.
//
// Everything is checked before the first byte is written. Only plain encodings
// can be written (else fuel.ErrMismatch) and only dtypes for which the format
// has a code (fuel.ErrUnknownDType); a shape must have as many elements as its
// Storage (fuel.ErrMismatch), and these must fill whole bytes (ErrSubByte).
// Names must be different (*DuplicateTensorError), and they and the metadata
// valid UTF-8; "__metadata__" is no name. A header above MaxHeader is
// fuel.ErrTooLarge.
//
// Write blocks. To stop it, have w return an error.
func Write(w io.Writer, tensors []Tensor, metadata map[string]string) error {
	return write(w, tensors, metadata, hostBigEndian)
}

func write(w io.Writer, tensors []Tensor, metadata map[string]string, bigEndian bool) error {
	p, err := prepare(tensors, metadata)
	if err != nil {
		return err
	}
	defer p.close()
	return p.writeTo(w, bigEndian)
}

// A plan is a file that has passed all checks, ready to be written.
type plan struct {
	header  []byte    // the length, the JSON text and the padding
	tensors []planned // in the order of the data
}

type planned struct {
	name  string
	code  string
	shape []int
	bytes int
	data  *fuel.Storage // a snapshot
}

// prepare checks everything and takes snapshots, which the caller gives back
// with close.
func prepare(tensors []Tensor, metadata map[string]string) (*plan, error) {
	p := &plan{tensors: make([]planned, 0, len(tensors))}
	if err := p.fill(tensors, metadata); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *plan) close() {
	for _, t := range p.tensors {
		t.data.Close() // a handle of our own: it cannot have been closed
	}
}

func (p *plan) fill(tensors []Tensor, metadata map[string]string) error {
	seen := make(map[string]struct{}, len(tensors))
	var subByte []string
	for _, t := range tensors {
		if _, ok := seen[t.Name]; ok {
			return &DuplicateTensorError{Name: t.Name}
		}
		seen[t.Name] = struct{}{}
		switch err := p.add(t); {
		case errors.Is(err, ErrSubByte):
			subByte = append(subByte, quote(t.Name))
		case err != nil:
			return fmt.Errorf("safetensors: tensor %s: %w", quote(t.Name), err)
		}
	}
	if subByte != nil {
		return fmt.Errorf("%w: %s", ErrSubByte, strings.Join(subByte, ", "))
	}
	slices.SortFunc(p.tensors, func(a, b planned) int {
		return cmp.Or(cmp.Compare(b.data.DType().Bits(), a.data.DType().Bits()), strings.Compare(a.name, b.name))
	})
	return p.makeHeader(metadata)
}

// add checks one tensor by itself and adds it.
func (p *plan) add(t Tensor) error {
	if t.Name == metadataName {
		return errors.New("the name is kept for the metadata")
	}
	if !utf8.ValidString(t.Name) {
		return errors.New("the name is not valid UTF-8")
	}
	if t.Data == nil {
		return errors.New("no Data")
	}
	data, err := t.Data.Clone()
	if err != nil {
		return err
	}
	code, err := checkTensor(t.Shape, data)
	if err != nil {
		data.Close()
		return err
	}
	p.tensors = append(p.tensors, planned{t.Name, code, slices.Clone(t.Shape), data.LenBytes(), data})
	return nil
}

// checkTensor returns the format's name of the dtype.
func checkTensor(shape []int, data *fuel.Storage) (code string, err error) {
	d := data.DType()
	if !data.Encoding().IsPlain() {
		return "", fmt.Errorf("encoding %s, only plain ones can be written: %w", data.Encoding(), fuel.ErrMismatch)
	}
	code, err = d.Safetensors()
	if err != nil {
		return "", err
	}
	n, bytes, err := plainSize(d, shape)
	if err != nil {
		return "", fmt.Errorf("shape %s of %s: %w", shapeText(shape), d, err)
	}
	if n != data.Len() || bytes != data.LenBytes() {
		return "", fmt.Errorf("shape %s has %d elements, its Storage %d: %w", shapeText(shape), n, data.Len(), fuel.ErrMismatch)
	}
	return code, nil
}

// makeHeader builds the header of the sorted tensors.
func (p *plan) makeHeader(metadata map[string]string) error {
	b := make([]byte, lengthBytes, lengthBytes+128*(len(p.tensors)+1))
	b = append(b, '{')
	if len(metadata) > 0 {
		b = append(b, `"`+metadataName+`":`...)
		comma := byte('{')
		for _, key := range slices.Sorted(maps.Keys(metadata)) {
			if !utf8.ValidString(key) || !utf8.ValidString(metadata[key]) {
				return fmt.Errorf("safetensors: metadata %s is not valid UTF-8", quote(key))
			}
			b = appendString(append(b, comma), key)
			b = appendString(append(b, ':'), metadata[key])
			comma = ','
		}
		b = append(b, '}')
	}
	end := int64(0)
	for i, t := range p.tensors {
		begin := end
		if int64(t.bytes) > math.MaxInt64-begin {
			return fmt.Errorf("safetensors: tensor %s: end of the data: %w", quote(t.name), fuel.ErrOverflow)
		}
		end += int64(t.bytes)
		if i > 0 || len(metadata) > 0 {
			b = append(b, ',')
		}
		b = appendString(b, t.name)
		b = append(b, `:{"dtype":"`+t.code+`","shape":[`...)
		for j, dim := range t.shape {
			if j > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, int64(dim), 10)
		}
		b = append(b, `],"data_offsets":[`...)
		b = strconv.AppendInt(b, begin, 10)
		b = append(b, ',')
		b = strconv.AppendInt(b, end, 10)
		b = append(b, "]}"...)
	}
	b = append(b, '}')
	for len(b)%dataAlignment != 0 {
		b = append(b, ' ')
	}
	n := len(b) - lengthBytes
	if n > MaxHeader {
		return fmt.Errorf("safetensors: a header of %d bytes, %d are allowed: %w", n, MaxHeader, fuel.ErrTooLarge)
	}
	binary.LittleEndian.PutUint64(b, uint64(n))
	p.header = b
	return nil
}

// appendString appends a JSON string. s is valid UTF-8.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

func (p *plan) writeTo(w io.Writer, bigEndian bool) error {
	n, err := w.Write(p.header)
	if err == nil && n < len(p.header) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return fmt.Errorf("safetensors: header: %w", err)
	}
	for _, t := range p.tensors {
		if t.bytes == 0 {
			continue
		}
		var n int64
		if width := swapWidth(t.data.DType()); bigEndian && width > 1 {
			n, err = writeSwapped(w, t.data, width)
		} else {
			n, err = t.data.WriteTo(w)
		}
		if err == nil && n < int64(t.bytes) {
			err = io.ErrShortWrite
		}
		if err != nil {
			return fmt.Errorf("safetensors: tensor %s: %w", quote(t.name), err)
		}
	}
	return nil
}

// writeSwapped writes numbers of width bytes in the order that files have on a
// big-endian host.
func writeSwapped(w io.Writer, s *fuel.Storage, width int) (done int64, err error) {
	buf := make([]byte, min(pieceBytes, s.LenBytes()))
	for done < int64(s.LenBytes()) {
		b := buf[:min(int64(len(buf)), int64(s.LenBytes())-done)]
		if _, err := s.ReadAt(b, done); err != nil && err != io.EOF {
			return done, err
		}
		cpu.Swap(b, b, width)
		n, err := w.Write(b)
		done += int64(n)
		if err == nil && n < len(b) {
			err = io.ErrShortWrite
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}
