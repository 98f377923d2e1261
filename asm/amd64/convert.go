package amd64

import (
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A conversion is what one pair of kernels, cached and around the caches, does
// to each element or block.
type conversion struct {
	name     string // the generic twin has it, and Generic behind it
	from, to int    // the bytes of one in src and in dst
}

// The conversions of elements, and those of blocks with a scale.
var (
	elements = []conversion{
		{"bf16ToF32", 2, 4}, {"f16ToF32", 2, 4},
		{"f32ToBF16", 4, 2}, {"f32ToF16", 4, 2},
		{"swap2", 2, 2}, {"swap4", 4, 4}, {"swap8", 8, 8},
	}
	scaled = []conversion{{"q8_0ToF32", 34, 128}, {"q4_0ToF32", 18, 128}}
)

// each writes both kernels of each of conversions by body, in the instructions
// that suffix names, whose registers have vector bytes.
func (g generator) each(suffix string, vector int, conversions []conversion, body func(c conversion, stream bool)) {
	for _, c := range conversions {
		overlap := "which dst must not overlap"
		if c.from == c.to {
			overlap = "which may be dst and else must not overlap it"
		}
		cached, streamed := c.name+suffix, c.name+"Stream"+suffix
		g.function(cached, "func(dst, src []byte)",
			cached+" fills dst from src, "+overlap+",",
			"of any addresses. Its generic twin is "+c.name+"Generic.")
		body(c, false)

		g.function(streamed, "func(dst, src []byte)",
			streamed+" is "+cached+" with stores that go around the",
			"caches, and a fence. Its generic twin is "+c.name+"Generic.")
		multiple := c.to
		if c.to > line {
			multiple = vector
		}
		g.Comment("No whole element or block ends where such a store may begin: through the caches then.")
		d := g.pointer("dst")
		g.TESTQ(operand.U32(multiple-1), d)
		g.JE(operand.LabelRef("aligned"))
		g.Instruction(&ir.Instruction{ // avo's JMP must have its label in the function
			Opcode:     "JMP",
			Operands:   []operand.Op{operand.NewDataAddr(operand.Symbol{Name: "·" + cached}, 0)},
			IsTerminal: true,
		})
		g.Label("aligned")
		body(c, true)
	}
}

// ahead is how far before they need it the kernels ask for src that write more
// than they read, and around the caches. The processor does so too, but begins
// anew at each page, and such stores cannot wait (BenchmarkConvert). To ask
// beyond the end of src accesses nothing.
const ahead = 2048

// prefetch asks for as many lines of src as a round that reads n bytes at s
// uses up.
func (g generator) prefetch(s reg.GPVirtual, n int) {
	for i := 0; i < n; i += line {
		g.PREFETCHT0(at(s, ahead+i))
	}
}

// ratio returns n bytes of dst as bytes of src.
func (c conversion) ratio(n int) int { return n * c.from / c.to }

// ofSource returns a register with the bytes of src that belong to the n of dst.
func (g generator) ofSource(c conversion, n reg.GPVirtual) reg.GPVirtual {
	bytes := g.GP64()
	g.MOVQ(n, bytes)
	switch {
	case c.from < c.to:
		g.SHRQ(operand.Imm(1), bytes)
	case c.from > c.to:
		g.SHLQ(operand.Imm(1), bytes)
	}
	return bytes
}

// reversed are the sixteen bytes by which VPSHUFB turns each element of width
// bytes around, as two words.
func reversed(width int) (words [2]uint64) {
	for i := range 16 {
		words[i/8] |= uint64(i^(width-1)) << (i % 8 * 8)
	}
	return words
}

// sixteen returns a register with these bytes.
func (g generator) sixteen(words [2]uint64) reg.VecVirtual {
	x := g.XMM()
	low, high := g.GP64(), g.GP64()
	g.MOVQ(operand.U64(words[0]), low)
	g.MOVQ(operand.U64(words[1]), high)
	g.VMOVQ(low, x)
	g.VPINSRQ(operand.Imm(1), high, x, x)
	return x
}
