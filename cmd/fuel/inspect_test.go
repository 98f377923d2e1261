package main

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/require"
)

// rawFile returns a file of that header, padded so that the data begins at a
// multiple of 64, and of data that counts up.
func rawFile(header string, data int) []byte {
	for (8+len(header))%64 != 0 {
		header += " "
	}
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	for i := range data {
		b = append(b, byte(i)^byte(i>>8))
	}
	return b
}

// oddFile returns a file whose first tensor has an odd number of bytes, as our
// writer never makes one.
func oddFile() []byte {
	return rawFile(`{"__metadata__":{"by":"hand"},`+
		`"odd":{"dtype":"U8","shape":[37],"data_offsets":[0,37]},`+
		`"weight":{"dtype":"F32","shape":[2,1],"data_offsets":[37,45]},`+
		`"a\nb\u001b[31m":{"dtype":"I16","shape":[],"data_offsets":[45,47]},`+
		`"byte":{"dtype":"BOOL","shape":[1],"data_offsets":[47,48]},`+
		`"even":{"dtype":"F64","shape":[1],"data_offsets":[48,56]},`+
		`"none":{"dtype":"F32","shape":[3,0],"data_offsets":[56,56]},`+
		`"half":{"dtype":"F4","shape":[6],"data_offsets":[56,59]}}`, 59)
}

// plainFile returns a file of one tensor "x".
func plainFile(bytes int, dtype string) []byte {
	return rawFile(fmt.Sprintf(`{"x":{"dtype":%q,"shape":[%d],"data_offsets":[0,%d]}}`, dtype, bytes, bytes), bytes)
}

// requireMapping skips where files are not used in place.
func requireMapping(t *testing.T, path string) {
	t.Helper()
	f, err := openPath(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if r := f.Report(); !r.Mapped {
		require.Skip(t, "mmap", r.NotMapped)
	}
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		require.Skip(t, "little-endian", "a big-endian host copies them")
	}
}

func TestInspectHidesNoTensorThatWasCopied(t *testing.T) {
	path := writeTestFile(t, "odd.safetensors", oddFile())
	requireMapping(t, path)
	o := mustExecute(t, "inspect", path)
	requireTable(t, o,
		`name            dtype   shape  bytes  offset  mod 64  placement`,
		`odd             u8      \[37\]      37     512       0  zero-copy`,
		`weight          f32     \[2,1\]      8     549       0  realigned \(aligned to 1 in the file, needs 4\)`,
		`"a\\nb\\x1b\[31m"  i16     \[\]         2     557       0  realigned \(aligned to 1 in the file, needs 2\)`,
		`byte            bool    \[1\]        1     559      47  zero-copy`,
		`even            f64     \[1\]        8     560      48  zero-copy`,
		`none            f32     \[3,0\]      0     568       -  zero-copy`,
		`half            f4e2m1  \[6\]        3     568      56  zero-copy`,
		regexp.QuoteMeta(path)+`: 7 tensors \(59 bytes\); mapped; zero-copy 5 \(49 bytes\), realigned 2 \(10 bytes\)`,
	)
}

func TestInspectJSON(t *testing.T) {
	content := oddFile()
	path := writeTestFile(t, "odd.safetensors", content)
	requireMapping(t, path)
	doc := decode[inspected](t, mustExecute(t, "inspect", "--json", "--min-alignment=64", path))
	f := doc.Files[0]
	if !doc.OK || f.File != path || f.Size != int64(len(content)) || f.DataOffset != 512 || !f.Mapped || f.Metadata["by"] != "hand" {
		t.Errorf("got %+v", f)
	}
	if f.ZeroCopyTensors != 2 || f.RealignedTensors != 5 || f.ZeroCopyBytes+f.RealignedBytes != f.Bytes {
		t.Errorf("got %+v", f.summary)
	}
	if len(f.Items) != 7 {
		t.Fatalf("%d items", len(f.Items))
	}
	w := f.Items[1]
	if w.Name != "weight" || w.DType != fuel.F32 || len(w.Shape) != 2 || w.Len != 2 || w.Bytes != 8 || w.Offset != 549 ||
		w.Required != 64 || w.Found != 1 || w.AddressMod64 == nil || *w.AddressMod64 != 0 || w.Placement != "realigned" {
		t.Errorf("got %+v", w)
	}
	if e := f.Items[5]; e.Name != "none" || e.AddressMod64 != nil || e.Shape == nil {
		t.Errorf("got %+v", e)
	}
	if s := f.Items[2]; s.Name != "a\nb\x1b[31m" || s.Shape == nil || len(s.Shape) != 0 {
		t.Errorf("got %+v", s)
	}
}

func TestInspectOfManyFilesKeepsThemApart(t *testing.T) {
	a, b := writeTestFile(t, "a", plainFile(4, "U8")), writeTestFile(t, "b", plainFile(8, "F8_E4M3"))
	out := mustExecute(t, "inspect", a, b)
	if parts := strings.Split(out, "\n\n"); len(parts) != 2 || !strings.Contains(parts[0], "/a: 1 tensor (4 bytes)") && !strings.Contains(parts[0], `\a`) {
		t.Errorf("got %s", out)
	}
}
