package fuel

import (
	"context"
	"fmt"

	"github.com/go-fuel/fuel/cpu"
)

// ConvertOptions are the rarer wishes of a conversion. nil is the default.
type ConvertOptions struct {
	// Scope and HugePages are as in Options, of the new memory.
	Scope     *Scope
	HugePages bool

	// Scale and Zero are for I8 and U8: an element q becomes (q-Zero)·Scale,
	// rounded once. A Scale of 0 is 1.
	Scale float32
	Zero  uint8 // of U8 only

	// Progress, if not nil, is told the bytes of the source that are done and
	// all of them, as they grow, never by two goroutines at once. It must not
	// block.
	Progress func(done, total int)
}

// Convert returns the numbers of s as plain elements of type d, in new memory
// on the CPU. s stays as it is, and both are closed on their own. opt may be
// nil.
//
//	from                                             to
//	F16, BF16, F8E4M3FN, F8E5M2, I8, U8              F32
//	GGMLBlock of Q8_0, Q4_0, Q4_K, Q6_K (any DType)  F32
//	F32                                              F16, BF16
//	plain of any type                                the same: a Clone
//
// Anything else is ErrMismatch. To F32 every number is exact, of blocks what
// their format defines, computed in float32; from F32 it is the nearest, a tie
// goes to the even one, and what is too large becomes infinite. A NaN stays one;
// see the methods of Float16 and its like for its bits.
//
// A Storage on a device is ErrNotHost: To the CPU first. For the errors of new
// memory see Alloc, for ctx and a mapped file that was truncated see CopyFrom.
// Nothing is left where it fails.
func Convert(ctx context.Context, s *Storage, d DType, opt *ConvertOptions) (*Storage, error) {
	if opt == nil {
		opt = &ConvertOptions{}
	}
	r, err := s.pin()
	if err != nil {
		return nil, s.fail("Convert", err)
	}
	defer r.unpin()
	if !r.host() {
		return nil, s.fail("Convert", fmt.Errorf("%w: on %s", ErrNotHost, s.Device()))
	}
	if err := ctx.Err(); err != nil {
		return nil, s.fail("Convert", err)
	}
	if s.dtype == d && s.enc.IsPlain() && opt.Scale == 0 && opt.Zero == 0 {
		return s.clone(ctx, "Convert", nil)
	}
	k, err := s.converter(d, opt)
	if err != nil {
		return nil, s.fail("Convert", err)
	}
	t, err := s.convert(ctx, r, d, k, opt)
	return t, s.fail("Convert", err)
}

// A converter makes dst from src, which are pieces of a range of whole bytes,
// both together, and have blocks of dst and src bytes.
type converter struct {
	src, dst int
	run      func(dst, src []byte, whole int)
}

// converter finds what makes elements of d from those of s.
func (s *Storage) converter(d DType, opt *ConvertOptions) (converter, error) {
	scaled := s.enc.IsPlain() && (s.dtype == I8 || s.dtype == U8)
	if opt.Scale != 0 && !scaled || opt.Zero != 0 && !(scaled && s.dtype == U8) {
		return converter{}, fmt.Errorf("%w: a scale is for i8 and u8, a zero point for u8, and this is %s %s", ErrMismatch, s.enc, s.dtype)
	}
	scale := opt.Scale
	if scale == 0 {
		scale = 1
	}
	type pair struct{ from, to DType }
	switch ggml, blocks := s.enc.GGML(); {
	case blocks && d == F32:
		switch ggml {
		case GGMLQ8_0:
			return kernel(cpu.Q8_0ToF32), nil
		case GGMLQ4_0:
			return kernel(cpu.Q4_0ToF32), nil
		case GGMLQ4_K:
			return kernel(cpu.Q4_KToF32), nil
		case GGMLQ6_K:
			return kernel(cpu.Q6_KToF32), nil
		}
	case s.enc.IsPlain():
		switch (pair{s.dtype, d}) {
		case pair{BF16, F32}:
			return kernel(cpu.BF16ToF32), nil
		case pair{F16, F32}:
			return kernel(cpu.F16ToF32), nil
		case pair{F8E4M3FN, F32}:
			return kernel(cpu.F8E4M3FNToF32), nil
		case pair{F8E5M2, F32}:
			return kernel(cpu.F8E5M2ToF32), nil
		case pair{F32, BF16}:
			return kernel(cpu.F32ToBF16), nil
		case pair{F32, F16}:
			return kernel(cpu.F32ToF16), nil
		case pair{I8, F32}:
			return converter{1, 4, func(dst, src []byte, _ int) { cpu.ScaleI8(dst, src, scale) }}, nil
		case pair{U8, F32}:
			return converter{1, 4, func(dst, src []byte, _ int) { cpu.ScaleU8(dst, src, scale, opt.Zero) }}, nil
		}
	}
	return converter{}, fmt.Errorf("%w: no conversion of %s %s to %s; there are those of f16, bf16, f8e4m3fn, f8e5m2, i8, u8 and ggml's Q8_0, Q4_0, Q4_K, Q6_K to f32, and of f32 to f16 and bf16", ErrMismatch, s.enc, s.dtype, d)
}

func kernel(c cpu.Conversion) converter {
	src, dst := c.Block()
	return converter{src, dst, c.ConvertPart}
}

// convert makes the new Storage from the bytes of s, which are in r.
func (s *Storage) convert(ctx context.Context, r *region, d DType, k converter, opt *ConvertOptions) (*Storage, error) {
	size, err := d.Bytes(s.n)
	if err != nil {
		return nil, err
	}
	s.own.touchRead(s.off, s.size)
	if err := r.settle(ctx); err != nil {
		return nil, err
	}
	to, err := allocRegion(ctx, hostDevice, size, false, 0, wishes{scope: opt.Scope, huge: opt.HugePages})
	if err != nil {
		return nil, err
	}
	src, dst := r.bytes(s.off, s.size), to.bytes(0, size)
	// The ranges are of the larger side. A piece is a whole number of blocks
	// there: all have a power of two of bytes.
	wide := max(k.src, k.dst)
	var progress func(int)
	if opt.Progress != nil {
		progress = func(done int) { opt.Progress(done/wide*k.src, s.size) }
	}
	done, err := cpu.Run(ctx, max(s.size, size), func(off, end int) error {
		a, b := off/wide, end/wide
		return guarded(r.mem.buf, func() { k.run(dst[a*k.dst:b*k.dst], src[a*k.src:b*k.src], s.size+size) })
	}, progress)
	if err != nil {
		to.dropOwner()
		return nil, stopped{done / wide * k.src, fromDriver(err)}
	}
	return newStorage(to, 0, size, s.n, d, Plain(), nil), nil
}
