// Package amd64 generates cpu's kernels for x86-64, in AVX2 and AVX-512.
//
// Those that clear, fill and copy go through their bytes alike. Up to 64 they
// use a few stores that overlap, or one masked one. Above, unless they begin at
// a multiple of 64, they store the first 64 bytes where they are and go on at
// the next; in blocks of 256 and then of 64; and end with the last 64 bytes, or
// with a masked rest. So no address needs an alignment, the bulk of the stores
// has one, and no byte outside is touched.
//
// Conversions of elements do so by the bytes of dst, but where they go through
// the caches they begin with dst, wherever it is; in AVX2 they do what is less
// than 32 bytes one by one. Those of blocks do them one by one.
package amd64

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/gotypes"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/reg"
)

// line is the step of every kernel: a cache line, and a ZMM register.
const line = 64

// unroll is how many lines the main loops do at a time. Around it, and around
// line, is where the tests look closest.
const unroll = 4

// A generator writes the functions of one file.
type generator struct {
	*build.Context
}

// newGenerator begins a file for amd64.
func newGenerator() generator {
	g := generator{build.NewContext()}
	g.ConstraintExpr("amd64")
	g.ConstraintExpr("!purego") // a call of its own: inside one, a space means OR
	return g
}

// file runs avo's passes over what was written.
func (g generator) file() (*ir.File, error) {
	f, err := g.Result()
	if err != nil {
		return nil, err
	}
	return f, pass.Compile.Execute(f)
}

// function begins a function without a frame.
func (g generator) function(name, signature string, doc ...string) {
	g.Function(name)
	g.Attributes(attr.NOSPLIT)
	g.SignatureExpr(signature)
	g.Pragma("noescape")
	g.Doc(doc...)
}

// pointer loads where a slice begins.
func (g generator) pointer(slice string) reg.GPVirtual {
	return g.Load(g.Param(slice).Base(), g.GP64()).(reg.GPVirtual)
}

// length loads how long a slice is.
func (g generator) length(slice string) reg.GPVirtual {
	return g.Load(g.Param(slice).Len(), g.GP64()).(reg.GPVirtual)
}

// param loads a parameter that is one word.
func (g generator) param(c gotypes.Component) reg.GPVirtual {
	return g.Load(c, g.GP64()).(reg.GPVirtual)
}

// done ends a path.
func (g generator) done(stream bool) {
	if stream {
		g.Comment("Stores around the caches are weakly ordered: what is released next must come after them.")
		g.SFENCE()
	}
	g.VZEROUPPER()
	g.RET()
}

// at is the memory at base+disp.
func at(base reg.Register, disp int) operand.Mem {
	return operand.Mem{Base: base, Disp: disp}
}

// end is the memory at base+index+disp.
func end(base, index reg.Register, disp int) operand.Mem {
	return operand.Mem{Base: base, Index: index, Scale: 1, Disp: disp}
}

// blocks writes the two loops over whole lines: step(disp, lines) does that
// many from disp on, and moves the pointers; left counts the bytes.
func (g generator) blocks(left reg.GPVirtual, step func(lines int)) {
	const many = unroll * line
	g.SUBQ(operand.U32(many), left)
	g.JB(operand.LabelRef("lines"))
	g.Label("loop")
	step(unroll)
	g.SUBQ(operand.U32(many), left)
	g.JAE(operand.LabelRef("loop"))
	g.Label("lines")
	g.ADDQ(operand.U32(many-line), left)
	g.JL(operand.LabelRef("rest"))
	g.Label("lineloop")
	step(1)
	g.SUBQ(operand.Imm(line), left)
	g.JGE(operand.LabelRef("lineloop"))
	g.Label("rest")
	g.Comment("left is now the rest minus a line.")
}

// next asks for the lines of src that the next round of the main loop reads.
// Around the caches a copy is up to a tenth faster so. Asking for the round
// after that makes it as much slower, and PREFETCHT0 gains less (BenchmarkCopy).
// To ask beyond the end of src accesses nothing.
func (g generator) next(s reg.GPVirtual, lines int) {
	if lines < unroll {
		return
	}
	for i := range lines {
		g.PREFETCHNTA(at(s, (lines+i)*line))
	}
}

// advance adds n to each pointer.
func (g generator) advance(n int, pointers ...reg.GPVirtual) {
	for _, p := range pointers {
		if n < 128 {
			g.ADDQ(operand.Imm(uint64(n)), p)
		} else {
			g.ADDQ(operand.U32(n), p)
		}
	}
}

// untilLine sets skip to the bytes from p to the next multiple of 64, and goes
// to the label aligned where there are none: a store to that line through the
// caches would hold up the stores around them that follow (BenchmarkZero).
func (g generator) untilLine(p reg.GPVirtual) (skip reg.GPVirtual) {
	skip = g.GP64()
	g.MOVQ(p, skip)
	g.NEGQ(skip)
	g.ANDQ(operand.Imm(line-1), skip)
	g.JE(operand.LabelRef("aligned"))
	return skip
}

// toLine sets skip to the bytes from p to the multiple of 64 that comes next,
// 1 to 64 of them.
func (g generator) toLine(p reg.GPVirtual) (skip reg.GPVirtual) {
	skip = g.GP64()
	g.MOVQ(p, skip)
	g.NOTQ(skip)
	g.ANDQ(operand.Imm(line-1), skip)
	g.INCQ(skip)
	return skip
}
