package amd64

import (
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// AVX2 generates the kernels that need AVX2 only.
func AVX2() (*ir.File, error) {
	g := avx2{newGenerator()}
	g.set("zeroAVX2", false, false, "zeroAVX2 clears b, of any address and length. Its generic twin is zeroGeneric.")
	g.set("zeroStreamAVX2", false, true, "zeroStreamAVX2 clears b with stores that go around the caches and want a fence in the end.",
		"Its generic twin is zeroGeneric.")
	g.set("fillAVX2", true, false, "fillAVX2 repeats the 16 bytes of which seed is two over b, of any address and length.",
		"Its generic twin is fillGeneric.")
	g.set("fillStreamAVX2", true, true, "fillStreamAVX2 is fillAVX2 with stores that go around the caches and want a fence in the end.",
		"Its generic twin is fillGeneric.")
	g.copy("copyAVX2", false, "copyAVX2 copies len(dst) bytes from src, which dst must not overlap, of any addresses and",
		"length. Its generic twin is copyGeneric.")
	g.copy("copyStreamAVX2", true, "copyStreamAVX2 is copyAVX2 with stores that go around the caches, and a fence.",
		"Its generic twin is copyGeneric.")
	g.function("fence", "func()", "fence orders stores that go around the caches before all that come after it.")
	g.SFENCE()
	g.RET()
	return g.file()
}

type avx2 struct{ generator }

const half = line / 2 // a YMM register

// set writes a kernel that clears, or fills with a pattern, of which seed
// holds 32 bytes so that 16 can be read from any phase. There is no fence in
// it: one at each piece is a thirtieth of the time (BenchmarkZero).
func (g avx2) set(name string, fill, stream bool, doc ...string) {
	signature := "func(b []byte)"
	if fill {
		signature = "func(b []byte, seed *[32]byte)"
	}
	g.function(name, signature, doc...)
	p, n := g.pointer("b"), g.length("b")
	y := g.YMM()
	var seed reg.GPVirtual
	if fill {
		seed = g.param(g.Param("seed"))
		g.VBROADCASTI128(at(seed, 0), y)
	} else {
		g.VPXOR(y.AsX(), y.AsX(), y.AsX())
	}
	// ending is the vector whose last byte belongs at the end of b: any
	// length before the end that is a multiple of 16 has the same phase.
	ending := func() reg.VecVirtual {
		if !fill {
			return y
		}
		phase, v := g.GP64(), g.YMM()
		g.MOVQ(n, phase)
		g.ANDQ(operand.Imm(15), phase)
		g.VBROADCASTI128(end(seed, phase, 0), v)
		return v
	}

	g.CMPQ(n, operand.Imm(line))
	g.JA(operand.LabelRef("big"))
	g.CMPQ(n, operand.Imm(half))
	g.JB(operand.LabelRef("under32"))
	v := ending()
	g.VMOVDQU(y, at(p, 0))
	g.VMOVDQU(v, end(p, n, -half))
	g.done(false)

	g.Label("under32")
	g.CMPQ(n, operand.Imm(16))
	g.JB(operand.LabelRef("under16"))
	v = ending()
	g.VMOVDQU(y.AsX(), at(p, 0))
	g.VMOVDQU(v.AsX(), end(p, n, -16))
	g.done(false)

	g.Label("under16")
	g.small(false, n, func(size int) {
		first := g.GP64()
		if !fill {
			g.XORL(first.As32(), first.As32())
			g.store(size, first, at(p, 0))
			if size > 1 {
				g.store(size, first, end(p, n, -size))
			}
			return
		}
		g.load(size, at(seed, 0), first)
		g.store(size, first, at(p, 0))
		if size > 1 {
			g.load(size, end(seed, n, -size), first)
			g.store(size, first, end(p, n, -size))
		}
	})

	g.Label("big")
	v = ending()
	last := g.GP64()
	g.LEAQ(end(p, n, -line), last)
	left := n
	skip := g.untilLine(p)
	g.VMOVDQU(y, at(p, 0))
	g.VMOVDQU(y, at(p, half))
	if fill {
		phase := g.GP64()
		g.Comment("From here on the pattern begins at its byte skip mod 16.")
		g.MOVQ(skip, phase)
		g.ANDQ(operand.Imm(15), phase)
		g.VBROADCASTI128(end(seed, phase, 0), y)
	}
	g.ADDQ(skip, p)
	g.SUBQ(skip, left)
	g.Label("aligned")
	g.blocks(left, func(lines int) {
		for d := 0; d < lines*line; d += half {
			if stream {
				g.VMOVNTDQ(y, at(p, d))
			} else {
				g.VMOVDQA(y, at(p, d))
			}
		}
		g.advance(lines*line, p)
	})
	g.ifRest(left)
	g.VMOVDQU(v, at(last, 0))
	g.VMOVDQU(v, at(last, half))
	g.Label("done")
	g.done(false)
}

// copy writes a kernel that copies.
func (g avx2) copy(name string, stream bool, doc ...string) {
	g.function(name, "func(dst, src []byte)", doc...)
	d, s, n := g.pointer("dst"), g.pointer("src"), g.length("dst")
	v := make([]reg.VecVirtual, unroll*line/half)
	for i := range v {
		v[i] = g.YMM()
	}

	g.CMPQ(n, operand.Imm(line))
	g.JA(operand.LabelRef("big"))
	g.CMPQ(n, operand.Imm(half))
	g.JB(operand.LabelRef("under32"))
	g.VMOVDQU(at(s, 0), v[0])
	g.VMOVDQU(end(s, n, -half), v[1])
	g.VMOVDQU(v[0], at(d, 0))
	g.VMOVDQU(v[1], end(d, n, -half))
	g.done(stream)

	g.Label("under32")
	g.CMPQ(n, operand.Imm(16))
	g.JB(operand.LabelRef("under16"))
	g.VMOVDQU(at(s, 0), v[0].AsX())
	g.VMOVDQU(end(s, n, -16), v[1].AsX())
	g.VMOVDQU(v[0].AsX(), at(d, 0))
	g.VMOVDQU(v[1].AsX(), end(d, n, -16))
	g.done(stream)

	g.Label("under16")
	g.small(stream, n, func(size int) {
		first, last := g.GP64(), g.GP64()
		g.load(size, at(s, 0), first)
		if size > 1 {
			g.load(size, end(s, n, -size), last)
		}
		g.store(size, first, at(d, 0))
		if size > 1 {
			g.store(size, last, end(d, n, -size))
		}
	})

	g.Label("big")
	last := g.GP64()
	g.LEAQ(end(d, n, -line), last)
	tail := []reg.VecVirtual{g.YMM(), g.YMM()}
	g.VMOVDQU(end(s, n, -line), tail[0])
	g.VMOVDQU(end(s, n, -half), tail[1])
	left := n
	skip := g.untilLine(d)
	g.VMOVDQU(at(s, 0), v[0])
	g.VMOVDQU(at(s, half), v[1])
	g.VMOVDQU(v[0], at(d, 0))
	g.VMOVDQU(v[1], at(d, half))
	g.ADDQ(skip, s)
	g.ADDQ(skip, d)
	g.SUBQ(skip, left)
	g.Label("aligned")
	g.blocks(left, func(lines int) {
		if stream {
			g.next(s, lines)
		}
		for i, r := range v[:lines*line/half] {
			g.VMOVDQU(at(s, i*half), r)
		}
		for i, r := range v[:lines*line/half] {
			if stream {
				g.VMOVNTDQ(r, at(d, i*half))
			} else {
				g.VMOVDQA(r, at(d, i*half))
			}
		}
		g.advance(lines*line, s, d)
	})
	g.ifRest(left)
	g.VMOVDQU(tail[0], at(last, 0))
	g.VMOVDQU(tail[1], at(last, half))
	g.Label("done")
	g.done(stream)
}

// ifRest skips what makes the rest where there is none.
func (g avx2) ifRest(left reg.GPVirtual) {
	g.ADDQ(operand.Imm(line), left)
	g.JE(operand.LabelRef("done"))
}

// small writes the paths for fewer than 16 bytes: move does the first and the
// last size bytes of n, which overlap, or one byte.
func (g avx2) small(stream bool, n reg.GPVirtual, move func(size int)) {
	for _, size := range []int{8, 4, 2, 1} {
		next := "under" + string(rune('0'+size))
		g.CMPQ(n, operand.Imm(uint64(size)))
		g.JB(operand.LabelRef(next))
		move(size)
		g.done(stream)
		g.Label(next)
	}
	g.done(stream)
}

func (g avx2) load(size int, m operand.Mem, r reg.GPVirtual) {
	switch size {
	case 8:
		g.MOVQ(m, r)
	case 4:
		g.MOVL(m, r.As32())
	case 2:
		g.MOVWLZX(m, r.As32())
	case 1:
		g.MOVBLZX(m, r.As32())
	}
}

func (g avx2) store(size int, r reg.GPVirtual, m operand.Mem) {
	switch size {
	case 8:
		g.MOVQ(r, m)
	case 4:
		g.MOVL(r.As32(), m)
	case 2:
		g.MOVW(r.As16(), m)
	case 1:
		g.MOVB(r.As8(), m)
	}
}
