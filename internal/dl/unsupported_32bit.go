//go:build !fuel_static && (386 || arm || mips || mipsle)

package dl

import "runtime"

const unsupported = runtime.GOOS + "/" + runtime.GOARCH + " has 32-bit addresses, and a driver's handles have 64 bits; build for a 64-bit platform"
