package fuel_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/require"
	"github.com/go-fuel/fuel/safetensors"
)

func init() {
	shared := func(t testing.TB, b []byte) *fuel.Storage {
		t.Helper()
		s := value(fuel.NewShared(fuel.U8, len(b), nil))(t)
		if _, err := s.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
		return s
	}
	sealed := func(t testing.TB, b []byte) *fuel.Storage {
		t.Helper()
		s := shared(t, b)
		if err := fuel.Seal(s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	sharedSources["memfd"], sharedSources["sealed memfd"] = shared, sealed
	for name, source := range sharedSources {
		memories[name] = func(t testing.TB, b []byte) *fuel.Storage { return must(t)(source(t, b), nil) }
	}
	children["shared"], children["shared refused"], children["shared fsize"] = sharedPeer, sharedRefused, sharedFileSize
}

// newShared makes shared memory that holds count(n).
func newShared(t testing.TB, n int) *fuel.Storage { return memories["memfd"](t, count(n)) }

// sharedFile is SharedFile, closed at the end of the test.
func sharedFile(t testing.TB, s *fuel.Storage) (*os.File, int64) {
	t.Helper()
	f, off, err := fuel.SharedFile(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, off
}

// open opens the memory of s once more.
func reopen(t testing.TB, s *fuel.Storage, opt *fuel.SharedOptions) *fuel.Storage {
	t.Helper()
	f, off := sharedFile(t, s)
	return must(t)(fuel.OpenShared(f, s.DType(), off, s.Len(), opt))
}

var readOnly = &fuel.SharedOptions{ReadOnly: true}

// memfd makes a memfd of our own with n bytes.
func memfd(t testing.TB, n int64, flags, seals int) *os.File {
	t.Helper()
	f := os.NewFile(uintptr(value(unix.MemfdCreate("test", unix.MFD_CLOEXEC|flags))(t)), "test")
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(n); err != nil {
		t.Fatal(err)
	}
	if seals != 0 {
		value(unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals))(t)
	}
	return f
}

func openFiles(t testing.TB) int { return len(value(os.ReadDir("/proc/self/fd"))(t)) }

// wantOpenFiles waits until so many are open, collecting garbage.
func wantOpenFiles(t testing.TB, want int) {
	t.Helper()
	for range 200 {
		if openFiles(t) == want {
			return
		}
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d files are open, want %d", openFiles(t), want)
}

// A peer is another process, which does what it is told.
type peer struct {
	t    *testing.T
	conn *net.UnixConn
}

// newPeer starts one, with file as its descriptor 4.
func newPeer(t *testing.T, file *os.File) *peer {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		require.Skip(t, "self-exec", err.Error())
	}
	fds := value(unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0))(t)
	theirs := os.NewFile(uintptr(fds[1]), "theirs")
	defer theirs.Close()
	p := &peer{t, connected(t, fds[0])}
	t.Cleanup(func() { p.conn.Close() })
	if err := p.conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	if emulator := os.Getenv("FUEL_TEST_EXEC"); emulator != "" {
		cmd = exec.Command(emulator, exe)
	}
	cmd.Env = append(os.Environ(), "FUEL_TEST_CHILD=shared")
	cmd.ExtraFiles = []*os.File{theirs, file}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		require.Skip(t, "self-exec", err.Error())
	}
	t.Cleanup(func() {
		p.conn.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the other process: %v\n%s", err, &out)
		}
	})
	return p
}

func connected(t testing.TB, fd int) *net.UnixConn {
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	return value(net.FileConn(f))(t).(*net.UnixConn)
}

// do sends a command, and a file if there is one, and wants the answer "ok".
func (p *peer) do(command string, file *os.File) {
	p.t.Helper()
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	if _, _, err := p.conn.WriteMsgUnix([]byte(command), rights, nil); err != nil {
		p.t.Fatalf("%s: %v", command, err)
	}
	b := make([]byte, 1000)
	n, err := p.conn.Read(b)
	if got := string(b[:n]); err != nil || got != "ok" {
		p.t.Fatalf("%s: %q, %v", command, got, err)
	}
}

