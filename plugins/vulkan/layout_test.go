package vulkan

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/go-fuel/fuel/internal/require"
)

// layouts are all structs that are handed to a driver.
var layouts = []any{
	applicationInfo{}, instanceCreateInfo{}, extensionProperties{}, physicalDeviceLimits{}, physicalDeviceFeatures{}, physicalDeviceFeatures2{},
	physicalDeviceSparseProperties{}, physicalDeviceProperties{}, physicalDeviceProperties2{}, physicalDeviceIDProperties{},
	physicalDeviceMaintenance3Properties{}, physicalDeviceMaintenance4Properties{}, physicalDeviceDriverProperties{}, conformanceVersion{},
	physicalDeviceExternalMemoryHostPropertiesEXT{}, extent3D{}, queueFamilyProperties{}, memoryType{}, memoryHeap{},
	physicalDeviceMemoryProperties{}, physicalDeviceMemoryProperties2{}, physicalDeviceMemoryBudgetPropertiesEXT{},
	physicalDeviceTimelineSemaphoreFeatures{}, deviceQueueCreateInfo{}, deviceCreateInfo{}, bufferCreateInfo{}, memoryRequirements{},
	memoryAllocateInfo{}, mappedMemoryRange{}, commandPoolCreateInfo{}, commandBufferAllocateInfo{}, commandBufferBeginInfo{}, submitInfo{},
	timelineSemaphoreSubmitInfo{}, semaphoreCreateInfo{}, semaphoreTypeCreateInfo{}, semaphoreWaitInfo{}, fenceCreateInfo{}, memoryBarrier{},
	bufferCopy{}, importMemoryHostPointerInfoEXT{}, memoryHostPointerPropertiesEXT{}, externalMemoryBufferCreateInfo{},
	physicalDeviceExternalBufferInfo{}, externalMemoryProperties{}, externalBufferProperties{},

	// Of tests.
	shaderModuleCreateInfo{}, descriptorSetLayoutBinding{}, descriptorSetLayoutCreateInfo{}, pushConstantRange{}, pipelineLayoutCreateInfo{},
	pipelineShaderStageCreateInfo{}, computePipelineCreateInfo{}, descriptorPoolSize{}, descriptorPoolCreateInfo{}, descriptorSetAllocateInfo{},
	descriptorBufferInfo{}, writeDescriptorSet{}, semaphoreSignalInfo{},
}

// constants are what the code calls the header's constants.
var constants = map[string]int64{
	"VK_STRUCTURE_TYPE_APPLICATION_INFO": typeApplicationInfo, "VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO": typeInstanceCreateInfo,
	"VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO": typeDeviceQueueCreateInfo, "VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO": typeDeviceCreateInfo,
	"VK_STRUCTURE_TYPE_SUBMIT_INFO": typeSubmitInfo, "VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO": typeMemoryAllocateInfo,
	"VK_STRUCTURE_TYPE_MAPPED_MEMORY_RANGE": typeMappedMemoryRange, "VK_STRUCTURE_TYPE_FENCE_CREATE_INFO": typeFenceCreateInfo,
	"VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO": typeSemaphoreCreateInfo, "VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO": typeBufferCreateInfo,
	"VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO": typeCommandPoolCreateInfo, "VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO": typeCommandBufferAllocateInfo,
	"VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO": typeCommandBufferBeginInfo, "VK_STRUCTURE_TYPE_MEMORY_BARRIER": typeMemoryBarrier,
	"VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2": typeFeatures2, "VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2": typeProperties2,
	"VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2": typeMemoryProperties2, "VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES": typeIDProperties,
	"VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO": typeExternalMemoryBuffer, "VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES": typeMaintenance3Properties,
	"VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT": typeImportMemoryHostPointer, "VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT": typeMemoryHostPointer,
	"VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT": typeExternalMemoryHost, "VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES": typeDriverProperties,
	"VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES": typeTimelineFeatures, "VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO": typeSemaphoreTypeCreateInfo,
	"VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO": typeTimelineSubmitInfo, "VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO": typeSemaphoreWaitInfo,
	"VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT": typeMemoryBudget, "VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES": typeMaintenance4Properties,

	"VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_BUFFER_INFO": typeExternalBufferInfo, "VK_STRUCTURE_TYPE_EXTERNAL_BUFFER_PROPERTIES": typeExternalBufferProperties,
	"VK_EXTERNAL_MEMORY_FEATURE_DEDICATED_ONLY_BIT": featureDedicatedOnly, "VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT": featureImportable,

	"VK_PHYSICAL_DEVICE_TYPE_CPU": typeCPU, "VK_QUEUE_GRAPHICS_BIT": queueGraphics, "VK_QUEUE_COMPUTE_BIT": queueCompute,
	"VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR": enumeratePortability,
	"VK_PIPELINE_STAGE_TRANSFER_BIT":                   stageTransfer, "VK_PIPELINE_STAGE_HOST_BIT": stageHost, "VK_PIPELINE_STAGE_ALL_COMMANDS_BIT": stageAll,
	"VK_ACCESS_TRANSFER_READ_BIT": accessTransferRead, "VK_ACCESS_TRANSFER_WRITE_BIT": accessTransferWrite, "VK_ACCESS_HOST_READ_BIT": accessHostRead,
	"VK_ACCESS_MEMORY_READ_BIT": accessMemoryRead, "VK_ACCESS_MEMORY_WRITE_BIT": accessMemoryWrite,
	"VK_BUFFER_USAGE_TRANSFER_SRC_BIT|VK_BUFFER_USAGE_TRANSFER_DST_BIT": usageTransfer,
	"VK_BUFFER_USAGE_TRANSFER_SRC_BIT|VK_BUFFER_USAGE_TRANSFER_DST_BIT|VK_BUFFER_USAGE_UNIFORM_TEXEL_BUFFER_BIT|VK_BUFFER_USAGE_STORAGE_TEXEL_BUFFER_BIT|VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT|VK_BUFFER_USAGE_STORAGE_BUFFER_BIT|VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT": usageOfStorage,
	"VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT": resetCommandBuffer, "VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT": oneTimeSubmit,
	"VK_SEMAPHORE_TYPE_TIMELINE": timelineSemaphore, "VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT": hostAllocation,
	"VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT": deviceLocal, "VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT": hostVisible, "VK_MEMORY_PROPERTY_HOST_COHERENT_BIT": hostCoherent,
	"VK_MEMORY_PROPERTY_HOST_CACHED_BIT": hostCached, "VK_MEMORY_HEAP_DEVICE_LOCAL_BIT": heapOfDevice,
	"VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO": typeShaderModule, "VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO": typeComputePipeline,
	"VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO": typeShaderStage, "VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO": typePipelineLayout,
	"VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO": typeDescriptorSetLayout, "VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO": typeDescriptorPool,
	"VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO": typeDescriptorSet, "VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET": typeWriteDescriptorSet,
	"VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO": typeSemaphoreSignal, "VK_DESCRIPTOR_TYPE_STORAGE_BUFFER": storageBuffer,
	"VK_SHADER_STAGE_COMPUTE_BIT": computeStage, "VK_PIPELINE_BIND_POINT_COMPUTE": computeBinding,
	"VK_API_VERSION_1_1": version11, "VK_API_VERSION_1_2": version12, "VK_API_VERSION_1_3": version13, "VK_MAX_MEMORY_HEAPS": int64(len(port{}.used)),
}

