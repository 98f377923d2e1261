package arm64

import (
	"fmt"
	"strings"

	"github.com/mmcloughlin/avo/ir"
)

// ConvertNEON generates the conversion kernels. They go from the first element
// on, wherever it lies, and end with the last eight elements, which are done
// again where eight do not divide the number. dst and src have no byte in
// common, so that is harmless; where they may be the same (swap), the last are
// read before anything is written.
//
// FPCR is as Go leaves it: round to nearest, subnormals kept, a NaN keeps its
// payload.
func ConvertNEON() (*ir.File, error) {
	g := newGenerator()
	const zero q = 31
	g.convert("bf16ToF32NEON", 2, 4, conversion{
		constants: func() { g.op("VEOR", zero.as("B16"), zero.as("B16"), zero.as("B16")) },
		step: func(in, out []q) {
			for i, zip := range []string{"VZIP1", "VZIP2"}[:len(out)] {
				g.op(zip, in[0].as("H8"), zero.as("H8"), out[i].as("H8"))
			}
		},
	}, "bf16ToF32NEON converts len(dst)/4 elements of src.")
	g.convert("f16ToF32NEON", 2, 4, conversion{step: func(in, out []q) {
		for i, e := range []encoding{fcvtl, fcvtl2}[:len(out)] {
			g.code(e, in[0], out[i])
		}
	}}, "f16ToF32NEON converts len(dst)/4 elements of src.")
	g.convert("f32ToBF16NEON", 4, 2, g.roundBF16(),
		"f32ToBF16NEON rounds len(dst)/2 elements of src to nearest even.")
	g.convert("f32ToF16NEON", 4, 2, conversion{step: func(in, out []q) {
		for i, e := range []encoding{fcvtn, fcvtn2}[:len(in)] {
			g.code(e, in[i], out[0])
		}
	}}, "f32ToF16NEON rounds len(dst)/2 elements of src to nearest even.")

	g.quants("q8_0ToF32NEON", 34, func() {
		g.op("FMOVQ", mem{src, 2}, q(0))
		g.op("FMOVQ", mem{src, 18}, q(1))
	}, func() {})
	const low, eight q = 30, 29
	g.quants("q4_0ToF32NEON", 18, func() {
		g.op("FMOVQ", mem{src, 2}, q(1))
		g.op("VAND", low.as("B16"), q(1).as("B16"), q(0).as("B16"))
		g.op("VUSHR", imm(4), q(1).as("B16"), q(1).as("B16"))
		for _, v := range []q{0, 1} {
			g.op("VSUB", eight.as("B16"), v.as("B16"), v.as("B16"))
		}
	}, func() {
		g.op("VMOVI", imm(15), low.as("B16"))
		g.op("VMOVI", imm(8), eight.as("B16"))
	})

	for _, width := range []int{2, 4, 8} {
		g.swap(width)
	}
	return g.file()
}

// A conversion is what a kernel does with the elements in registers: step
// takes eight elements, or up to four, from one or two registers to one or
// two. constants, if any, sets V28 to V31; step may use V24 to V27 too.
type conversion struct {
	constants func()
	step      func(in, out []q)
}

// roundBF16 adds half of what is cut off, less one where the result is even
// already, and cuts. A NaN is cut only, and made quiet.
func (g *generator) roundBF16() conversion {
	const half, quiet, lsb, nan q = 31, 30, 24, 25
	return conversion{
		constants: func() {
			g.op("MOVD", imm(0x7FFF), tmp)
			g.op("VDUP", tmp, half.as("S4"))
			g.op("MOVD", imm(0x400000), tmp)
			g.op("VDUP", tmp, quiet.as("S4"))
		},
		step: func(in, out []q) {
			rounded := []q{26, 27}[:len(in)]
			for i, v := range in {
				r := rounded[i]
				g.op("VADD", half.as("S4"), v.as("S4"), nan.as("S4"))
				g.op("VSHL", imm(15), v.as("S4"), lsb.as("S4"))
				g.op("VUSRA", imm(31), lsb.as("S4"), nan.as("S4"))
				g.code(fcmeq, v, v, r) // false for a NaN only
				g.op("VORR", quiet.as("B16"), v.as("B16"), v.as("B16"))
				g.op("VBSL", v.as("B16"), nan.as("B16"), r.as("B16"))
			}
			g.op("VUZP2", rounded[len(in)-1].as("H8"), rounded[0].as("H8"), out[0].as("H8"))
		},
	}
}

// convert writes a kernel from elements of one size to elements of another,
// one of which is twice the other.
func (g *generator) convert(name string, from, to int, c conversion, doc ...string) {
	g.conversion(name, doc...)
	g.op("ADD", dst, left, last)
	if from < to {
		g.op("ADD", word(left.Asm()+">>1"), src, lastS)
	} else {
		g.op("ADD", word(left.Asm()+"<<1"), src, lastS)
	}
	if c.constants != nil {
		c.constants()
	}
	// some does n elements, a power of two.
	some := func(n int, s, d mem) {
		in, out := registers(0, n*from), registers(16, n*to)
		g.loadQ(s, n*from, in)
		for rounds, i := max(n/8, 1), 0; i < rounds; i++ {
			k, l := len(in)/rounds, len(out)/rounds
			c.step(in[i*k:][:k], out[i*l:][:l])
		}
		g.storeQ(out, n*to, d)
	}

	g.under(8*to, "small")
	g.blocks(8*to, func(lines int) {
		some(8*lines, mem{src, 0}, mem{dst, 0})
		g.op("ADD", imm(8*from*lines), src)
		g.op("ADD", imm(8*to*lines), dst)
	})
	some(8, mem{lastS, -8 * from}, mem{last, -8 * to})
	g.op("RET")
	g.label("small")
	for _, n := range []int{4, 2, 1} {
		next := label(fmt.Sprint("under", n))
		g.under(n*to, next)
		some(n, mem{src, 0}, mem{dst, 0})
		if n > 1 {
			some(n, mem{lastS, -n * from}, mem{last, -n * to})
		}
		g.op("RET")
		g.label(next)
	}
	g.op("RET")
}

