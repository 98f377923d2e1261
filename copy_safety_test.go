package fuel_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/require"
)

func mapped(t testing.TB, n int) (*fuel.Storage, *os.File) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return value(fuel.Map(f, fuel.U8, 0, n))(t), f
}

// A copy that cannot begin leaves a shared destination as it was.
func TestCopyFromClosedSourceKeepsTheDestination(t *testing.T) {
	a := filled(t, 1<<20, 7)
	defer a.Close()
	keep := value(a.Clone())(t)
	defer keep.Close()
	src := filled(t, 1<<20, 9)
	src.Close()
	if err := a.CopyFrom(context.Background(), src, nil); !errors.Is(err, fuel.ErrClosed) {
		t.Error(err)
	}
	if !all(value(a.Bytes())(t), 7) {
		t.Error("CopyFrom a closed Storage destroyed the destination")
	}
	q := value(fuel.QueueOf(fuel.Device{}))(t)
	if _, err := q.Copy(a, src); !errors.Is(err, fuel.ErrClosed) {
		t.Error(err)
	}
	if !all(value(a.Bytes())(t), 7) {
		t.Error("Queue.Copy of a closed Storage destroyed the destination")
	}
}

// WriteAt and ReadAt with a slice of the same memory move as copy does, at
// every length and in both directions.
func TestOverlappingRawSliceNeverCorrupts(t *testing.T) {
	for _, n := range []int{100 << 10, 1 << 20, 20 << 20} {
		for _, shift := range []int{1, 64, 300 << 10} {
			if shift >= n {
				continue
			}
			want := make([]byte, n)
			for i := range want {
				want[i] = byte(i * 31 >> 3)
			}
			s := value(fuel.FromBytes(fuel.Device{}, fuel.U8, want))(t)
			b := value(s.Bytes())(t)
			if _, err := s.WriteAt(b[:n-shift], int64(shift)); err != nil {
				t.Error(err)
			}
			copy(want[shift:], want[:n-shift])
			if !bytes.Equal(b, want) {
				t.Errorf("WriteAt of %d bytes, up by %d: wrong", n, shift)
				copy(b, want)
			}
			if _, err := s.WriteAt(b[shift:], 0); err != nil {
				t.Error(err)
			}
			copy(want, want[shift:])
			if !bytes.Equal(b, want) {
				t.Errorf("WriteAt of %d bytes, down by %d: wrong", n, shift)
				copy(b, want)
			}
			m := value(s.MutableBytes())(t)
			if _, err := s.ReadAt(m[shift:], 0); err != nil {
				t.Error(err)
			}
			copy(want[shift:], want[:n-shift])
			if !bytes.Equal(b, want) {
				t.Errorf("ReadAt of %d bytes, up by %d: wrong", n, shift)
			}
			s.Close()
		}
	}
}

// CopyFrom between Views of one owner, and between Wraps of one array, moves
// as copy does.
func TestOverlappingCopyNeverCorrupts(t *testing.T) {
	const n = 9<<20 + 13
	for _, shift := range []int{1, 4096, 256 << 10, 1<<20 + 1, 5 << 20} {
		for _, up := range []bool{true, false} {
			want := make([]byte, n)
			for i := range want {
				want[i] = byte(i * 31 >> 3)
			}
			s := value(fuel.FromBytes(fuel.Device{}, fuel.U8, want))(t)
			lo, hi := value(s.View(0, n-shift))(t), value(s.View(shift, n-shift))(t)
			w := bytes.Clone(want)
			wlo, whi := value(fuel.Wrap(fuel.U8, w[:n-shift], nil))(t), value(fuel.Wrap(fuel.U8, w[shift:], nil))(t)
			dst, src, wdst, wsrc := lo, hi, wlo, whi
			if up {
				dst, src, wdst, wsrc = hi, lo, whi, wlo
				copy(want[shift:], want[:n-shift])
			} else {
				copy(want, want[shift:])
			}
			if err := dst.CopyFrom(context.Background(), src, nil); err != nil {
				t.Error(err)
			}
			if err := wdst.CopyFrom(context.Background(), wsrc, nil); err != nil {
				t.Error(err)
			}
			if !bytes.Equal(value(s.Bytes())(t), want) {
				t.Errorf("views, shift %d, up %v: wrong", shift, up)
			}
			if !bytes.Equal(w, want) {
				t.Errorf("wraps, shift %d, up %v: wrong", shift, up)
			}
			for _, h := range []*fuel.Storage{s, lo, hi, wlo, whi} {
				h.Close()
			}
		}
	}
}

