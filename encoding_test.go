package fuel_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-fuel/fuel"
)

type ggmlRow struct {
	id           fuel.GGMLType
	name         string // "-": removed
	elems, bytes int
}

// ggmlRows reads testdata/dtype/ggml.txt, which ggml.py beside it made with
// ggml's own headers and a C compiler.
func ggmlRows(t *testing.T) []ggmlRow {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "dtype", "ggml.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var rows []ggmlRow
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var r ggmlRow
		if _, err := fmt.Sscan(line, &r.id, &r.name, &r.elems, &r.bytes); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		rows = append(rows, r)
	}
	if len(rows) != 43 {
		t.Fatalf("%d rows, want one for each ggml type", len(rows))
	}
	return rows
}

func TestGGMLTableNeverDiffersFromGGML(t *testing.T) {
	for i, r := range ggmlRows(t) {
		if r.id != fuel.GGMLType(i) {
			t.Fatalf("row %d is type %d", i, r.id)
		}
		removed := r.name == "-"
		if r.id.Valid() == removed || r.id.BlockLen() != r.elems || r.id.BlockBytes() != r.bytes {
			t.Errorf("%v: valid %v, %d elements, %d bytes; want %+v", r.id, r.id.Valid(), r.id.BlockLen(), r.id.BlockBytes(), r)
		}
		if !removed && r.id.String() != r.name {
			t.Errorf("type %d is %v, want %s", i, r.id, r.name)
		}
		if r.id.Plain() != (r.elems == 1) {
			t.Errorf("%v: plain %v", r.id, r.id.Plain())
		}
	}
}

func TestRemovedAndUnknownGGMLTypesAreNeverGuessed(t *testing.T) {
	bad := []fuel.GGMLType{43, 100, 256, 1 << 31, math.MaxUint32}
	for _, r := range ggmlRows(t) {
		if r.name == "-" {
			bad = append(bad, r.id)
		}
	}
	if len(bad) != 5+8 {
		t.Errorf("%d types", len(bad))
	}
	for _, id := range bad {
		if id.Valid() || id.Plain() || id.BlockLen() != 0 || id.BlockBytes() != 0 {
			t.Errorf("%v has a size", id)
		}
		code := fmt.Sprint(uint32(id))
		e := fuel.GGMLBlock(id)
		_, err := e.Bytes(fuel.F32, 0)
		wantUnknown(t, err, "gguf", code)
		_, err = e.Len(fuel.F32, 0)
		wantUnknown(t, err, "gguf", code)
		_, _, err = e.Granule(fuel.F32)
		wantUnknown(t, err, "gguf", code)
		_, err = e.BlockBytes(fuel.F32)
		wantUnknown(t, err, "gguf", code)
		_, err = e.MarshalText()
		wantUnknown(t, err, "gguf", code)
		wantUnknown(t, e.Check(fuel.F32), "gguf", code)
		_, _, err = id.Layout()
		wantUnknown(t, err, "gguf", code)
		_, err = id.MarshalText()
		wantUnknown(t, err, "gguf", code)
		_, err = fuel.ParseGGMLType(id.String())
		wantUnknown(t, err, "gguf", id.String())
		_, err = fuel.ParseEncoding(e.String())
		wantUnknown(t, err, "gguf", id.String())
		if e.BlockLen() != 0 {
			t.Errorf("%v: BlockLen %d", id, e.BlockLen())
		}
	}
	// A plain type has no blocks, and one spelling only: Plain.
	_, err := fuel.GGMLBlock(fuel.GGMLF16).Bytes(fuel.F16, 1)
	wantUnknown(t, err, "gguf", "F16")
	_, err = fuel.ParseEncoding("ggml:F16")
	wantUnknown(t, err, "gguf", "F16")
}

