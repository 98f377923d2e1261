package fuel_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/go-fuel/fuel"
)

// scalarType is one of the float types under test together with what the
// papers say about it; the reference below uses nothing else.
type scalarType struct {
	dtype    fuel.DType
	sign     int // bits
	exp, man int
	bias     int
	kind     string // ieee, fn, fnuz, finite, fnu
	maxCode  int    // code of the largest number
	widen    func(uint16) float32
	narrow   func(float32) uint16
	saturate func(float32) uint16 // nil for the 16-bit types
}

// narrowType makes the functions of one type into those of the table.
func narrowType[T ~uint8 | ~uint16](widen func(T) float32, narrow, saturate func(float32) T) scalarType {
	s := scalarType{
		widen:  func(c uint16) float32 { return widen(T(c)) },
		narrow: func(x float32) uint16 { return uint16(narrow(x)) },
	}
	if saturate != nil {
		s.saturate = func(x float32) uint16 { return uint16(saturate(x)) }
	}
	return s
}

func (s scalarType) as(d fuel.DType, sign, exp, man, bias int, kind string) scalarType {
	s.dtype, s.sign, s.exp, s.man, s.bias, s.kind = d, sign, exp, man, bias, kind
	s.maxCode = 1<<(exp+man) - 1
	for class, _, _ := s.decode(uint16(s.maxCode)); class != "number"; class, _, _ = s.decode(uint16(s.maxCode)) {
		s.maxCode--
	}
	return s
}

var scalarTypes = []scalarType{
	narrowType(fuel.Float16.Float32, fuel.Float16FromFloat32, nil).as(fuel.F16, 1, 5, 10, 15, "ieee"),
	narrowType(fuel.BFloat16.Float32, fuel.BFloat16FromFloat32, nil).as(fuel.BF16, 1, 8, 7, 127, "ieee"),
	narrowType(fuel.Float8E3M4.Float32, fuel.Float8E3M4FromFloat32, fuel.Float8E3M4FromFloat32Saturate).as(fuel.F8E3M4, 1, 3, 4, 3, "ieee"),
	narrowType(fuel.Float8E4M3.Float32, fuel.Float8E4M3FromFloat32, fuel.Float8E4M3FromFloat32Saturate).as(fuel.F8E4M3, 1, 4, 3, 7, "ieee"),
	narrowType(fuel.Float8E4M3B11FNUZ.Float32, fuel.Float8E4M3B11FNUZFromFloat32, fuel.Float8E4M3B11FNUZFromFloat32Saturate).as(fuel.F8E4M3B11FNUZ, 1, 4, 3, 11, "fnuz"),
	narrowType(fuel.Float8E4M3FN.Float32, fuel.Float8E4M3FNFromFloat32, fuel.Float8E4M3FNFromFloat32Saturate).as(fuel.F8E4M3FN, 1, 4, 3, 7, "fn"),
	narrowType(fuel.Float8E4M3FNUZ.Float32, fuel.Float8E4M3FNUZFromFloat32, fuel.Float8E4M3FNUZFromFloat32Saturate).as(fuel.F8E4M3FNUZ, 1, 4, 3, 8, "fnuz"),
	narrowType(fuel.Float8E5M2.Float32, fuel.Float8E5M2FromFloat32, fuel.Float8E5M2FromFloat32Saturate).as(fuel.F8E5M2, 1, 5, 2, 15, "ieee"),
	narrowType(fuel.Float8E5M2FNUZ.Float32, fuel.Float8E5M2FNUZFromFloat32, fuel.Float8E5M2FNUZFromFloat32Saturate).as(fuel.F8E5M2FNUZ, 1, 5, 2, 16, "fnuz"),
	narrowType(fuel.Float8E8M0FNU.Float32, fuel.Float8E8M0FNUFromFloat32, fuel.Float8E8M0FNUFromFloat32Saturate).as(fuel.F8E8M0FNU, 0, 8, 0, 127, "fnu"),
	narrowType(fuel.Float8E6M2.Float32, fuel.Float8E6M2FromFloat32, fuel.Float8E6M2FromFloat32Saturate).as(fuel.F8E6M2, 0, 6, 2, 48, "fnu"),
	narrowType(fuel.Float6E2M3.Float32, fuel.Float6E2M3FromFloat32, fuel.Float6E2M3FromFloat32Saturate).as(fuel.F6E2M3, 1, 2, 3, 1, "finite"),
	narrowType(fuel.Float6E3M2.Float32, fuel.Float6E3M2FromFloat32, fuel.Float6E3M2FromFloat32Saturate).as(fuel.F6E3M2, 1, 3, 2, 3, "finite"),
	narrowType(fuel.Float4E2M1.Float32, fuel.Float4E2M1FromFloat32, fuel.Float4E2M1FromFloat32Saturate).as(fuel.F4E2M1, 1, 2, 1, 1, "finite"),
}

