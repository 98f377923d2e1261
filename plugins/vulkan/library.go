package vulkan

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/go-fuel/fuel/internal/dl"
)

// libraries are the names of the Vulkan loader, the usual first.
func libraries() []string {
	switch runtime.GOOS {
	case "windows":
		return []string{"vulkan-1.dll"}
	case "darwin":
		return []string{"libvulkan.1.dylib", "libvulkan.dylib", "libMoltenVK.dylib"}
	}
	return []string{"libvulkan.so.1", "libvulkan.so"}
}

// Calls by the level at which they are looked up. The names of the fields are
// those of the functions, after vk.
type (
	globalCalls struct {
		CreateInstance                       dl.Proc
		EnumerateInstanceExtensionProperties dl.Proc
		EnumerateInstanceVersion             dl.Proc
	}
	instanceCalls struct {
		DestroyInstance                        dl.Proc
		EnumeratePhysicalDevices               dl.Proc
		GetPhysicalDeviceProperties            dl.Proc
		GetPhysicalDeviceProperties2           dl.Proc
		GetPhysicalDeviceFeatures2             dl.Proc
		GetPhysicalDeviceMemoryProperties2     dl.Proc
		GetPhysicalDeviceQueueFamilyProperties dl.Proc
		EnumerateDeviceExtensionProperties     dl.Proc
		CreateDevice                           dl.Proc
		GetDeviceProcAddr                      dl.Proc

		// Of 1.1, and asked where there is VK_EXT_external_memory_host.
		GetPhysicalDeviceExternalBufferProperties dl.Proc
	}
	deviceCalls struct {
		DestroyDevice                dl.Proc
		DeviceWaitIdle               dl.Proc
		GetDeviceQueue               dl.Proc
		CreateBuffer                 dl.Proc
		DestroyBuffer                dl.Proc
		GetBufferMemoryRequirements  dl.Proc
		AllocateMemory               dl.Proc
		FreeMemory                   dl.Proc
		BindBufferMemory             dl.Proc
		MapMemory                    dl.Proc
		FlushMappedMemoryRanges      dl.Proc
		InvalidateMappedMemoryRanges dl.Proc
		CreateCommandPool            dl.Proc
		DestroyCommandPool           dl.Proc
		AllocateCommandBuffers       dl.Proc
		FreeCommandBuffers           dl.Proc
		BeginCommandBuffer           dl.Proc
		EndCommandBuffer             dl.Proc
		ResetCommandBuffer           dl.Proc
		CmdPipelineBarrier           dl.Proc
		CmdCopyBuffer                dl.Proc
		CmdFillBuffer                dl.Proc
		QueueSubmit                  dl.Proc
		CreateSemaphore              dl.Proc
		DestroySemaphore             dl.Proc
		CreateFence                  dl.Proc
		DestroyFence                 dl.Proc
		ResetFences                  dl.Proc
		GetFenceStatus               dl.Proc

		// Of timeline semaphores.
		WaitSemaphores           dl.Proc `optional:"KHR"`
		GetSemaphoreCounterValue dl.Proc `optional:"KHR"`

		// Of VK_EXT_external_memory_host.
		GetMemoryHostPointerPropertiesEXT dl.Proc `optional:""`
	}
)

// A library is the Vulkan loader. It stays open for as long as the program runs.
type library struct {
	*dl.Library
	getInstanceProcAddr dl.Proc
	globalCalls
}

func openLibrary(names []string) (*library, error) {
	l, err := dl.Open(names...)
	if errors.Is(err, dl.ErrUnsupported) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoLibrary, err)
	}
	get, err := l.Lookup("vkGetInstanceProcAddr")
	if err != nil {
		return nil, err
	}
	v := &library{Library: l, getInstanceProcAddr: get}
	// A loader of Vulkan 1.0 has no vkEnumerateInstanceVersion.
	if err := lookUp(&v.globalCalls, v.proc(0)); err != nil {
		return nil, fmt.Errorf("%s is too old or broken: %w", l.Path(), err)
	}
	return v, nil
}

// proc returns a lookup of functions of an instance, or without one.
func (l *library) proc(instance uintptr) func(name string) dl.Proc {
	return func(name string) dl.Proc { return l.lookUpWith(l.getInstanceProcAddr, instance, name) }
}

func (l *library) lookUpWith(get dl.Proc, object uintptr, name string) dl.Proc {
	s := append([]byte(name), 0)
	return dl.At(get.Call(object, uintptr(unsafe.Pointer(unsafe.SliceData(s)))).Uintptr())
}

// lookUp sets the fields of a struct of calls. It names what is missing.
func lookUp(calls any, get func(name string) dl.Proc) error {
	var missing []string
	for _, f := range fields(calls) {
		*f.proc = get("vk" + f.name)
		if suffix, optional := f.tag.Lookup("optional"); optional {
			if !f.proc.Valid() && suffix != "" {
				*f.proc = get("vk" + f.name + suffix)
			}
		} else if !f.proc.Valid() {
			missing = append(missing, "vk"+f.name)
		}
	}
	if missing == nil {
		return nil
	}
	return errors.New("it has no " + strings.Join(missing, ", "))
}
