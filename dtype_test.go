package fuel_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/go-fuel/fuel"
)

// dtypeFacts is the table of DType again, written down independently: a nil
// name or code means that the format has no such type.
var dtypeFacts = []struct {
	dtype       fuel.DType
	text, numpy string
	bits, align int
	is          string // properties: f float, i integer, s signed, c complex, b bool
	safetensors string
	ggml        int
	dlpack      int
}{
	{fuel.Bool, "bool", "", 8, 1, "b", "BOOL", -1, 6},
	{fuel.I8, "i8", "int8", 8, 1, "is", "I8", 24, 0},
	{fuel.I16, "i16", "int16", 16, 2, "is", "I16", 25, 0},
	{fuel.I32, "i32", "int32", 32, 4, "is", "I32", 26, 0},
	{fuel.I64, "i64", "int64", 64, 8, "is", "I64", 27, 0},
	{fuel.U8, "u8", "uint8", 8, 1, "i", "U8", -1, 1},
	{fuel.U16, "u16", "uint16", 16, 2, "i", "U16", -1, 1},
	{fuel.U32, "u32", "uint32", 32, 4, "i", "U32", -1, 1},
	{fuel.U64, "u64", "uint64", 64, 8, "i", "U64", -1, 1},
	{fuel.F16, "f16", "float16", 16, 2, "fs", "F16", 1, 2},
	{fuel.BF16, "bf16", "bfloat16", 16, 2, "fs", "BF16", 30, 4},
	{fuel.F32, "f32", "float32", 32, 4, "fs", "F32", 0, 2},
	{fuel.F64, "f64", "float64", 64, 8, "fs", "F64", 28, 2},
	{fuel.Complex64, "complex64", "", 64, 4, "cs", "C64", -1, 5},
	{fuel.Complex128, "complex128", "", 128, 8, "cs", "", -1, 5},
	{fuel.F8E3M4, "f8e3m4", "float8_e3m4", 8, 1, "fs", "", -1, 7},
	{fuel.F8E4M3, "f8e4m3", "float8_e4m3", 8, 1, "fs", "", -1, 8},
	{fuel.F8E4M3B11FNUZ, "f8e4m3b11fnuz", "float8_e4m3b11fnuz", 8, 1, "fs", "", -1, 9},
	{fuel.F8E4M3FN, "f8e4m3fn", "float8_e4m3fn", 8, 1, "fs", "F8_E4M3", -1, 10},
	{fuel.F8E4M3FNUZ, "f8e4m3fnuz", "float8_e4m3fnuz", 8, 1, "fs", "F8_E4M3FNUZ", -1, 11},
	{fuel.F8E5M2, "f8e5m2", "float8_e5m2", 8, 1, "fs", "F8_E5M2", -1, 12},
	{fuel.F8E5M2FNUZ, "f8e5m2fnuz", "float8_e5m2fnuz", 8, 1, "fs", "F8_E5M2FNUZ", -1, 13},
	{fuel.F8E8M0FNU, "f8e8m0fnu", "float8_e8m0fnu", 8, 1, "f", "F8_E8M0", -1, 14},
	{fuel.F8E6M2, "f8e6m2", "", 8, 1, "f", "", -1, -1},
	{fuel.F6E2M3, "f6e2m3", "float6_e2m3fn", 6, 1, "fs", "F6_E2M3", -1, 15},
	{fuel.F6E3M2, "f6e3m2", "float6_e3m2fn", 6, 1, "fs", "F6_E3M2", -1, 16},
	{fuel.F4E2M1, "f4e2m1", "float4_e2m1fn", 4, 1, "fs", "F4", -1, 17},
	{fuel.I4, "i4", "int4", 4, 1, "is", "", -1, 0},
	{fuel.I2, "i2", "int2", 2, 1, "is", "", -1, 0},
	{fuel.U4, "u4", "uint4", 4, 1, "i", "", -1, 1},
	{fuel.U2, "u2", "uint2", 2, 1, "i", "", -1, 1},
	{fuel.U1, "u1", "uint1", 1, 1, "i", "", -1, 1},
}

// validDTypes is found by trying all of them, so that a DType that the table
// above lacks does not go untested.
func validDTypes() []fuel.DType {
	var all []fuel.DType
	for d := range 256 {
		if fuel.DType(d).Valid() {
			all = append(all, fuel.DType(d))
		}
	}
	return all
}

