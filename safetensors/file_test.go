package safetensors

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/internal/require"
)

// noLeaks fails the test if Regions are left over at its end.
func noLeaks(t testing.TB) {
	t.Helper()
	before, err := fuel.MemStats(fuel.Device{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		after, err := fuel.MemStats(fuel.Device{})
		if err != nil {
			t.Fatal(err)
		}
		if after.Regions != before.Regions || after.InUse != before.InUse {
			t.Errorf("leak: %d regions (%d bytes) before, %d (%d bytes) after", before.Regions, before.InUse, after.Regions, after.InUse)
		}
	})
}

func save(t testing.TB, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f.safetensors")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func closeAll(t testing.TB, closers ...io.Closer) {
	t.Helper()
	for _, c := range closers {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}

func tensor(t testing.TB, f *File, name string) *fuel.Storage {
	t.Helper()
	s, err := f.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// content is a copy of the bytes of a tensor.
func content(t testing.TB, f *File, name string) []byte {
	t.Helper()
	s := tensor(t, f, name)
	defer closeAll(t, s)
	return bytesOf(t, s)
}

func bytesOf(t testing.TB, s *fuel.Storage) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := s.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// padded makes the data begin at a multiple of 64.
func padded(header string) string {
	return header + strings.Repeat(" ", (64-(len(header)+8)%64)%64)
}

// opened opens the same file in every way there is.
func opened(t *testing.T, b []byte, opt *Options, test func(*testing.T, *File)) {
	t.Helper()
	path := save(t, b)
	for _, way := range []struct {
		name string
		open func() (*File, error)
	}{
		{"Open", func() (*File, error) { return Open(path, opt) }},
		{"Read", func() (*File, error) { return Read(bytes.NewReader(b), int64(len(b)), opt) }},
		{"FromBytes", func() (*File, error) { return FromBytes(b, opt) }},
		{"Wrap", func() (*File, error) { return Wrap(b, nil, opt) }},
	} {
		t.Run(way.name, func(t *testing.T) {
			noLeaks(t)
			f, err := way.open()
			if err != nil {
				t.Fatal(err)
			}
			defer closeAll(t, f)
			test(t, f)
		})
	}
}

// counting is n bytes that differ from their neighbours.
func counting(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

func TestOddTensorDoesNotMisalignTheNext(t *testing.T) { // safetensors#695
	data := counting(3)
	values := []float32{1, -2.5, float32(math.Inf(1))}
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	header := headerOf(entryOf("mask", "U8", "3", 0, 3), entryOf("w", "F32", "3", 3, 15))
	header = padded(header)
	opened(t, fileOf(header, data), nil, func(t *testing.T, f *File) {
		s := tensor(t, f, "w")
		defer closeAll(t, s)
		got, err := fuel.Slice[float32](s)
		if err != nil || !slices.Equal(got, values) {
			t.Errorf("w: %v, %v", got, err)
		}
		if s.Alignment() < 4 || s.Len() != 3 || s.DType() != fuel.F32 {
			t.Errorf("alignment %d, %d of %s", s.Alignment(), s.Len(), s.DType())
		}
		if got := content(t, f, "mask"); !bytes.Equal(got, data[:3]) {
			t.Errorf("mask: %v", got)
		}
		if r := f.Report(); !strings.HasSuffix(t.Name(), "Open") || !r.Mapped {
			return
		} else if !hostBigEndian && (r.ZeroCopyTensors != 1 || r.ZeroCopyBytes != 3 || r.RealignedTensors != 1 || r.RealignedBytes != 12) {
			t.Errorf("report: %s", r)
		}
	})
}

// Every header length mod 64, every element size: typed slices work, the
// report is right, and only what must be copied is.
func TestNoHeaderLengthMisalignsTensors(t *testing.T) { // safetensors#231, #178, #148
	noLeaks(t)
	const bytes = 48
	path := filepath.Join(t.TempDir(), "f")
	for pad := range 64 {
		for code, size := range map[string]int{"F64": 8, "C64": 4, "F32": 4, "F16": 2, "U8": 1, "F4": 1} {
			header := headerOf(entryOf("a", code, fmt.Sprint(bytes*8/codeBits[code]), 0, bytes)) + strings.Repeat(" ", pad)
			if err := os.WriteFile(path, fileOf(header, counting(bytes)), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, least := range []int{0, 1, 16, 64, 4096} {
				f, err := Open(path, &Options{MinAlignment: least})
				if err != nil {
					t.Fatal(err)
				}
				r := f.Report()
				row := r.Tensors[0]
				start := f.Header().DataOffset()
				want := max(size, least)
				place := ZeroCopy
				switch {
				case hostBigEndian && size > 1:
					place = Swapped
				case start%int64(want) != 0:
					place = Realigned
				case !r.Mapped:
					place = Loaded
				}
				if row.Required != want || row.Placement != place || row.Offset != start || row.Bytes != bytes || r.Mapped && start%int64(row.Found) != 0 {
					t.Errorf("%s at %d, MinAlignment %d: %+v", code, start, least, row)
				}
				s := tensor(t, f, "a")
				if s.Alignment() < want {
					t.Errorf("%s at %d, MinAlignment %d: alignment %d", code, start, least, s.Alignment())
				}
				if place != Swapped && !slices.Equal(bytesOf(t, s), counting(bytes)) {
					t.Errorf("%s at %d: wrong bytes", code, start)
				}
				switch code {
				case "F64":
					_, err = fuel.Slice[float64](s)
				case "C64":
					_, err = fuel.Slice[complex64](s)
				case "F32":
					_, err = fuel.Slice[float32](s)
				case "F16":
					_, err = fuel.Slice[fuel.Float16](s)
				}
				if err != nil {
					t.Errorf("%s at %d: %v", code, start, err)
				}
				closeAll(t, s, f)
			}
		}
	}
}

func TestUnpaddedHeaderIsNotCopiedSilently(t *testing.T) { // mlx#4439, vmlx-swift#377
	header := headerOf(entryOf("a", "F32", "2", 0, 8), entryOf("b", "F16", "1", 8, 10), entryOf("c", "I8", "6", 10, 16))
	for len(header)%4 != 1 {
		header += " "
	}
	opened(t, fileOf(header, counting(16)), nil, func(t *testing.T, f *File) {
		r := f.Report()
		n := r.ZeroCopyTensors + r.RealignedTensors + r.LoadedTensors
		total := r.ZeroCopyBytes + r.RealignedBytes + r.LoadedBytes
		if n != 3 || total != 16 || len(r.Tensors) != 3 || r.Mapped != (r.NotMapped == "") {
			t.Errorf("report: %+v", r)
		}
		var sums [4]int64
		for i, row := range r.Tensors {
			sums[row.Placement] += int64(row.Bytes)
			if row.Name != f.Names()[i] {
				t.Errorf("row %d is %q", i, row.Name)
			}
		}
		if sums[ZeroCopy] != r.ZeroCopyBytes || sums[Realigned]+sums[Swapped] != r.RealignedBytes || sums[Loaded] != r.LoadedBytes {
			t.Errorf("the rows have %v, the sums are %s", sums, r)
		}
		switch _, way, _ := strings.Cut(t.Name(), "/"); {
		case way == "Open" && r.Mapped && !hostBigEndian:
			if r.RealignedTensors != 2 || r.RealignedBytes != 10 || r.ZeroCopyBytes != 6 {
				t.Errorf("report: %s", r)
			}
		case way == "Read" || way == "FromBytes":
			if r.LoadedTensors != 3 || r.LoadedBytes != 16 || r.Mapped {
				t.Errorf("report: %s", r)
			}
		}
		js, err := json.Marshal(r)
		if err != nil || !strings.Contains(string(js), `"placement":"`+r.Tensors[0].Placement.String()+`"`) {
			t.Errorf("JSON: %s, %v", js, err)
		}
		if s := r.String(); !strings.Contains(s, "realigned") || !r.Mapped && !strings.Contains(s, r.NotMapped) {
			t.Errorf("String: %s", s)
		}
	})
}

func TestRequireZeroCopyDoesNotCopy(t *testing.T) { // mlx#4439
	noLeaks(t)
	entries := []string{entryOf("odd", "U8", "1", 0, 1)}
	for i := range 20 {
		entries = append(entries, entryOf(fmt.Sprintf("w%02d", i), "F32", "1", 4*i+1, 4*i+5))
	}
	header := headerOf(entries...)
	header = padded(header)
	b := fileOf(header, counting(81))
	path := save(t, b)
	before, _ := fuel.MemStats(fuel.Device{})
	for name, open := range map[string]func(*Options) (*File, error){
		"Open":      func(o *Options) (*File, error) { return Open(path, o) },
		"Wrap":      func(o *Options) (*File, error) { return Wrap(b, func() { t.Error("released") }, o) },
		"FromBytes": func(o *Options) (*File, error) { return FromBytes(b, o) },
	} {
		_, err := open(&Options{RequireZeroCopy: true})
		n, ok := errors.AsType[*NotZeroCopyError](err)
		if !ok || !slices.Contains(n.Tensors, "w00") || !slices.Contains(n.Tensors, "w19") || n.Bytes < 80 || n.Reason == "" {
			t.Fatalf("%s: %v", name, err)
		}
		if !strings.Contains(err.Error(), `"w00"`) || len(err.Error()) > 500 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after, _ := fuel.MemStats(fuel.Device{}); after.Regions != before.Regions {
		t.Errorf("%d regions are left", after.Regions-before.Regions)
	}
	aligned := headerOf(entryOf("w", "F32", "1", 0, 4))
	aligned = padded(aligned)
	f, err := Open(save(t, zeros(aligned, 4)), &Options{RequireZeroCopy: true, MinAlignment: 64})
	if n, ok := errors.AsType[*NotZeroCopyError](err); ok && (hostBigEndian || strings.Contains(n.Reason, "cannot map")) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	closeAll(t, f)
	if f, err = FromBytes(zeros("{}", 0), &Options{RequireZeroCopy: true}); err != nil {
		t.Fatal(err)
	}
	closeAll(t, f)
}

func TestMinAlignmentIsChecked(t *testing.T) { // ggml#1516
	b := zeros("{}", 0)
	for a := -2; a <= 2*maxAlignment; a++ {
		ok := a == 0 || a > 0 && a <= 4096 && a&(a-1) == 0
		f, err := FromBytes(b, &Options{MinAlignment: a})
		if ok != (err == nil) || !ok && !errors.Is(err, fuel.ErrMisaligned) {
			t.Errorf("%d: %v", a, err)
		}
		if err == nil {
			closeAll(t, f)
		}
	}
}

func TestTruncatedFileIsNotMapped(t *testing.T) { // llama.cpp#6774
	noLeaks(t)
	whole := zeros(headerOf(entryOf("a", "F32", "4", 0, 16)), 16)
	for n := range whole {
		path := save(t, whole[:n])
		_, err := Open(path, nil)
		e, ok := errors.AsType[*fuel.TruncatedError](err)
		if !errors.Is(err, fuel.ErrTruncated) || !ok || e.Have != int64(n) || e.Want <= e.Have {
			t.Errorf("%d bytes: %v", n, err)
		}
		if p, ok := errors.AsType[*fs.PathError](err); !ok || p.Path != path {
			t.Errorf("%d bytes: no path in %v", n, err)
		}
		for name, open := range map[string]func() (*File, error){
			"FromBytes": func() (*File, error) { return FromBytes(whole[:n], nil) },
			"Wrap":      func() (*File, error) { return Wrap(whole[:n], nil, nil) },
			"Read":      func() (*File, error) { return Read(bytes.NewReader(whole[:n]), int64(len(whole)), nil) },
		} {
			if _, err := open(); !errors.Is(err, fuel.ErrTruncated) {
				t.Errorf("%s of %d bytes: %v", name, n, err)
			}
		}
	}
}

func TestOpenOfNothing(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(filepath.Join(dir, "none"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := Open(dir, nil); err == nil {
		t.Error("a directory opens")
	}
}

func TestEmptyTensorsAreNotRefused(t *testing.T) { // safetensors#205, #226; pytorch#159892
	header := headerOf(
		entryOf("first", "F32", "0", 0, 0), entryOf("x", "U8", "3", 0, 3),
		entryOf("between", "F64", "2,0,5", 3, 3), entryOf("y", "U8", "1", 3, 4), entryOf("last", "F4", "0", 4, 4))
	opened(t, fileOf(header, counting(4)), &Options{MinAlignment: 64}, func(t *testing.T, f *File) {
		for _, name := range []string{"first", "between", "last"} {
			info, ok := f.Info(name)
			s := tensor(t, f, name)
			if !ok || info.Len != 0 || s.Len() != 0 || s.LenBytes() != 0 || s.DType() != info.DType {
				t.Errorf("%s: %+v, %d of %s", name, info, s.Len(), s.DType())
			}
			if b, err := s.Bytes(); err != nil || len(b) != 0 {
				t.Errorf("%s: %v, %v", name, b, err)
			}
			c, err := s.Clone()
			if err != nil {
				t.Fatal(err)
			}
			closeAll(t, c, s)
		}
		if info, _ := f.Info("between"); !slices.Equal(info.Shape, []int{2, 0, 5}) {
			t.Errorf("shape %v", info.Shape)
		}
		if got := content(t, f, "y"); !bytes.Equal(got, counting(4)[3:]) {
			t.Errorf("y is %v", got)
		}
	})
}

func TestFileWithoutTensorsIsNotRefused(t *testing.T) { // safetensors#280, #442
	for _, header := range []string{`{}`, `{"__metadata__":{"a":"b"}}   `, headerOf(entryOf("a", "F32", "0", 0, 0))} {
		opened(t, zeros(header, 0), nil, func(t *testing.T, f *File) {
			tensors, err := f.Tensors()
			if err != nil || len(tensors) != f.Len() || f.Len() != len(f.Names()) {
				t.Errorf("%d tensors, %v", len(tensors), err)
			}
			for _, x := range tensors {
				closeAll(t, x.Data)
			}
			for range f.All() {
			}
			f.Metadata()
		})
	}
}

func TestUnknownTensorIsNotFound(t *testing.T) {
	opened(t, zeros(headerOf(entryOf("a", "U8", "1", 0, 1)), 1), nil, func(t *testing.T, f *File) {
		if _, err := f.Tensor("b"); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), `"b"`) {
			t.Errorf("got %v", err)
		}
		if _, ok := f.Info("b"); ok {
			t.Error("Info has it")
		}
	})
}

func TestStoragesOutliveTheFile(t *testing.T) {
	b := fileOf(headerOf(entryOf("a", "U8", "3", 0, 3), entryOf("b", "F64", "1", 3, 11), entryOf("c", "U8", "0", 11, 11)), counting(11))
	opened(t, b, nil, func(t *testing.T, _ *File) {})
	path := save(t, b)
	for name, open := range map[string]func() (*File, error){
		"Open": func() (*File, error) { return Open(path, nil) },
		"Read": func() (*File, error) { return FromBytes(b, nil) },
		"Wrap": func() (*File, error) { return Wrap(b, nil, nil) },
	} {
		noLeaks(t)
		f, err := open()
		if err != nil {
			t.Fatal(err)
		}
		again := tensor(t, f, "a")
		tensors, err := f.Tensors()
		if err != nil {
			t.Fatal(err)
		}
		closeAll(t, f)
		if err := f.Close(); !errors.Is(err, fuel.ErrClosed) {
			t.Errorf("%s: second Close: %v", name, err)
		}
		for _, n := range []string{"a", "b", "c"} {
			if _, err := f.Tensor(n); !errors.Is(err, fuel.ErrClosed) {
				t.Errorf("%s: Tensor after Close: %v", name, err)
			}
		}
		if _, err := f.Tensors(); !errors.Is(err, fuel.ErrClosed) {
			t.Errorf("%s: Tensors after Close: %v", name, err)
		}
		if f.Len() != 3 || len(f.Report().Tensors) != 3 {
			t.Errorf("%s: the description went with the File", name)
		}
		if got := bytesOf(t, again); !bytes.Equal(got, counting(3)) {
			t.Errorf("%s: a is %v", name, got)
		}
		closeAll(t, again)
		if got := bytesOf(t, tensors[0].Data); !bytes.Equal(got, counting(3)) {
			t.Errorf("%s: a is %v after its twin's Close", name, got)
		}
		for _, x := range tensors {
			closeAll(t, x.Data)
		}
	}
}

func TestMutationDoesNotReachFileNorOtherTensors(t *testing.T) { // pytorch#46741
	b := fileOf(headerOf(entryOf("a", "U8", "64", 0, 64), entryOf("b", "U8", "64", 64, 128)), counting(128))
	path := save(t, b)
	opened(t, b, nil, func(t *testing.T, f *File) {
		s := tensor(t, f, "a")
		twin := tensor(t, f, "a")
		defer closeAll(t, s, twin)
		if err := s.Mutate(func(p []byte) error { clear(p); return nil }); err != nil {
			t.Fatal(err)
		}
		if got := bytesOf(t, s); !bytes.Equal(got, make([]byte, 64)) {
			t.Errorf("a is %v", got)
		}
		if r := s.Region(); r.Bytes >= 128 { // and not the whole file
			t.Errorf("the private copy has %d bytes", r.Bytes)
		}
		if got := bytesOf(t, twin); !bytes.Equal(got, counting(64)) {
			t.Errorf("its twin is %v", got)
		}
		if got := content(t, f, "a"); !bytes.Equal(got, counting(64)) {
			t.Errorf("a of the file is %v", got)
		}
		if got := content(t, f, "b"); !bytes.Equal(got, counting(128)[64:]) {
			t.Errorf("b is %v", got)
		}
	})
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, b) {
		t.Errorf("the file changed, %v", err)
	}
}

func TestWrapReleasesOnce(t *testing.T) {
	noLeaks(t)
	b := fileOf(headerOf(entryOf("a", "U8", "4", 0, 4), entryOf("b", "U8", "4", 4, 8)), counting(8))
	released := 0
	f, err := Wrap(b, func() { released++ }, nil)
	if err != nil {
		t.Fatal(err)
	}
	x, y := tensor(t, f, "a"), tensor(t, f, "b")
	closeAll(t, x, f)
	if released != 0 {
		t.Fatal("released while a tensor is open")
	}
	if got := bytesOf(t, y); !bytes.Equal(got, counting(8)[4:]) {
		t.Errorf("b is %v", got)
	}
	closeAll(t, y)
	if released != 1 {
		t.Errorf("released %d times", released)
	}
	if _, err := Wrap(b[:20], func() { t.Error("released though Wrap failed") }, nil); err == nil {
		t.Error("half a file is taken")
	}
	copied := 0
	f, err = Wrap(b, func() { copied++ }, &Options{MinAlignment: 4096})
	if err != nil {
		t.Fatal(err)
	}
	if r := f.Report(); r.RealignedTensors == 0 || !r.Mapped {
		t.Errorf("report: %s", r)
	}
	closeAll(t, f)
	if copied != 1 {
		t.Errorf("released %d times", copied)
	}
}

// late is a reader whose data ends before its size, or fails.
type late struct {
	r   io.ReaderAt
	end int64
	err error
}

func (l late) ReadAt(p []byte, off int64) (int, error) {
	if off >= l.end {
		return 0, l.err
	}
	n, _ := l.r.ReadAt(p[:min(int64(len(p)), l.end-off)], off)
	if n < len(p) {
		return n, l.err
	}
	return n, nil
}

func TestFailedReadLeavesNothing(t *testing.T) {
	noLeaks(t)
	const n = 1 << 20
	b := zeros(headerOf(entryOf("a", "U8", fmt.Sprint(n), 0, n), entryOf("b", "U8", fmt.Sprint(n), n, 2*n)), 2*n)
	start := int64(len(b)) - 2*n
	for _, end := range []int64{start, start + 5, start + n, start + n + n/2, int64(len(b)) - 1} {
		_, err := Read(late{bytes.NewReader(b), end, io.EOF}, int64(len(b)), nil)
		e, ok := errors.AsType[*fuel.TruncatedError](err)
		if !ok || e.Have != end || e.Want != int64(len(b)) {
			t.Errorf("ends at %d: %v", end, err)
		}
		_, err = Read(late{bytes.NewReader(b), end, errReader}, int64(len(b)), nil)
		if !errors.Is(err, errReader) {
			t.Errorf("fails at %d: %v", end, err)
		}
	}
}

func TestCancelledOpenLeavesNothing(t *testing.T) {
	noLeaks(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	header := headerOf(entryOf("a", "U8", "100", 0, 100))
	for (len(header)+8)%2 == 0 {
		header += " "
	}
	if _, err := OpenContext(ctx, save(t, zeros(header, 100)), &Options{MinAlignment: 4096}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestSwapStops(t *testing.T) {
	noLeaks(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s := storage(t, fuel.U8, counting(8))
	if err := swapStorage(ctx, s, 4); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// The numbers of a little-endian file on a big-endian host, and the other way
// round on one of those.
func TestBigEndianHostDoesNotReadSwappedNumbers(t *testing.T) { // safetensors#307, #321, #353, #448, #812
	noLeaks(t)
	for code, bits := range codeBits {
		size := 24 * bits / 8
		header := headerOf(entryOf("a", code, "4,6", 0, size))
		header = padded(header)
		data := counting(size)
		b := fileOf(header, data)
		width := map[int]int{16: 2, 32: 4, 64: 8}[bits]
		if code == "C64" {
			width = 4
		}
		reversed := bytes.Clone(data)
		for i := 0; i < size && width > 0; i += width {
			slices.Reverse(reversed[i : i+width])
		}
		path := save(t, b)
		for _, bigEndian := range []bool{false, true} {
			want := data
			if bigEndian {
				want = reversed
			}
			for way, openIt := range map[string]func() (*File, error){
				"Open": func() (*File, error) { return open(context.Background(), path, nil, bigEndian) },
				"Read": func() (*File, error) { return read(bytes.NewReader(b), int64(len(b)), nil, bigEndian) },
				"Wrap": func() (*File, error) { return wrap(b, nil, nil, bigEndian) },
			} {
				f, err := openIt()
				if err != nil {
					t.Fatal(err)
				}
				if got := content(t, f, "a"); !bytes.Equal(got, want) {
					t.Errorf("%s of %s, big-endian %t:\n%x, want\n%x", way, code, bigEndian, got, want)
				}
				r := f.Report()
				if swapped := bigEndian && width > 0; way != "Read" && r.Mapped && swapped != (r.Tensors[0].Placement == Swapped) {
					t.Errorf("%s of %s, big-endian %t: %s", way, code, bigEndian, r)
				}
				tensors, err := f.Tensors()
				if err != nil {
					t.Fatal(err)
				}
				var out bytes.Buffer
				if err := write(&out, tensors, nil, bigEndian); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(out.Bytes(), b) {
					t.Errorf("%s of %s, big-endian %t: written differently", way, code, bigEndian)
				}
				closeAll(t, tensors[0].Data, f)
			}
		}
		if !bytes.Equal(b, fileOf(header, data)) {
			t.Errorf("%s: Wrap's bytes changed", code)
		}
	}
	b := zeros(headerOf(entryOf("a", "F16", "1", 0, 2)), 2)
	if _, err := wrap(b, nil, &Options{RequireZeroCopy: true}, true); err == nil || !strings.Contains(err.Error(), "big-endian") {
		t.Errorf("RequireZeroCopy: %v", err)
	}
}

// Swapping works in pieces, at any address.
func TestSwapOfManyPieces(t *testing.T) {
	noLeaks(t)
	const n = 3*pieceBytes/8 + 5
	b := fileOf(headerOf(entryOf("a", "U8", "1", 0, 1), entryOf("b", "U64", fmt.Sprint(n), 1, 8*n+1)), counting(8*n+1))
	f, err := wrap(b, nil, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	got := content(t, f, "b")
	for i := range n {
		p := b[len(b)-8*n+8*i:]
		if binary.BigEndian.Uint64(got[8*i:]) != binary.LittleEndian.Uint64(p) {
			t.Fatalf("number %d is wrong", i)
		}
	}
	s := tensor(t, f, "b")
	var out bytes.Buffer
	if err := write(&out, []Tensor{{"b", []int{n}, s}}, nil, true); err != nil || !bytes.Equal(out.Bytes()[out.Len()-8*n:], b[len(b)-8*n:]) {
		t.Errorf("written differently, %v", err)
	}
	closeAll(t, s, f)
}

func TestFileIsSafeForManyGoroutines(t *testing.T) {
	noLeaks(t)
	entries := make([]string, 32)
	for i := range entries {
		entries[i] = entryOf(fmt.Sprint(i), "U8", "5", 5*i, 5*i+5)
	}
	data := counting(5 * len(entries))
	f, err := Open(save(t, fileOf(headerOf(entries...), data)), &Options{MinAlignment: 2})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var opens atomic.Int64
	for g := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				j := (i*7 + g) % len(entries)
				s, err := f.Tensor(fmt.Sprint(j))
				if err != nil {
					if !errors.Is(err, fuel.ErrClosed) {
						t.Error(err)
					}
					return
				}
				opens.Add(1)
				var got [5]byte
				if _, err := s.ReadAt(got[:], 0); err != nil || !bytes.Equal(got[:], data[5*j:5*j+5]) {
					t.Errorf("tensor %d is %v, %v", j, got, err)
				}
				if i%16 == 0 {
					if err := s.Mutate(func(b []byte) error { b[0]++; return nil }); err != nil {
						t.Error(err)
					}
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				f.Report()
				runtime.Gosched() // wasm does not preempt
			}
		})
	}
	for opens.Load() < 2000 {
		time.Sleep(time.Millisecond)
	}
	closeAll(t, f)
	wg.Wait()
}

func TestHundredThousandTensorsOpenInASecond(t *testing.T) { // llama.cpp#19856
	noLeaks(t)
	const n = 100_000
	path := save(t, zeros(bigHeader(n), 4*n))
	within(t, time.Second, func() {
		f, err := Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		tensors, err := f.Tensors()
		if err != nil || len(tensors) != n {
			t.Fatal(err)
		}
		for _, x := range tensors {
			x.Data.Close()
		}
		closeAll(t, f)
	})
}

// Real files, none of which is aligned to 64 bytes.
func TestSharedModels(t *testing.T) {
	dir := filepath.Join(require.Shared(t), "models")
	for name, want := range map[string]struct {
		tensors int
		bytes   int64
	}{
		"silero_vad_16k.safetensors": {15, 1239844 - 1304 - 8},
		"voices.safetensors":         {2, 291654},
		"jfk-codes.safetensors":      {1, 13248},
	} {
		t.Run(name, func(t *testing.T) {
			noLeaks(t)
			path := filepath.Join(dir, name)
			f, err := Open(path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r := f.Report()
			if f.Len() != want.tensors || r.ZeroCopyBytes+r.RealignedBytes+r.LoadedBytes != want.bytes {
				t.Errorf("%d tensors: %s", f.Len(), r)
			}
			if r.Mapped && !hostBigEndian && (r.RealignedTensors != 0 || r.ZeroCopyTensors != want.tensors) {
				t.Errorf("copied by default: %s", r)
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			tensors, err := f.Tensors()
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range tensors {
				info, _ := f.Info(x.Name)
				want := bytes.Clone(raw[info.Offset:][:info.Bytes])
				if width := swapWidth(info.DType); hostBigEndian && width > 1 {
					cpu.Swap(want, want, width)
				}
				if !bytes.Equal(bytesOf(t, x.Data), want) {
					t.Errorf("%s differs from the file", x.Name)
				}
			}
			var out bytes.Buffer
			if err := Write(&out, tensors, f.Metadata()); err != nil {
				t.Fatal(err)
			}
			again, err := FromBytes(out.Bytes(), nil)
			if err != nil {
				t.Fatal(err)
			}
			requireSame(t, f, again)
			for _, x := range tensors {
				closeAll(t, x.Data)
			}
			closeAll(t, again, f)
			f, err = Open(path, &Options{MinAlignment: 64})
			if err != nil {
				t.Fatal(err)
			}
			for info := range f.All() {
				s := tensor(t, f, info.Name)
				if s.Alignment() < 64 {
					t.Errorf("%s is aligned to %d", info.Name, s.Alignment())
				}
				closeAll(t, s)
			}
			closeAll(t, f)
		})
	}
}

// requireSame compares all but the places.
func requireSame(t testing.TB, a, b *File) {
	t.Helper()
	an, bn := slices.Sorted(slices.Values(a.Names())), slices.Sorted(slices.Values(b.Names()))
	if !slices.Equal(an, bn) {
		t.Fatalf("names %q and %q", an, bn)
	}
	if am, bm := fmt.Sprint(a.Metadata()), fmt.Sprint(b.Metadata()); am != bm && len(a.Metadata()) > 0 {
		t.Fatalf("metadata %s and %s", am, bm)
	}
	for _, name := range an {
		ai, _ := a.Info(name)
		bi, _ := b.Info(name)
		ai.Offset, bi.Offset = 0, 0
		if fmt.Sprint(ai) != fmt.Sprint(bi) {
			t.Fatalf("%v and %v", ai, bi)
		}
		as, bs := tensor(t, a, name), tensor(t, b, name)
		if same, err := as.Equal(context.Background(), bs); err != nil || !same {
			t.Fatalf("%q: equal %t, %v", name, same, err)
		}
		closeAll(t, as, bs)
	}
}
