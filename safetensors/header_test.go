package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-fuel/fuel"
)

// fileOf is a file with the given header text and data.
func fileOf(header string, data []byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), data...)
}

// zeros is a file with the given header text and n bytes of data.
func zeros(header string, n int) []byte { return fileOf(header, make([]byte, n)) }

func parse(b []byte) (*Header, error) { return Parse(bytes.NewReader(b), int64(len(b))) }

// entryOf is one entry of a header.
func entryOf(name, dtype, shape string, begin, end int) string {
	return fmt.Sprintf(`"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}`, name, dtype, shape, begin, end)
}

func headerOf(entries ...string) string { return "{" + strings.Join(entries, ",") + "}" }

func deep(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func TestParseReadsEveryField(t *testing.T) {
	header := ` {"b":{"shape":[2,3],"data_offsets":[4,28],"dtype":"F32"},
		"__metadata__" : { "k" : "v\u00e9\ud83d\ude00\/" } , "a":{"dtype":"\u004932","shape":[],"data_offsets":[0,4]}}   `[1:]
	h, err := parse(zeros(header, 28))
	if err != nil {
		t.Fatal(err)
	}
	if got := h.Names(); !slices.Equal(got, []string{"a", "b"}) || h.Len() != 2 {
		t.Errorf("names %q, Len %d", got, h.Len())
	}
	if got := h.Metadata(); !maps.Equal(got, map[string]string{"k": "vé😀/"}) {
		t.Errorf("metadata %q", got)
	}
	start := int64(8 + len(header))
	if h.DataOffset() != start || h.Size() != start+28 {
		t.Errorf("DataOffset %d, Size %d", h.DataOffset(), h.Size())
	}
	want := []Info{
		{Name: "a", DType: fuel.I32, Shape: []int{}, Len: 1, Offset: start, Bytes: 4},
		{Name: "b", DType: fuel.F32, Shape: []int{2, 3}, Len: 6, Offset: start + 4, Bytes: 24},
	}
	i := 0
	for got := range h.All() {
		named, ok := h.Info(got.Name)
		if s := fmt.Sprintf("%#v", want[i]); fmt.Sprintf("%#v", got) != s || fmt.Sprintf("%#v", named) != s || !ok {
			t.Errorf("All gave %#v, Info %#v, want %s", got, named, s)
		}
		i++
	}
	for range h.All() {
		break
	}
	if _, ok := h.Info("__metadata__"); ok {
		t.Error("the metadata counts as a tensor")
	}
}

// What callers get is theirs: changing it does not change the Header.
func TestHeaderCannotBeChangedThroughItsResults(t *testing.T) {
	h, err := parse(zeros(headerOf(`"__metadata__":{"k":"v"}`, entryOf("a", "U8", "2,2", 0, 4)), 4))
	if err != nil {
		t.Fatal(err)
	}
	h.Names()[0] = "x"
	h.Metadata()["k"] = "x"
	info, _ := h.Info("a")
	info.Shape[0] = 9
	if info, _ := h.Info("a"); info.Shape[0] != 2 || h.Names()[0] != "a" || h.Metadata()["k"] != "v" {
		t.Errorf("changed: %v %v %v", info, h.Names(), h.Metadata())
	}
}

// Each of these is valid, and the reference implementation takes it as well.
func TestParseTakes(t *testing.T) {
	for _, c := range []struct {
		name, header string
		data         int
	}{
		{"nothing", `{}`, 0},
		{"only metadata", `{"__metadata__":{"a":"b"}}`, 0},
		{"metadata null", `{"__metadata__":null}`, 0},
		{"empty metadata", `{"__metadata__":{}}`, 0},
		{"padding", `{}      `, 0},
		{"white space inside", "{\n\t\r \"a\" : {\"dtype\":\"F32\" ,\"shape\":[ 1 ],\n\"data_offsets\":[0 , 4]} }  ", 4},
		{"unknown keys", `{"a":{"x":[{"y":[1,-0.5e+3,true,false,null,"\n"],"z":{}},{"y":0}],"dtype":"F32","shape":[1],"data_offsets":[0,4],"w":""}}`, 4},
		{"unknown key as deep as may be", `{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":` + deep(125) + `}}`, 4},
		{"empty name", headerOf(entryOf("", "U8", "1", 0, 1)), 1},
		{"zero in a name", headerOf(entryOf(`\u0000`, "U8", "1", 0, 1)), 1},
		{"rank 0", headerOf(entryOf("a", "F64", "", 0, 8)), 8},
		{"rank 9", headerOf(entryOf("a", "U8", "1,1,1,1,2,1,1,1,1", 0, 2)), 2},
		{"two empty tensors at one place", headerOf(entryOf("a", "F32", "0", 0, 0), entryOf("b", "I8", "2,0", 0, 0)), 0},
		{"empty tensor between", headerOf(entryOf("a", "F32", "1", 0, 4), entryOf("b", "F32", "0", 4, 4), entryOf("c", "U8", "1", 4, 5)), 5},
		{"empty whatever the rest", headerOf(entryOf("a", "F64", fmt.Sprintf("0,%d,%d", math.MaxInt, math.MaxInt), 0, 0)), 0},
		{"even F4", headerOf(entryOf("a", "F4", "3,2", 0, 3)), 3},
		{"four F6", headerOf(entryOf("a", "F6_E2M3", "4", 0, 3)), 3},
		{"order of names and data differ", headerOf(entryOf("a", "U8", "1", 2, 3), entryOf("b", "U8", "2", 0, 2)), 3},
		{"delete in a name", headerOf(entryOf("\x7f", "U8", "1", 0, 1)), 1},
	} {
		if _, err := parse(zeros(c.header, c.data)); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Each of these breaks a rule. at is the text that the error's offset must
// point to; "$" is the end of the file.
func TestParseRefuses(t *testing.T) {
	plain := entryOf("a", "F32", "1", 0, 4)
	with := func(old, new string) string { return headerOf(strings.Replace(plain, old, new, 1)) }
	for _, c := range []struct {
		name, header string
		data         int
		at           string
		want         error
	}{
		{"no header", ``, 0, "$", nil},
		{"not JSON", `{`, 0, "$", nil},
		{"an array", `[]`, 0, "[", nil},
		{"space before", ` {}`, 0, " {", nil},
		{"byte order mark", "\ufeff{}", 0, "\ufeff", nil},
		{"line feed after", "{}\n", 0, "\n", nil},
		{"zero after", "{}\x00", 0, "\x00", nil},
		{"two values", "{} {}", 0, "{}", nil},
		{"not UTF-8", "{\"a\xff\":1}", 0, "\xff", nil},
		{"UTF-8 of a surrogate", "{\"\xed\xa0\x80\":1}", 0, "\xed", nil},
		{"overlong UTF-8", "{\"\xc0\x80\":1}", 0, "\xc0", nil},
		{"comma at the end", headerOf(plain + ","), 4, "}", nil},
		{"comma first", headerOf("," + plain), 4, ",", nil},
		{"no comma", headerOf(plain + entryOf("b", "F32", "0", 4, 4)), 4, `"b"`, nil},
		{"no colon", `{"a"{}}`, 0, "{}", nil},
		{"key without quotes", `{a:1}`, 0, "a", nil},
		{"raw control character", headerOf(entryOf("\x01", "U8", "1", 0, 1)), 1, "\x01", nil},
		{"raw control character after an escape", headerOf(entryOf("\\n\x1f", "U8", "1", 0, 1)), 1, "\x1f", nil},
		{"unknown escape", headerOf(entryOf(`\q`, "U8", "1", 0, 1)), 1, `\q`, nil},
		{"short escape", `{"\u00e`, 0, `\u`, nil},
		{"bad escape", `{"\u00g0":1}`, 0, `\u`, nil},
		{"ends in an escape", `{"\`, 0, `\`, nil},
		{"high surrogate alone", headerOf(entryOf(`\ud83d`, "U8", "1", 0, 1)), 1, `":{`, nil},
		{"two high surrogates", headerOf(entryOf(`\ud83d\ud83d`, "U8", "1", 0, 1)), 1, `":{`, nil},
		{"low surrogate alone", headerOf(entryOf(`\ude00`, "U8", "1", 0, 1)), 1, `":{`, nil},
		{"string without end", `{"abc`, 0, "$", nil},
		{"entry is a list", `{"a":["F32",[1],[0,4]]}`, 4, `["F32"`, nil},
		{"entry is null", `{"a":null}`, 0, `null`, nil},
		{"no dtype", `{"a":{"shape":[1],"data_offsets":[0,4]}}`, 4, `"a"`, nil},
		{"no shape", `{"a":{"dtype":"F32","data_offsets":[0,4]}}`, 4, `"a"`, nil},
		{"no data_offsets", `{"a":{"dtype":"F32","shape":[1]}}`, 4, `"a"`, nil},
		{"dtype twice", with(`"dtype":"F32"`, `"dtype":"F32","dtype":"F32"`), 4, `"dtype":"F32","shape"`, nil},
		{"shape twice", with(`"shape":[1]`, `"shape":[1],"shape":[1]`), 4, `"shape":[1],"data`, nil},
		{"data_offsets twice", with(`]}`, `],"data_offsets":[0,4]}`), 4, `"data_offsets":[0,4]}`, nil},
		{"unknown key twice", with(`]}`, `],"x":1,"y":2,"\u0078":3}`), 4, `"\u0078"`, nil},
		{"unknown key twice further inside", with(`]}`, `],"x":{"p":1,"q":{"r":1,"r":2}}}`), 4, `"r":2`, nil},
		{"metadata twice", `{"__metadata__":{},"__metadata__":{}}`, 0, `"__metadata__":{}}`, nil},
		{"metadata null and again", `{"__metadata__":null,"__metadata__":{}}`, 0, `"__metadata__":{}}`, nil},
		{"metadata key twice", `{"__metadata__":{"a":"b","a":"c"}}`, 0, `"a":"c"`, nil},
		{"metadata with a number", `{"__metadata__":{"a":1}}`, 0, `1}}`, nil},
		{"metadata with an object", `{"__metadata__":{"a":{}}}`, 0, `{}}`, nil},
		{"metadata is a string", `{"__metadata__":"x"}`, 0, `"x"`, nil},
		{"metadata is a tensor", headerOf(entryOf("__metadata__", "F32", "1", 0, 4)), 4, `[1]`, nil},
		{"unknown dtype", with("F32", "Q9"), 4, `"Q9"`, fuel.ErrUnknownDType},
		{"dtype in lower case", with("F32", "f32"), 4, `"f32"`, fuel.ErrUnknownDType},
		{"dtype is null", with(`"F32"`, `null`), 4, `null`, nil},
		{"dtype is an object", with(`"F32"`, `{"F32":null}`), 4, `{"F32"`, nil},
		{"shape is null", with(`[1]`, `null`), 4, `null`, nil},
		{"shape is a number", with(`[1]`, `1`), 4, `1,`, nil},
		{"shape with a fraction", with(`[1]`, `[1.0]`), 4, `.0]`, nil},
		{"shape with an exponent", with(`[1]`, `[1e0]`), 4, `e0]`, nil},
		{"shape with a sign", with(`[1]`, `[-1]`), 4, `-1]`, nil},
		{"minus zero", with(`[0,4]`, `[-0,4]`), 4, `-0`, nil},
		{"plus", with(`[1]`, `[+1]`), 4, `+1`, nil},
		{"zero before", with(`[1]`, `[01]`), 4, `01]`, nil},
		{"shape with a string", with(`[1]`, `["1"]`), 4, `"1"`, nil},
		{"shape of lists", with(`[1]`, `[[1]]`), 4, `[1]]`, nil},
		{"shape with a comma at the end", with(`[1]`, `[1,]`), 4, `],"data`, nil},
		{"dimension above int64", with(`[1]`, `[0,9223372036854775808]`), 4, `9223372036854775808`, fuel.ErrOverflow},
		{"dimension above uint64", with(`[1]`, `[0,99999999999999999999999]`), 4, `99999999999999999999999`, fuel.ErrOverflow},
		{"one offset", with(`[0,4]`, `[0]`), 4, `[0]`, nil},
		{"three offsets", with(`[0,4]`, `[0,4,4]`), 4, `4]}`, nil},
		{"no offsets", with(`[0,4]`, `[]`), 4, `[]`, nil},
		{"offsets backwards", with(`[0,4]`, `[4,0]`), 4, `[4,0]`, nil},
		{"offset above int64", with(`[0,4]`, `[0,9223372036854775808]`), 4, `9223372036854775808`, fuel.ErrOverflow},
		{"unknown value nests too deep", with(`]}`, `],"x":`+deep(126)+`}`), 4, `[]` + strings.Repeat("]", 125), nil},
		{"unknown number too large", with(`]}`, `],"x":1e999}`), 4, `1e999`, nil},
		{"unknown number bad", with(`]}`, `],"x":1.}`), 4, `}}`, nil},
		{"unknown number bad too", with(`]}`, `],"x":-}`), 4, `}}`, nil},
		{"unknown number bad as well", with(`]}`, `],"x":1e}`), 4, `}}`, nil},
		{"unknown value bad", with(`]}`, `],"x":nil}`), 4, `nil`, nil},
		{"too few bytes for the shape", with(`[1]`, `[2]`), 4, `"a"`, nil},
		{"too many bytes for the shape", with(`[1]`, `[0]`), 4, `"a"`, nil},
		{"odd F4", headerOf(entryOf("a", "F4", "3", 0, 2)), 2, `"a"`, ErrSubByte},
		{"two F6", headerOf(entryOf("a", "F6_E3M2", "2", 0, 2)), 2, `"a"`, ErrSubByte},
		{"product overflows before a zero", headerOf(entryOf("a", "U8", fmt.Sprintf("%d,2,0", math.MaxInt), 0, 0)), 0, `"a"`, fuel.ErrOverflow},
	} {
		b := zeros(c.header, c.data)
		_, err := parse(b)
		f, ok := errors.AsType[*FormatError](err)
		if !ok || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: got %v", c.name, err)
			continue
		}
		at := int64(len(b))
		if c.at != "$" {
			at = int64(bytes.Index(b[8:], []byte(c.at)) + 8)
		}
		if strings.Trim(c.at, "{}") == "" { // the last ones
			at = int64(bytes.LastIndex(b, []byte(c.at)))
		}
		if f.Offset != at {
			t.Errorf("%s: offset %d, want %d: %v", c.name, f.Offset, at, err)
		}
		if strings.HasPrefix(c.header, `{"a":{"dtype"`) && f.Tensor != "a" && c.name != "no comma" && c.name != "comma at the end" {
			t.Errorf("%s: tensor %q: %v", c.name, f.Tensor, err)
		}
	}
}

func TestTruncatedFileIsNotTaken(t *testing.T) { // safetensors readers, llama.cpp#6774
	whole := zeros(headerOf(entryOf("a", "F32", "4", 0, 16)), 16)
	for n := range whole {
		_, err := parse(whole[:n])
		want := int64(len(whole))
		switch {
		case n < 8:
			want = 8
		case n < len(whole)-16:
			want -= 16
		}
		e, ok := errors.AsType[*fuel.TruncatedError](err)
		if !errors.Is(err, fuel.ErrTruncated) || !ok || e.Want != want || e.Have != int64(n) {
			t.Fatalf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
	// A reader that has less than it was said to have.
	for _, have := range []int{0, 5, 8, 20} {
		_, err := Parse(bytes.NewReader(whole[:have]), int64(len(whole)))
		if e, ok := errors.AsType[*fuel.TruncatedError](err); !ok || e.Have != int64(have) {
			t.Errorf("reader with %d bytes: %v", have, err)
		}
	}
	if _, err := Parse(bytes.NewReader(whole), -1); !errors.Is(err, fuel.ErrTruncated) {
		t.Errorf("size -1: %v", err)
	}
	late := zeros(headerOf(entryOf("a", "U8", fmt.Sprint(math.MaxInt), 0, math.MaxInt)), 0)
	if _, err := parse(late); !errors.Is(err, fuel.ErrTruncated) && !errors.Is(err, fuel.ErrOverflow) {
		t.Errorf("largest tensor: %v", err)
	}
}

type failingReader struct{ after int64 }

var errReader = errors.New("reader failed")

func (r failingReader) ReadAt(p []byte, off int64) (int, error) {
	if off >= r.after {
		return 0, errReader
	}
	clear(p)
	copy(p, []byte{2})
	return len(p), nil
}

func TestErrorsOfTheReaderAreNotHidden(t *testing.T) {
	for _, after := range []int64{0, 8} {
		if _, err := Parse(failingReader{after}, 100); err != errReader {
			t.Errorf("after %d bytes: %v", after, err)
		}
	}
}

func TestTrailingBytesAreNotIgnored(t *testing.T) {
	b := append(zeros(headerOf(entryOf("a", "F32", "1", 0, 4)), 4), "polyglot"...)
	_, err := parse(b)
	if f, ok := errors.AsType[*FormatError](err); !ok || f.Offset != int64(len(b)-8) {
		t.Errorf("got %v", err)
	}
}

func TestHeaderLengthIsNotTrusted(t *testing.T) {
	for _, n := range []uint64{MaxHeader + 1, 1 << 32, 1 << 63, math.MaxUint64} {
		b := append(binary.LittleEndian.AppendUint64(nil, n), "{}"...)
		if _, err := parse(b); !errors.Is(err, fuel.ErrTooLarge) {
			t.Errorf("length %d: %v", n, err)
		}
	}
	b := append(binary.LittleEndian.AppendUint64(nil, MaxHeader), "{}"...)
	if _, err := parse(b); !errors.Is(err, fuel.ErrTruncated) {
		t.Errorf("length %d: %v", MaxHeader, err)
	}
}

func TestShapeProductDoesNotWrap(t *testing.T) { // candle#3816
	for _, shape := range []string{
		"4294967296,4294967296",
		"4294967296,4294967296,0",
		"2,9223372036854775807",
		"2305843009213693952", // × 8 bytes = 2^64
		"3,6148914691236517206",
		"65536,65536,65536,65536",
	} {
		_, err := parse(zeros(headerOf(entryOf("a", "F64", shape, 0, 0)), 0))
		f, ok := errors.AsType[*FormatError](err)
		if !errors.Is(err, fuel.ErrOverflow) || !ok || f.Tensor != "a" {
			t.Errorf("[%s]: %v", shape, err)
		}
	}
}

func TestOffsetsOutsideTheDataAreNotRead(t *testing.T) { // mlx#3363, mlx#3358
	for _, c := range []struct {
		name    string
		entries []string
		tensor  string
	}{
		{"ends past the data", []string{entryOf("a", "F32", "4", 0, 16)}, ""},
		{"begins past the data", []string{entryOf("a", "F32", "1", 100, 104)}, "a"},
		{"far past it", []string{entryOf("a", "U8", "4", math.MaxInt-4, math.MaxInt)}, "a"},
		{"hole at the start", []string{entryOf("a", "F32", "1", 4, 8)}, "a"},
		{"hole between", []string{entryOf("a", "U8", "2", 0, 2), entryOf("b", "U8", "4", 4, 8)}, "b"},
		{"overlap", []string{entryOf("a", "U8", "5", 0, 5), entryOf("b", "U8", "4", 4, 8)}, "b"},
		{"one inside the other", []string{entryOf("a", "U8", "8", 0, 8), entryOf("b", "U8", "2", 2, 4)}, "b"},
		{"the same bytes twice", []string{entryOf("a", "U8", "8", 0, 8), entryOf("a2", "U8", "8", 0, 8)}, "a"},
		{"empty one inside", []string{entryOf("a", "U8", "8", 0, 8), entryOf("b", "U8", "0", 4, 4)}, "b"},
		{"hole at the end", []string{entryOf("a", "U8", "7", 0, 7)}, ""},
		{"empty one after the end", []string{entryOf("a", "U8", "8", 0, 8), entryOf("b", "U8", "0", 9, 9)}, "b"},
		{"nothing there", nil, ""},
	} {
		for range 2 {
			_, err := parse(zeros(headerOf(c.entries...), 8))
			f, ok := errors.AsType[*FormatError](err)
			if !ok || strings.TrimRight(f.Tensor, "2") != c.tensor {
				t.Errorf("%s: %v", c.name, err)
			}
			slices.Reverse(c.entries)
		}
	}
}

func TestDuplicateTensorIsNamed(t *testing.T) { // safetensors#401
	header := headerOf(entryOf("a", "U8", "1", 0, 1), entryOf("b", "U8", "1", 1, 2), entryOf(`\u0061`, "U8", "1", 0, 1))
	_, err := parse(zeros(header, 2))
	d, ok := errors.AsType[*DuplicateTensorError](err)
	if !ok || d.Name != "a" || d.Offset != int64(8+strings.Index(header, `"\u0061"`)) {
		t.Errorf("got %v", err)
	}
}

func TestUnknownDTypeIsNamed(t *testing.T) { // ComfyUI-GGUF#21
	_, err := parse(zeros(headerOf(entryOf("a", "F8_E9M9", "4", 0, 4)), 4))
	u, ok := errors.AsType[*fuel.UnknownDTypeError](err)
	f, ok2 := errors.AsType[*FormatError](err)
	if !errors.Is(err, fuel.ErrUnknownDType) || !ok || !ok2 || u.Code != "F8_E9M9" || u.Format != "safetensors" || f.Tensor != "a" {
		t.Errorf("got %v", err)
	}
}

// The codes of safetensors 0.8.0 with their sizes in bits, copied from its
// source by hand.
var codeBits = map[string]int{
	"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
	"F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32,
	"F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}

func TestEveryDTypeOfTheFormatIsKnown(t *testing.T) {
	for code, n := range codeBits {
		h, err := parse(zeros(headerOf(entryOf("a", code, "8", 0, n)), n))
		if err != nil {
			t.Errorf("%s: %v", code, err)
			continue
		}
		info, _ := h.Info("a")
		if info.DType.Bits() != n || info.Len != 8 || info.Bytes != n {
			t.Errorf("%s: %+v", code, info)
		}
		if got, err := info.DType.Safetensors(); got != code || err != nil {
			t.Errorf("%s is written as %q, %v", code, got, err)
		}
	}
}

func TestOddF4IsNotTruncated(t *testing.T) { // safetensors#839, #840, #783
	for n := range 9 {
		_, err := parse(zeros(headerOf(entryOf("a", "F4", fmt.Sprint(n), 0, (n+1)/2)), (n+1)/2))
		if odd := n%2 == 1; odd != errors.Is(err, ErrSubByte) || !odd && err != nil {
			t.Errorf("%d: %v", n, err)
		}
	}
}

// Errors of hostile names and shapes stay short.
func TestHostileNameDoesNotFloodTheError(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, header := range []string{
		headerOf(entryOf(long, "Q", "1", 0, 1)),
		headerOf(entryOf("a", long, "1", 0, 1)),
		headerOf(entryOf("a", "U8", "1"+strings.Repeat(",1", 1<<20), 0, 7)),
		headerOf(entryOf(long, "U8", "0", 0, 0), entryOf(long, "U8", "0", 0, 0)),
		`{"__metadata__":{"` + long + `":"","` + long + `":""}}`,
	} {
		if _, err := parse(zeros(header, 1)); err == nil || len(err.Error()) > 1000 {
			t.Errorf("%.40s…: %.200v", header, err)
		}
	}
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestHostileHeaderDoesNotAllocate(t *testing.T) { // candle#3533, #3713, #3714
	huge := fmt.Sprint(math.MaxInt)
	for _, b := range [][]byte{
		append(binary.LittleEndian.AppendUint64(nil, MaxHeader), "{}"...),
		zeros(headerOf(entryOf("a", "U8", huge, 0, math.MaxInt)), 0),
		zeros(headerOf(entryOf("a", "U8", "0,"+huge+","+huge, 0, 0)), 0),
	} {
		if n := allocated(func() { parse(b) }); n > 64<<10 {
			t.Errorf("%q: %d bytes allocated", b, n)
		}
	}
	// The densest headers: what is allocated stays in proportion.
	const n = 1 << 20
	for name, header := range map[string]string{
		"dimensions": headerOf(entryOf("a", "U8", "0"+strings.Repeat(",1", n/2), 0, 0)),
		"metadata":   `{"__metadata__":{` + strings.Join(numbered(n/10, `"%d":""`), ",") + `}}`,
		"tensors":    headerOf(numbered(n/60, `"%d":{"dtype":"U8","shape":[],"data_offsets":[0,1]}`)...),
		"empties":    headerOf(numbered(n/60, `"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`)...),
		"objects":    `{"a":{"x":[` + strings.TrimSuffix(strings.Repeat(`{"":0},`, n/7), ",") + `]}}`,
		"keys":       `{"a":{"x":{` + strings.Join(numbered(n/10, `"%d":0`), ",") + `}}}`,
		"escapes":    headerOf(entryOf(strings.Repeat(`\u0041`, n/6), "U8", "0", 0, 0)),
	} {
		b := zeros(header, 0)
		if got := allocated(func() { parse(b) }); got > 64*uint64(len(b)) {
			t.Errorf("%s: %d bytes allocated for a header of %d", name, got, len(b))
		}
	}
}

func numbered(n int, format string) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(format, i)
	}
	return list
}

// bigHeader is the header of n tensors of four bytes, shuffled.
func bigHeader(n int) string {
	entries := make([]string, n)
	for i := range entries {
		j := i * 7919 % n
		entries[i] = entryOf(fmt.Sprintf("model.layers.%d.weight", j), "F32", "1", 4*j, 4*j+4)
	}
	return headerOf(entries...)
}

func TestManyTensorsDoNotTakeQuadraticTime(t *testing.T) { // llama.cpp#19856
	const n = 100_000
	b := zeros(bigHeader(n), 4*n)
	within(t, time.Second, func() {
		h, err := parse(b)
		if err != nil || h.Len() != n {
			t.Fatal(err)
		}
		h.Names()
	})
	// Each name, key and place once more, at the very end.
	again := zeros(strings.TrimSuffix(bigHeader(n), "}")+","+entryOf("model.layers.0.weight", "F32", "1", 0, 4)+"}", 4*n)
	within(t, time.Second, func() {
		if _, err := parse(again); err == nil {
			t.Error("a duplicate among many is taken")
		}
	})
}

var _ io.ReaderAt = failingReader{}
