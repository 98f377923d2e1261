package safetensors

import (
	"encoding/binary"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-fuel/fuel"
)

// What the files of testdata/make_golden.py and make_golden.rs hold: one bit
// pattern for each number (a complex one is two), worked out by hand from the
// formats' definitions and not by this package. Sub-byte elements are given as
// bytes.
var golden = map[string][]struct {
	name  string
	dtype fuel.DType
	shape []int
	width int // bytes of a number
	bits  []uint64
}{
	"python-all.safetensors": {
		{"bool", fuel.Bool, []int{2, 3}, 1, []uint64{1, 0, 1, 1, 0, 0}},
		{"int8", fuel.I8, []int{2, 3}, 1, []uint64{0, 1, 0xFE, 3, 0x7F, 0x80}},
		{"uint8", fuel.U8, []int{2, 3}, 1, []uint64{0, 1, 2, 3, 0x7F, 0xFF}},
		{"int16", fuel.I16, []int{2, 3}, 2, []uint64{0, 1, 0xFFFE, 3, 0x7F, 0xFF80}},
		{"uint16", fuel.U16, []int{2, 3}, 2, []uint64{0, 1, 2, 3, 0x7F, 0xFF}},
		{"int32", fuel.I32, []int{2, 3}, 4, []uint64{0, 1, 0xFFFFFFFE, 3, 0x7F, 0xFFFFFF80}},
		{"uint32", fuel.U32, []int{2, 3}, 4, []uint64{0, 1, 2, 3, 0x7F, 0xFF}},
		{"int64", fuel.I64, []int{2, 3}, 8, []uint64{0, 1, math.MaxUint64 - 1, 3, 0x7F, math.MaxUint64 - 127}},
		{"uint64", fuel.U64, []int{2, 3}, 8, []uint64{0, 1, 2, 3, 0x7F, 0xFF}},
		{"float16", fuel.F16, []int{2, 3}, 2, []uint64{0, 0x3C00, 0xC000, 0x3800, 0x3E00, 0xB400}},
		{"bfloat16", fuel.BF16, []int{2, 3}, 2, []uint64{0, 0x3F80, 0xC000, 0x3F00, 0x3FC0, 0xBE80}},
		{"float32", fuel.F32, []int{2, 3}, 4, []uint64{0, 0x3F800000, 0xC0000000, 0x3F000000, 0x3FC00000, 0xBE800000}},
		{"float64", fuel.F64, []int{2, 3}, 8, []uint64{0, 0x3FF0 << 48, 0xC000 << 48, 0x3FE0 << 48, 0x3FF8 << 48, 0xBFD0 << 48}},
		// NumPy makes -2j of a negative zero and -2.
		{"complex64", fuel.Complex64, []int{2, 3}, 4, []uint64{
			0, 0, 0x3F800000, 0, 0x80000000, 0xC0000000, 0x3F000000, 0x3F800000, 0x3FC00000, 0, 0xBE800000, 0}},
		{"float8_e4m3fn", fuel.F8E4M3FN, []int{2, 3}, 1, []uint64{0, 0x38, 0xC0, 0x30, 0x3C, 0xA8}},
		{"float8_e4m3fnuz", fuel.F8E4M3FNUZ, []int{2, 3}, 1, []uint64{0, 0x40, 0xC8, 0x38, 0x44, 0xB0}},
		{"float8_e5m2", fuel.F8E5M2, []int{2, 3}, 1, []uint64{0, 0x3C, 0xC0, 0x38, 0x3E, 0xB4}},
		{"float8_e5m2fnuz", fuel.F8E5M2FNUZ, []int{2, 3}, 1, []uint64{0, 0x40, 0xC4, 0x3C, 0x42, 0xB8}},
		{"float8_e8m0fnu", fuel.F8E8M0FNU, []int{2, 3}, 1, []uint64{127, 128, 126, 129, 125, 130}},
		{"float4_e2m1fn_x2", fuel.F4E2M1, []int{2, 4}, 1, []uint64{0x10, 0x32, 0xF8, 0x67}},
		{"scalar", fuel.I32, []int{}, 4, []uint64{42}},
		{"empty", fuel.F32, []int{3, 0}, 4, nil},
		{"ünïcode \"quoted\"\n/\\", fuel.U8, []int{5}, 1, []uint64{0, 1, 2, 3, 4}},
	},
	"rust-sub-byte.safetensors": {
		{"e2m3", fuel.F6E2M3, []int{2, 4}, 1, []uint64{0x81, 0x30, 0x10, 0x85, 0x71, 0x20}},
		{"e3m2", fuel.F6E3M2, []int{8}, 1, []uint64{0x81, 0x30, 0x10, 0x85, 0x71, 0x20}},
		{"four", fuel.F4E2M1, []int{3, 2}, 1, []uint64{0x21, 0x43, 0x65}},
	},
	"python-none.safetensors":     {},
	"python-metadata.safetensors": {},
}

func goldenFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "golden", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestFilesOfOtherWriters(t *testing.T) {
	files, err := os.ReadDir(filepath.Join("testdata", "golden"))
	if err != nil || len(files) != len(golden) {
		t.Errorf("%d files, want %d, %v", len(files), len(golden), err)
	}
	for file, want := range golden {
		t.Run(file, func(t *testing.T) {
			opened(t, goldenFile(t, file), nil, func(t *testing.T, f *File) {
				if f.Len() != len(want) {
					t.Errorf("%d tensors", f.Len())
				}
				for _, w := range want {
					info, ok := f.Info(w.name)
					if !ok || info.DType != w.dtype || !slices.Equal(info.Shape, w.shape) {
						t.Errorf("%q: %+v", w.name, info)
						continue
					}
					if got := numbers(content(t, f, w.name), w.width); !slices.Equal(got, w.bits) {
						t.Errorf("%q is %#x, want %#x", w.name, got, w.bits)
					}
				}
			})
		})
	}
}

// numbers takes b apart into numbers in the byte order of this host.
func numbers(b []byte, width int) []uint64 {
	var list []uint64
	for ; len(b) >= width; b = b[width:] {
		switch width {
		case 1:
			list = append(list, uint64(b[0]))
		case 2:
			list = append(list, uint64(binary.NativeEndian.Uint16(b)))
		case 4:
			list = append(list, uint64(binary.NativeEndian.Uint32(b)))
		case 8:
			list = append(list, binary.NativeEndian.Uint64(b))
		}
	}
	return list
}

func TestMetadataOfOtherWriters(t *testing.T) {
	for file, want := range map[string]map[string]string{
		"python-all.safetensors":      {"format": "np"},
		"python-metadata.safetensors": {"key \"1\"": "välue\n\t\x01\U0001F600"},
		"python-none.safetensors":     nil,
	} {
		h, err := parse(goldenFile(t, file))
		if err != nil {
			t.Fatal(err)
		}
		if got := h.Metadata(); !maps.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%s: %q", file, got)
		}
	}
}
