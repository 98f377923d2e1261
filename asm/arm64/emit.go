package arm64

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/buildtags"
	"github.com/mmcloughlin/avo/gotypes"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
)

// avo knows no arm64, but an operand is to it only what its Asm method says,
// and its printer prints any opcode. None of avo's passes runs, so registers
// are chosen by hand here: R0 to R15 and V0 to V31. R16 to R18 and R27 to R30
// belong to the linker, the platform and Go.
type (
	x     int    // a general register
	q     int    // a vector register, all 128 bits of it
	pair  [2]q   // two of them, for FLDPQ and FSTPQ
	imm   int    // a number
	label string // where to jump
	word  string // anything else
)

func (r x) Asm() string     { return fmt.Sprintf("R%d", int(r)) }
func (r q) Asm() string     { return fmt.Sprintf("F%d", int(r)) }
func (p pair) Asm() string  { return "(" + p[0].Asm() + ", " + p[1].Asm() + ")" }
func (i imm) Asm() string   { return fmt.Sprintf("$%d", int(i)) }
func (l label) Asm() string { return string(l) }
func (w word) Asm() string  { return string(w) }

// as is r with an arrangement of its lanes, as Go writes it: V0.B16.
func (r q) as(arrangement string) word { return word(fmt.Sprintf("V%d.%s", int(r), arrangement)) }

// mem is the memory at base+disp.
type mem struct {
	base x
	disp int
}

func (m mem) Asm() string {
	if m.disp == 0 {
		return "(" + m.base.Asm() + ")"
	}
	return fmt.Sprintf("%d(%s)", m.disp, m.base.Asm())
}

// A generator collects the functions of one file. The first mistake is kept
// for its end.
type generator struct {
	out *ir.File
	f   *ir.Function // the one being written
	err error
}

// newGenerator begins a file for arm64.
func newGenerator() *generator {
	g := &generator{out: ir.NewFile()}
	g.out.Includes = []string{"textflag.h"}
	for _, term := range []string{"arm64", "!purego"} {
		c, err := buildtags.ParseConstraint(term)
		g.fail(err)
		g.out.Constraints = append(g.out.Constraints, c)
	}
	return g
}

func (g *generator) fail(err error) {
	if g.err == nil {
		g.err = err
	}
}

func (g *generator) file() (*ir.File, error) { return g.out, g.err }

// function begins a function without a frame.
func (g *generator) function(name, signature string, doc ...string) {
	g.f = ir.NewFunction(name)
	s, err := gotypes.ParseSignature(signature)
	if err != nil {
		g.fail(err)
		return
	}
	g.f.SetSignature(s)
	g.f.Attributes = attr.NOSPLIT
	g.f.Doc = doc
	g.f.AddPragma("noescape")
	g.out.AddSection(g.f)
}

// load loads a word of the parameters. avo lays them out as amd64 has them,
// and arm64 has them there too.
func (g *generator) load(c gotypes.Component, to x) {
	b, err := c.Resolve()
	if err != nil {
		g.fail(err)
		return
	}
	g.op("MOVD", b.Addr, to)
}

// param is a parameter of the function being written.
func (g *generator) param(name string) gotypes.Component {
	return g.f.Signature.Params().Lookup(name)
}

// op adds an instruction. A branch is told from the rest by its operand, which
// matters for the layout only.
func (g *generator) op(opcode string, operands ...operand.Op) {
	i := &ir.Instruction{Opcode: opcode, Operands: operands, IsTerminal: opcode == "RET"}
	if opcode, suffix, ok := strings.Cut(opcode, "."); ok {
		i.Opcode, i.Suffixes = opcode, []string{suffix}
	}
	if n := len(operands); n > 0 {
		_, i.IsBranch = operands[n-1].(label)
		i.IsConditional = i.IsBranch && opcode != "B"
	}
	g.f.AddInstruction(i)
}

// An encoding is an instruction on vector registers that Go's assembler does
// not know: its bits with all register numbers zero, its name, and the
// arrangement of each operand, the destination first, as the Arm Architecture
// Reference Manual (DDI 0487, C7.2) has them.
type encoding struct {
	bits     uint32
	name     string
	operands []string
}

var (
	fcvtl  = encoding{0x0E217800, "fcvtl", []string{"4s", "4h"}}  // f16 to f32, the lower half
	fcvtl2 = encoding{0x4E217800, "fcvtl2", []string{"4s", "8h"}} // the upper half
	fcvtn  = encoding{0x0E216800, "fcvtn", []string{"4h", "4s"}}  // f32 to f16, to the lower half; clears the upper
	fcvtn2 = encoding{0x4E216800, "fcvtn2", []string{"8h", "4s"}} // to the upper half, keeping the lower
	scvtf  = encoding{0x4E21D800, "scvtf", []string{"4s", "4s"}}  // i32 to f32
	sxtlB  = encoding{0x0F08A400, "sxtl", []string{"8h", "8b"}}   // i8 to i16, the lower half
	sxtlB2 = encoding{0x4F08A400, "sxtl2", []string{"8h", "16b"}} // the upper half
	sxtlH  = encoding{0x0F10A400, "sxtl", []string{"4s", "4h"}}   // i16 to i32
	sxtlH2 = encoding{0x4F10A400, "sxtl2", []string{"4s", "8h"}}  // the upper half
	fcmeq  = encoding{0x4E20E400, "fcmeq", []string{"4s", "4s", "4s"}}
	fmul   = encoding{0x6E20DC00, "fmul", []string{"4s", "4s", "4s"}}
)

// fields has the lowest bit of each operand's register number.
var fields = [...]int{0, 5, 16} // Rd, Rn, Rm

// encode returns the instruction with its registers, the destination first,
// and how it is written.
func (e encoding) encode(registers ...q) (bits uint32, text string, err error) {
	bits, text = e.bits, e.name
	if len(registers) != len(e.operands) || len(registers) > len(fields) {
		return 0, "", fmt.Errorf("%s with %d registers", e.name, len(registers))
	}
	separator := " "
	for i, r := range registers {
		if r < 0 || r > 31 {
			return 0, "", fmt.Errorf("%s with register %d", e.name, int(r))
		}
		if bits>>fields[i]&31 != 0 {
			return 0, "", fmt.Errorf("%s: %#08x is not free for register %d", e.name, e.bits, i)
		}
		bits |= uint32(r) << fields[i]
		text += fmt.Sprintf("%sv%d.%s", separator, int(r), e.operands[i])
		separator = ", "
	}
	return bits, text, nil
}

// code adds such an instruction, with the destination last as in op.
func (g *generator) code(e encoding, registers ...q) {
	registers = slices.Clone(registers)
	slices.Reverse(registers)
	bits, text, err := e.encode(registers...)
	if err != nil {
		g.fail(err)
		return
	}
	g.op("WORD", word(fmt.Sprintf("$0x%08x // %s", bits, text)))
}

func (g *generator) label(name label) { g.f.AddLabel(ir.Label(name)) }

func (g *generator) comment(lines ...string) { g.f.AddComment(lines...) }