func eachScalar(t *testing.T, f func(t *testing.T, s scalarType)) {
	for _, s := range scalarTypes {
		t.Run(s.dtype.String(), func(t *testing.T) { f(t, s) })
	}
}

func (s scalarType) width() int       { return s.sign + s.exp + s.man }
func (s scalarType) signMask() uint16 { return uint16(s.sign) << (s.exp + s.man) }

// number is the value of a code without its sign, taken as a number even where
// the format gives it another meaning, and also one beyond the last code.
func (s scalarType) number(mag int) *big.Rat {
	e, m := mag>>s.man, mag&(1<<s.man-1)
	v := big.NewRat(int64(m), 1<<s.man)
	if e > 0 || s.kind == "fnu" {
		v.Add(v, big.NewRat(1, 1))
	} else {
		e = 1
	}
	power := new(big.Int).Lsh(big.NewInt(1), uint(abs(e-s.bias)))
	if e >= s.bias {
		return v.Mul(v, new(big.Rat).SetInt(power))
	}
	return v.Quo(v, new(big.Rat).SetInt(power))
}

func abs(n int) int { return max(n, -n) }

// decode is the slow reference of widening: the class of a code, "number",
// "inf" or "nan", its sign, and the exact magnitude of a number.
func (s scalarType) decode(code uint16) (class string, neg bool, mag *big.Rat) {
	neg = code&s.signMask() != 0
	m := int(code &^ s.signMask())
	ones := 1<<s.exp - 1 // of the exponent
	switch {
	case s.kind == "ieee" && m == ones<<s.man:
		return "inf", neg, nil
	case s.kind == "ieee" && m>>s.man == ones:
		return "nan", neg, nil
	case (s.kind == "fn" || s.kind == "fnu") && m == 1<<(s.exp+s.man)-1:
		return "nan", neg, nil
	case s.kind == "fnuz" && neg && m == 0:
		return "nan", neg, nil
	}
	return "number", neg, s.number(m)
}

// midpoints returns the exact middle between each code without a sign and the
// next, up to that between the largest number and what would follow it.
func (s scalarType) midpoints(t testing.TB) []float64 {
	t.Helper()
	mids := make([]float64, s.maxCode+1)
	below, _ := s.number(0).Float64()
	for c := range mids {
		above, exact := s.number(c + 1).Float64()
		if !exact {
			t.Fatalf("code %#x is no float64", c+1)
		}
		mids[c] = below + (above-below)/2 // exact: a float64 has bits to spare
		below = above
	}
	return mids
}

// nearest is the slow reference of rounding: the code without a sign nearest
// to a, which is past maxCode where a rounds beyond the largest number.
func (s scalarType) nearest(mids []float64, a float64) int {
	c := sort.SearchFloat64s(mids, a) // the first midpoint that is not below a
	return s.breakTie(mids, a, c)
}

func (s scalarType) breakTie(mids []float64, a float64, c int) int {
	if c < len(mids) && mids[c] == a && (c&1 != 0 || s.man == 0) {
		c++ // to the even code, and to the larger where there is one digit only
	}
	return c
}

