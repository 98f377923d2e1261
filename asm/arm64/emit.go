package arm64

import (
	"fmt"
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

func (g *generator) label(name label) { g.f.AddLabel(ir.Label(name)) }

func (g *generator) comment(lines ...string) { g.f.AddComment(lines...) }
