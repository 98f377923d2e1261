//go:build !fuel_static && !(386 || arm || mips || mipsle) && !((linux && !android && (amd64 || arm64 || loong64 || ppc64le || riscv64)) || (darwin && !ios && (amd64 || arm64)) || (windows && (amd64 || arm64)))

package dl

import "runtime"

const unsupported = "on " + runtime.GOOS + "/" + runtime.GOARCH + " nothing can be loaded without cgo; Linux, macOS and Windows on 64-bit processors can"