// expect is the code that narrowing x, which is no NaN, must give when the
// code nearest to its magnitude is c.
func (s scalarType) expect(x float32, c int, saturate bool) uint16 {
	neg := math.Signbit(float64(x))
	sign := uint16(0)
	if neg {
		sign = s.signMask()
	}
	over := c > s.maxCode || math.IsInf(float64(x), 0)
	switch {
	case s.kind == "fnu" && x == 0:
		if s.dtype == fuel.F8E8M0FNU && !saturate {
			return 0xFF
		}
		return 0
	case s.kind == "fnu" && neg:
		return 0xFF
	case over && (saturate || s.kind == "finite"):
		return sign | uint16(s.maxCode)
	case over && s.kind == "ieee":
		return sign | uint16((1<<s.exp-1)<<s.man)
	case over && s.kind == "fnuz":
		return s.signMask()
	case over:
		return sign | uint16(1<<(s.exp+s.man)-1)
	case s.kind == "fnuz" && c == 0:
		return 0
	}
	return sign | uint16(c)
}

func TestWideningIsExactForEveryPattern(t *testing.T) {
	eachScalar(t, func(t *testing.T, s scalarType) {
		for code := range 1 << s.width() {
			class, neg, want := s.decode(uint16(code))
			got := s.widen(uint16(code))
			wide := float64(got)
			if class != "nan" && math.Signbit(wide) != neg {
				t.Fatalf("code %#x: %v has the wrong sign", code, got)
			}
			switch class {
			case "inf":
				if !math.IsInf(wide, 0) {
					t.Fatalf("code %#x: %v, want an infinity", code, got)
				}
			case "nan":
				if !math.IsNaN(wide) {
					t.Fatalf("code %#x: %v, want NaN", code, got)
				}
			default:
				if math.IsNaN(wide) || math.IsInf(wide, 0) {
					t.Fatalf("code %#x: %v, want %v", code, got, want)
				}
				if new(big.Rat).SetFloat64(math.Abs(wide)).Cmp(want) != 0 {
					t.Fatalf("code %#x: %v, want %v", code, got, want)
				}
			}
		}
	})
}

func TestUpperBitsOfNarrowCodesAreIgnored(t *testing.T) {
	eachScalar(t, func(t *testing.T, s scalarType) {
		if s.width() >= 8 {
			t.Skip("the type has no upper bits")
		}
		for code := range 256 {
			low := uint16(code) & (1<<s.width() - 1)
			if got, want := s.widen(uint16(code)), s.widen(low); math.Float32bits(got) != math.Float32bits(want) {
				t.Fatalf("code %#x: %v, want %v", code, got, want)
			}
		}
	})
	if fuel.Float4E2M1(0xF7).Bits() != 7 || fuel.Float6E2M3(0xDF).Bits() != 0x1F || fuel.Float6E3M2(0xDF).Bits() != 0x1F {
		t.Error("Bits has upper bits")
	}
}

// checkNarrow compares both roundings of x, which is no NaN, with the
// reference.
func (s scalarType) checkNarrow(t testing.TB, mids []float64, x float32) {
	t.Helper()
	c := s.nearest(mids, math.Abs(float64(x)))
	if got, want := s.narrow(x), s.expect(x, c, false); got != want {
		t.Fatalf("%v (%#08x): code %#x, want %#x", x, math.Float32bits(x), got, want)
	}
	if s.saturate == nil {
		return
	}
	if got, want := s.saturate(x), s.expect(x, c, true); got != want {
		t.Fatalf("%v (%#08x): code %#x when saturating, want %#x", x, math.Float32bits(x), got, want)
	}
}

func TestNarrowingNeverMissesTheNearest(t *testing.T) {
	inf := float32(math.Inf(1))
	eachScalar(t, func(t *testing.T, s scalarType) {
		mids := s.midpoints(t)
		points := []float32{0, math.SmallestNonzeroFloat32, 0x1p-126, 0x1p-127, 0x1p-128, 1, math.MaxFloat32, inf}
		for c, mid := range mids {
			points = append(points, s.widen(uint16(c)), float32(mid))
			if mid < math.MaxFloat32 && float64(float32(mid)) != mid {
				t.Fatalf("the midpoint above code %#x is no float32", c)
			}
		}
		for _, p := range points {
			for _, x := range []float32{p, math.Nextafter32(p, 0), math.Nextafter32(p, inf)} {
				s.checkNarrow(t, mids, x)
				s.checkNarrow(t, mids, -x)
			}
		}
	})
}

