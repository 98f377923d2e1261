// Package metal gives fuel the memory of Metal devices, on macOS. Import it for
// its effect:
//
//	import _ "github.com/go-fuel/fuel/plugins/metal"
//
// Nothing is loaded before somebody asks for a device or for fuel.Probe. Then
// the system's frameworks CoreGraphics and Metal are opened, without cgo, and stay
// open. Elsewhere, with the build tag fuel_static and on iOS the package still
// compiles, and Probe says why there is no Metal.
//
// On a device with unified memory, so on every Apple silicon, Storages are in
// shared memory, which the host reads and writes where it is. With the
// environment variable FUEL_METAL_PRIVATE true (1, true, yes, on) they are in
// private memory and transfers go through staging, as on a discrete GPU.
//
// There a file that is mapped, or other host memory of whole pages, becomes a Metal
// buffer without a copy where fuel.CopyOptions.Import asks for it.
//
// Metal copies multiples of four bytes at multiples of four. Copies and fills of
// other ranges work, and wait for earlier work on the memory, since the host does
// their first and last bytes. A Storage from its beginning to its end is not such a
// range, whatever its length.
//
// The default device of the system is the first, the others follow, and none is
// chosen for you. All work of a device is in one command queue, which Visit hands
// out: see fuel.MetalMemory.
package metal
