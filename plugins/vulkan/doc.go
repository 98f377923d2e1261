// Package vulkan gives fuel the memory of Vulkan devices. Import it for its
// effect:
//
//	import _ "github.com/go-fuel/fuel/plugins/vulkan"
//
// Nothing is loaded before somebody asks for a device or for fuel.Probe. Then
// the system's Vulkan library (libvulkan.so.1, vulkan-1.dll, libvulkan.1.dylib)
// is opened, without cgo, and stays open. On Linux a program that imports this
// package is dynamic; with the build tag fuel_static, on 32-bit systems and where
// libraries cannot be loaded it still compiles, and Probe says why there is no
// Vulkan.
//
// A device needs Vulkan 1.1. Devices that are processors, such as Mesa's
// llvmpipe, are left out unless the environment variable FUEL_VULKAN_CPU is true
// (1, true, yes, on): a model runs faster on fuel's own CPU memory. The loader's
// own variables, VK_DRIVER_FILES and VK_LOADER_LAYERS_DISABLE among them, work as
// everywhere.
//
// All devices are reported, those of a GPU that several drivers offer once, and
// none is chosen for you. All work of a device is in one queue, which Visit
// hands out: see fuel.VulkanMemory for what its user must keep to.
package vulkan
