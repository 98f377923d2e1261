// Package cuda gives fuel the memory of NVIDIA's GPUs. Import it for its effect:
//
//	import _ "github.com/go-fuel/fuel/plugins/cuda"
//
// Nothing is loaded before somebody asks for a device or for fuel.Probe. Then
// the driver's own library (libcuda.so.1, nvcuda.dll) is opened, without cgo and
// without a CUDA toolkit, and stays open. On Linux a program that imports this
// package is dynamic; with the build tag fuel_static, on 32-bit systems and where
// libraries cannot be loaded it still compiles, and Probe says why there is no
// CUDA.
//
// All devices that the driver shows are reported, in its order; its own variables,
// CUDA_VISIBLE_DEVICES among them, work as everywhere. None is chosen for you.
//
// While another part of the program captures a stream in the default mode
// (cudaStreamBeginCapture), no other thread may allocate or wait on the device:
// the driver fails such calls and the capture. Capture in the relaxed mode.
//
// A device's memory is in its primary context, which the CUDA runtime and other
// libraries share, and its work in one stream, which Visit hands out. The context
// that is current on a thread is what it was after every call.
package cuda