func TestEveryNumberSurvivesTheWayThereAndBack(t *testing.T) {
	eachScalar(t, func(t *testing.T, s scalarType) {
		for code := range 1 << s.width() {
			if class, _, _ := s.decode(uint16(code)); class == "nan" {
				continue
			}
			x := s.widen(uint16(code))
			if got := s.narrow(x); got != uint16(code) {
				t.Fatalf("code %#x is %v and comes back as %#x", code, x, got)
			}
		}
	})
}

func TestNaNNeverBecomesANumberWhereTheFormatHasNaN(t *testing.T) {
	patterns := []uint32{0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FA5A5A5, 0xFF812345}
	eachScalar(t, func(t *testing.T, s scalarType) {
		for _, p := range patterns {
			x, neg := math.Float32frombits(p), p>>31 != 0
			for _, narrow := range []func(float32) uint16{s.narrow, s.saturate} {
				if narrow == nil {
					continue
				}
				got := narrow(x)
				class, gotNeg, _ := s.decode(got)
				if s.kind == "finite" {
					continue // TestNaNInFiniteFormats
				}
				if class != "nan" {
					t.Errorf("%#08x: code %#x is a %s", p, got, class)
				}
				if (s.kind == "ieee" || s.kind == "fn") && gotNeg != neg {
					t.Errorf("%#08x: code %#x has lost the sign", p, got)
				}
			}
		}
	})
}

func TestNaNInFiniteFormats(t *testing.T) {
	nan, negNaN := math.Float32frombits(0x7FC00000), math.Float32frombits(0xFFC00000)
	for _, s := range scalarTypes {
		if s.kind != "finite" {
			continue
		}
		if got := s.narrow(nan); got != s.signMask() {
			t.Errorf("%v: NaN is %#x, want -0 as in ml_dtypes", s.dtype, got)
		}
		if got := s.narrow(negNaN); got != 0 {
			t.Errorf("%v: -NaN is %#x, want 0 as in ml_dtypes", s.dtype, got)
		}
		for _, x := range []float32{nan, negNaN} {
			if got := s.saturate(x); int(got) != s.maxCode {
				t.Errorf("%v: saturated NaN is %#x, want %#x", s.dtype, got, s.maxCode)
			}
		}
	}
}

func TestNaNPayloadsAreWhatTheDocsSay(t *testing.T) {
	for code := range 1 << 16 {
		if h := fuel.Float16(code); code&0x7C00 == 0x7C00 && code&0x3FF != 0 {
			want := uint32(code&0x8000)<<16 | 0x7FC00000 | uint32(code&0x3FF)<<13
			if got := math.Float32bits(h.Float32()); got != want {
				t.Fatalf("Float16 %#x: %#08x, want %#08x", code, got, want)
			}
			if got := fuel.Float16FromFloat32(h.Float32()); got != h|0x200 {
				t.Fatalf("Float16 %#x comes back as %#x", code, got)
			}
		}
		if b := fuel.BFloat16(code); code&0x7F80 == 0x7F80 && code&0x7F != 0 {
			if got, want := math.Float32bits(b.Float32()), uint32(code)<<16; got != want {
				t.Fatalf("BFloat16 %#x: %#08x, want %#08x", code, got, want)
			}
			if got := fuel.BFloat16FromFloat32(b.Float32()); got != b|0x40 {
				t.Fatalf("BFloat16 %#x comes back as %#x", code, got)
			}
		}
	}
	// A payload in the low half only must not turn into infinity.
	if got := fuel.Float16FromFloat32(math.Float32frombits(0xFF800001)); got != 0xFE00 {
		t.Errorf("Float16: %#x, want 0xfe00", got)
	}
	if got := fuel.BFloat16FromFloat32(math.Float32frombits(0x7F800001)); got != 0x7FC0 {
		t.Errorf("BFloat16: %#x, want 0x7fc0", got)
	}
}

