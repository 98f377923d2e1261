package safetensors

import (
	"encoding/binary"

	"github.com/go-fuel/fuel"
)

// hostBigEndian is whether this machine keeps numbers the other way round than
// files do. Functions below it take the order as an argument, so that tests
// reach both on any machine.
var hostBigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// swapWidth returns how many bytes make up one number of d: the size of its
// elements, of each part of a complex one, and 1 where there is no order.
func swapWidth(d fuel.DType) int {
	switch {
	case d.IsComplex():
		return d.Bits() / 16
	case d.Bits() < 16:
		return 1
	}
	return d.Bits() / 8
}