func TestNoDTypeIsWithoutItsFacts(t *testing.T) {
	if got := len(validDTypes()); got != len(dtypeFacts) {
		t.Errorf("%d valid DTypes, %d in the table", got, len(dtypeFacts))
	}
	for _, f := range dtypeFacts {
		d := f.dtype
		has := func(p string) bool { return strings.Contains(f.is, p) }
		if d.String() != f.text || d.Bits() != f.bits || d.Align() != f.align {
			t.Errorf("%v: %d bits, alignment %d; want %s %d %d", d, d.Bits(), d.Align(), f.text, f.bits, f.align)
		}
		if d.IsFloat() != has("f") || d.IsInteger() != has("i") || d.IsSigned() != has("s") ||
			d.IsComplex() != has("c") || d.IsBool() != has("b") || d.IsSubByte() != (f.bits < 8) {
			t.Errorf("%v: float %v integer %v signed %v complex %v bool %v sub-byte %v; want %q", d,
				d.IsFloat(), d.IsInteger(), d.IsSigned(), d.IsComplex(), d.IsBool(), d.IsSubByte(), f.is)
		}
	}
}

func TestInvalidDTypeIsAnErrorEverywhere(t *testing.T) {
	for _, d := range []fuel.DType{0, fuel.U1 + 1, 255} {
		if d.Valid() || d.Bits() != 0 || d.Align() != 0 || d.IsFloat() || d.IsInteger() || d.IsSigned() ||
			d.IsComplex() || d.IsBool() || d.IsSubByte() {
			t.Errorf("%v has properties", d)
		}
		_, bytesErr := d.Bytes(0)
		_, lenErr := d.Len(0)
		_, textErr := d.MarshalText()
		_, parseErr := fuel.ParseDType(d.String())
		_, stErr := d.Safetensors()
		_, ggmlErr := d.GGML()
		_, dlErr := d.DLPack()
		for i, err := range []error{bytesErr, lenErr, textErr, parseErr, stErr, ggmlErr, dlErr} {
			if !errors.Is(err, fuel.ErrUnknownDType) {
				t.Errorf("%v: method %d: %v", d, i, err)
			}
		}
	}
}

func TestDTypeTextNeverChangesOnTheWay(t *testing.T) {
	for _, f := range dtypeFacts {
		for _, s := range []string{f.text, strings.ToUpper(f.text), f.numpy, strings.ToUpper(f.numpy)} {
			if s == "" {
				continue
			}
			if d, err := fuel.ParseDType(s); err != nil || d != f.dtype {
				t.Errorf("ParseDType(%q) = %v, %v", s, d, err)
			}
		}
		b, err := json.Marshal(map[string]fuel.DType{"d": f.dtype})
		if err != nil || string(b) != `{"d":"`+f.text+`"}` {
			t.Errorf("%v marshals to %s, %v", f.dtype, b, err)
		}
		var back map[string]fuel.DType
		if err := json.Unmarshal(b, &back); err != nil || back["d"] != f.dtype {
			t.Errorf("%s unmarshals to %v, %v", b, back["d"], err)
		}
	}
	d := fuel.F32
	if err := d.UnmarshalText([]byte("f33")); !errors.Is(err, fuel.ErrUnknownDType) || d != fuel.F32 {
		t.Errorf("after an error: %v, %v", d, err)
	}
}

// wantUnknown checks an error for a code that must not be guessed at.
func wantUnknown(t *testing.T, err error, format, code string) {
	t.Helper()
	var unknown *fuel.UnknownDTypeError
	if !errors.Is(err, fuel.ErrUnknownDType) || !errors.As(err, &unknown) {
		t.Errorf("%s %q: %v", format, code, err)
		return
	}
	if unknown.Format != format || !strings.Contains(unknown.Code, code) {
		t.Errorf("%s %q: error names %s %q", format, code, unknown.Format, unknown.Code)
	}
}

// ComfyUI-GGUF#21: a tensor of F8_E4M3 was taken for something else.
func TestUnknownCodeIsNeverGuessed(t *testing.T) {
	for _, s := range []string{"", "float", "f", "F8_E4M3", "f8_e4m3fn", "C64", "int", "f 32", "f32 ", "u3", "DType(1)", "invalid"} {
		_, err := fuel.ParseDType(s)
		wantUnknown(t, err, "text", s)
	}
	for _, s := range []string{"", "f32", "F8_E4M3FN", "F8_E3M4", "F8_E6M2", "F4_E2M1", "F6", "C128", "I4", "U4", "BOOL ", "bool", "FLOAT"} {
		_, err := fuel.DTypeFromSafetensors(s)
		wantUnknown(t, err, "safetensors", s)
	}
	for _, id := range []fuel.GGMLType{2, 4, 5, 8, 31, 32, 33, 36, 37, 38, 39, 42, 43, 256 + 24, 1<<31 + 24, math.MaxUint32} {
		_, err := id.DType()
		wantUnknown(t, err, "gguf", strconv.FormatUint(uint64(id), 10))
	}
	for _, dl := range []fuel.DLPackType{
		{0, 3, 1}, {0, 128, 1}, {2, 8, 1}, {2, 128, 1}, {3, 64, 1}, {4, 32, 1}, {5, 32, 1}, {6, 1, 1},
		{10, 4, 1}, {15, 8, 1}, {16, 8, 1}, {17, 8, 1}, {18, 8, 1}, {129, 8, 1}, {255, 8, 1}, {255, 0, 1},
		{2, 32, 0}, {2, 32, 4}, {17, 4, 2},
	} {
		_, err := dl.DType()
		wantUnknown(t, err, "dlpack", dl.String())
	}
}

