package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/race"
)

var cpuDevice = fuel.Device{}

// storage is n bytes as elements of d; the test closes it.
func storage(t testing.TB, d fuel.DType, b []byte) *fuel.Storage {
	t.Helper()
	s, err := fuel.FromBytes(cpuDevice, d, b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(t, s) })
	return s
}

func written(t testing.TB, tensors []Tensor, metadata map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, tensors, metadata); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestWriteAlignsEveryTensor(t *testing.T) {
	noLeaks(t)
	var tensors []Tensor
	for code, bits := range codeBits {
		d, err := fuel.DTypeFromSafetensors(code)
		if err != nil {
			t.Fatal(err)
		}
		tensors = append(tensors,
			Tensor{code + " odd", []int{3, 4}, storage(t, d, counting(12*bits/8))},
			Tensor{code + " empty", []int{0, 7}, storage(t, d, nil)})
		if bits >= 8 {
			tensors = append(tensors, Tensor{code + " scalar", nil, storage(t, d, counting(bits/8))})
		}
	}
	for extra := range 65 {
		metadata := map[string]string{"pad": strings.Repeat("x", extra), "a": "", "b": "", "c": "", "d": ""}
		b := written(t, tensors, metadata)
		slices.Reverse(tensors)
		if !bytes.Equal(b, written(t, tensors, metadata)) {
			t.Fatal("the order of the arguments shows")
		}
		h, err := parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if h.DataOffset()%64 != 0 || h.Len() != len(tensors) {
			t.Fatalf("data at %d, %d tensors", h.DataOffset(), h.Len())
		}
		last := 1 << 20
		for info := range h.All() {
			if info.Offset%int64(info.DType.Align()) != 0 {
				t.Errorf("%s at %d", info.Name, info.Offset)
			}
			if info.DType.Bits() > last {
				t.Errorf("%s stands after a smaller element", info.Name)
			}
			last = info.DType.Bits()
		}
		if extra > 0 {
			continue
		}
		f, err := Open(save(t, b), &Options{RequireZeroCopy: !hostBigEndian && canMap(t)})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range tensors {
			info, _ := f.Info(x.Name)
			if !slices.Equal(info.Shape, x.Shape) || info.DType != x.Data.DType() || !bytes.Equal(content(t, f, x.Name), bytesOf(t, x.Data)) {
				t.Errorf("%s came back as %+v", x.Name, info)
			}
		}
		if !maps.Equal(f.Metadata(), metadata) {
			t.Errorf("metadata %q", f.Metadata())
		}
		closeAll(t, f)
	}
}

// canMap reports whether this platform maps files.
func canMap(t testing.TB) bool {
	f, err := Open(save(t, zeros("{}", 0)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, f)
	return f.Report().Mapped
}

func TestWriteEscapesNames(t *testing.T) {
	noLeaks(t)
	var all strings.Builder
	for c := range rune(0x100) {
		all.WriteRune(c)
	}
	all.WriteString("\u2028\ufeff\U0001F600\uFFFD")
	name := all.String()
	s := storage(t, fuel.U8, counting(3))
	b := written(t, []Tensor{{name, []int{3}, s}, {"", []int{3}, s}}, map[string]string{name: name, "": ""})
	h, err := parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := h.Info(name); !ok || h.Metadata()[name] != name {
		t.Errorf("names %q, metadata %q", h.Names(), h.Metadata())
	}
	// Another reader agrees that it is JSON and what it says.
	var other map[string]map[string]any
	if err := json.Unmarshal(b[8:h.DataOffset()], &other); err != nil || other["__metadata__"][name] != name || other[name]["dtype"] != "U8" {
		t.Errorf("encoding/json reads %v, %v", other, err)
	}
}

func TestWriteRefuses(t *testing.T) {
	noLeaks(t)
	u8, f32 := storage(t, fuel.U8, counting(4)), storage(t, fuel.F32, counting(8))
	i4 := storage(t, fuel.I4, counting(4))
	closed, err := u8.Clone()
	if err != nil {
		t.Fatal(err)
	}
	closeAll(t, closed)
	q, err := fuel.Alloc(cpuDevice, fuel.F32, 32, &fuel.Options{Encoding: fuel.GGMLBlock(fuel.GGMLQ4_0)})
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, q)
	odd, err := fuel.Alloc(cpuDevice, fuel.F4E2M1, 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, odd)
	good := Tensor{"good", []int{4}, u8}
	for _, c := range []struct {
		name     string
		tensors  []Tensor
		metadata map[string]string
		want     error
		text     string
	}{
		{"no Data", []Tensor{good, {"bad", []int{1}, nil}}, nil, nil, `"bad"`},
		{"closed", []Tensor{good, {"bad", []int{4}, closed}}, nil, fuel.ErrClosed, `"bad"`},
		{"encoding", []Tensor{good, {"bad", []int{32}, q}}, nil, fuel.ErrMismatch, `"bad": encoding`},
		{"dtype", []Tensor{good, {"bad", []int{8}, i4}}, nil, fuel.ErrUnknownDType, `"i4"`},
		{"too few", []Tensor{good, {"bad", []int{1}, f32}}, nil, fuel.ErrMismatch, `"bad"`},
		{"too many", []Tensor{good, {"bad", []int{2, 2}, f32}}, nil, fuel.ErrMismatch, `"bad"`},
		{"not a scalar", []Tensor{good, {"bad", nil, f32}}, nil, fuel.ErrMismatch, `"bad"`},
		{"negative", []Tensor{good, {"bad", []int{-2, -1}, f32}}, nil, fuel.ErrOverflow, `"bad"`},
		{"overflow", []Tensor{good, {"bad", []int{1 << 30, 1 << 30, 1 << 30}, f32}}, nil, fuel.ErrOverflow, `"bad"`},
		{"odd", []Tensor{good, {"bad", []int{3}, odd}, {"bad too", []int{1, 3}, odd}}, nil, ErrSubByte, `"bad", "bad too"`},
		{"name", []Tensor{good, {"__metadata__", []int{4}, u8}}, nil, nil, `__metadata__`},
		{"UTF-8", []Tensor{good, {"a\xff", []int{4}, u8}}, nil, nil, `a\xff`},
		{"metadata value", []Tensor{good}, map[string]string{"k": "\xff"}, nil, `"k"`},
		{"metadata key", []Tensor{good}, map[string]string{"\xff": ""}, nil, `\xff`},
		{"large header", []Tensor{good}, map[string]string{"k": strings.Repeat("x", MaxHeader)}, fuel.ErrTooLarge, ``},
	} {
		var b bytes.Buffer
		err := Write(&b, c.tensors, c.metadata)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.name, err)
		}
		if b.Len() != 0 {
			t.Errorf("%s: %d bytes are written all the same", c.name, b.Len())
		}
	}
	err = Write(io.Discard, []Tensor{good, {"x", []int{4}, u8}, good}, nil)
	if d, ok := errors.AsType[*DuplicateTensorError](err); !ok || d.Name != "good" {
		t.Errorf("duplicate: %v", err)
	}
}