func TestGGMLTypeTextNeverChangesOnTheWay(t *testing.T) {
	for _, r := range ggmlRows(t) {
		if r.name == "-" {
			continue
		}
		for _, s := range []string{r.name, strings.ToLower(r.name)} {
			if got, err := fuel.ParseGGMLType(s); err != nil || got != r.id {
				t.Errorf("ParseGGMLType(%q) = %v, %v", s, got, err)
			}
		}
		b, err := json.Marshal([]fuel.GGMLType{r.id})
		var back []fuel.GGMLType
		if err != nil || json.Unmarshal(b, &back) != nil || back[0] != r.id {
			t.Errorf("%v: %s, %v, %v", r.id, b, back, err)
		}
		d, e, err := r.id.Layout()
		if err != nil || e.IsPlain() != r.id.Plain() || !e.IsPlain() && (d != fuel.F32 || e != fuel.GGMLBlock(r.id)) {
			t.Errorf("%v: layout %v, %v, %v", r.id, d, e, err)
		}
	}
}

// mustAffine and mustMX are for specs that are right.
func mustAffine(spec fuel.AffineSpec) fuel.Encoding {
	e, err := fuel.Affine(spec)
	if err != nil {
		panic(err)
	}
	return e
}

func mustMX(packed fuel.DType, place fuel.ScalePlace) fuel.Encoding {
	e, err := fuel.MX(packed, place)
	if err != nil {
		panic(err)
	}
	return e
}

var mxPacked = []fuel.DType{fuel.F8E4M3FN, fuel.F8E5M2, fuel.F6E2M3, fuel.F6E3M2, fuel.F4E2M1, fuel.I8}

// An encodingCase is an encoding with its sizes, worked out by hand: a run of
// elems elements takes bytes bytes, and lengths must be multiples of block.
type encodingCase struct {
	e                   fuel.Encoding
	text                string
	block, elems, bytes int
	inside              bool
}

func encodingCases(t *testing.T) []encodingCase {
	cases := []encodingCase{
		{mustMX(fuel.F8E4M3FN, fuel.ScalesBeside), "mx:f8e4m3fn,scales=beside", 32, 32, 32, false},
		{mustMX(fuel.F8E4M3FN, fuel.ScalesInside), "mx:f8e4m3fn,scales=inside", 32, 32, 33, true},
		{mustMX(fuel.F8E5M2, fuel.ScalesInside), "mx:f8e5m2,scales=inside", 32, 32, 33, true},
		{mustMX(fuel.F6E2M3, fuel.ScalesBeside), "mx:f6e2m3,scales=beside", 32, 32, 24, false},
		{mustMX(fuel.F6E3M2, fuel.ScalesInside), "mx:f6e3m2,scales=inside", 32, 32, 25, true},
		{mustMX(fuel.F4E2M1, fuel.ScalesBeside), "mx:f4e2m1,scales=beside", 32, 32, 16, false},
		{mustMX(fuel.F4E2M1, fuel.ScalesInside), "mx:f4e2m1,scales=inside", 32, 32, 17, true},
		{mustMX(fuel.I8, fuel.ScalesBeside), "mx:i8,scales=beside", 32, 32, 32, false},
		{
			mustAffine(fuel.AffineSpec{Packed: fuel.U4, Block: [2]int{1, 128}, Scale: fuel.F16, Zero: fuel.U4, Scales: fuel.ScalesInside}),
			"affine:u4,block=1x128,scale=f16,zero=u4,scales=inside", 128, 128, 2 + 1 + 64, true,
		},
		{
			mustAffine(fuel.AffineSpec{Packed: fuel.F6E2M3, Block: [2]int{1, 12}, Scale: fuel.F32, Scales: fuel.ScalesInside}),
			"affine:f6e2m3,block=1x12,scale=f32,zero=none,scales=inside", 12, 12, 4 + 9, true,
		},
		{
			mustAffine(fuel.AffineSpec{Packed: fuel.I8, Block: [2]int{1, 1}, Scale: fuel.BF16, Zero: fuel.F32, Scales: fuel.ScalesInside}),
			"affine:i8,block=1x1,scale=bf16,zero=f32,scales=inside", 1, 1, 2 + 4 + 1, true,
		},
		{
			mustAffine(fuel.AffineSpec{Packed: fuel.F8E4M3FN, Block: [2]int{128, 128}, Scale: fuel.F32}),
			"affine:f8e4m3fn,block=128x128,scale=f32,zero=none,scales=beside", 1, 1, 1, false,
		},
		{
			mustAffine(fuel.AffineSpec{Packed: fuel.F4E2M1, Block: [2]int{1, 16}, Scale: fuel.F8E4M3FN}),
			"affine:f4e2m1,block=1x16,scale=f8e4m3fn,zero=none,scales=beside", 1, 2, 1, false,
		},
		{
			mustAffine(fuel.AffineSpec{Packed: fuel.I4, Block: [2]int{1, 0}, Scale: fuel.F8E6M2, Zero: fuel.I32}),
			"affine:i4,block=1x*,scale=f8e6m2,zero=i32,scales=beside", 1, 2, 1, false,
		},
		{
			mustAffine(fuel.AffineSpec{Packed: fuel.U1, Scale: fuel.F64, Zero: fuel.U1}),
			"affine:u1,block=*x*,scale=f64,zero=u1,scales=beside", 1, 8, 1, false,
		},
	}
	for _, r := range ggmlRows(t) {
		if r.elems > 1 {
			cases = append(cases, encodingCase{fuel.GGMLBlock(r.id), "ggml:" + r.name, r.elems, r.elems, r.bytes, true})
		}
	}
	return cases
}

