// Package arm64 generates cpu's kernels for arm64, in NEON: those on bytes, and
// the conversions ([ConvertNEON]).
//
// The former go through their bytes as those of package amd64 do: up to 64 by a
// few stores that overlap; above, the first 64 where they are, then blocks of
// 256 and of 64 from the next multiple of 64 on, and at last the 64 bytes at
// the end. Clearing uses DC ZVA in between, whose block has the size that the
// processor says.
package arm64

import "github.com/mmcloughlin/avo/ir"

const (
	line   = 64 // the step of the kernels on bytes
	unroll = 4  // how many steps the main loops do at a time
)

// NEON generates the kernels on bytes.
func NEON() (*ir.File, error) {
	g := newGenerator()
	g.set("zeroNEON", false, "zeroNEON clears b, of any address and length. Its generic twin is zeroGeneric.")
	g.set("fillNEON", true, "fillNEON repeats the 16 bytes of which seed is two over b, of any address and length.",
		"Its generic twin is fillGeneric.")
	g.copy("copyNEON", "copyNEON copies len(dst) bytes from src, which dst must not overlap, of any addresses and",
		"length. Its generic twin is copyGeneric.")
	return g.file()
}

// Registers of every kernel.
const (
	dst   x = 0 // where to go on
	left  x = 1 // bytes from there to the end
	src   x = 2 // of copy
	seed  x = 2 // of fill
	last  x = 3 // the last bytes of dst
	lastS x = 4 // the last bytes of src
	skip  x = 5
	tmp   x = 6
)

// under jumps to to where fewer than n bytes are left.
func (g *generator) under(n int, to label) {
	g.op("CMP", imm(n), left)
	g.op("BLO", to)
}

// toLine sets skip to the bytes from dst to the multiple of 64 that comes
// next, 1 to 64 of them.
func (g *generator) toLine() {
	g.op("MVN", dst, skip)
	g.op("AND", imm(line-1), skip)
	g.op("ADD", imm(1), skip)
}

// blocks writes the two loops over whole lines, of so many bytes in dst: step
// does that many lines.
func (g *generator) blocks(line int, step func(lines int)) {
	many := unroll * line
	g.op("SUBS", imm(many), left)
	g.op("BLO", label("lines"))
	g.label("loop")
	step(unroll)
	g.op("SUBS", imm(many), left)
	g.op("BHS", label("loop"))
	g.label("lines")
	g.op("ADDS", imm(many-line), left)
	g.op("BLT", label("rest"))
	g.label("lineloop")
	step(1)
	g.op("SUBS", imm(line), left)
	g.op("BGE", label("lineloop"))
	g.label("rest")
}

// set writes a kernel that clears, or fills with a pattern, of which seed
// holds 32 bytes so that 16 can be read from any phase.
func (g *generator) set(name string, fill bool, doc ...string) {
	const first, end q = 0, 1 // the pattern at the first byte, and before the last
	ending := first
	if fill {
		ending = end
		g.function(name, "func(b []byte, seed *[32]byte)", doc...)
		g.load(g.param("seed"), seed)
		g.op("FMOVQ", mem{seed, 0}, first)
	} else {
		g.function(name, "func(b []byte)", doc...)
		g.op("VEOR", word("V0.B16"), word("V0.B16"), word("V0.B16"))
	}
	g.load(g.param("b").Base(), dst)
	g.load(g.param("b").Len(), left)
	if fill {
		g.comment("A multiple of 16 before the end the pattern has the phase length mod 16.")
		g.op("AND", imm(15), left, tmp)
		g.op("ADD", seed, tmp)
		g.op("FMOVQ", mem{tmp, 0}, end)
	}
	g.op("ADD", dst, left, last)

	g.op("CMP", imm(line), left)
	g.op("BHI", label("big"))
	g.under(32, "under32")
	g.op("FSTPQ", pair{first, first}, mem{dst, 0})
	g.op("FSTPQ", pair{ending, ending}, mem{last, -32})
	g.op("RET")
	g.label("under32")
	g.under(16, "under16")
	g.op("FMOVQ", first, mem{dst, 0})
	g.op("FMOVQ", ending, mem{last, -16})
	g.op("RET")
	g.label("under16")
	if fill {
		g.op("ADD", seed, left, lastS)
	}
	g.small(func(size int) {
		if !fill {
			g.op(move[size], word("ZR"), mem{dst, 0})
			g.op(move[size], word("ZR"), mem{last, -size})
			return
		}
		g.op(move[size], mem{seed, 0}, tmp)
		g.op(move[size], mem{lastS, -size}, skip)
		g.op(move[size], tmp, mem{dst, 0})
		g.op(move[size], skip, mem{last, -size})
	})

	g.label("big")
	g.op("FSTPQ", pair{first, first}, mem{dst, 0})
	g.op("FSTPQ", pair{first, first}, mem{dst, 32})
	g.toLine()
	g.op("ADD", skip, dst)
	g.op("SUB", skip, left)
	if fill {
		g.comment("From here on the pattern begins at its byte skip mod 16.")
		g.op("AND", imm(15), skip)
		g.op("ADD", seed, skip)
		g.op("FMOVQ", mem{skip, 0}, first)
	} else {
		g.zva(first)
	}
	step := func(lines int) {
		for d := 0; d < lines*line; d += 32 {
			g.op("FSTPQ", pair{first, first}, mem{dst, d})
		}
		g.op("ADD", imm(lines*line), dst)
	}
	g.blocks(line, step)
	g.op("FSTPQ", pair{ending, ending}, mem{last, -64})
	g.op("FSTPQ", pair{ending, ending}, mem{last, -32})
	g.op("RET")
}