// A long overlapping copy stops when its context does, and tells its progress.
func TestOverlappingCopyStopsBetweenPieces(t *testing.T) {
	const n = 16 << 20
	s := filled(t, n, 1)
	defer s.Close()
	dst, src := value(s.View(1, n-1))(t), value(s.View(0, n-1))(t)
	defer dst.Close()
	defer src.Close()
	ctx, cancel := context.WithCancel(context.Background())
	calls := 0
	err := dst.CopyFrom(ctx, src, &fuel.CopyOptions{Progress: func(done, total int) {
		calls++
		cancel()
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v after %d calls of Progress", err, calls)
	}
}

// OpError.Bytes of a copy counts bytes of the destination, not those of the
// private copy that it needed first.
func TestFailedPrivateCopyCountsNoBytesDone(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOOS == "js" || runtime.GOOS == "wasip1" {
		require.Skip(t, "truncation", "a mapped file cannot be truncated on "+runtime.GOOS)
	}
	s, f := mapped(t, 4<<20)
	defer s.Close()
	if err := f.Truncate(2 << 20); err != nil {
		t.Fatal(err)
	}
	src := filled(t, 16, 1)
	defer src.Close()
	var report fuel.CopyReport
	report.Bytes = -1
	err := s.CopyRange(context.Background(), 0, src, 0, 16, &fuel.CopyOptions{Report: &report})
	op, ok := errors.AsType[*fuel.OpError](err)
	if !ok || !errors.Is(err, fuel.ErrMapFault) || op.Bytes != 0 {
		t.Errorf("%v: want 0 bytes done and ErrMapFault", err)
	}
	if report.Bytes != 0 {
		t.Error("the report was not filled in")
	}
}

// A copy of nothing fills in its report too.
func TestCopyOfNothingFillsInItsReport(t *testing.T) {
	s := filled(t, 4, 1)
	defer s.Close()
	report := fuel.CopyReport{Bytes: 99, Path: fuel.PathBounce}
	if err := s.CopyRange(context.Background(), 0, s, 0, 0, &fuel.CopyOptions{Report: &report}); err != nil {
		t.Error(err)
	}
	if report != (fuel.CopyReport{}) {
		t.Errorf("%+v", report)
	}
}

// What was aligned for its type before a private copy is afterwards.
func TestPrivateCopyKeepsAlignment(t *testing.T) {
	s := value(fuel.Alloc(fuel.Device{}, fuel.F32, 64, nil))(t)
	defer s.Close()
	tail := value(s.View(1, 63))(t)
	defer tail.Close()
	c := value(tail.Clone())(t)
	defer c.Close()
	v := value(c.View(1, 62))(t)
	defer v.Close()
	d := value(v.Reinterpret(fuel.F64))(t)
	defer d.Close()
	w := value(c.View(15, 16))(t) // at 64
	defer w.Close()
	if _, err := fuel.Slice[float64](d); err != nil {
		t.Fatal(err)
	}
	before := w.Alignment()
	if _, err := c.WriteAt([]byte{1}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := fuel.Slice[float64](d); err != nil {
		t.Errorf("after a private copy: %v", err)
	}
	if now := w.Alignment(); now < min(before, 64) {
		t.Errorf("alignment %d before a private copy, %d after", before, now)
	}
}