func TestNoEncodingIsWithoutItsFacts(t *testing.T) {
	seen := map[fuel.Encoding]string{fuel.Plain(): "plain"}
	for _, c := range encodingCases(t) {
		if other, twice := seen[c.e]; twice {
			t.Errorf("%s equals %s", c.text, other)
		}
		seen[c.e] = c.text
		if c.e.ScalesInside() != c.inside || c.e.BlockLen() != c.block || c.e.IsPlain() {
			t.Errorf("%s: scales inside %v, block %d, plain %v", c.text, c.e.ScalesInside(), c.e.BlockLen(), c.e.IsPlain())
		}
		for _, d := range []fuel.DType{fuel.F32, fuel.BF16, fuel.F16} {
			n, bytes, err := c.e.Granule(d)
			if err != nil || n != c.elems || bytes != c.bytes {
				t.Errorf("%s of %v: %d elements in %d bytes, %v; want %d, %d", c.text, d, n, bytes, err, c.elems, c.bytes)
			}
		}
		if bytes, err := c.e.BlockBytes(fuel.F32); err != nil || c.block == c.elems && bytes != c.bytes || c.block == 1 && c.elems > 1 && bytes != 1 {
			t.Errorf("%s: a block takes %d bytes, %v", c.text, bytes, err)
		}
		id, isGGML := c.e.GGML()
		spec, isAffine := c.e.Affine()
		packed, isMX := c.e.MX()
		if isGGML != strings.HasPrefix(c.text, "ggml:") || isAffine != strings.HasPrefix(c.text, "affine:") ||
			isMX != strings.HasPrefix(c.text, "mx:") {
			t.Errorf("%s: ggml %v, affine %v, mx %v", c.text, isGGML, isAffine, isMX)
		}
		if isGGML && fuel.GGMLBlock(id) != c.e || isAffine && mustAffine(spec) != c.e ||
			isMX && mustMX(packed, fuel.ScalesBeside) != c.e && mustMX(packed, fuel.ScalesInside) != c.e {
			t.Errorf("%s does not give back what it was made of", c.text)
		}
	}
}

