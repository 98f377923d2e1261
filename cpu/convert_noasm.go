//go:build (!amd64 && !arm64) || purego

package cpu

func bf16ToF32(dst, src []byte, _ bool) { bf16ToF32Generic(dst, src) }
func f32ToBF16(dst, src []byte, _ bool) { f32ToBF16Generic(dst, src) }
func f16ToF32(dst, src []byte, _ bool)  { f16ToF32Generic(dst, src) }
func f32ToF16(dst, src []byte, _ bool)  { f32ToF16Generic(dst, src) }
func q8_0ToF32(dst, src []byte, _ bool) { q8_0ToF32Generic(dst, src) }
func q4_0ToF32(dst, src []byte, _ bool) { q4_0ToF32Generic(dst, src) }

func swap2(dst, src []byte, _ bool) { swap2Generic(dst, src) }
func swap4(dst, src []byte, _ bool) { swap4Generic(dst, src) }
func swap8(dst, src []byte, _ bool) { swap8Generic(dst, src) }
