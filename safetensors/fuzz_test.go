package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/metrics"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-fuel/fuel"
)

// heapAllocated returns the bytes allocated on the Go heap so far, but for
// small ones that are not counted yet.
func heapAllocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// FuzzParse: no bytes make a panic, none make more memory than in proportion
// to their number, and a file that is taken is one for encoding/json too and
// survives being written and read.
func FuzzParse(f *testing.F) { // candle#3533, #3713; executorch#19055; CVE-2025-66960
	goldens, err := filepath.Glob(filepath.Join("testdata", "golden", "*"))
	if err != nil || len(goldens) == 0 {
		f.Fatal("no golden files", err)
	}
	for _, path := range goldens {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{})
	f.Add(zeros(headerOf(entryOf("a", "U8", "3", 0, 3), entryOf("b", "F32", "", 3, 7), entryOf("c", "F4", "0", 7, 7)), 7))
	f.Add(zeros(`{"a":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0],"x":[{},-1.5e3,null,"\ud83d\ude00"]}}`, 0))
	f.Fuzz(holds)
}

// FuzzHeader is FuzzParse of what is harder to come by: a header whose length
// is right, and n bytes of data.
func FuzzHeader(f *testing.F) {
	f.Add(headerOf(entryOf("a", "U8", "3", 0, 3), entryOf("b", "F32", "", 3, 7), entryOf("c", "F4", "0", 7, 7))+"  ", uint16(7))
	f.Add(`{"a":{"dtype":"BF16","shape":[0,4294967296],"data_offsets":[0,0],"x":[{},-1.5e3,null,"\ud83d\ude00"]},"__metadata__":{"k":"v"}}`, uint16(0))
	f.Fuzz(func(t *testing.T, header string, n uint16) { holds(t, fileOf(header, counting(int(n)))) })
}

// holds is what must be true of any bytes.
func holds(t *testing.T, b []byte) {
	noLeaks(t)
	before := heapAllocated()
	h, err := parse(b)
	if n := heapAllocated() - before; n > 1<<20+200*uint64(len(b)) {
		t.Errorf("%d bytes allocated for %d", n, len(b))
	}
	if err != nil {
		_ = err.Error()
		if _, err := FromBytes(b, nil); err == nil {
			t.Error("FromBytes takes what Parse does not")
		}
		return
	}
	n := binary.LittleEndian.Uint64(b)
	if text := b[8 : 8+n]; !json.Valid(text) || !utf8.Valid(text) || text[0] != '{' {
		t.Errorf("taken, and it is no JSON: %q", text)
	}
	for _, open := range []func() (*File, error){
		func() (*File, error) { return FromBytes(b, nil) },
		func() (*File, error) { return Wrap(b, nil, &Options{MinAlignment: 16}) },
		func() (*File, error) { return wrap(b, nil, nil, true) },
	} {
		first, err := open()
		if err != nil {
			t.Fatal("Parse takes it, and not:", err)
		}
		tensors, err := first.Tensors()
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := Write(&out, tensors, h.Metadata()); err != nil {
			t.Fatal(err)
		}
		second, err := FromBytes(out.Bytes(), nil)
		if err != nil {
			t.Fatal(err)
		}
		requireSame(t, first, second)
		for _, x := range tensors {
			closeAll(t, x.Data)
		}
		closeAll(t, first, second)
	}
	sum := int64(0)
	for info := range h.All() {
		size, err := info.DType.Bytes(info.Len)
		if err != nil || size != info.Bytes || info.Offset != h.DataOffset()+sum {
			t.Errorf("%+v: %d bytes, %v", info, size, err)
		}
		sum += int64(info.Bytes)
	}
	if h.DataOffset()+sum != int64(len(b)) {
		t.Errorf("%d bytes of data in a file of %d", sum, len(b))
	}
}

// FuzzWrite: names and texts of all kinds come back as they were, or are
// refused before anything is written.
func FuzzWrite(f *testing.F) {
	f.Add("name", "key", "value")
	f.Add("\"\\/\b\f\n\r\t\x00\x7f\u2028\U0001F600", "", "\xff")
	f.Add("__metadata__", "__metadata__", "__metadata__")
	f.Fuzz(func(t *testing.T, name, key, value string) {
		s, err := fuel.FromBytes(cpuDevice, fuel.U8, counting(3))
		if err != nil {
			t.Fatal(err)
		}
		defer closeAll(t, s)
		var out bytes.Buffer
		err = Write(&out, []Tensor{{name, []int{3}, s}}, map[string]string{key: value})
		if good := utf8.ValidString(name+"|"+key+"|"+value) && name != metadataName; good != (err == nil) {
			t.Fatalf("%q %q %q: %v", name, key, value, err)
		}
		if err != nil {
			if out.Len() != 0 || strings.Contains(err.Error(), "\x00") {
				t.Errorf("%d bytes are written, %v", out.Len(), err)
			}
			return
		}
		h, err := parse(out.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if got := h.Names(); len(got) != 1 || got[0] != name || h.Metadata()[key] != value {
			t.Errorf("%q, %q", got, h.Metadata())
		}
	})
}
