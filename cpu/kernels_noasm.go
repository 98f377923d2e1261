//go:build (!amd64 && !arm64) || purego

package cpu

// tiers are the implementations in assembly: none.
var tiers [0]tier

func zero(b []byte)       { zeroGeneric(b) }
func zeroStream(b []byte) { zeroGeneric(b) }

func copyCached(dst, src []byte) { copyGeneric(dst, src) }
func copyStream(dst, src []byte) { copyGeneric(dst, src) }

func fill(b []byte, seed *[32]byte)       { fillGeneric(b, seed) }
func fillStream(b []byte, seed *[32]byte) { fillGeneric(b, seed) }

func fence() {}