// cName is a struct's name in the header.
func cName(t reflect.Type) string { return "Vk" + strings.ToUpper(t.Name()[:1]) + t.Name()[1:] }

// ours is what the Go compiler makes of the structs, and theirs the C program
// that says the same of the header.
func ours() (lines, program string) {
	var l, c strings.Builder
	c.WriteString("#include <stddef.h>\n#include <stdio.h>\n#include <vulkan/vulkan_core.h>\nint main(void)\n{\n")
	for _, x := range layouts {
		t := reflect.TypeOf(x)
		fmt.Fprintf(&l, "%s %d\n", cName(t), t.Size())
		fmt.Fprintf(&c, "\tprintf(\"%s %%zu\\n\", sizeof(%[1]s));\n", cName(t))
		if t.Kind() != reflect.Struct {
			continue
		}
		for i := range t.NumField() {
			f := t.Field(i)
			if f.Name == "_" {
				continue
			}
			name := f.Name
			if c, keyword := f.Tag.Lookup("c"); keyword { // of Go
				name = c
			}
			fmt.Fprintf(&l, "%s.%s %d %d\n", cName(t), name, f.Offset, f.Type.Size())
			fmt.Fprintf(&c, "\tprintf(\"%s.%s %%zu %%zu\\n\", offsetof(%[1]s, %[2]s), sizeof(((%[1]s *)0)->%[2]s));\n", cName(t), name)
		}
	}
	for name, v := range constants {
		fmt.Fprintf(&l, "%s %d\n", name, v)
		fmt.Fprintf(&c, "\tprintf(\"%s %%lld\\n\", (long long)(%[1]s));\n", name)
	}
	for r, name := range resultNames {
		fmt.Fprintf(&l, "%s %d\n", name, r)
		fmt.Fprintf(&c, "\tprintf(\"%s %%d\\n\", (int)%[1]s);\n", name)
	}
	c.WriteString("\treturn 0;\n}\n")
	return l.String(), c.String()
}

func TestLayoutsAreThoseOfTheHeader(t *testing.T) {
	if math.MaxInt == math.MaxInt32 {
		require.Skip(t, "64-bit", "the structs are those of 64-bit systems: on others no library is loaded")
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		require.Skip(t, "gcc", err.Error())
	}
	dir := t.TempDir()
	source, exe := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
	want, program := ours()
	if err := os.WriteFile(source, []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(gcc, "-o", exe, source).CombinedOutput(); bytes.Contains(out, []byte("vulkan_core.h: No such file")) {
		require.Skip(t, "vulkan-headers", "vulkan/vulkan_core.h is not installed")
	} else if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(exe).Output()
	if err != nil {
		t.Fatal(err)
	}
	got, expect := strings.Split(want, "\n"), strings.Split(string(out), "\n")
	if len(expect) != len(got) {
		t.Fatalf("%d lines, want %d", len(got), len(expect))
	}
	for i := range got {
		if got[i] != expect[i] {
			t.Errorf("ours %q, the header's %q", got[i], expect[i])
		}
	}
}