// sharedPeer is the other process.
func sharedPeer() {
	f := os.NewFile(3, "socket")
	c, err := net.FileConn(f)
	check(err)
	check(f.Close())
	conn := c.(*net.UnixConn)
	inherited := os.NewFile(4, "memory")
	var floats, octets *fuel.Storage
	var received *os.File
	private := func(s *fuel.Storage) bool { return s.Region().Memory != fuel.MemoryShared }
	do := func(command string, file *os.File) (err error) {
		name, arg, _ := strings.Cut(command, " ")
		n, _ := strconv.Atoi(arg)
		switch name {
		case "open": // the inherited file; the first element is 1
			if floats, err = fuel.OpenShared(inherited, fuel.F32, 0, n, nil); err != nil {
				return err
			}
			if floats.Region().Memory != fuel.MemoryShared {
				return fmt.Errorf("%+v", floats.Region())
			}
			return wantFloats(floats, 1)
		case "receive": // a file through the socket, and where the bytes begin
			received = file
			var off int64
			if _, err := fmt.Sscanf(arg, "%d %d", &off, &n); err != nil {
				return err
			}
			if octets, err = fuel.OpenShared(file, fuel.U8, off, n, nil); err != nil {
				return err
			}
			return wantAll(octets, 7)
		case "fill": // floats count from n on, octets are n
			if err := setFloats(floats, n); err != nil {
				return err
			}
			_, err = octets.WriteAt(bytes.Repeat([]byte{byte(n)}, octets.Len()), 0)
			return err
		case "want":
			if err := wantFloats(floats, n); err != nil {
				return err
			}
			return wantAll(octets, byte(n))
		case "truncate":
			for _, f := range []*os.File{inherited, received} {
				for _, size := range []int64{0, 1, 1 << 20} {
					if err := f.Truncate(size); !errors.Is(err, unix.EPERM) {
						return fmt.Errorf("Truncate(%d): %v", size, err)
					}
				}
			}
			return nil
		case "close":
			return errors.Join(floats.Close(), octets.Close())
		case "sealed": // all ways to write are shut
			if _, err := fuel.OpenShared(inherited, fuel.F32, 0, n, nil); !errors.Is(err, fuel.ErrReadOnly) || !errors.Is(err, unix.EPERM) {
				return fmt.Errorf("OpenShared for writing: %v", err)
			}
			if _, err := inherited.WriteAt([]byte{1}, 0); !errors.Is(err, unix.EPERM) {
				return fmt.Errorf("WriteAt of the file: %v", err)
			}
			if _, err := unix.Mmap(int(inherited.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != unix.EPERM {
				return fmt.Errorf("mmap: %v", err)
			}
			if err := unix.Fallocate(int(inherited.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096); err != unix.EPERM {
				return fmt.Errorf("fallocate: %v", err)
			}
			if floats, err = fuel.OpenShared(inherited, fuel.F32, 0, n, readOnly); err != nil {
				return err
			}
			if r := floats.Region(); r.Memory != fuel.MemoryShared || !r.Sealed || !r.ReadOnly {
				return fmt.Errorf("%+v", r)
			}
			c, err := floats.Clone()
			if err != nil {
				return err
			}
			if private(c) {
				return errors.New("a Clone of sealed memory was a copy")
			}
			if err := setFloats(floats, 900); err != nil { // a private copy
				return err
			}
			if !private(floats) || private(c) {
				return fmt.Errorf("after a write: %+v, and the clone %+v", floats.Region(), c.Region())
			}
			return errors.Join(wantFloats(floats, 900), wantFloats(c, 3), floats.Close(), c.Close())
		}
		return fmt.Errorf("no command %q", command)
	}
	command, rights := make([]byte, 1000), make([]byte, 100)
	for {
		n, m, _, _, err := conn.ReadMsgUnix(command, rights)
		if err != nil || n == 0 { // the test is over
			stats, err := fuel.MemStats(cpu)
			check(err)
			assert(stats.Regions == 0 && stats.InUse == 0, "%+v", stats)
			return
		}
		var file *os.File
		if m > 0 {
			messages, err := unix.ParseSocketControlMessage(rights[:m])
			check(err)
			fds, err := unix.ParseUnixRights(&messages[0])
			check(err)
			file = os.NewFile(uintptr(fds[0]), "received")
		}
		answer := "ok"
		if err := do(string(command[:n]), file); err != nil {
			answer = err.Error()
		}
		_, err = conn.Write([]byte(answer))
		check(err)
	}
}

func wantFloats(s *fuel.Storage, first int) error {
	return fuel.UseSlice(s, func(v []float32) error {
		for i := range v {
			if v[i] != float32(first+i) {
				return fmt.Errorf("element %d is %v, and the first should be %d", i, v[i], first)
			}
		}
		return nil
	})
}

func setFloats(s *fuel.Storage, first int) error {
	return fuel.MutateSlice(s, func(v []float32) error {
		for i := range v {
			v[i] = float32(first + i)
		}
		return nil
	})
}

func wantAll(s *fuel.Storage, v byte) error {
	return s.Use(func(b []byte) error {
		if !all(b, v) {
			return fmt.Errorf("not all bytes are %d: %.16x…", v, b)
		}
		return nil
	})
}

// Two processes share memory, each writes and the other sees it, a clone is a
// snapshot against both, nobody truncates it, and once it is sealed nobody
// writes.
func TestAnotherProcessSeesWritesAndNeverBreaksMemory(t *testing.T) {
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const n = 3000
	floats := must(t)(fuel.NewShared(fuel.F32, n, nil))
	ok(setFloats(floats, 1))
	whole := must(t)(fuel.NewShared(fuel.U8, 20_000, nil))
	fill(t, whole, 5)
	octets := must(t)(whole.View(5001, 9999))
	fill(t, octets, 7)

	f, off := sharedFile(t, floats)
	if off != 0 {
		t.Errorf("the memory begins at %d", off)
	}
	p := newPeer(t, f)
	p.do(fmt.Sprint("open ", n), nil)
	f, off = sharedFile(t, octets)
	p.do(fmt.Sprint("receive ", off, " ", octets.Len()), f)
	f.Close()

	p.do("fill 2", nil)
	ok(wantFloats(floats, 2))
	ok(wantAll(octets, 2))
	edge := contents(t, whole)
	if !all(edge[:5001], 5) || !all(edge[15_000:], 5) {
		t.Error("a write beside the view's bytes")
	}
	clone := must(t)(floats.Clone())
	ok(setFloats(floats, 3))
	fill(t, octets, 3)
	p.do("want 3", nil)
	p.do("fill 4", nil)
	ok(wantFloats(clone, 2))
	ok(wantFloats(floats, 4))

	p.do("truncate", nil)
	wantErr(t, "Seal while another process can write", fuel.Seal(floats), fuel.ErrShared)
	wantErr(t, "and again", fuel.Seal(floats), unix.EBUSY)
	if r := floats.Region(); r.Sealed || r.ReadOnly {
		t.Errorf("after a Seal that failed: %+v", r)
	}
	ok(setFloats(floats, 3))
	fill(t, octets, 3)
	p.do("want 3", nil)
	p.do("close", nil)
	ok(fuel.Seal(floats))
	p.do(fmt.Sprint("sealed ", n), nil)
	ok(wantFloats(floats, 3))
	ok(setFloats(floats, 5)) // a private copy
	p.do(fmt.Sprint("sealed ", n), nil)
	ok(wantFloats(clone, 2))
}

// Who has opened shared memory twice sees one memory, whatever was cloned.
func TestSharedMemoryNeverMovesOnAWrite(t *testing.T) {
	s := newShared(t, 5000)
	o := reopen(t, s, nil)
	r := reopen(t, s, readOnly)
	c := must(t)(s.Clone())
	v := must(t)(s.View(100, 50))
	vc := must(t)(v.Clone())
	to := must(t)(s.To(t.Context(), cpu, nil))
	want := count(5000)
	for i, write := range []func() error{
		func() error { _, err := s.WriteAt([]byte{1}, 110); return err },
		func() error { _, err := o.WriteAt([]byte{2}, 111); return err },
		func() error { return v.FillRange(t.Context(), 12, 1, []byte{3}) },
		func() error { return s.Mutate(func(b []byte) error { b[113] = 4; return nil }) },
		func() error { return o.CopyRange(t.Context(), 114, s, 112, 1, nil) },
		func() error {
			q := value(fuel.QueueOf(cpu))(t)
			p := value(q.Fill(must(t)(v.View(15, 1)), []byte{5}))(t)
			return q.Wait(t.Context(), p)
		},
	} {
		if err := write(); err != nil {
			t.Fatal(i, err)
		}
		want[110+i] = []byte{1, 2, 3, 4, 3, 5}[i]
		for _, h := range []*fuel.Storage{s, o, r} {
			wantBytes(t, fmt.Sprint("after write ", i), h, want)
		}
		wantBytes(t, "the view", v, want[100:150])
		for _, h := range []*fuel.Storage{c, to} {
			wantBytes(t, "a clone", h, count(5000))
		}
		wantBytes(t, "the view's clone", vc, count(5000)[100:150])
	}
	if got := s.Region(); got.Memory != fuel.MemoryShared || got.Owners != 1 || got.Bytes != 5000 || got.ReadOnly || got.Sealed {
		t.Errorf("%+v", got)
	}
	if got := c.Region().Memory; got == fuel.MemoryShared {
		t.Error("a Clone of memory that others may write shares it")
	}
	if c.Alignment() < 64 || s.Alignment() < os.Getpagesize()%8192 {
		t.Errorf("alignments %d and %d", c.Alignment(), s.Alignment())
	}
	taken := must(t)(o.Take())
	if _, err := taken.WriteAt([]byte{9}, 0); err != nil || contents(t, s)[0] != 9 {
		t.Errorf("a write after Take: %v, %v", err, contents(t, s)[0])
	}
}

// A copy that a clone is says so.
func TestCopyOfSharedMemoryIsReported(t *testing.T) {
	s := newShared(t, 5000)
	before := privateCopies(t)
	var report fuel.CopyReport
	c := must(t)(s.To(t.Context(), cpu, &fuel.CopyOptions{Report: &report}))
	if report.Bytes != 5000 || report.Path != fuel.PathHost || privateCopies(t) != before+1 {
		t.Errorf("%+v, %d private copies", report, privateCopies(t)-before)
	}
	must(t)(c.To(t.Context(), cpu, &fuel.CopyOptions{Report: &report}))
	if report.Bytes != 0 || privateCopies(t) != before+1 {
		t.Errorf("a Clone of the copy: %+v", report)
	}
}

// A writer waits while a Clone copies, and never makes a private copy instead;
// the clone is never half of a write.
func TestCloneOfSharedMemoryIsNeverHalfAWrite(t *testing.T) {
	const n = 128 << 10
	s := must(t)(fuel.NewShared(fuel.U8, 2*n, nil))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, off := range []int{0, n} {
		v := must(t)(s.View(off, n))
		wg.Go(func() {
			for i := byte(0); ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := v.Fill(t.Context(), []byte{i}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 50 {
		c, err := s.Clone()
		if err != nil {
			t.Error(err)
			break
		}
		b := contents(t, c)
		if !all(b[:n], b[0]) || !all(b[n:], b[n]) {
			t.Error("half of a write")
		}
		c.Close()
	}
	close(stop)
	wg.Wait()
	if r := s.Region(); r.Memory != fuel.MemoryShared || r.Owners != 1 {
		t.Errorf("%+v", r)
	}
}

// Seal is for ever, keeps raw slices for reading where they are, and makes
// Clone free of cost.
func TestSealKeepsReadersAndStopsWriters(t *testing.T) {
	s := newShared(t, 300_000)
	v := must(t)(s.View(100_000, 100))
	raw := value(s.Bytes())(t)
	ro := reopen(t, s, readOnly)
	id := s.ID()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if !bytes.Equal(raw, count(300_000)) {
					t.Error("the raw slice changed")
					return
				}
			}
		}
	})
	for range 2 { // the second has nothing to do
		if err := fuel.Seal(v); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
	wantBytes(t, "sealed", s, count(300_000))
	if r := ro.Region(); !r.Sealed || !r.ReadOnly {
		t.Errorf("another mapping of sealed memory: %+v", r)
	}
	before := privateCopies(t)
	for _, h := range []*fuel.Storage{s, ro} {
		c := must(t)(h.Clone())
		if h.Region() != c.Region() || c.Region().Owners != 2 || !c.Region().Sealed || s.ID() != id {
			t.Errorf("a clone: %+v of %+v", c.Region(), h.Region())
		}
	}
	if n := privateCopies(t) - before; n != 0 {
		t.Errorf("%d private copies", n)
	}
	// The owner moves to a private copy, all of it, as it does from a file.
	if _, err := v.WriteAt([]byte{99}, 5); err != nil {
		t.Fatal(err)
	}
	want := count(300_000)
	want[100_005] = 99
	wantBytes(t, "after a write", s, want)
	wantBytes(t, "the other mapping", ro, count(300_000))
	if s.Region().Memory == fuel.MemoryShared || s.ID() == id {
		t.Errorf("after a write: %+v", s.Region())
	}
	_, _, err := fuel.SharedFile(s)
	wantErr(t, "SharedFile of a private copy", err, fuel.ErrMismatch)
}

// What would make a write crash or be lost is refused.
func TestSealIsRefused(t *testing.T) {
	raw := newShared(t, 5000)
	b := value(raw.MutableBytes())(t)
	wantErr(t, "with a raw slice out", fuel.Seal(raw), fuel.ErrShared)
	b[7] = 1 // faults if it was
	typed := must(t)(fuel.NewShared(fuel.F32, 10, nil))
	value(fuel.MutableSlice[float32](typed))(t)
	wantErr(t, "with a typed slice out", fuel.Seal(typed), fuel.ErrShared)

	// A slice that nobody got does not matter.
	odd := must(t)(fuel.NewShared(fuel.U8, 9, nil))
	part := value(odd.View(1, 8))(t)
	floats := value(part.Reinterpret(fuel.F32))(t)
	_, err := fuel.MutableSlice[float32](floats)
	wantErr(t, "a slice at byte 1", err, fuel.ErrMisaligned)
	for _, h := range []*fuel.Storage{part, floats} {
		h.Close()
	}
	if err := fuel.Seal(odd); err != nil {
		t.Errorf("after a slice that was refused: %v", err)
	}

	s := newShared(t, 5000)
	o := reopen(t, s, nil)
	for range 2 {
		wantErr(t, "with another mapping", fuel.Seal(s), fuel.ErrShared)
		for _, h := range []*fuel.Storage{s, o} {
			if _, err := h.WriteAt([]byte{3}, 0); err != nil {
				t.Error(err)
			}
		}
	}
	ro := reopen(t, s, readOnly)
	wantErr(t, "of memory that was opened for reading", fuel.Seal(ro), fuel.ErrReadOnly)
	o.Close()
	if err := fuel.Seal(s); err != nil { // a mapping for reading does not count
		t.Error(err)
	}
	wantErr(t, "of other memory", fuel.Seal(must(t)(fuel.AllocCPUZeroed(fuel.U8, 1))), fuel.ErrMismatch)
	s.Close()
	wantErr(t, "of a closed handle", fuel.Seal(s), fuel.ErrClosed)

	// Somebody else has forbidden new mappings for writing, so that the old one
	// cannot be had again: no crash, and no private copy.
	f := newShared(t, 5000)
	file, _ := sharedFile(t, f)
	p := reopen(t, f, nil)
	value(unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE))(t)
	wantErr(t, "with F_SEAL_FUTURE_WRITE", fuel.Seal(f), fuel.ErrShared)
	_, err = f.WriteAt([]byte{1}, 0)
	wantErr(t, "a write after that", err, fuel.ErrReadOnly)
	wantBytes(t, "after that", f, count(5000))
	if _, err := p.WriteAt([]byte{1}, 0); err != nil {
		t.Error(err)
	}
}

// Seal waits for what is queued, and for a Mutate.
func TestSealNeverOvertakesAWrite(t *testing.T) {
	s := newShared(t, 5000)
	q := value(fuel.QueueOf(cpu))(t)
	gate := make(chan struct{})
	value(q.WaitExternal(fuel.External{Done: gate}))(t)
	value(q.Fill(s, []byte{6}))(t)
	began := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		err := s.Mutate(func(b []byte) error {
			close(began)
			time.Sleep(20 * time.Millisecond)
			b[0]++
			if _, err := s.Take(); !errors.Is(err, fuel.ErrShared) { // and does not wait for Seal, which waits for this
				t.Errorf("Take: %v", err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	time.AfterFunc(20*time.Millisecond, func() { close(gate) })
	<-began
	if err := fuel.Seal(s); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if b := contents(t, s); b[0] != 7 || !all(b[1:], 6) {
		t.Errorf("sealed before it was written: %d %d", b[0], b[1])
	}
}

// Work of the caller's own may write until the Point that it named.
func TestSealNeverOvertakesForeignWork(t *testing.T) {
	s := newShared(t, 5000)
	q := value(fuel.QueueOf(cpu))(t)
	gate := make(chan struct{})
	if err := s.UsedUntil(value(q.WaitExternal(fuel.External{Done: gate}))(t)); err != nil {
		t.Fatal(err)
	}
	sealed := make(chan error)
	go func() { sealed <- fuel.Seal(s) }()
	select {
	case err := <-sealed:
		t.Errorf("sealed under it: %v", err)
		close(gate)
		return
	case <-time.After(30 * time.Millisecond):
	}
	close(gate)
	if err := <-sealed; err != nil {
		t.Error(err)
	}
}

// A writer that has seen memory which is not sealed never writes once it is.
func TestSealBesideOneWriterNeverFaults(t *testing.T) {
	for range 300 {
		s := must(t)(fuel.NewShared(fuel.U8, 10, nil))
		began := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range 100 {
				if _, err := s.WriteAt([]byte{1}, 3); err != nil {
					t.Error(err)
				}
				if i == 10 {
					close(began)
				}
			}
		})
		<-began
		if err := fuel.Seal(s); err != nil {
			t.Error(err)
		}
		wg.Wait()
		s.Close()
	}
}

// Writers, readers, clones and a Seal at once: no fault, and every write is
// seen by the owner.
func TestSealAmongWritersNeverFaults(t *testing.T) {
	for range 20 {
		s := must(t)(fuel.NewShared(fuel.U8, 64<<10, nil))
		o := reopen(t, s, readOnly)
		var wg sync.WaitGroup
		for i := range 4 {
			v := must(t)(s.View(i<<14, 1<<14))
			wg.Go(func() {
				for j := range byte(50) {
					if err := v.Fill(t.Context(), []byte{j + 1}); err != nil {
						t.Error(err)
					}
					if err := wantAll(v, j+1); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Go(func() {
			for range 20 {
				for _, h := range []*fuel.Storage{s, o} {
					c, err := h.Clone()
					if err != nil {
						t.Error(err)
						continue
					}
					contents(t, c)
					if _, err := c.WriteAt([]byte{1}, 3); err != nil {
						t.Error(err)
					}
					c.Close()
				}
			}
		})
		wg.Go(func() {
			if err := fuel.Seal(s); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if err := wantAll(s, 50); err != nil {
			t.Error(err)
		}
		s.Close()
	}
}

// Memory that is open for reading only is not written to, nor does a write
// silently go elsewhere, until it is sealed.
func TestReadOnlySharedMemoryNeverTakesAWrite(t *testing.T) {
	s := newShared(t, 5000)
	ro := reopen(t, s, readOnly)
	if r := ro.Region(); !r.ReadOnly || r.Sealed {
		t.Errorf("%+v", r)
	}
	writes := map[string]func(*fuel.Storage) error{
		"WriteAt":      func(h *fuel.Storage) error { _, err := h.WriteAt([]byte{1}, 0); return err },
		"MutableBytes": func(h *fuel.Storage) error { _, err := h.MutableBytes(); return err },
		"Mutate":       func(h *fuel.Storage) error { return h.Mutate(func([]byte) error { panic("called") }) },
		"Zero":         func(h *fuel.Storage) error { return h.Zero(t.Context()) },
		"Queue.Zero":   func(h *fuel.Storage) error { _, err := value(fuel.QueueOf(cpu))(t).Zero(h); return err },
	}
	for name, write := range writes {
		wantErr(t, name, write(ro), fuel.ErrReadOnly)
	}
	src := must(t)(filled(t, 5000, 1), nil)
	_, err := fuel.PlanCopy(ro, src)
	wantErr(t, "PlanCopy", err, fuel.ErrReadOnly)
	if copied := ro.CopyFrom(t.Context(), src, nil); copied == nil || text(copied) != text(err) {
		t.Errorf("PlanCopy says %v, CopyFrom %v", err, copied)
	}
	c := must(t)(ro.Clone())
	if _, err := c.WriteAt([]byte{1}, 0); err != nil {
		t.Error(err)
	}
	wantBytes(t, "the memory", s, count(5000))

	// A descriptor for reading only cannot even be mapped for writing.
	f, _ := sharedFile(t, s)
	only := value(os.Open(fmt.Sprint("/proc/self/fd/", f.Fd())))(t)
	defer only.Close()
	for _, n := range []int{5000, 0} {
		_, err := fuel.OpenShared(only, fuel.U8, 0, n, nil)
		wantErr(t, "for writing", err, fuel.ErrReadOnly)
		wantErr(t, "for writing", err, unix.EACCES)
	}
	must(t)(fuel.OpenShared(only, fuel.U8, 0, 5000, readOnly))
	if err := fuel.Seal(s); err != nil {
		t.Fatal(err)
	}
	if p, err := fuel.PlanCopy(ro, src); err != nil || !p.Private {
		t.Errorf("a plan after Seal: %+v, %v", p, err)
	}
	if _, err := ro.WriteAt([]byte{1}, 0); err != nil || ro.Region().Memory == fuel.MemoryShared {
		t.Errorf("a write after Seal: %v, %+v", err, ro.Region())
	}
	_, err = fuel.OpenShared(f, fuel.U8, 0, 0, nil)
	wantErr(t, "no bytes of sealed memory for writing", err, fuel.ErrReadOnly)
}

// text is what an OpError says without its operation.
func text(err error) string {
	if op, ok := errors.AsType[*fuel.OpError](err); ok {
		return op.Err.Error()
	}
	return err.Error()
}

// What is no memory that can be trusted to stay is refused.
func TestOpenSharedRefusesOtherFiles(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	files := map[string]*os.File{
		"regular":  file(t, count(5000)),
		"pipe":     r,
		"device":   value(os.Open("/dev/null"))(t),
		"unsealed": memfd(t, 5000, unix.MFD_ALLOW_SEALING, 0),
		"no seals": memfd(t, 5000, 0, 0),
		"growing":  memfd(t, 5000, unix.MFD_ALLOW_SEALING, unix.F_SEAL_GROW),
	}
	defer files["device"].Close()
	if tmp, err := os.CreateTemp("/dev/shm", "fuel"); err == nil { // a tmpfs, as a memfd is
		defer tmp.Close()
		os.Remove(tmp.Name())
		tmp.Truncate(5000)
		files["tmpfs"] = tmp
	}
	opened := openFiles(t)
	for name, f := range files {
		for _, opt := range []*fuel.SharedOptions{nil, readOnly} {
			_, err := fuel.OpenShared(f, fuel.U8, 0, 10, opt)
			wantErr(t, name, err, fuel.ErrMismatch)
		}
	}
	f, _ := sharedFile(t, newShared(t, 100))
	f.Close()
	_, err = fuel.OpenShared(f, fuel.U8, 0, 10, nil)
	wantErr(t, "closed", err, os.ErrClosed)
	if n := openFiles(t) - opened; n != 1 { // newShared's
		t.Errorf("%d files were opened", n)
	}
	must(t)(fuel.OpenShared(memfd(t, 5000, unix.MFD_ALLOW_SEALING, unix.F_SEAL_SHRINK), fuel.U8, 0, 5000, nil))
}

func TestOpenSharedChecksTheRange(t *testing.T) {
	s := newShared(t, 100)
	f, _ := sharedFile(t, s)
	before := openFiles(t)
	for _, c := range []struct {
		off  int64
		n    int
		want error
	}{
		{0, 26, fuel.ErrTruncated}, {4, 25, fuel.ErrTruncated}, {100, 1, fuel.ErrTruncated}, {101, 0, fuel.ErrTruncated}, {1<<63 - 1, 1, fuel.ErrTruncated},
		{1<<63 - 4, 1 << 28, fuel.ErrTruncated}, {-1, 1, fuel.ErrRange}, {-1 << 63, 0, fuel.ErrRange}, {0, -1, fuel.ErrOverflow}, {0, int(^uint(0) >> 1), fuel.ErrOverflow},
	} {
		_, err := fuel.OpenShared(f, fuel.F32, c.off, c.n, nil)
		wantErr(t, fmt.Sprintf("%d elements at %d", c.n, c.off), err, c.want)
	}
	if n := openFiles(t) - before; n != 0 {
		t.Errorf("%d files were left open", n)
	}
	_, err := fuel.NewShared(fuel.F32, -1, nil)
	wantErr(t, "NewShared", err, fuel.ErrOverflow)
	_, err = fuel.NewShared(0, 1, nil)
	wantErr(t, "NewShared", err, fuel.ErrUnknownDType)
	_, err = fuel.NewShared(fuel.F32, 1, readOnly)
	wantErr(t, "NewShared", err, fuel.ErrMismatch)
	q := &fuel.SharedOptions{Encoding: fuel.GGMLBlock(fuel.GGMLQ4_0)}
	_, err = fuel.NewShared(fuel.F32, 33, q)
	wantErr(t, "NewShared of part of a block", err, fuel.ErrMismatch)
	e := must(t)(fuel.NewShared(fuel.F32, 64, q))
	if e.LenBytes() != 36 || e.Encoding() != q.Encoding || reopen(t, e, q).Len() != 64 {
		t.Errorf("%v", e)
	}
}

func TestOpenSharedTakesAnyOffset(t *testing.T) {
	s := newShared(t, 20_000)
	f, _ := sharedFile(t, s)
	for off := range 5000 {
		if off > 70 && off < 4090 {
			continue
		}
		o := must(t)(fuel.OpenShared(f, fuel.F32, int64(off), 2000, nil))
		wantBytes(t, "OpenShared", o, count(20_000)[off:off+8000])
		if a := o.Alignment(); off%a != 0 || off%(2*a) == 0 && off != 0 && a < 4096 {
			t.Errorf("offset %d is aligned to %d", off, a)
		}
		_, err := fuel.Slice[float32](o)
		if ok := o.Alignment() >= 4; ok != (err == nil) || err != nil && !errors.Is(err, fuel.ErrMisaligned) {
			t.Errorf("a slice at offset %d: %v", off, err)
		}
		g, at, err := fuel.SharedFile(must(t)(o.View(5, 10)))
		if err != nil || at != int64(off+20) {
			t.Errorf("SharedFile: %d, %v", at, err)
		}
		g.Close()
		o.Close()
	}
}

func TestSharedMemoryOfNoBytes(t *testing.T) {
	s := must(t)(fuel.NewShared(fuel.F32, 0, nil))
	o, r := reopen(t, s, nil), reopen(t, s, readOnly)
	for _, h := range []*fuel.Storage{s, o, r} {
		if h.Region().Memory != fuel.MemoryShared || h.Len() != 0 {
			t.Errorf("%v %+v", h, h.Region())
		}
		c := must(t)(h.Clone())
		if err := errors.Join(c.Zero(t.Context()), h.Use(func(b []byte) error { return nil })); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(s.Mutate(func([]byte) error { return nil }), fuel.Seal(s), fuel.Seal(s)); err != nil {
		t.Error(err)
	}
	must(t)(s.Clone())
}

func TestClosedSharedMemoryIsErrClosed(t *testing.T) {
	before := openFiles(t)
	s := newShared(t, 100)
	v := must(t)(s.View(0, 10))
	s.Close()
	_, _, err := fuel.SharedFile(s)
	wantErr(t, "SharedFile", err, fuel.ErrClosed)
	wantErr(t, "Seal", fuel.Seal(s), fuel.ErrClosed)
	wantBytes(t, "a view", v, count(10))
	f, _, err := fuel.SharedFile(v)
	if err != nil {
		t.Fatal(err)
	}
	v.Close()
	o := must(t)(fuel.OpenShared(f, fuel.U8, 0, 100, nil)) // the file keeps the memory
	f.Close()
	wantBytes(t, "opened again", o, count(100))
	o.Close()
	if n := openFiles(t) - before; n != 0 {
		t.Errorf("%d files are left open", n)
	}
}

// A SharedFile is not for children that nobody gave it to.
func TestSharedFileIsClosedOnExec(t *testing.T) {
	f, _ := sharedFile(t, newShared(t, 100))
	if flags := value(unix.FcntlInt(f.Fd(), unix.F_GETFD, 0))(t); flags&unix.FD_CLOEXEC == 0 {
		t.Error("a child would inherit it")
	}
}

func TestSharedMemoryCountsAgainstLimits(t *testing.T) {
	scope := fuel.NewScope("shared", 10_000)
	opt := &fuel.SharedOptions{Scope: scope}
	before := value(fuel.MemStats(cpu))(t)
	files := openFiles(t)
	s := must(t)(fuel.NewShared(fuel.U8, 6000, opt))
	_, err := fuel.NewShared(fuel.U8, 6000, opt)
	var oom *fuel.OutOfMemoryError
	if wantErr(t, "above the limit", err, fuel.ErrOutOfMemory); !errors.As(err, &oom) || oom.Scope != "shared" || oom.Limit != 10_000 || oom.InUse != 6000 {
		t.Errorf("%+v", oom)
	}
	_, err = s.Clone() // copies count too
	wantErr(t, "a clone above the limit", err, fuel.ErrOutOfMemory)
	for want, copies := range map[string]func() (*fuel.Storage, error){
		"Clone":   s.Clone,
		"To":      func() (*fuel.Storage, error) { return s.To(t.Context(), cpu, nil) },
		"Convert": func() (*fuel.Storage, error) { return fuel.Convert(t.Context(), s, fuel.U8, nil) },
	} {
		_, err := copies()
		var op *fuel.OpError
		if !errors.As(err, &op) || op.Op != want {
			t.Errorf("%s above the limit: %v", want, err)
		}
	}
	o := reopen(t, s, opt) // what is there already does not
	if st := scope.Stats(); st.InUse != 6000 || st.Peak != 6000 || st.Regions != 1 || st.Refused != 5 {
		t.Errorf("%+v", st)
	}
	now := value(fuel.MemStats(cpu))(t)
	if now.Allocated-before.Allocated != 6000 || now.InUse-before.InUse != 12_000 || now.Regions-before.Regions != 2 {
		t.Errorf("%+v, before %+v", now, before)
	}
	o.Close()
	s.Close()
	now = value(fuel.MemStats(cpu))(t)
	if st := scope.Stats(); st.InUse != 0 || st.Regions != 0 || now.InUse != before.InUse || now.Allocated != before.Allocated {
		t.Errorf("after Close: %+v, %+v, before %+v", st, now, before)
	}
	if err := fuel.SetLimit(cpu, before.Allocated+1000); err != nil {
		t.Fatal(err)
	}
	_, err = fuel.NewShared(fuel.U8, 6000, nil)
	if err := fuel.SetLimit(cpu, -1); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "above the device's limit", err, fuel.ErrOutOfMemory)
	if n := openFiles(t) - files; n != 1 { // reopen's
		t.Errorf("%d files were left open", n)
	}
}

// Linux would rather end a process than refuse pages, and maybe another one.
func TestSharedMemoryBeyondTheHostIsRefused(t *testing.T) {
	if strconv.IntSize == 32 {
		require.Skip(t, "64-bit", "no such size on 32 bits")
	}
	began := time.Now()
	_, err := fuel.NewShared(fuel.U8, 1<<(strconv.IntSize-19), nil)
	wantErr(t, "32 TiB", err, fuel.ErrOutOfMemory)
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("it took %v", d)
	}
}

// Queued work that uses shared memory keeps it.
func TestSharedMemoryStaysForQueuedWork(t *testing.T) {
	files := openFiles(t)
	s := newShared(t, 5000)
	d := must(t)(fuel.AllocCPUZeroed(fuel.U8, 5000))
	q := value(fuel.QueueOf(cpu))(t)
	gate := make(chan struct{})
	value(q.WaitExternal(fuel.External{Done: gate}))(t)
	p := value(q.Copy(d, s))(t)
	if err := errors.Join(s.UsedUntil(p), s.Close()); err != nil {
		t.Error(err)
	}
	close(gate)
	wantBytes(t, "the copy", d, count(5000))
	wantOpenFiles(t, files) // and lets it go
}

// A file in shared memory is read there, without a copy, by whoever gets it.
func TestSafetensorsInSharedMemory(t *testing.T) {
	w := must(t)(fuel.NewShared(fuel.F32, 1000, nil))
	if err := setFloats(w, 1); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := safetensors.Write(&b, []safetensors.Tensor{{Name: "w", Shape: []int{10, 100}, Data: w}}, nil); err != nil {
		t.Fatal(err)
	}
	s := must(t)(fuel.NewShared(fuel.U8, b.Len(), nil))
	if _, err := s.ReadFrom(&b); err != nil {
		t.Fatal(err)
	}
	if err := fuel.Seal(s); err != nil {
		t.Fatal(err)
	}
	o := reopen(t, s, readOnly)
	raw := value(o.Bytes())(t)
	f := value(safetensors.Wrap(raw, func() { o.Close() }, nil))(t)
	tensor := must(t)(f.Tensor("w"))
	f.Close()
	if err := wantFloats(tensor, 1); err != nil {
		t.Error(err)
	}
	tensor.Close()
	wantErr(t, "a use after the last tensor", o.Use(nil), fuel.ErrClosed)
}

// A Storage of shared memory that is dropped is freed, with its descriptor.
func TestDroppedSharedMemoryIsFreed(t *testing.T) {
	before, files := value(fuel.MemStats(cpu))(t), openFiles(t)
	func() { newDropped(t) }()
	wantOpenFiles(t, files)
	now := value(fuel.MemStats(cpu))(t)
	if now.Leaks != before.Leaks+1 || now.InUse != before.InUse || now.Allocated != before.Allocated {
		t.Errorf("%+v, before %+v", now, before)
	}
}

//go:noinline
func newDropped(t *testing.T) { value(fuel.NewShared(fuel.U8, 5000, nil))(t) }

// A rule makes a system call fail in this process, for ever.
type rule struct {
	call  uint32
	arg   uint32 // only where the low half of this argument
	mask  uint32 // has one of these bits, if there are any
	errno unix.Errno
}

// forbid installs a seccomp filter (seccomp(2)).
func forbid(r rule) error {
	const number, args = 0, 16 // in struct seccomp_data; little-endian
	ret := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	p := []unix.SockFilter{load(number), {Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: r.call, Jt: 1}, ret(unix.SECCOMP_RET_ALLOW)}
	if r.mask != 0 {
		p = append(p, load(args+8*r.arg), unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: r.mask, Jt: 1}, ret(unix.SECCOMP_RET_ALLOW))
	}
	p = append(p, ret(unix.SECCOMP_RET_ERRNO|uint32(r.errno)))
	program := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
	return nil
}

var rules = map[string]rule{
	"full":         {unix.SYS_FALLOCATE, 0, 0, unix.ENOSPC},
	"no memory":    {unix.SYS_FALLOCATE, 0, 0, unix.ENOMEM},
	"signals":      {unix.SYS_FALLOCATE, 2 + 64/strconv.IntSize, 0xFFFF_0000, unix.EINTR}, // for lengths from 64 KiB on
	"forbidden":    {unix.SYS_MEMFD_CREATE, 0, 0, unix.EPERM},
	"older kernel": {unix.SYS_MEMFD_CREATE, 1, unix.MFD_NOEXEC_SEAL, unix.EINVAL},
	"old kernel":   {unix.SYS_MEMFD_CREATE, 0, 0, unix.ENOSYS},
	"no files":     {unix.SYS_MEMFD_CREATE, 0, 0, unix.EMFILE},
}

// sharedRefused runs in a process of its own, in which a system call fails.
func sharedRefused() {
	name := os.Getenv("FUEL_TEST_RULE")
	r := rules[name]
	t := &mainTest{}
	sparse := func() *os.File {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		check(err)
		check(unix.Ftruncate(fd, 10<<20))
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
		check(err)
		return os.NewFile(uintptr(fd), "sparse")
	}()
	kept, err := fuel.NewShared(fuel.U8, 5000, nil)
	check(err)
	if err := forbid(r); err != nil {
		fmt.Println("no filter:", err)
		os.Exit(0)
	}
	before, err := fuel.MemStats(cpu)
	check(err)
	mapped := memfdMappings() // first: it starts the runtime's poller, which opens files
	files := openFiles(t)
	const n = 10 << 20
	scope := fuel.NewScope("shared", -1)
	s, err := fuel.NewShared(fuel.U8, n, &fuel.SharedOptions{Scope: scope})
	switch name {
	case "older kernel", "signals":
		check(err)
		check(s.Close())
	case "forbidden", "old kernel":
		assert(errors.Is(err, fuel.ErrUnavailable) && errors.Is(err, r.errno), "NewShared: %v", err)
	case "no files":
		assert(errors.Is(err, r.errno), "NewShared: %v", err)
	default:
		refused(err, n)
		assert(errors.Is(err, r.errno), "NewShared: %v", err)
		_, err = fuel.OpenShared(sparse, fuel.U8, 0, n, nil)
		refused(err, n)
		assert(errors.Is(err, r.errno), "OpenShared: %v", err)
		_, err = fuel.OpenShared(sparse, fuel.U8, 0, n, readOnly)
		refused(err, n)
	}
	fmt.Println(err)
	now, err := fuel.MemStats(cpu)
	check(err)
	assert(now.InUse == before.InUse && now.Regions == before.Regions && now.Allocated == before.Allocated, "%+v, before %+v", now, before)
	assert(scope.Stats().InUse == 0 && scope.Stats().Regions == 0, "%+v", scope.Stats())
	assert(openFiles(t) == files && memfdMappings() == mapped, "%d files and %d mappings, before %d and %d", openFiles(t), memfdMappings(), files, mapped)
	_, err = kept.WriteAt([]byte{1}, 0) // what is there goes on
	check(err)
	check(kept.Close())
	fmt.Println("ok")
}

// mainTest is a testing.TB where there is no test.
type mainTest struct{ testing.TB }

func (*mainTest) Helper()           {}
func (*mainTest) Cleanup(func())    {} // the process ends
func (*mainTest) Fatal(args ...any) { check(errors.New(fmt.Sprint(args...))) }

func memfdMappings() int {
	b, err := os.ReadFile("/proc/self/maps")
	check(err)
	return bytes.Count(b, []byte("memfd:"))
}

// Report 63: memory that is used up is a bus error later. ENOSPC, ENOMEM and
// EPERM are errors before anything is touched, and leave nothing.
func TestRefusedSharedMemoryIsAnErrorAndNothingIsLeft(t *testing.T) {
	for name := range rules {
		t.Run(name, func(t *testing.T) {
			out, err := child(t, "shared refused", "FUEL_TEST_RULE="+name)
			if err == nil && strings.HasPrefix(out, "no filter") {
				require.Skip(t, "seccomp", out)
			}
			if err != nil || !strings.Contains(out, "ok") {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Log(out)
		})
	}
}

// sharedFileSize runs in a process of its own, under RLIMIT_FSIZE.
func sharedFileSize() {
	check(unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}))
	_, err := fuel.NewShared(fuel.U8, 2<<20, nil)
	refused(err, 2<<20)
	assert(errors.Is(err, unix.EFBIG), "%v", err)
	s, err := fuel.NewShared(fuel.U8, 1<<20, nil)
	check(err)
	_, err = s.WriteAt([]byte{1}, 1<<20-1)
	check(err)
	check(s.Close())
	fmt.Println("ok")
}

func TestSharedMemoryAboveTheFileSizeLimitNeverKills(t *testing.T) {
	if out, err := child(t, "shared fsize"); err != nil || !strings.Contains(out, "ok") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// Holes that nobody can fill are read under guard.
func TestHolesInReadOnlySharedMemoryAreZero(t *testing.T) {
	f := memfd(t, 300_000, unix.MFD_ALLOW_SEALING, unix.F_SEAL_SHRINK)
	only := value(os.Open(fmt.Sprint("/proc/self/fd/", f.Fd())))(t)
	defer only.Close()
	s := must(t)(fuel.OpenShared(only, fuel.U8, 0, 300_000, readOnly))
	wantBytes(t, "a hole", s, make([]byte, 300_000))
	if err := must(t)(s.Clone()).Fill(t.Context(), []byte{1}); err != nil {
		t.Error(err)
	}
}