// What Write refuses, a reader refuses too.
func TestOddF4IsNotWritten(t *testing.T) { // safetensors#839
	noLeaks(t)
	for n := range 10 {
		s, err := fuel.Alloc(cpuDevice, fuel.F4E2M1, n, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = Write(io.Discard, []Tensor{{"a", []int{n}, s}}, nil)
		if odd := n%2 == 1; odd != errors.Is(err, ErrSubByte) || !odd && err != nil {
			t.Errorf("%d: %v", n, err)
		}
		closeAll(t, s)
	}
}

func TestLargestHeaderIsReadBack(t *testing.T) {
	noLeaks(t)
	const used = len(`{"__metadata__":{"k":""}}`)
	b := written(t, nil, map[string]string{"k": strings.Repeat("x", MaxHeader-MaxHeader%64-8-used)})
	if h, err := parse(b); err != nil || len(b)%64 != 0 || h.DataOffset() != int64(len(b)) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// failing takes n bytes and no more.
type failing struct {
	n     int
	short bool // without an error, which a Writer must not do
}

var errWriter = errors.New("writer failed")

func (w *failing) Write(p []byte) (int, error) {
	n := min(len(p), w.n)
	w.n -= n
	if n < len(p) && !w.short {
		return n, errWriter
	}
	return n, nil
}

func TestWriteDoesNotHideFailures(t *testing.T) {
	noLeaks(t)
	tensors := []Tensor{{"a", []int{2}, storage(t, fuel.F32, counting(8))}, {"b", []int{5}, storage(t, fuel.U8, counting(5))}}
	size := len(written(t, tensors, nil))
	for n := range size {
		for _, bigEndian := range []bool{false, true} {
			if err := write(&failing{n, false}, tensors, nil, bigEndian); !errors.Is(err, errWriter) {
				t.Fatalf("after %d bytes: %v", n, err)
			}
			if err := write(&failing{n, true}, tensors, nil, bigEndian); !errors.Is(err, io.ErrShortWrite) {
				t.Fatalf("short after %d bytes: %v", n, err)
			}
		}
	}
	if err := Write(&failing{size, false}, tensors, nil); err != nil {
		t.Error(err)
	}
	if err := Write(&failing{5, true}, nil, nil); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("short header: %v", err)
	}
}

// mutating writes to a Storage while it is being written.
type mutating struct {
	bytes.Buffer
	s *fuel.Storage
}

func (m *mutating) Write(p []byte) (int, error) {
	n, err := m.Buffer.Write(p)
	return n, errors.Join(err, m.s.Mutate(func(b []byte) error { clear(b); return nil }))
}

func TestWriteIsASnapshot(t *testing.T) {
	noLeaks(t)
	m := &mutating{s: storage(t, fuel.U8, counting(100))}
	if err := Write(m, []Tensor{{"a", []int{100}, m.s}}, nil); err != nil {
		t.Fatal(err)
	}
	if got := m.Bytes()[m.Len()-100:]; !bytes.Equal(got, counting(100)) {
		t.Errorf("written as changed meanwhile: %v", got)
	}
}

// largest remembers the longest piece that was written.
type largest int

func (l *largest) Write(p []byte) (int, error) {
	*l = max(*l, largest(len(p)))
	return len(p), nil
}

func TestWriteDoesNotCopyTheWhole(t *testing.T) {
	noLeaks(t)
	const n = 16 << 20
	s, err := fuel.Alloc(cpuDevice, fuel.F32, n/4, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, s)
	for _, bigEndian := range []bool{false, true} {
		var l largest
		got := allocated(func() {
			if err := write(&l, []Tensor{{"a", []int{n / 4}, s}}, nil, bigEndian); err != nil {
				t.Error(err)
			}
		})
		if got > n/8 && !race.Enabled || l > n/8 { // a clone has a shadow for the detector
			t.Errorf("%d bytes allocated, %d written at once", got, l)
		}
	}
}

func TestWriteOfNothing(t *testing.T) {
	for _, metadata := range []map[string]string{nil, {}, {"a": ""}} {
		f, err := FromBytes(written(t, nil, metadata), nil)
		if err != nil {
			t.Fatal(err)
		}
		if f.Len() != 0 || len(f.Metadata()) != len(metadata) {
			t.Errorf("%d tensors, metadata %q", f.Len(), f.Metadata())
		}
		closeAll(t, f)
	}
}