func TestForeignTablesAreCompleteAndOneToOne(t *testing.T) {
	// All of enum Dtype in safetensors 0.8.0, and all of DLDataTypeCode in
	// DLPack 1.1 but the opaque handle.
	names := strings.Fields(`BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ
		I16 U16 F16 BF16 I32 U32 F32 C64 F64 I64 U64`)
	codes := map[uint8]bool{}

	fromName := map[string]fuel.DType{}
	fromDLPack := map[fuel.DLPackType]fuel.DType{}
	fromGGML := map[fuel.GGMLType]fuel.DType{}
	for _, f := range dtypeFacts {
		name, err := f.dtype.Safetensors()
		if f.safetensors == "" {
			wantUnknown(t, err, "safetensors", f.text)
		} else if err != nil || name != f.safetensors {
			t.Errorf("%v: safetensors %q, %v, want %q", f.dtype, name, err, f.safetensors)
		} else {
			fromName[name] = f.dtype
		}

		id, err := f.dtype.GGML()
		if f.ggml < 0 {
			wantUnknown(t, err, "gguf", f.text)
		} else if err != nil || int(id) != f.ggml {
			t.Errorf("%v: ggml %d, %v, want %d", f.dtype, id, err, f.ggml)
		} else {
			fromGGML[id] = f.dtype
		}

		dl, err := f.dtype.DLPack()
		if f.dlpack < 0 {
			wantUnknown(t, err, "dlpack", f.text)
		} else if want := (fuel.DLPackType{Code: uint8(f.dlpack), Bits: uint8(f.bits), Lanes: 1}); err != nil || dl != want {
			t.Errorf("%v: DLPack %v, %v, want %v", f.dtype, dl, err, want)
		} else {
			fromDLPack[dl] = f.dtype
			codes[dl.Code] = true
		}
	}

	if len(names) != len(fromName) {
		t.Errorf("safetensors has %d names, the DTypes %d", len(names), len(fromName))
	}
	for _, name := range names {
		if d, err := fuel.DTypeFromSafetensors(name); err != nil || d != fromName[name] {
			t.Errorf("safetensors %s: %v, %v, want %v", name, d, err, fromName[name])
		}
	}
	for code := range uint8(18) {
		if opaque := code == 3; codes[code] == opaque {
			t.Errorf("DLPack code %d: reached %v", code, codes[code])
		}
	}
	for code := range 256 {
		for bits := range 256 {
			for _, lanes := range []uint16{0, 1, 2, 257} {
				dl := fuel.DLPackType{Code: uint8(code), Bits: uint8(bits), Lanes: lanes}
				want, known := fromDLPack[dl]
				if d, err := dl.DType(); (err == nil) != known || d != want {
					t.Fatalf("DLPack %v: %v, %v, want %v", dl, d, err, want)
				}
			}
		}
	}
	for id := range fuel.GGMLType(300) {
		want, known := fromGGML[id]
		if d, err := id.DType(); (err == nil) != known || d != want {
			t.Errorf("ggml %d: %v, %v, want %v", id, d, err, want)
		}
	}
}

// bigBytes is ⌈n·bits/8⌉ without limits.
func bigBytes(n, bits int) *big.Int {
	v := new(big.Int).Mul(big.NewInt(int64(n)), big.NewInt(int64(bits)))
	return v.Rsh(v.Add(v, big.NewInt(7)), 3)
}

// interestingSizes are small numbers and those around which the size of some
// element type overflows an int of 32 or 64 bits.
func interestingSizes() []int {
	var sizes []int
	for n := range 130 {
		sizes = append(sizes, n, math.MaxInt-n)
	}
	for _, by := range []int{2, 3, 4, 6, 8, 16} {
		for n := -4; n <= 4; n++ {
			sizes = append(sizes, math.MaxInt/by+n)
		}
	}
	for shift := 10; shift < strconv.IntSize-1; shift++ {
		for n := -4; n <= 4; n++ {
			sizes = append(sizes, 1<<shift+n)
		}
	}
	return sizes
}

