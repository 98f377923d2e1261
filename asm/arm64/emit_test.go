package arm64

import (
	"strings"
	"testing"
)

// What an assembler makes of these lines:
//
//	llvm-mc -triple=aarch64 -show-encoding   (LLVM 14.0.6)
//
// Between them every bit of every field is set once and clear once.
func TestEncodingsAreThoseOfAnAssembler(t *testing.T) {
	for _, c := range []struct {
		e         encoding
		registers []q
		bits      uint32
		text      string
	}{
		{fcvtl, []q{10, 21}, 0x0e217aaa, "fcvtl v10.4s, v21.4h"},
		{fcvtl, []q{21, 10}, 0x0e217955, "fcvtl v21.4s, v10.4h"},
		{fcvtl2, []q{10, 21}, 0x4e217aaa, "fcvtl2 v10.4s, v21.8h"},
		{fcvtl2, []q{21, 10}, 0x4e217955, "fcvtl2 v21.4s, v10.8h"},
		{fcvtn, []q{10, 21}, 0x0e216aaa, "fcvtn v10.4h, v21.4s"},
		{fcvtn, []q{21, 10}, 0x0e216955, "fcvtn v21.4h, v10.4s"},
		{fcvtn2, []q{10, 21}, 0x4e216aaa, "fcvtn2 v10.8h, v21.4s"},
		{fcvtn2, []q{21, 10}, 0x4e216955, "fcvtn2 v21.8h, v10.4s"},
		{scvtf, []q{10, 21}, 0x4e21daaa, "scvtf v10.4s, v21.4s"},
		{scvtf, []q{21, 10}, 0x4e21d955, "scvtf v21.4s, v10.4s"},
		{sxtlB, []q{10, 21}, 0x0f08a6aa, "sxtl v10.8h, v21.8b"},
		{sxtlB, []q{21, 10}, 0x0f08a555, "sxtl v21.8h, v10.8b"},
		{sxtlB2, []q{10, 21}, 0x4f08a6aa, "sxtl2 v10.8h, v21.16b"},
		{sxtlB2, []q{21, 10}, 0x4f08a555, "sxtl2 v21.8h, v10.16b"},
		{sxtlH, []q{10, 21}, 0x0f10a6aa, "sxtl v10.4s, v21.4h"},
		{sxtlH, []q{21, 10}, 0x0f10a555, "sxtl v21.4s, v10.4h"},
		{sxtlH2, []q{10, 21}, 0x4f10a6aa, "sxtl2 v10.4s, v21.8h"},
		{sxtlH2, []q{21, 10}, 0x4f10a555, "sxtl2 v21.4s, v10.8h"},
		{fcmeq, []q{10, 21, 12}, 0x4e2ce6aa, "fcmeq v10.4s, v21.4s, v12.4s"},
		{fcmeq, []q{21, 10, 19}, 0x4e33e555, "fcmeq v21.4s, v10.4s, v19.4s"},
		{fmul, []q{10, 21, 12}, 0x6e2cdeaa, "fmul v10.4s, v21.4s, v12.4s"},
		{fmul, []q{21, 10, 19}, 0x6e33dd55, "fmul v21.4s, v10.4s, v19.4s"},
	} {
		bits, text, err := c.e.encode(c.registers...)
		if err != nil || bits != c.bits || text != c.text {
			t.Errorf("%#08x %s, error %v; want %#08x %s", bits, text, err, c.bits, c.text)
		}
	}
}

func TestEncodeTakesNoWrongRegister(t *testing.T) {
	taken := encoding{1 << 4, "taken", []string{"4s"}}
	for _, c := range []struct {
		e         encoding
		registers []q
	}{{fcvtl, []q{0, 32}}, {fcvtl, []q{-1, 0}}, {fcvtl, []q{0}}, {fmul, []q{0, 1}}, {fcvtl, []q{0, 1, 2}}, {taken, []q{0}}} {
		if bits, text, err := c.e.encode(c.registers...); err == nil {
			t.Errorf("%s with %v is %#08x %s", c.e.name, c.registers, bits, text)
		}
	}
}

// A mistake in the middle of a kernel must not be lost.
func TestAWrongRegisterFailsTheFile(t *testing.T) {
	g := newGenerator()
	g.function("f", "func()")
	g.code(fcvtl, 0, 32)
	g.op("RET")
	if _, err := g.file(); err == nil || !strings.Contains(err.Error(), "register 32") {
		t.Errorf("error %v", err)
	}
}
