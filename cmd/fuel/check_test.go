package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/fueltest"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/require"
	"github.com/go-fuel/fuel/safetensors"
)

// kindOfFake is the kind that the fake device stands for here.
const kindOfFake = fuel.Vulkan

// requireTable compares a table with patterns, one for each line.
func requireTable(t *testing.T, got string, want ...string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d lines instead of %d:\n%s", len(lines), len(want), got)
	}
	for i, line := range lines {
		if !regexp.MustCompile("^" + want[i] + "$").MatchString(line) {
			t.Errorf("line %d is %q and does not match %q", i+1, line, want[i])
		}
	}
}

func TestPlainFuelHasARowForEachKind(t *testing.T) {
	temp := useTempDir(t, t.TempDir())
	t.Cleanup(backend.Replace(backend.CUDA, nil)) // whatever this machine has
	fueltest.Register(t, kindOfFake, fueltest.FakeOptions{Devices: 2})
	fueltest.Register(t, fuel.Metal, fueltest.FakeOptions{ProbeError: "no library\nand no hardware"})
	size := len(checkpoint)
	want := []string{
		`the checkpoint inside the program: \d+ tensors \(\d+ bytes\); (mapped|read, not mapped \(.*\)); zero-copy \d+ .*`,
		`device    state        tensors   bytes  to GB/s  from GB/s  result`,
		`cpu       available         64  \d{6}  +\d+\.\d\d  +\d+\.\d\d  equal`,
		`cuda      not linked         -       -        -          -  - \(.+\)`,
		`vulkan:0  available         64  \d{6}  +\d+\.\d\d  +\d+\.\d\d  equal`,
		`vulkan:1  available         64  \d{6}  +\d+\.\d\d  +\d+\.\d\d  equal`,
		`metal     unavailable        -       -        -          -  - \(no library; and no hardware\)`,
	}
	requireTable(t, mustExecute(t), want...)
	requireTable(t, mustExecute(t, "check"), want...)
	requireEmpty(t, temp)

	doc := decode[checked](t, mustExecute(t, "--json"))
	if !doc.OK || len(doc.Files) != 1 || !doc.Files[0].Embedded || doc.Files[0].Bytes > int64(size) {
		t.Fatalf("got %+v", doc)
	}
	var kinds []string
	for _, d := range doc.Files[0].Devices {
		kinds = append(kinds, d.Kind+" "+string(d.Result))
	}
	if !slices.Equal(kinds, []string{"cpu equal", "cuda skipped", "vulkan equal", "vulkan equal", "metal skipped"}) {
		t.Errorf("got %q", kinds)
	}
	requireEmpty(t, temp)
}

// A figure of a few microseconds is noise.
func TestNoFigureIsOfLessThanTwentyMilliseconds(t *testing.T) {
	defer func(d time.Duration) { patience = d }(patience)
	patience = time.Minute // the machine may have other things to do
	var stdout bytes.Buffer
	if code := run(t.Context(), []string{"--json", "--device", "cpu"}, &stdout, io.Discard); code != exitOK {
		t.Fatalf("exit status %d", code)
	}
	for _, d := range decode[checked](t, stdout.String()).Files[0].Devices {
		for _, r := range []*rate{d.To, d.From} {
			if r == nil || r.Seconds < enoughTime.Seconds() || r.Bytes < d.Bytes || r.Bytes%d.Bytes != 0 {
				t.Errorf("%+v of %d bytes", r, d.Bytes)
			} else if got := float64(r.Bytes) / r.Seconds / 1e9; got != r.GBPerSecond {
				t.Errorf("%+v is %v GB/s", r, got)
			}
		}
	}
}

func TestCheckpointIsNotMappedQuietlyFromMemory(t *testing.T) {
	useTempDir(t, filepath.Join(t.TempDir(), "missing"))
	out := mustExecute(t, "--device", "cpu")
	if !strings.Contains(out, "read, not mapped (no temporary file to map: ") || !strings.Contains(out, "equal") {
		t.Errorf("got %s", out)
	}
	doc := decode[checked](t, mustExecute(t, "--device", "cpu", "--json"))
	if f := doc.Files[0]; f.Mapped || f.NotMapped == "" || f.LoadedTensors == 0 {
		t.Errorf("got %+v", f)
	}
	if o := execute(t, "--require-zero-copy"); o.code != exitFailure || !strings.Contains(o.stderr, "no temporary file") {
		t.Errorf("got %+v", o)
	}
}