// candle#3816: 2^32 × 2^32 elements became 0. llama.cpp#18674, #26318:
// rounding up wrapped. tvm-ffi#475: the byte count of a large tensor wrapped
// to 0 where an int has 32 bits.
func TestBytesNeverWrap(t *testing.T) {
	for _, d := range validDTypes() {
		for _, n := range interestingSizes() {
			got, err := d.Bytes(n)
			want := bigBytes(n, d.Bits())
			if want.IsInt64() && want.Int64() <= math.MaxInt {
				if err != nil || int64(got) != want.Int64() {
					t.Fatalf("%d of %v: %d bytes, %v; want %v", n, d, got, err, want)
				}
			} else if !errors.Is(err, fuel.ErrOverflow) {
				t.Fatalf("%d of %v: %d bytes, %v; want ErrOverflow", n, d, got, err)
			}
		}
		if n, err := d.Bytes(1 << (strconv.IntSize - 4)); d.Bits() == 128 && err == nil {
			t.Errorf("%v: wrapped to %d", d, n)
		}
	}
}

func TestNegativeSizesAreOverflow(t *testing.T) {
	for _, d := range validDTypes() {
		for _, n := range []int{-1, -7, -8, math.MinInt, math.MinInt + 1} {
			if got, err := d.Bytes(n); !errors.Is(err, fuel.ErrOverflow) {
				t.Errorf("%v.Bytes(%d) = %d, %v", d, n, got, err)
			}
			if got, err := d.Len(n); !errors.Is(err, fuel.ErrOverflow) {
				t.Errorf("%v.Len(%d) = %d, %v", d, n, got, err)
			}
		}
	}
}

func TestBrokenElementsAreNeverRoundedAway(t *testing.T) {
	for _, d := range validDTypes() {
		for _, bytes := range interestingSizes() {
			n, err := d.Len(bytes)
			bits := new(big.Int).Lsh(big.NewInt(int64(bytes)), 3)
			want, rest := new(big.Int).QuoRem(bits, big.NewInt(int64(d.Bits())), new(big.Int))
			switch {
			case rest.Sign() != 0:
				if !errors.Is(err, fuel.ErrMismatch) {
					t.Fatalf("%d bytes of %v: %d, %v; want ErrMismatch", bytes, d, n, err)
				}
			case !want.IsInt64() || want.Int64() > math.MaxInt:
				if !errors.Is(err, fuel.ErrOverflow) {
					t.Fatalf("%d bytes of %v: %d, %v; want ErrOverflow", bytes, d, n, err)
				}
			default:
				if err != nil || int64(n) != want.Int64() {
					t.Fatalf("%d bytes of %v: %d, %v; want %v", bytes, d, n, err, want)
				}
				if back, err := d.Bytes(n); err != nil || back != bytes {
					t.Fatalf("%d bytes of %v: %d elements take %d bytes, %v", bytes, d, n, back, err)
				}
			}
		}
	}
}

// safetensors#839, #840: an odd number of F4 lost its last element.
func TestOddCountsOfNarrowElementsAreNotCutOff(t *testing.T) {
	for _, c := range []struct {
		d        fuel.DType
		n, bytes int
	}{
		{fuel.F4E2M1, 1, 1}, {fuel.F4E2M1, 2, 1}, {fuel.F4E2M1, 3, 2}, {fuel.F4E2M1, 7, 4},
		{fuel.U1, 1, 1}, {fuel.U1, 8, 1}, {fuel.U1, 9, 2}, {fuel.I2, 5, 2},
		{fuel.F6E2M3, 1, 1}, {fuel.F6E2M3, 2, 2}, {fuel.F6E2M3, 3, 3}, {fuel.F6E2M3, 4, 3}, {fuel.F6E3M2, 5, 4},
		{fuel.F32, 0, 0}, {fuel.U1, 0, 0},
	} {
		if got, err := c.d.Bytes(c.n); err != nil || got != c.bytes {
			t.Errorf("%d of %v: %d bytes, %v, want %d", c.n, c.d, got, err, c.bytes)
		}
	}
}

// pytorch#148791: nobody could tell how two float4 share a byte. So the table
// in the documentation must have every DType with its bits and text, and say
// how elements are packed.
func TestDocumentationLeavesNoDTypeUnexplained(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "dtype.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	doc := ""
	for _, decl := range file.Decls {
		if g, ok := decl.(*ast.GenDecl); ok && g.Tok == token.TYPE && g.Specs[0].(*ast.TypeSpec).Name.Name == "DType" {
			doc = g.Doc.Text()
		}
	}
	rows := map[string]string{}
	for line := range strings.Lines(doc) {
		if f := strings.Fields(line); len(f) >= 4 {
			rows[f[2]] = f[1]
		}
	}
	for _, d := range validDTypes() {
		if rows[d.String()] != strconv.Itoa(d.Bits()) {
			t.Errorf("%v: documentation says %q bits, want %d", d, rows[d.String()], d.Bits())
		}
	}
	for _, phrase := range []string{"low bits first", "padding and zero"} {
		if !strings.Contains(doc, phrase) {
			t.Errorf("documentation does not say %q", phrase)
		}
	}
}
