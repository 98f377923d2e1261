// Package dl opens libraries of the system, looks up their functions and
// calls them, without cgo. Within this module only, and of its packages the
// only one that imports github.com/ebitengine/purego.
//
// # What a program becomes
//
// On Linux a program that imports this package is dynamic, also with
// CGO_ENABLED=0 and -extldflags=-static: purego makes it name glibc's loader
// (on amd64 /lib64/ld-linux-x86-64.so.2) as its interpreter, and libc.so.6,
// libdl.so.2 and libpthread.so.0 as what it needs. So the core and the file
// formats must not import it. On Alpine and elsewhere with musl that interpreter
// is missing, and the kernel answers "not found": there link with
// -ldflags='-I /lib/ld-musl-x86_64.so.1' (or -aarch64). A second module of this
// kind in one program (github.com/go-webgpu/goffi) does not link without the
// tag nofakecgo. On macOS and Windows every Go program is dynamic, and nothing
// changes.
//
// # Where it works
//
// Linux on amd64, arm64, loong64, ppc64le and riscv64, macOS, and Windows on
// amd64 and arm64 (through syscall, without purego). Elsewhere, on 32 bits,
// where a 64-bit handle would take two arguments, and with the build tag
// fuel_static, the package compiles, imports no loader, and [Open] answers
// [ErrUnsupported] with the reason.
//
// # Signals
//
// A library may install signal handlers while it is loaded or initialized. One
// that runs on a goroutine's small stack ends the program, and one in the place
// of Go's takes away faults that are errors here, preemption or Ctrl-C. [Open]
// and [Guarded] compare before and after, and put right (on Linux; on macOS
// they do not look).
package dl