func TestZeroEncodingIsPlain(t *testing.T) {
	var e fuel.Encoding
	if e != fuel.Plain() || !e.IsPlain() || e.ScalesInside() || e.BlockLen() != 1 || e.String() != "plain" {
		t.Errorf("%v", e)
	}
	for _, d := range validDTypes() {
		for _, n := range interestingSizes() {
			got, err := e.Bytes(d, n)
			want, wantErr := d.Bytes(n)
			if got != want || (err == nil) != (wantErr == nil) {
				t.Fatalf("%d of %v: %d, %v; want %d, %v", n, d, got, err, want, wantErr)
			}
			got, err = e.Len(d, n)
			want, wantErr = d.Len(n)
			if got != want || (err == nil) != (wantErr == nil) {
				t.Fatalf("%d bytes of %v: %d, %v; want %d, %v", n, d, got, err, want, wantErr)
			}
		}
		n, bytes, err := e.Granule(d)
		if err != nil || n*d.Bits() != bytes*8 || n > 1 && n/2*d.Bits()%8 == 0 {
			t.Errorf("%v: granule of %d elements in %d bytes, %v", d, n, bytes, err)
		}
	}
	if _, err := e.Bytes(0, 1); !errors.Is(err, fuel.ErrUnknownDType) {
		t.Errorf("no DType: %v", err)
	}
}

// The cases of TestBytesNeverWrap, for blocks: candle#3816, llama.cpp#18674,
// tvm-ffi#475.
func TestBlockBytesNeverWrap(t *testing.T) {
	for _, c := range encodingCases(t) {
		sizes := interestingSizes()
		for _, n := range interestingSizes() {
			sizes = append(sizes, n/c.elems*c.elems, math.MaxInt/c.bytes*c.elems+n%(2*c.elems)-c.elems)
		}
		for _, n := range sizes {
			if n < 0 {
				continue // math.MaxInt/c.bytes*c.elems is more than an int
			}
			got, err := c.e.Bytes(fuel.F32, n)
			if n%c.block != 0 {
				if !errors.Is(err, fuel.ErrMismatch) {
					t.Fatalf("%d of %s: %d, %v; want ErrMismatch", n, c.text, got, err)
				}
				continue
			}
			want := new(big.Int).Mul(big.NewInt(int64(n)), big.NewInt(int64(c.bytes)))
			want.Add(want, big.NewInt(int64(c.elems-1)))
			want.Div(want, big.NewInt(int64(c.elems)))
			if want.IsInt64() && want.Int64() <= math.MaxInt {
				if err != nil || int64(got) != want.Int64() {
					t.Fatalf("%d of %s: %d bytes, %v; want %v", n, c.text, got, err, want)
				}
			} else if !errors.Is(err, fuel.ErrOverflow) {
				t.Fatalf("%d of %s: %d bytes, %v; want ErrOverflow", n, c.text, got, err)
			}
		}
		for _, n := range []int{-1, -c.block, math.MinInt} {
			if got, err := c.e.Bytes(fuel.F32, n); !errors.Is(err, fuel.ErrOverflow) {
				t.Errorf("%d of %s: %d, %v", n, c.text, got, err)
			}
			if got, err := c.e.Len(fuel.F32, n); !errors.Is(err, fuel.ErrOverflow) {
				t.Errorf("%d bytes of %s: %d, %v", n, c.text, got, err)
			}
		}
	}
}