func TestNoBitOfTheSharedModelsChanges(t *testing.T) {
	dir := filepath.Join(require.Shared(t), "models")
	paths, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err != nil || len(paths) < 3 {
		t.Fatalf("%d models in %s: %v", len(paths), dir, err)
	}
	fueltest.Register(t, kindOfFake, fueltest.FakeOptions{NonCoherent: true})
	for _, flags := range [][]string{{"check", "--json"}, {"check", "--json", "--min-alignment", "64"}} {
		doc := decode[checked](t, mustExecute(t, append(flags, paths...)...))
		for i, f := range doc.Files {
			if f.File != paths[i] || f.Tensors == 0 {
				t.Errorf("got %+v", f)
			}
			for _, d := range f.Devices {
				switch {
				case d.Device == nil:
				case d.Result != resultEqual || d.Tensors != f.Tensors || d.Bytes != f.Bytes:
					t.Errorf("%s: %+v", f.File, d)
				}
			}
		}
	}
}

// flipped is a file of which one bit reads otherwise than it is mapped.
type flipped struct {
	io.ReaderAt
	at  int64
	bit byte
}

func (f flipped) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.ReaderAt.ReadAt(p, off)
	if i := f.at - off; i >= 0 && i < int64(n) {
		p[i] ^= f.bit
	}
	return n, err
}

func TestFlippedBitIsNeverEqual(t *testing.T) {
	fueltest.Register(t, kindOfFake, fueltest.FakeOptions{})
	path := writeTestFile(t, "big", plainFile(pieceBytes+5, "U8"))
	for _, test := range []struct {
		byte int64
		bit  byte
	}{{0, 1}, {pieceBytes - 1, 128}, {pieceBytes, 1}, {pieceBytes + 4, 128}} {
		p := &program{open: func(ctx context.Context, path string, opt *safetensors.Options) (*source, error) {
			s, err := openPath(ctx, path, opt)
			if err == nil {
				s.raw = flipped{s.raw, s.Header().DataOffset() + test.byte, test.bit}
			}
			return s, err
		}}
		o := executeAs(t, p, "check", path)
		if o.code != exitFailure || strings.Count(o.stdout, "MISMATCH x (byte "+number(test.byte)+")") != 2 || strings.Contains(o.stdout, "equal") {
			t.Errorf("byte %d: %+v", test.byte, o)
		}
		if strings.Count(o.stderr, "\n") != 2 || strings.Count(o.stderr, "1 of 1 tensor differ") != 2 {
			t.Errorf("byte %d: %q", test.byte, o.stderr)
		}
		p = &program{open: p.open}
		doc := decode[checked](t, executeAs(t, p, "check", "--json", "--device", "cpu", path).stdout)
		d := doc.Files[0].Devices[0]
		if doc.OK || d.Result != resultMismatch || len(d.Mismatches) != 1 || d.Mismatches[0] != (mismatch{"x", int(test.byte)}) || d.To != nil {
			t.Errorf("byte %d: %+v", test.byte, d)
		}
	}
}

func TestErrorOnADeviceIsNotSkipped(t *testing.T) {
	path := writeTestFile(t, "good", oddFile())
	for _, test := range []struct {
		op  fueltest.Op
		err error
	}{
		{fueltest.OpOpen, nil}, {fueltest.OpAlloc, fuel.ErrOutOfMemory}, {fueltest.OpUpload, fuel.ErrDeviceLost},
		{fueltest.OpDownload, nil}, {fueltest.OpAlloc, errors.New("on\ntwo lines")},
	} {
		t.Run(test.op.String(), func(t *testing.T) {
			fueltest.Register(t, kindOfFake, fueltest.FakeOptions{}).Fail(test.op, 1, test.err)
			o := execute(t, "check", path)
			if o.code != exitFailure || !strings.Contains(o.stdout, "  ERROR ") || strings.Count(o.stderr, "\n") != 1 {
				t.Errorf("got %+v", o)
			}
			if !regexp.MustCompile(`(?m)^cpu .*  equal$`).MatchString(o.stdout) {
				t.Errorf("the CPU has nothing to do with it: %s", o.stdout)
			}
		})
	}
}

