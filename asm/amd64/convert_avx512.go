package amd64

import (
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// ConvertAVX512 generates the conversions with ZMM registers and masks.
func ConvertAVX512() (*ir.File, error) {
	g := avx512{newGenerator()}
	g.each("AVX512", line, elements, g.elements)
	g.each("AVX512", line, scaled, g.scaled)
	return g.file()
}

// converter is that of AVX2 in registers twice as wide.
func (g avx512) converter(c conversion) (one func(src operand.Op) reg.VecVirtual, join func(a, b reg.VecVirtual) reg.VecVirtual) {
	whole := func(src operand.Op) reg.VecVirtual {
		if z, ok := src.(reg.VecVirtual); ok {
			return z
		}
		z := g.ZMM()
		g.VMOVDQU64(src, z)
		return z
	}
	join = func(a, b reg.VecVirtual) reg.VecVirtual {
		z := g.ZMM()
		g.VINSERTI64X4(operand.Imm(1), b, a.AsZ(), z)
		return z
	}
	switch c.name {
	case "bf16ToF32":
		return func(src operand.Op) reg.VecVirtual {
			z := g.ZMM()
			g.VPMOVZXWD(src, z)
			g.VPSLLD(operand.Imm(16), z, z)
			return z
		}, nil
	case "f16ToF32":
		return func(src operand.Op) reg.VecVirtual {
			z := g.ZMM()
			g.VCVTPH2PS(src, z)
			return z
		}, nil
	case "f32ToBF16":
		one, half, quiet := g.every32(1), g.every32(0x7FFF), g.every32(1<<22)
		return func(src operand.Op) reg.VecVirtual {
			u, round, nan := whole(src), g.ZMM(), g.K()
			g.Comment("Half of what is cut off, or a little less where that leaves it even; for NaN the quiet bit instead.")
			g.VPSRLD(operand.Imm(16), u, round)
			g.VPANDD(one, round, round)
			g.VPADDD(half, round, round)
			g.VPADDD(u, round, round)
			g.VCMPPS(operand.Imm(unordered), u, u, nan)
			g.VPORD(quiet, u, nan, round)
			g.VPSRLD(operand.Imm(16), round, round)
			y := g.YMM()
			g.VPMOVDW(round, y)
			return y
		}, join
	case "f32ToF16":
		return func(src operand.Op) reg.VecVirtual {
			y := g.YMM()
			g.VCVTPS2PH(operand.Imm(0), whole(src), y)
			return y
		}, join
	}
	x, turn := g.sixteen(reversed(c.to)).AsZ(), g.ZMM()
	g.VSHUFI32X4(operand.Imm(0), x, x, turn)
	return func(src operand.Op) reg.VecVirtual {
		z := whole(src)
		g.VPSHUFB(turn, z, z)
		return z
	}, nil
}

// every32 returns a register with n in each 32 bits.
func (g avx512) every32(n int) reg.VecVirtual {
	r, z := g.GP32(), g.ZMM()
	g.MOVL(operand.U32(n), r)
	g.VPBROADCASTD(r, z)
	return z
}

// elements writes the body of a kernel. What lies before the first line is
// made first and stored last, so that where dst is src it is read only once.
func (g avx512) elements(c conversion, stream bool) {
	d, s, n := g.pointer("dst"), g.pointer("src"), g.length("dst")
	one, join := g.converter(c)
	// vector makes 64 bytes of dst from src at m.
	vector := func(m operand.Mem) reg.VecVirtual {
		v := one(m)
		if join != nil {
			v = join(v, one(m.Offset(line)))
		}
		return v
	}
	// masked makes the 1 to 64 bytes at d of which left is the count.
	masked := func(left reg.GPVirtual) {
		size := g.ofSource(c, left)
		z := g.ZMM()
		g.VMOVDQU8_Z(at(s, 0), g.first(size), z)
		var v reg.VecVirtual
		switch {
		case join != nil:
			second, none := g.ZMM(), g.GP64()
			g.XORL(none.As32(), none.As32())
			g.SUBQ(operand.Imm(line), size)
			g.CMOVQCS(none, size)
			g.VMOVDQU8_Z(at(s, line), g.first(size), second)
			v = join(one(z), one(second))
		case c.from < c.to:
			v = one(z.AsY())
		default:
			v = one(z)
		}
		g.VMOVDQU8(v, g.first(left), at(d, 0))
	}

	g.CMPQ(n, operand.Imm(line))
	g.JA(operand.LabelRef("big"))
	g.Comment("A masked store of nothing next to an unmapped page is slow, so none.")
	g.TESTQ(n, n)
	g.JE(operand.LabelRef("done"))
	masked(n)
	g.done(stream)

	g.Label("big")
	left := n
	var head reg.VecVirtual
	var begin reg.GPVirtual
	if stream {
		head, begin = vector(at(s, 0)), g.GP64()
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
		for i := range lines {
			v := vector(at(s, c.ratio(i*line)))
			if stream {
				g.VMOVNTDQ(v, at(d, i*line))
			} else {
				g.VMOVDQU64(v, at(d, i*line))
			}
		}
		g.advance(lines*line, d)
		g.advance(c.ratio(lines*line), s)
	})
	g.ADDQ(operand.Imm(line), left)
	g.JE(operand.LabelRef("head"))
	masked(left)
	g.Label("head")
	if stream {
		g.VMOVDQU64(head, at(begin, 0))
	}
	g.Label("done")
	g.done(stream)
}

// scaled writes the body of a kernel for blocks of 32 numbers and a scale,
// which comes first.
func (g avx512) scaled(c conversion, stream bool) {
	d, s, n := g.pointer("dst"), g.pointer("src"), g.length("dst")
	var values reg.VecVirtual
	if c.name == "q4_0ToF32" {
		g.Comment("The numbers that four bits stand for, -8 to 7.")
		values = g.ZMM()
		g.VPMOVSXBD(g.sixteen([2]uint64{0xFFFEFDFCFBFAF9F8, 0x0706050403020100}), values)
		g.VCVTDQ2PS(values, values)
	}
	store := func(z reg.VecVirtual, disp int) {
		if stream {
			g.VMOVNTPS(z, at(d, disp))
		} else {
			g.VMOVUPS(z, at(d, disp))
		}
	}
	g.TESTQ(n, n)
	g.JE(operand.LabelRef("done"))
	scale := g.ZMM()
	g.Label("block")
	if stream {
		g.prefetch(s, c.from)
	}
	g.VPBROADCASTW(at(s, 0), scale)
	g.VCVTPH2PS(scale.AsY(), scale)
	if c.name == "q8_0ToF32" {
		for i := range 2 {
			z := g.ZMM()
			g.VPMOVSXBD(at(s, 2+16*i), z)
			g.VCVTDQ2PS(z, z)
			g.VMULPS(scale, z, z)
			store(z, 64*i)
		}
	} else {
		table, low, high := g.ZMM(), g.ZMM(), g.ZMM()
		g.Comment("Times the scale. VPERMPS looks at the low four bits, which are numbers 0 to 15; the high ones are 16 to 31.")
		g.VMULPS(scale, values, table)
		g.VPMOVZXBD(at(s, 2), low)
		g.VPSRLD(operand.Imm(4), low, high)
		g.VPERMPS(table, low, low)
		g.VPERMPS(table, high, high)
		store(low, 0)
		store(high, 64)
	}
	g.advance(c.from, s)
	g.advance(c.to, d)
	g.ADDQ(operand.I32(-c.to), n)
	g.JNE(operand.LabelRef("block"))
	g.Label("done")
	g.done(stream)
}
