package fuel

import (
	"fmt"
	"strings"
)

// A GGMLType is the number that ggml, and so a GGUF file, gives to a way of
// storing numbers: either plain elements ([GGMLType.DType]) or blocks of
// quantized ones ([GGMLBlock]). Any number may stand in a file; Valid tells
// whether this package knows it. The zero GGMLType is GGMLF32, as in ggml.
type GGMLType uint32

// The types of ggml.h at ggml d99724f2b141 (2026-08-21). Bytes and elements of
// a block are in the table ggmlTypes, which a test compares with ggml's own.
// The numbers that are missing were given up: [GGMLType.String] names them,
// and everything else refuses them.
const (
	GGMLF32     GGMLType = 0
	GGMLF16     GGMLType = 1
	GGMLQ4_0    GGMLType = 2
	GGMLQ4_1    GGMLType = 3
	GGMLQ5_0    GGMLType = 6
	GGMLQ5_1    GGMLType = 7
	GGMLQ8_0    GGMLType = 8
	GGMLQ8_1    GGMLType = 9
	GGMLQ2_K    GGMLType = 10
	GGMLQ3_K    GGMLType = 11
	GGMLQ4_K    GGMLType = 12
	GGMLQ5_K    GGMLType = 13
	GGMLQ6_K    GGMLType = 14
	GGMLQ8_K    GGMLType = 15
	GGMLIQ2_XXS GGMLType = 16
	GGMLIQ2_XS  GGMLType = 17
	GGMLIQ3_XXS GGMLType = 18
	GGMLIQ1_S   GGMLType = 19
	GGMLIQ4_NL  GGMLType = 20
	GGMLIQ3_S   GGMLType = 21
	GGMLIQ2_S   GGMLType = 22
	GGMLIQ4_XS  GGMLType = 23
	GGMLI8      GGMLType = 24
	GGMLI16     GGMLType = 25
	GGMLI32     GGMLType = 26
	GGMLI64     GGMLType = 27
	GGMLF64     GGMLType = 28
	GGMLIQ1_M   GGMLType = 29
	GGMLBF16    GGMLType = 30
	GGMLTQ1_0   GGMLType = 34
	GGMLTQ2_0   GGMLType = 35
	GGMLMXFP4   GGMLType = 39
	GGMLNVFP4   GGMLType = 40
	GGMLQ1_0    GGMLType = 41
	GGMLQ2_0    GGMLType = 42

	ggmlEnd GGMLType = 43 // one past the last
)

type ggmlInfo struct {
	name  string
	elems uint16 // of a block; 0 where the type was removed
	bytes uint16
}

// ggmlTypes holds one row for each number below ggmlEnd. A removed type keeps
// its name, for the error.
var ggmlTypes = [ggmlEnd]ggmlInfo{
	GGMLF32:     {"F32", 1, 4},
	GGMLF16:     {"F16", 1, 2},
	GGMLQ4_0:    {"Q4_0", 32, 18},
	GGMLQ4_1:    {"Q4_1", 32, 20},
	4:           {"Q4_2", 0, 0},
	5:           {"Q4_3", 0, 0},
	GGMLQ5_0:    {"Q5_0", 32, 22},
	GGMLQ5_1:    {"Q5_1", 32, 24},
	GGMLQ8_0:    {"Q8_0", 32, 34},
	GGMLQ8_1:    {"Q8_1", 32, 36},
	GGMLQ2_K:    {"Q2_K", 256, 84},
	GGMLQ3_K:    {"Q3_K", 256, 110},
	GGMLQ4_K:    {"Q4_K", 256, 144},
	GGMLQ5_K:    {"Q5_K", 256, 176},
	GGMLQ6_K:    {"Q6_K", 256, 210},
	GGMLQ8_K:    {"Q8_K", 256, 292},
	GGMLIQ2_XXS: {"IQ2_XXS", 256, 66},
	GGMLIQ2_XS:  {"IQ2_XS", 256, 74},
	GGMLIQ3_XXS: {"IQ3_XXS", 256, 98},
	GGMLIQ1_S:   {"IQ1_S", 256, 50},
	GGMLIQ4_NL:  {"IQ4_NL", 32, 18},
	GGMLIQ3_S:   {"IQ3_S", 256, 110},
	GGMLIQ2_S:   {"IQ2_S", 256, 82},
	GGMLIQ4_XS:  {"IQ4_XS", 256, 136},
	GGMLI8:      {"I8", 1, 1},
	GGMLI16:     {"I16", 1, 2},
	GGMLI32:     {"I32", 1, 4},
	GGMLI64:     {"I64", 1, 8},
	GGMLF64:     {"F64", 1, 8},
	GGMLIQ1_M:   {"IQ1_M", 256, 56},
	GGMLBF16:    {"BF16", 1, 2},
	31:          {"Q4_0_4_4", 0, 0},
	32:          {"Q4_0_4_8", 0, 0},
	33:          {"Q4_0_8_8", 0, 0},
	GGMLTQ1_0:   {"TQ1_0", 256, 54},
	GGMLTQ2_0:   {"TQ2_0", 256, 66},
	36:          {"IQ4_NL_4_4", 0, 0},
	37:          {"IQ4_NL_4_8", 0, 0},
	38:          {"IQ4_NL_8_8", 0, 0},
	GGMLMXFP4:   {"MXFP4", 32, 17},
	GGMLNVFP4:   {"NVFP4", 64, 36},
	GGMLQ1_0:    {"Q1_0", 128, 18},
	GGMLQ2_0:    {"Q2_0", 64, 18},
}

