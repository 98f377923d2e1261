//go:build !fuel_static && ((linux && !android && (amd64 || arm64 || loong64 || ppc64le || riscv64)) || (darwin && !ios && (amd64 || arm64)) || (windows && (amd64 || arm64)))

package dl

import (
	"testing"
	"unsafe"

	"github.com/go-fuel/fuel/internal/require"
)

// A real driver library, through an address that it gives.
func TestVulkanLoaderOpens(t *testing.T) {
	lib, err := Open("libvulkan.so.1", "vulkan-1.dll", "libvulkan.1.dylib", "libMoltenVK.dylib")
	if err != nil {
		require.Skip(t, "vulkan", err.Error())
	}
	address, err := lib.Lookup("vkGetInstanceProcAddr")
	if err != nil {
		t.Fatal(err)
	}
	function := func(instance uintptr, name string) Proc {
		c := append([]byte(name), 0)
		return At(address.Call(instance, uintptr(unsafe.Pointer(&c[0]))).Uintptr())
	}
	create := function(0, "vkCreateInstance")
	if !create.Valid() || function(0, "vkNoSuchFunction").Valid() {
		t.Fatal("vkGetInstanceProcAddr is wrong about its functions")
	}
	info := [8]uint64{1} // VkInstanceCreateInfo: its type and nothing else
	var instance uintptr
	var r Result
	changed := Guarded(func() {
		r = create.Call(uintptr(unsafe.Pointer(&info)), 0, uintptr(unsafe.Pointer(&instance)))
	})
	if r.Int32() != 0 {
		require.Skip(t, "vulkan", "vkCreateInstance fails: no driver")
	}
	t.Logf("%s; changed by vkCreateInstance: %q", lib.Path(), changed)
	function(instance, "vkDestroyInstance").Call(instance, 0)
}