func TestFailureLaterThanTheFirstPassIsNotLost(t *testing.T) {
	fake := fueltest.Register(t, kindOfFake, fueltest.FakeOptions{})
	fake.Fail(fueltest.OpUpload, 20, nil)
	o := execute(t, "check", writeTestFile(t, "good", oddFile()))
	if o.code != exitFailure || !strings.Contains(o.stdout, "  ERROR ") {
		t.Errorf("got %+v", o)
	}
}

func TestMissingDeviceIsNeverAnotherOne(t *testing.T) {
	t.Cleanup(backend.Replace(backend.CUDA, nil))
	fueltest.Register(t, kindOfFake, fueltest.FakeOptions{})
	for _, test := range []struct{ device, want string }{
		{"cuda", "device cuda:0 is not available: "},
		{"vulkan:1", "no device vulkan:1: the last one is vulkan:0"},
	} {
		for _, command := range []string{"check", "probe"} {
			o := execute(t, command, "--device", "cpu", "--device", test.device)
			if o.code != exitFailure || o.stdout != "" || !strings.Contains(o.stderr, test.want) || strings.Count(o.stderr, "\n") != 1 {
				t.Errorf("fuel %s --device %s: %+v", command, test.device, o)
			}
		}
	}
}

func TestNoDeviceButTheNamedOnesIsUsed(t *testing.T) {
	fake := fueltest.Register(t, kindOfFake, fueltest.FakeOptions{Devices: 2})
	out := mustExecute(t, "check", "--device", "cpu", "--device", "cpu")
	if strings.Count(out, "available") != 1 || fake.Calls(fueltest.OpOpen) != 0 {
		t.Errorf("%d devices opened: %s", fake.Calls(fueltest.OpOpen), out)
	}
	out = mustExecute(t, "check", "--device", "vulkan:1")
	if strings.Count(out, "available") != 1 || !strings.Contains(out, "vulkan:1") || fake.Calls(fueltest.OpOpen) != 1 {
		t.Errorf("%d devices opened: %s", fake.Calls(fueltest.OpOpen), out)
	}
}

func TestHangingDriverDoesNotHangTheCheck(t *testing.T) {
	fueltest.Register(t, kindOfFake, fueltest.FakeOptions{ProbeHang: true})
	out := mustExecute(t, "check", "--timeout", "20ms", writeTestFile(t, "good", oddFile()))
	if !regexp.MustCompile(`(?m)^vulkan  probing .*  - \(.+\)$`).MatchString(out) {
		t.Errorf("got %s", out)
	}
	if o := execute(t, "--timeout", "20ms", "--device", "vulkan"); o.code != exitFailure || !strings.Contains(o.stderr, "vulkan:0") {
		t.Errorf("got %+v", o)
	}
}

func TestFileThatCannotBeOpenedDoesNotStopTheOthers(t *testing.T) {
	good := writeTestFile(t, "good", oddFile())
	for _, test := range []struct {
		name string
		path string
		want string
	}{
		{"missing", filepath.Join(t.TempDir(), "missing"), "missing"},
		{"no name", "", "open"},
		{"directory", t.TempDir(), ""},
		{"empty", writeTestFile(t, "empty", nil), "empty"},
		{"truncated", writeTestFile(t, "truncated", oddFile()[:len(oddFile())-1]), "too short"},
		{"too long", writeTestFile(t, "long", append(oddFile(), 0)), "long"},
		{"text", writeTestFile(t, "text", []byte("this is no file of tensors\nat all\n")), "safetensors"},
		{"lines", filepath.Join(t.TempDir(), "a\nb"), "a; b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, command := range []string{"check", "inspect"} {
				o := execute(t, command, test.path, good)
				if o.code != exitFailure || strings.Count(o.stderr, "\n") != 1 || !strings.Contains(o.stderr, test.want) {
					t.Errorf("fuel %s: %+v", command, o)
				}
				if !strings.Contains(o.stdout, "good: 7 tensors") || strings.HasPrefix(o.stdout, "\n") {
					t.Errorf("fuel %s: %s", command, o.stdout)
				}
				o = execute(t, command, "--json", test.path, good)
				doc := decode[checked](t, o.stdout)
				if o.code != exitFailure || doc.OK || len(doc.Files) != 2 || doc.Files[0].Error == "" || doc.Files[0].Embedded ||
					doc.Files[1].Error != "" || doc.Files[1].Tensors != 7 {
					t.Errorf("fuel %s --json: %+v", command, o)
				}
			}
		})
	}
}