func TestBrokenBlocksAreNeverRoundedAway(t *testing.T) {
	for _, c := range encodingCases(t) {
		for _, bytes := range append(interestingSizes(), c.bytes, 3*c.bytes, 3*c.bytes+1) {
			n, err := c.e.Len(fuel.F32, bytes)
			want := new(big.Int).Mul(big.NewInt(int64(bytes/c.bytes)), big.NewInt(int64(c.elems)))
			switch {
			case bytes%c.bytes != 0:
				if !errors.Is(err, fuel.ErrMismatch) {
					t.Fatalf("%d bytes of %s: %d, %v; want ErrMismatch", bytes, c.text, n, err)
				}
			case !want.IsInt64() || want.Int64() > math.MaxInt:
				if !errors.Is(err, fuel.ErrOverflow) {
					t.Fatalf("%d bytes of %s: %d, %v; want ErrOverflow", bytes, c.text, n, err)
				}
			default:
				if err != nil || int64(n) != want.Int64() {
					t.Fatalf("%d bytes of %s: %d, %v; want %v", bytes, c.text, n, err, want)
				}
				if back, err := c.e.Bytes(fuel.F32, n); err != nil || back != bytes {
					t.Fatalf("%d bytes of %s: %d elements take %d bytes, %v", bytes, c.text, n, back, err)
				}
			}
		}
	}
}

func TestBlocksDecodeToFloatsOnly(t *testing.T) {
	for _, c := range encodingCases(t) {
		for _, d := range append(validDTypes(), 0, 255) {
			err := c.e.Check(d)
			switch d {
			case fuel.F32, fuel.BF16, fuel.F16:
				if err != nil {
					t.Errorf("%s of %v: %v", c.text, d, err)
				}
			case 0, 255:
				if !errors.Is(err, fuel.ErrUnknownDType) {
					t.Errorf("%s of %v: %v", c.text, d, err)
				}
			default:
				if !errors.Is(err, fuel.ErrMismatch) {
					t.Errorf("%s of %v: %v", c.text, d, err)
				}
			}
		}
	}
}

func TestMXHasNoOtherElements(t *testing.T) {
	for _, d := range append(validDTypes(), 0, 255) {
		want := false
		for _, p := range mxPacked {
			want = want || p == d
		}
		for _, place := range []fuel.ScalePlace{fuel.ScalesBeside, fuel.ScalesInside, 2} {
			e, err := fuel.MX(d, place)
			if ok := want && place < 2; (err == nil) != ok || !ok && (e != fuel.Plain() || !errors.Is(err, fuel.ErrMismatch)) {
				t.Errorf("MX(%v, %v) = %v, %v", d, place, e, err)
			}
		}
	}
}

func TestBadAffineSpecsAreRefused(t *testing.T) {
	good := fuel.AffineSpec{Packed: fuel.U4, Block: [2]int{1, 32}, Scale: fuel.F16, Zero: fuel.U4, Scales: fuel.ScalesInside}
	mustAffine(good)
	for name, c := range map[string]struct {
		change func(*fuel.AffineSpec)
		want   error
	}{
		"no packed":         {func(s *fuel.AffineSpec) { s.Packed = 0 }, fuel.ErrMismatch},
		"wide packed":       {func(s *fuel.AffineSpec) { s.Packed = fuel.I16 }, fuel.ErrMismatch},
		"bool packed":       {func(s *fuel.AffineSpec) { s.Packed = fuel.Bool }, fuel.ErrMismatch},
		"scale packed":      {func(s *fuel.AffineSpec) { s.Packed = fuel.F8E8M0FNU }, fuel.ErrMismatch},
		"no scale":          {func(s *fuel.AffineSpec) { s.Scale = 0 }, fuel.ErrMismatch},
		"integer scale":     {func(s *fuel.AffineSpec) { s.Scale = fuel.I8 }, fuel.ErrMismatch},
		"narrow scale":      {func(s *fuel.AffineSpec) { s.Scale = fuel.F4E2M1 }, fuel.ErrMismatch},
		"complex zero":      {func(s *fuel.AffineSpec) { s.Zero = fuel.Complex64 }, fuel.ErrMismatch},
		"unknown zero":      {func(s *fuel.AffineSpec) { s.Zero = 255 }, fuel.ErrMismatch},
		"unknown place":     {func(s *fuel.AffineSpec) { s.Scales = 2 }, fuel.ErrMismatch},
		"two rows inside":   {func(s *fuel.AffineSpec) { s.Block[0] = 2 }, fuel.ErrMismatch},
		"all rows inside":   {func(s *fuel.AffineSpec) { s.Block[0] = 0 }, fuel.ErrMismatch},
		"whole row inside":  {func(s *fuel.AffineSpec) { s.Block[1] = 0 }, fuel.ErrMismatch},
		"half byte inside":  {func(s *fuel.AffineSpec) { s.Block[1] = 31 }, fuel.ErrMismatch},
		"negative rows":     {func(s *fuel.AffineSpec) { s.Block[0] = -1 }, fuel.ErrOverflow},
		"negative columns":  {func(s *fuel.AffineSpec) { s.Block[1] = -32 }, fuel.ErrOverflow},
		"block too large":   {func(s *fuel.AffineSpec) { s.Block = [2]int{2, math.MaxInt/2 + 1}; s.Scales = 0 }, fuel.ErrOverflow},
		"bytes of block":    {func(s *fuel.AffineSpec) { s.Block[1] = math.MaxInt; s.Packed = fuel.U8 }, fuel.ErrOverflow},
		"bytes of block, 2": {func(s *fuel.AffineSpec) { s.Block[1] = math.MaxInt - 2; s.Packed = fuel.U8 }, fuel.ErrOverflow},
	} {
		spec := good
		c.change(&spec)
		if e, err := fuel.Affine(spec); !errors.Is(err, c.want) || e != fuel.Plain() {
			t.Errorf("%s: %v, %v; want %v", name, e, err, c.want)
		}
	}
}

