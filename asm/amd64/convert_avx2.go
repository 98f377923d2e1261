package amd64

import (
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// ConvertAVX2 generates the conversions that need AVX2 and F16C.
func ConvertAVX2() (*ir.File, error) {
	g := avx2{newGenerator()}
	g.each("AVX2", half, elements, g.elements)
	g.each("AVX2", half, scaled, g.scaled)
	return g.file()
}

// converter loads the constants of c and returns what makes a register of dst.
// one takes a register of src, or half of one where elements grow, and where
// they shrink makes half a register, of which join makes a whole one.
func (g avx2) converter(c conversion) (one func(src operand.Op) reg.VecVirtual, join func(a, b reg.VecVirtual) reg.VecVirtual) {
	whole := func(src operand.Op) reg.VecVirtual {
		if x, ok := src.(reg.VecVirtual); ok {
			return x.AsY().(reg.VecVirtual)
		}
		y := g.YMM()
		g.VMOVDQU(src, y)
		return y
	}
	switch c.name {
	case "bf16ToF32":
		return func(src operand.Op) reg.VecVirtual {
			y := g.YMM()
			g.VPMOVZXWD(src, y)
			g.VPSLLD(operand.Imm(16), y, y)
			return y
		}, nil
	case "f16ToF32":
		return func(src operand.Op) reg.VecVirtual {
			y := g.YMM()
			g.VCVTPH2PS(src, y)
			return y
		}, nil
	case "f32ToBF16":
		one, half, quiet := g.every32(1), g.every32(0x7FFF), g.every32(1<<22)
		return func(src operand.Op) reg.VecVirtual {
				u, round, nan := whole(src), g.YMM(), g.YMM()
				g.Comment("Half of what is cut off, or a little less where that leaves it even; for NaN the quiet bit instead.")
				g.VPSRLD(operand.Imm(16), u, round)
				g.VPAND(one, round, round)
				g.VPADDD(half, round, round)
				g.VCMPPS(operand.Imm(unordered), u, u, nan)
				g.VPANDN(round, nan, round)
				g.VPADDD(round, u, round)
				g.VPAND(quiet, nan, nan)
				g.VPOR(nan, round, round)
				g.VPSRLD(operand.Imm(16), round, round)
				return round
			}, func(a, b reg.VecVirtual) reg.VecVirtual {
				g.VPACKUSDW(b, a, a)
				g.VPERMQ(operand.Imm(0b11_01_10_00), a, a)
				return a
			}
	case "f32ToF16":
		return func(src operand.Op) reg.VecVirtual {
				x := g.XMM()
				g.VCVTPS2PH(operand.Imm(0), whole(src), x)
				return x
			}, func(a, b reg.VecVirtual) reg.VecVirtual {
				y := g.YMM()
				g.VINSERTI128(operand.Imm(1), b, a.AsY(), y)
				return y
			}
	}
	x, turn := g.sixteen(reversed(c.to)), g.YMM()
	g.VINSERTI128(operand.Imm(1), x, x.AsY(), turn)
	return func(src operand.Op) reg.VecVirtual {
		y := whole(src)
		g.VPSHUFB(turn, y, y)
		return y
	}, nil
}

// unordered is the predicate of VCMPPS that is true for NaN.
const unordered = 3

// every32 returns a register with n in each 32 bits.
func (g avx2) every32(n int) reg.VecVirtual {
	r, y := g.GP32(), g.YMM()
	g.MOVL(operand.U32(n), r)
	g.VMOVD(r, y.AsX())
	g.VPBROADCASTD(y.AsX(), y)
	return y
}

// elements writes the body of a kernel. What lies before the first line and
// after the last is made first and stored last, in whole registers that
// overlap the rest: where dst is src, each byte of src is then read once only.
func (g avx2) elements(c conversion, stream bool) {
	d, s, n := g.pointer("dst"), g.pointer("src"), g.length("dst")
	one, join := g.converter(c)
	// vector makes 32 bytes of dst from src at m.
	vector := func(m operand.Mem) reg.VecVirtual {
		v := one(m)
		if join != nil {
			v = join(v, one(m.Offset(half)))
		}
		return v
	}

	g.CMPQ(n, operand.Imm(line))
	g.JA(operand.LabelRef("big"))
	g.CMPQ(n, operand.Imm(half))
	g.JB(operand.LabelRef("under32"))
	size := g.ofSource(c, n)
	first := vector(at(s, 0))
	last := vector(end(s, size, -c.ratio(half)))
	g.VMOVDQU(first, at(d, 0))
	g.VMOVDQU(last, end(d, n, -half))
	g.done(stream)

	g.Label("under32")
	g.Comment("One by one.")
	g.TESTQ(n, n)
	g.JE(operand.LabelRef("done"))
	g.Label("element")
	x := g.XMM()
	switch c.from {
	case 2:
		r := g.GP32()
		g.MOVWLZX(at(s, 0), r)
		g.VMOVD(r, x)
	case 4:
		g.VMOVD(at(s, 0), x)
	case 8:
		g.VMOVQ(at(s, 0), x)
	}
	switch x := one(x).AsX(); c.to {
	case 2:
		g.VPEXTRW(operand.Imm(0), x, at(d, 0))
	case 4:
		g.VMOVD(x, at(d, 0))
	case 8:
		g.VMOVQ(x, at(d, 0))
	}
	g.advance(c.from, s)
	g.advance(c.to, d)
	g.SUBQ(operand.Imm(uint64(c.to)), n)
	g.JNE(operand.LabelRef("element"))
	g.Label("done")
	g.done(stream)

	g.Label("big")
	size = g.ofSource(c, n)
	tail := [2]reg.VecVirtual{vector(end(s, size, -c.ratio(line))), vector(end(s, size, -c.ratio(half)))}
	before := g.GP64()
	g.LEAQ(end(d, n, -line), before)
	left := n
	var head [2]reg.VecVirtual
	var begin reg.GPVirtual
	if stream {
		head = [2]reg.VecVirtual{vector(at(s, 0)), vector(at(s, c.ratio(half)))}
		begin = g.GP64()
		g.MOVQ(d, begin)
		skip := g.toLine(d)
		g.ADDQ(skip, d)
		g.ADDQ(g.ofSource(c, skip), s)
		g.SUBQ(skip, left)
	}
	g.blocks(left, func(lines int) {
		if stream && c.from < c.to && lines > 1 {
			g.prefetch(s, c.ratio(lines*line))
		}
		for i := 0; i < lines*line; i += half {
			v := vector(at(s, c.ratio(i)))
			if stream {
				g.VMOVNTDQ(v, at(d, i))
			} else {
				g.VMOVDQU(v, at(d, i))
			}
		}
		g.advance(lines*line, d)
		g.advance(c.ratio(lines*line), s)
	})
	if stream {
		g.VMOVDQU(head[0], at(begin, 0))
		g.VMOVDQU(head[1], at(begin, half))
	}
	g.VMOVDQU(tail[0], at(before, 0))
	g.VMOVDQU(tail[1], at(before, half))
	g.done(stream)
}

// scaled writes the body of a kernel for blocks of 32 numbers and a scale,
// which comes first.
func (g avx2) scaled(c conversion, stream bool) {
	d, s, n := g.pointer("dst"), g.pointer("src"), g.length("dst")
	var low, bias reg.VecVirtual
	if c.name == "q4_0ToF32" {
		low = g.sixteen([2]uint64{0x0F0F0F0F0F0F0F0F, 0x0F0F0F0F0F0F0F0F})
		bias = g.sixteen([2]uint64{0x0808080808080808, 0x0808080808080808})
	}
	scale := g.YMM()
	// store writes eight numbers, the signed bytes of src.
	store := func(src operand.Op, disp int) {
		y := g.YMM()
		g.VPMOVSXBD(src, y)
		g.VCVTDQ2PS(y, y)
		g.VMULPS(scale, y, y)
		if stream {
			g.VMOVNTPS(y, at(d, disp))
		} else {
			g.VMOVUPS(y, at(d, disp))
		}
	}
	g.TESTQ(n, n)
	g.JE(operand.LabelRef("done"))
	g.Label("block")
	if stream {
		g.prefetch(s, c.from)
	}
	g.VPBROADCASTW(at(s, 0), scale.AsX())
	g.VCVTPH2PS(scale.AsX(), scale)
	if c.name == "q8_0ToF32" {
		for i := range 4 {
			store(at(s, 2+8*i), 32*i)
		}
	} else {
		q, high := g.XMM(), g.XMM()
		g.Comment("The low halves of the bytes are numbers 0 to 15, the high ones 16 to 31; 8 is zero.")
		g.VMOVDQU(at(s, 2), q)
		g.VPSRLW(operand.Imm(4), q, high)
		for i, x := range []reg.VecVirtual{q, high} {
			g.VPAND(low, x, x)
			g.VPSUBB(bias, x, x)
			store(x, 64*i)
			g.VPUNPCKHQDQ(x, x, x)
			store(x, 64*i+32)
		}
	}
	g.advance(c.from, s)
	g.advance(c.to, d)
	g.ADDQ(operand.I32(-c.to), n)
	g.JNE(operand.LabelRef("block"))
	g.Label("done")
	g.done(stream)
}