func TestDTypeOfNamesTheTypeWithoutAllocating(t *testing.T) {
	check := func(got, want fuel.DType) {
		t.Helper()
		if got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	all := func() {
		check(fuel.DTypeOf[int8](), fuel.I8)
		check(fuel.DTypeOf[int16](), fuel.I16)
		check(fuel.DTypeOf[int32](), fuel.I32)
		check(fuel.DTypeOf[int64](), fuel.I64)
		check(fuel.DTypeOf[uint8](), fuel.U8)
		check(fuel.DTypeOf[uint16](), fuel.U16)
		check(fuel.DTypeOf[uint32](), fuel.U32)
		check(fuel.DTypeOf[uint64](), fuel.U64)
		check(fuel.DTypeOf[float32](), fuel.F32)
		check(fuel.DTypeOf[float64](), fuel.F64)
		check(fuel.DTypeOf[complex64](), fuel.Complex64)
		check(fuel.DTypeOf[complex128](), fuel.Complex128)
		check(fuel.DTypeOf[fuel.Float16](), fuel.F16)
		check(fuel.DTypeOf[fuel.BFloat16](), fuel.BF16)
		check(fuel.DTypeOf[fuel.Float8E3M4](), fuel.F8E3M4)
		check(fuel.DTypeOf[fuel.Float8E4M3](), fuel.F8E4M3)
		check(fuel.DTypeOf[fuel.Float8E4M3B11FNUZ](), fuel.F8E4M3B11FNUZ)
		check(fuel.DTypeOf[fuel.Float8E4M3FN](), fuel.F8E4M3FN)
		check(fuel.DTypeOf[fuel.Float8E4M3FNUZ](), fuel.F8E4M3FNUZ)
		check(fuel.DTypeOf[fuel.Float8E5M2](), fuel.F8E5M2)
		check(fuel.DTypeOf[fuel.Float8E5M2FNUZ](), fuel.F8E5M2FNUZ)
		check(fuel.DTypeOf[fuel.Float8E8M0FNU](), fuel.F8E8M0FNU)
		check(fuel.DTypeOf[fuel.Float8E6M2](), fuel.F8E6M2)
	}
	if n := testing.AllocsPerRun(100, all); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// goldenScalars reads testdata/dtype/scalars.txt, which golden.py beside it
// made from ml_dtypes: name, kind of row, and its columns.
func goldenScalars(t *testing.T) map[string][]uint32 {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "dtype", "scalars.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows := map[string][]uint32{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if fields[0] == "#" {
			continue
		}
		key := fields[0] + " " + fields[1]
		for _, field := range fields[2:] {
			v, err := strconv.ParseUint(field, 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			rows[key] = append(rows[key], uint32(v))
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

// hasGolden reports whether ml_dtypes knows the type. F8E6M2 it does not.
func (s scalarType) hasGolden() bool { return s.dtype != fuel.F8E6M2 }

// leftOut reports whether golden.py leaves x out: the NaNs, which have tests of
// their own, and for F8E8M0FNU the numbers between 2^-127 and 1.5·2^-127, which
// ml_dtypes 0.6.0 rounds to 2^-126 although they are nearer to 2^-127.
func (s scalarType) leftOut(x float32) bool {
	return x != x || s.dtype == fuel.F8E8M0FNU && x > 0x1p-127 && x < 0x1.8p-127
}

// appendCode appends a code as golden.py hashes it.
func (s scalarType) appendCode(b []byte, code uint16) []byte {
	if s.width() == 16 {
		return binary.LittleEndian.AppendUint16(b, code)
	}
	return append(b, byte(code))
}

func TestWideningNeverDiffersFromMLDtypes(t *testing.T) {
	golden := goldenScalars(t)
	eachScalar(t, func(t *testing.T, s scalarType) {
		if !s.hasGolden() {
			t.Skip("ml_dtypes has no such type")
		}
		want := golden[s.dtype.String()+" widen"]
		if s.width() == 16 {
			var b []byte
			for code := range 1 << 16 {
				if x := s.widen(uint16(code)); x == x {
					b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
				}
			}
			if got := crc32.ChecksumIEEE(b); len(want) != 1 || got != want[0] {
				t.Errorf("CRC-32 %08x, want %08x", got, want)
			}
			return
		}
		if len(want) != 1<<s.width() {
			t.Fatalf("golden file has %d values", len(want))
		}
		for code, w := range want {
			x := s.widen(uint16(code))
			if x != x {
				x = math.Float32frombits(0x7FC00000) // the file has NaNs without a sign
			}
			if got := math.Float32bits(x); got != w {
				t.Errorf("code %#x: %08x, want %08x", code, got, w)
			}
		}
	})
}

func TestNarrowingNeverDiffersFromMLDtypes(t *testing.T) {
	golden := goldenScalars(t)
	eachScalar(t, func(t *testing.T, s scalarType) {
		if !s.hasGolden() {
			t.Skip("ml_dtypes has no such type")
		}
		var b []byte
		for high := range uint32(1 << 16) {
			for _, low := range []uint32{0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF} {
				if x := math.Float32frombits(high<<16 | low); !s.leftOut(x) {
					b = s.appendCode(b, s.narrow(x))
				}
			}
		}
		want := golden[s.dtype.String()+" sample"]
		if got := crc32.ChecksumIEEE(b); len(want) != 1 || got != want[0] {
			t.Errorf("CRC-32 %08x, want %08x", got, want)
		}
	})
}

// TestNarrowingOfEveryFloat32 compares all 2^32 inputs of each type with the
// reference and with ml_dtypes. It takes minutes, so it runs only with
// FUEL_EXHAUSTIVE=1; use -run to choose types and -parallel for the processors.
func TestNarrowingOfEveryFloat32(t *testing.T) {
	if os.Getenv("FUEL_EXHAUSTIVE") != "1" {
		t.Skip("FUEL_EXHAUSTIVE=1 turns it on")
	}
	golden := goldenScalars(t)
	eachScalar(t, func(t *testing.T, s scalarType) {
		mids := s.midpoints(t)
		want := golden[s.dtype.String()+" narrow"]
		if s.hasGolden() && len(want) != 32 {
			t.Fatalf("golden file has %d sums", len(want))
		}
		for chunk := range uint32(32) {
			t.Run(fmt.Sprintf("%#02x", chunk), func(t *testing.T) {
				t.Parallel()
				if got := s.checkChunk(t, mids, chunk); s.hasGolden() && got != want[chunk] {
					t.Errorf("CRC-32 %08x, want %08x", got, want[chunk])
				}
			})
		}
	})
}

// checkChunk goes through 2^27 patterns, whose magnitudes grow, so that the
// reference only has to step from one midpoint to the next. It returns the
// CRC-32 of the codes.
func (s scalarType) checkChunk(t *testing.T, mids []float64, chunk uint32) uint32 {
	const size = 1 << 27
	var b []byte
	sum := uint32(0)
	below := 0 // the number of midpoints below the magnitude
	for i := range uint32(size) {
		x := math.Float32frombits(chunk*size + i)
		if x != x {
			continue // the TestNaN… are for these
		}
		a := math.Abs(float64(x))
		for below < len(mids) && mids[below] < a {
			below++
		}
		c := s.breakTie(mids, a, below)
		got := s.narrow(x)
		if want := s.expect(x, c, false); got != want {
			t.Fatalf("%v (%#08x): code %#x, want %#x", x, math.Float32bits(x), got, want)
		}
		if s.saturate != nil {
			if got, want := s.saturate(x), s.expect(x, c, true); got != want {
				t.Fatalf("%v (%#08x): code %#x when saturating, want %#x", x, math.Float32bits(x), got, want)
			}
		}
		if !s.leftOut(x) {
			b = s.appendCode(b, got)
		}
		if len(b) >= 1<<16 {
			sum, b = crc32.Update(sum, crc32.IEEETable, b), b[:0]
		}
	}
	return crc32.Update(sum, crc32.IEEETable, b)
}

func BenchmarkScalar(b *testing.B) {
	for _, s := range scalarTypes {
		b.Run("op=widen/type="+s.dtype.String(), func(b *testing.B) {
			code := uint16(0)
			for b.Loop() {
				s.widen(code)
				code++
			}
		})
		b.Run("op=narrow/type="+s.dtype.String(), func(b *testing.B) {
			u := uint32(0)
			for b.Loop() {
				s.narrow(math.Float32frombits(u))
				u += 0x10001
			}
		})
	}
}