func TestEncodingTextNeverChangesOnTheWay(t *testing.T) {
	for _, c := range append(encodingCases(t), encodingCase{e: fuel.Plain(), text: "plain"}) {
		if c.e.String() != c.text {
			t.Errorf("%v, want %s", c.e, c.text)
		}
		if e, err := fuel.ParseEncoding(c.text); err != nil || e != c.e {
			t.Errorf("ParseEncoding(%q) = %v, %v", c.text, e, err)
		}
		b, err := json.Marshal([]fuel.Encoding{c.e})
		var back []fuel.Encoding
		if err != nil || json.Unmarshal(b, &back) != nil || back[0] != c.e {
			t.Errorf("%s: %s, %v, %v", c.text, b, back, err)
		}
	}
	for _, s := range []string{
		"", "Plain", "plain ", "plain:", "ggml", "ggml:", "ggml:q4_K", "ggml:Q9", "mx", "mx:", "mx:f4e2m1", "mx:f32,scales=beside",
		"mx:f4e2m1,scales=inside,scales=inside", "mx:F4E2M1,scales=inside", "mx:f4e2m1,scales=within", "affine", "affine:u4",
		"affine:u4,scale=f16,block=1x128,zero=u4,scales=inside", "affine:u4,block=1x0,scale=f16,zero=none,scales=beside",
		"affine:u4,block=01x128,scale=f16,zero=none,scales=beside", "affine:u4,block=1x-8,scale=f16,zero=none,scales=beside",
		"affine:u4,block=1xx,scale=f16,zero=none,scales=beside", "affine:u4,block=1x99999999999999999999,scale=f16,zero=none,scales=beside",
		"affine:u4,block=1x128,scale=f16,zero=none,scales=beside,", "affine:u4,block=1x128,scale=f17,zero=none,scales=beside",
	} {
		e := mustMX(fuel.I8, fuel.ScalesInside)
		if err := e.UnmarshalText([]byte(s)); err == nil {
			t.Errorf("%q is accepted as %v", s, e)
		} else if e != mustMX(fuel.I8, fuel.ScalesInside) {
			t.Errorf("%q: changed to %v by an error", s, e)
		} else if !errors.Is(err, fuel.ErrMismatch) && !errors.Is(err, fuel.ErrUnknownDType) && !errors.Is(err, fuel.ErrOverflow) {
			t.Errorf("%q: %v", s, err)
		}
	}
}