// zva clears whole blocks with DC ZVA where that is allowed and there are two
// or more of them.
func (g *generator) zva(zero q) {
	const block, mask x = 7, 8
	g.comment("Below 256 bytes reading the size of a block costs more than it gains.")
	g.under(256, "blocks")
	g.op("MRS", word("DCZID_EL0"), tmp)
	g.comment("Bit 4: DC ZVA is prohibited. Bits 3 to 0: log2 of the words of 4 bytes in a block.")
	g.op("TBNZ", imm(4), tmp, label("blocks"))
	g.op("MOVD", imm(4), block)
	g.op("LSL", tmp, block) // the low six bits count, of which only 3 to 0 can be set
	g.op("LSL", imm(1), block, tmp)
	g.op("CMP", tmp, left)
	g.op("BLO", label("blocks"))
	g.op("SUB", imm(1), block, mask)
	g.comment("To the next block: less than one.")
	g.label("toblock")
	g.op("TST", mask, dst)
	g.op("BEQ", label("atblock"))
	g.op("FSTPQ", pair{zero, zero}, mem{dst, 0})
	g.op("FSTPQ", pair{zero, zero}, mem{dst, 32})
	g.op("ADD", imm(line), dst)
	g.op("SUB", imm(line), left)
	g.op("B", label("toblock"))
	g.label("atblock")
	g.op("SUB", block, left)
	g.label("zva")
	g.op("DC", word("ZVA"), dst)
	g.op("ADD", block, dst)
	g.op("SUBS", block, left)
	g.op("BGE", label("zva"))
	g.op("ADD", block, left)
	g.label("blocks")
}

// copy writes a kernel that copies.
func (g *generator) copy(name string, doc ...string) {
	g.function(name, "func(dst, src []byte)", doc...)
	g.load(g.param("dst").Base(), dst)
	g.load(g.param("dst").Len(), left)
	g.load(g.param("src").Base(), src)
	g.op("ADD", dst, left, last)
	g.op("ADD", src, left, lastS)

	g.op("CMP", imm(line), left)
	g.op("BHI", label("big"))
	g.under(32, "under32")
	g.op("FLDPQ", mem{src, 0}, pair{0, 1})
	g.op("FLDPQ", mem{lastS, -32}, pair{2, 3})
	g.op("FSTPQ", pair{0, 1}, mem{dst, 0})
	g.op("FSTPQ", pair{2, 3}, mem{last, -32})
	g.op("RET")
	g.label("under32")
	g.under(16, "under16")
	g.op("FMOVQ", mem{src, 0}, q(0))
	g.op("FMOVQ", mem{lastS, -16}, q(1))
	g.op("FMOVQ", q(0), mem{dst, 0})
	g.op("FMOVQ", q(1), mem{last, -16})
	g.op("RET")
	g.label("under16")
	g.small(func(size int) {
		g.op(move[size], mem{src, 0}, tmp)
		g.op(move[size], mem{lastS, -size}, skip)
		g.op(move[size], tmp, mem{dst, 0})
		g.op(move[size], skip, mem{last, -size})
	})

	g.label("big")
	line := func(s, d x, at int) {
		g.op("FLDPQ", mem{s, at}, pair{0, 1})
		g.op("FLDPQ", mem{s, at + 32}, pair{2, 3})
		g.op("FSTPQ", pair{0, 1}, mem{d, at})
		g.op("FSTPQ", pair{2, 3}, mem{d, at + 32})
	}
	line(src, dst, 0)
	g.toLine()
	g.op("ADD", skip, dst)
	g.op("ADD", skip, src)
	g.op("SUB", skip, left)
	g.blocks(64, func(lines int) {
		for i := range 2 * lines {
			g.op("FLDPQ", mem{src, 32 * i}, pair{q(2 * i), q(2*i + 1)})
		}
		for i := range 2 * lines {
			g.op("FSTPQ", pair{q(2 * i), q(2*i + 1)}, mem{dst, 32 * i})
		}
		g.op("ADD", imm(64*lines), src)
		g.op("ADD", imm(64*lines), dst)
	})
	line(lastS, last, -64)
	g.op("RET")
}

// move has the load and store of so many bytes.
var move = map[int]string{8: "MOVD", 4: "MOVWU", 2: "MOVHU", 1: "MOVBU"}

// small writes the paths for fewer than 16 bytes: both does the first and the
// last size bytes, which may overlap.
func (g *generator) small(both func(size int)) {
	for _, size := range []int{8, 4, 2, 1} {
		next := label("under" + string(rune('0'+size)))
		g.under(size, next)
		both(size)
		g.op("RET")
		g.label(next)
	}
	g.op("RET")
}