// quants writes a kernel from GGML blocks of size bytes, which begin with their
// scale as an f16, to 32 elements each. load sets V0 to the first 16 as i8 and
// V1 to the others; constants sets what it needs, V29 and V30.
func (g *generator) quants(name string, size int, load, constants func()) {
	const scale q = 31
	g.conversion(name, name+fmt.Sprintf(" converts len(dst)/128 blocks of %d bytes.", size))
	constants()
	g.label("loop")
	g.op("SUBS", imm(128), left)
	g.op("BLO", label("done"))
	g.op("VLD1R", mem{src, 0}, word("["+string(scale.as("H4"))+"]"))
	g.code(fcvtl, scale, scale)
	load()
	g.op("ADD", imm(size), src)
	for i := range q(2) {
		g.code(sxtlB, i, 2+2*i)
		g.code(sxtlB2, i, 3+2*i)
	}
	for i := range q(4) {
		g.code(sxtlH, 2+i, 16+2*i)
		g.code(sxtlH2, 2+i, 17+2*i)
	}
	for i := range q(8) {
		g.code(scvtf, 16+i, 16+i)
	}
	for i := range q(8) {
		g.code(fmul, scale, 16+i, 16+i)
	}
	g.storeQ(registers(16, 128), 128, mem{dst, 0})
	g.op("ADD", imm(128), dst)
	g.op("B", label("loop"))
	g.label("done")
	g.op("RET")
}

// swap writes a kernel that reverses the bytes of elements of width bytes.
func (g *generator) swap(width int) {
	name := fmt.Sprintf("swap%dNEON", width)
	g.conversion(name, name+fmt.Sprintf(" reverses the bytes of len(dst)/%d elements of src, which may be dst.", width))
	g.op("ADD", dst, left, last)
	g.op("ADD", src, left, lastS)
	reverse := func(vs ...q) {
		for _, v := range vs {
			g.op(fmt.Sprintf("VREV%d", 8*width), v.as("B16"), v.as("B16"))
		}
	}
	const ending q = 16

	g.under(16, "small")
	g.op("FMOVQ", mem{lastS, -16}, ending)
	reverse(ending)
	g.blocks(16, func(lines int) {
		vs := registers(0, 16*lines)
		g.loadQ(mem{src, 0}, 16*lines, vs)
		reverse(vs...)
		g.storeQ(vs, 16*lines, mem{dst, 0})
		g.op("ADD", imm(16*lines), src)
		g.op("ADD", imm(16*lines), dst)
	})
	g.op("FMOVQ", ending, mem{last, -16})
	g.op("RET")
	g.label("small")
	for size := 8; size >= width; size /= 2 {
		next := label(fmt.Sprint("under", size))
		g.under(size, next)
		g.loadQ(mem{src, 0}, size, []q{0})
		g.loadQ(mem{lastS, -size}, size, []q{1})
		reverse(0, 1)
		g.storeQ([]q{0}, size, mem{dst, 0})
		g.storeQ([]q{1}, size, mem{last, -size})
		g.op("RET")
		g.label(next)
	}
	g.op("RET")
}

// conversion begins a kernel with its parameters loaded.
func (g *generator) conversion(name string, doc ...string) {
	generic := strings.TrimSuffix(name, "NEON") + "Generic"
	g.function(name, "func(dst, src []byte)", append(doc, "Any addresses. Its generic twin is "+generic+".")...)
	g.load(g.param("dst").Base(), dst)
	g.load(g.param("dst").Len(), left)
	g.load(g.param("src").Base(), src)
}

// registers are those from first on that hold so many bytes, at least one.
func registers(first q, bytes int) (vs []q) {
	for i := range max(bytes/16, 1) {
		vs = append(vs, first+q(i))
	}
	return vs
}

// moveQ has the load and store of so many bytes of a vector register. A load
// clears the rest of it.
var moveQ = map[int]string{16: "FMOVQ", 8: "FMOVD", 4: "FMOVS"}

// loadQ loads size bytes, a power of two from 2 on, into vs.
func (g *generator) loadQ(from mem, size int, vs []q) {
	switch {
	case size == 2:
		g.op("MOVHU", from, tmp)
		g.op("FMOVS", tmp, vs[0])
	case size <= 16:
		g.op(moveQ[size], from, vs[0])
	default:
		for i := 0; i < len(vs); i += 2 {
			g.op("FLDPQ", mem{from.base, from.disp + 16*i}, pair{vs[i], vs[i+1]})
		}
	}
}

// storeQ stores the first size bytes of vs.
func (g *generator) storeQ(vs []q, size int, to mem) {
	switch {
	case size == 2:
		g.op("FMOVS", vs[0], tmp)
		g.op("MOVHU", tmp, to)
	case size <= 16:
		g.op(moveQ[size], vs[0], to)
	default:
		for i := 0; i < len(vs); i += 2 {
			g.op("FSTPQ", pair{vs[i], vs[i+1]}, mem{to.base, to.disp + 16*i})
		}
	}
}