func (t GGMLType) info() ggmlInfo {
	if t >= ggmlEnd {
		return ggmlInfo{}
	}
	return ggmlTypes[t]
}

// unknown is the error for a t that is not valid, and for one that is not what
// the caller needs.
func (t GGMLType) unknown(why string) error {
	code := fmt.Sprintf("%d", uint32(t))
	if name := t.info().name; name != "" {
		code += " (" + name + why + ")"
	}
	return &UnknownDTypeError{Format: "gguf", Code: code}
}

// Valid reports whether t is one of the constants of this package. Types that
// ggml removed are not.
func (t GGMLType) Valid() bool { return t.info().elems != 0 }

// Plain reports whether t is valid and stores plain elements, one after the
// other, as a [DType] does.
func (t GGMLType) Plain() bool { return t.info().elems == 1 }

// BlockLen returns the number of elements of one block of t, 1 for a plain
// type and 0 for one that is not valid.
func (t GGMLType) BlockLen() int { return int(t.info().elems) }

// BlockBytes returns the number of bytes of one block of t, 0 for a type that
// is not valid.
func (t GGMLType) BlockBytes() int { return int(t.info().bytes) }

// DType returns the element type of a plain t. A type of blocks, a removed one
// and an unknown one are an *[UnknownDTypeError]; see [GGMLType.Layout].
func (t GGMLType) DType() (DType, error) {
	if t.Plain() {
		for d := range dtypeEnd {
			if dtypes[d].ggml == int8(t) {
				return d, nil
			}
		}
	}
	switch {
	case t.Valid():
		return 0, t.unknown(", a type of blocks")
	default:
		return 0, t.unknown(", removed from ggml")
	}
}

// Layout returns the logical type and the encoding of a tensor of type t: the
// DType and Plain for a plain t, and F32 and [GGMLBlock](t) for blocks, because
// F32 is what ggml computes from every kind of block. A removed or unknown t
// is an *[UnknownDTypeError].
func (t GGMLType) Layout() (DType, Encoding, error) {
	if t.Valid() && !t.Plain() {
		return F32, GGMLBlock(t), nil
	}
	d, err := t.DType()
	return d, Plain(), err
}

// String returns the name of t as the GGUF documents write it, such as "Q4_K".
// The names of removed types are given, too; other numbers are "GGMLType(n)".
func (t GGMLType) String() string {
	if name := t.info().name; name != "" {
		return name
	}
	return fmt.Sprintf("GGMLType(%d)", uint32(t))
}

// ParseGGMLType returns the valid type that s names, in upper or lower case:
// "Q4_K" and ggml's own "q4_K" are one. Everything else, the names of removed
// types included, is an *[UnknownDTypeError].
func ParseGGMLType(s string) (GGMLType, error) {
	for t := range ggmlEnd {
		if t.Valid() && strings.EqualFold(s, ggmlTypes[t].name) {
			return t, nil
		}
	}
	return 0, &UnknownDTypeError{Format: "gguf", Code: s}
}

// MarshalText implements [encoding.TextMarshaler] with the form of String. A t
// that is not valid is [ErrUnknownDType].
func (t GGMLType) MarshalText() ([]byte, error) {
	if !t.Valid() {
		return nil, t.unknown(", removed from ggml")
	}
	return []byte(t.String()), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler] with what
// [ParseGGMLType] accepts. After an error t is as it was.
func (t *GGMLType) UnmarshalText(text []byte) error {
	v, err := ParseGGMLType(string(text))
	if err != nil {
		return err
	}
	*t = v
	return nil
}
