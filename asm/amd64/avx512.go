package amd64

import (
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// AVX512 generates the kernels with ZMM registers and masks: what is less
// than a line is one masked store, which touches no byte outside its mask.
func AVX512() (*ir.File, error) {
	g := avx512{newGenerator()}
	g.set("zeroAVX512", false, false, "zeroAVX512 clears b, of any address and length. Its generic twin is zeroGeneric.")
	g.set("zeroStreamAVX512", false, true, "zeroStreamAVX512 clears b with stores that go around the caches and want a fence in the end.",
		"Its generic twin is zeroGeneric.")
	g.set("fillAVX512", true, false, "fillAVX512 repeats the 16 bytes of which seed is two over b, of any address and length.",
		"Its generic twin is fillGeneric.")
	g.set("fillStreamAVX512", true, true, "fillStreamAVX512 is fillAVX512 with stores that go around the caches and want a fence in the end.",
		"Its generic twin is fillGeneric.")
	g.copy("copyAVX512", "copyAVX512 copies len(dst) bytes from src, which dst must not overlap, of any addresses and",
		"length. Its generic twin is copyGeneric.")
	return g.file()
}

type avx512 struct{ generator }

// first returns the mask of the first n bytes of a line. All of it where n is
// 64 or more; n below 256.
func (g avx512) first(n reg.Register) reg.OpmaskVirtual {
	bits, k := g.GP64(), g.K()
	g.MOVQ(operand.I32(-1), bits)
	g.BZHIQ(n, bits, bits)
	g.KMOVQ(bits, k)
	return k
}

// rest adds the line to left again that the loops took away, and skips the
// rest where there is none.
func (g avx512) rest(left reg.GPVirtual) reg.OpmaskVirtual {
	g.ADDQ(operand.Imm(line), left)
	g.JE(operand.LabelRef("done"))
	return g.first(left)
}

// set writes a kernel that clears, or fills with a pattern, of which seed
// holds 32 bytes so that 16 can be read from any phase. As in AVX2, there is no
// fence in it.
func (g avx512) set(name string, fill, stream bool, doc ...string) {
	signature := "func(b []byte)"
	if fill {
		signature = "func(b []byte, seed *[32]byte)"
	}
	g.function(name, signature, doc...)
	p, n := g.pointer("b"), g.length("b")
	z := g.ZMM()
	var seed reg.GPVirtual
	if fill {
		seed = g.param(g.Param("seed"))
		g.VBROADCASTI32X4(at(seed, 0), z)
	} else {
		g.VPXORD(z, z, z)
	}

	g.CMPQ(n, operand.Imm(line))
	g.JA(operand.LabelRef("big"))
	g.Comment("A masked store of nothing next to an unmapped page is slow, so none.")
	g.TESTQ(n, n)
	g.JE(operand.LabelRef("done"))
	g.VMOVDQU8(z, g.first(n), at(p, 0))
	g.done(false)

	g.Label("big")
	left := n
	skip := g.untilLine(p)
	g.VMOVDQU64(z, at(p, 0))
	if fill {
		phase := g.GP64()
		g.Comment("From here on the pattern begins at its byte skip mod 16.")
		g.MOVQ(skip, phase)
		g.ANDQ(operand.Imm(15), phase)
		g.VBROADCASTI32X4(end(seed, phase, 0), z)
	}
	g.ADDQ(skip, p)
	g.SUBQ(skip, left)
	g.Label("aligned")
	g.blocks(left, func(lines int) {
		for i := range lines {
			if stream {
				g.VMOVNTDQ(z, at(p, i*line))
			} else {
				g.VMOVDQA64(z, at(p, i*line))
			}
		}
		g.advance(lines*line, p)
	})
	g.VMOVDQU8(z, g.rest(left), at(p, 0))
	g.Label("done")
	g.done(false)
}

// copy writes a kernel that copies, through the caches. Around them AVX2 is as
// fast, and faster where src is not aligned as dst is: half as many of its loads
// lie in two lines (BenchmarkCopy).
func (g avx512) copy(name string, doc ...string) {
	g.function(name, "func(dst, src []byte)", doc...)
	d, s, n := g.pointer("dst"), g.pointer("src"), g.length("dst")
	v := make([]reg.VecVirtual, unroll)
	for i := range v {
		v[i] = g.ZMM()
	}

	g.CMPQ(n, operand.Imm(line))
	g.JA(operand.LabelRef("big"))
	g.TESTQ(n, n)
	g.JE(operand.LabelRef("done"))
	k := g.first(n)
	g.VMOVDQU8_Z(at(s, 0), k, v[0])
	g.VMOVDQU8(v[0], k, at(d, 0))
	g.done(false)

	g.Label("big")
	left := n
	skip := g.untilLine(d)
	g.VMOVDQU64(at(s, 0), v[0])
	g.VMOVDQU64(v[0], at(d, 0))
	g.ADDQ(skip, s)
	g.ADDQ(skip, d)
	g.SUBQ(skip, left)
	g.Label("aligned")
	g.blocks(left, func(lines int) {
		for i, r := range v[:lines] {
			g.VMOVDQU64(at(s, i*line), r)
		}
		for i, r := range v[:lines] {
			g.VMOVDQA64(r, at(d, i*line))
		}
		g.advance(lines*line, s, d)
	})
	k = g.rest(left)
	g.VMOVDQU8_Z(at(s, 0), k, v[0])
	g.VMOVDQU8(v[0], k, at(d, 0))
	g.Label("done")
	g.done(false)
}
