package cpu

// The generic twins of the kernels. What assembly does must be the same, byte
// by byte. Each does at most one Piece.

func zeroGeneric(b []byte) { clear(b) }

func copyGeneric(dst, src []byte) { copy(dst, src) }

// fillGeneric repeats the 16 bytes of which seed is two over b, beginning with
// the first.
func fillGeneric(b []byte, seed *[32]byte) {
	// What fits the first cache is doubled, then copied.
	near := b[:min(len(b), 4096)]
	for n := copy(near, seed[:]); n < len(near); n *= 2 {
		copy(near[n:], near[:n])
	}
	for rest := b[len(near):]; len(rest) > 0; {
		rest = rest[copy(rest, near):]
	}
}