func TestFileWithoutBytesHasNoFigures(t *testing.T) {
	path := writeTestFile(t, "none", plainFile(0, "F32"))
	out := mustExecute(t, "check", "--device", "cpu", path)
	if !regexp.MustCompile(`(?m)^cpu     available        1      0        -          -  equal$`).MatchString(out) {
		t.Errorf("got %s", out)
	}
}

func TestMemoryOnTheCPUIsCopiedAndNotCloned(t *testing.T) {
	s, err := fuel.FromSlice(fuel.Device{}, []byte{1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := newTrial(fuel.Device{}, nil, nil).put(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n := s.Region().Owners; n != 1 {
		t.Errorf("%d owners share the memory", n)
	}
	if same, err := s.Equal(t.Context(), c); err != nil || !same {
		t.Errorf("the copy is another: %v", err)
	}
}

// What comes back must not be right because it was so before.
func TestNoBitIsRightBeforeItIsCopied(t *testing.T) {
	f, err := openPath(t.Context(), writeTestFile(t, "x", plainFile(pieceBytes+3, "U8")), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	s, err := f.Tensor("x")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	info, _ := f.Info("x")
	back, err := newTrial(fuel.Device{}, nil, f.raw).spoiled(t.Context(), sample{"x", s, info.Offset})
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	want, err := fuel.Slice[byte](s)
	if err != nil {
		t.Fatal(err)
	}
	got, err := fuel.Slice[byte](back)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if want[i]^got[i] != 0xFF {
			t.Fatalf("byte %d is %#x instead of %#x", i, got[i], ^want[i])
		}
	}
}

// Tensors that overlap on a device show only while both are there.
func TestTensorsAreOnTheDeviceTogether(t *testing.T) {
	fake := fueltest.Register(t, kindOfFake, fueltest.FakeOptions{})
	path := writeTestFile(t, "good", oddFile())
	fake.Fail(fueltest.OpDownload, 1, nil)
	if o := execute(t, "check", "--device", "vulkan", path); o.code != exitFailure {
		t.Fatalf("got %+v", o)
	}
	if n := fake.Calls(fueltest.OpAlloc); n != 6 {
		t.Errorf("%d of 6 tensors with bytes were there before the first came back", n)
	}
}

func TestBatchesLoseNothingAndEnd(t *testing.T) {
	var list []sample
	for _, n := range []int{0, 3, 4, 0, 10, 1, 0} {
		s, err := fuel.Alloc(fuel.Device{}, fuel.U8, n, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		list = append(list, sample{data: s})
	}
	var got [][]int
	for b := range batches(list, 7) {
		var sizes []int
		for _, s := range b {
			sizes = append(sizes, s.data.LenBytes())
		}
		got = append(got, sizes)
	}
	want := [][]int{{0, 3, 4}, {0, 10}, {1, 0}}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %v", got)
	}
}

func TestInterruptDoesNotWaitForTheDevice(t *testing.T) {
	temp := useTempDir(t, t.TempDir())
	fake := fueltest.Register(t, kindOfFake, fueltest.FakeOptions{})
	fueltest.LeakCheck(t)
	fake.Hold()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for fake.Calls(fueltest.OpUpload) == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
		time.Sleep(20 * time.Millisecond)
		fake.Release()
	}()
	var stderr strings.Builder
	if code := run(ctx, nil, io.Discard, &stderr); code != exitFailure || stderr.String() != "fuel: interrupted\n" {
		t.Errorf("exit status %d, %q", code, stderr.String())
	}
	requireEmpty(t, temp)
}

func TestRequireZeroCopyIsNotIgnored(t *testing.T) {
	path := writeTestFile(t, "odd", oddFile())
	for _, command := range []string{"check", "inspect"} {
		o := execute(t, command, "--require-zero-copy", path)
		if o.code != exitFailure || o.stdout != "" || !strings.Contains(o.stderr, "cannot be used without a copy") {
			t.Errorf("fuel %s: %+v", command, o)
		}
	}
}

func TestTemporaryFileCannotBeFound(t *testing.T) {
	if os.PathSeparator == '\\' {
		require.Skip(t, "truncation", "Windows keeps the name of a file that is mapped")
	}
	temp := useTempDir(t, t.TempDir())
	s, err := openCheckpoint(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	requireEmpty(t, temp)
	if err := s.close(); err != nil {
		t.Error(err)
	}
}
