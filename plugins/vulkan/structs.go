package vulkan

// The structs of vulkan_core.h (1.3.239) on 64-bit systems, by their names
// there. Pointers are uintptr. TestLayoutsAreThoseOfTheHeader compares them with
// what a C compiler makes of the header.

type applicationInfo struct {
	sType              uint32
	pNext              uintptr
	pApplicationName   uintptr
	applicationVersion uint32
	pEngineName        uintptr
	engineVersion      uint32
	apiVersion         uint32
}

type instanceCreateInfo struct {
	sType                   uint32
	pNext                   uintptr
	flags                   uint32
	pApplicationInfo        uintptr
	enabledLayerCount       uint32
	ppEnabledLayerNames     uintptr
	enabledExtensionCount   uint32
	ppEnabledExtensionNames uintptr
}

type extensionProperties struct {
	extensionName [256]uint8
	specVersion   uint32
}

// physicalDeviceLimits leaves out what is not used.
type physicalDeviceLimits struct {
	_                                [28]byte
	maxStorageBufferRange            uint32
	_                                [4]byte
	maxMemoryAllocationCount         uint32
	_                                [8]byte
	bufferImageGranularity           uint64
	_                                [248]byte
	minMemoryMapAlignment            uint64
	minTexelBufferOffsetAlignment    uint64
	minUniformBufferOffsetAlignment  uint64
	minStorageBufferOffsetAlignment  uint64
	_                                [144]byte
	optimalBufferCopyOffsetAlignment uint64
	_                                [8]byte
	nonCoherentAtomSize              uint64
}

// physicalDeviceFeatures has 55 switches.
type physicalDeviceFeatures [55]uint32

type physicalDeviceFeatures2 struct {
	sType    uint32
	pNext    uintptr
	features physicalDeviceFeatures
}

type physicalDeviceSparseProperties struct {
	residencyStandard2DBlockShape            uint32
	residencyStandard2DMultisampleBlockShape uint32
	residencyStandard3DBlockShape            uint32
	residencyAlignedMipSize                  uint32
	residencyNonResidentStrict               uint32
}

type physicalDeviceProperties struct {
	apiVersion        uint32
	driverVersion     uint32
	vendorID          uint32
	deviceID          uint32
	deviceType        uint32
	deviceName        [256]uint8
	pipelineCacheUUID [16]uint8
	limits            physicalDeviceLimits
	sparseProperties  physicalDeviceSparseProperties
}

type physicalDeviceProperties2 struct {
	sType      uint32
	pNext      uintptr
	properties physicalDeviceProperties
}

type physicalDeviceIDProperties struct {
	sType           uint32
	pNext           uintptr
	deviceUUID      [16]uint8
	driverUUID      [16]uint8
	deviceLUID      [8]uint8
	deviceNodeMask  uint32
	deviceLUIDValid uint32
}

type physicalDeviceMaintenance3Properties struct {
	sType                   uint32
	pNext                   uintptr
	maxPerSetDescriptors    uint32
	maxMemoryAllocationSize uint64
}

type physicalDeviceMaintenance4Properties struct {
	sType         uint32
	pNext         uintptr
	maxBufferSize uint64
}

type physicalDeviceDriverProperties struct {
	sType              uint32
	pNext              uintptr
	driverID           uint32
	driverName         [256]uint8
	driverInfo         [256]uint8
	conformanceVersion conformanceVersion
}

type physicalDeviceExternalMemoryHostPropertiesEXT struct {
	sType                           uint32
	pNext                           uintptr
	minImportedHostPointerAlignment uint64
}

type extent3D struct {
	width  uint32
	height uint32
	depth  uint32
}

type queueFamilyProperties struct {
	queueFlags                  uint32
	queueCount                  uint32
	timestampValidBits          uint32
	minImageTransferGranularity extent3D
}

type memoryType struct {
	propertyFlags uint32
	heapIndex     uint32
}

type memoryHeap struct {
	size  uint64
	flags uint32
}

type physicalDeviceMemoryProperties struct {
	memoryTypeCount uint32
	memoryTypes     [32]memoryType
	memoryHeapCount uint32
	memoryHeaps     [16]memoryHeap
}

type physicalDeviceMemoryProperties2 struct {
	sType            uint32
	pNext            uintptr
	memoryProperties physicalDeviceMemoryProperties
}

type physicalDeviceMemoryBudgetPropertiesEXT struct {
	sType      uint32
	pNext      uintptr
	heapBudget [16]uint64
	heapUsage  [16]uint64
}

type physicalDeviceTimelineSemaphoreFeatures struct {
	sType             uint32
	pNext             uintptr
	timelineSemaphore uint32
}

type deviceQueueCreateInfo struct {
	sType            uint32
	pNext            uintptr
	flags            uint32
	queueFamilyIndex uint32
	queueCount       uint32
	pQueuePriorities uintptr
}

type deviceCreateInfo struct {
	sType                   uint32
	pNext                   uintptr
	flags                   uint32
	queueCreateInfoCount    uint32
	pQueueCreateInfos       uintptr
	enabledLayerCount       uint32
	ppEnabledLayerNames     uintptr
	enabledExtensionCount   uint32
	ppEnabledExtensionNames uintptr
	pEnabledFeatures        uintptr
}

type bufferCreateInfo struct {
	sType                 uint32
	pNext                 uintptr
	flags                 uint32
	size                  uint64
	usage                 uint32
	sharingMode           uint32
	queueFamilyIndexCount uint32
	pQueueFamilyIndices   uintptr
}

type memoryRequirements struct {
	size           uint64
	alignment      uint64
	memoryTypeBits uint32
}

type memoryAllocateInfo struct {
	sType           uint32
	pNext           uintptr
	allocationSize  uint64
	memoryTypeIndex uint32
}

type mappedMemoryRange struct {
	sType  uint32
	pNext  uintptr
	memory uint64
	offset uint64
	size   uint64
}

type commandPoolCreateInfo struct {
	sType            uint32
	pNext            uintptr
	flags            uint32
	queueFamilyIndex uint32
}

type commandBufferAllocateInfo struct {
	sType              uint32
	pNext              uintptr
	commandPool        uint64
	level              uint32
	commandBufferCount uint32
}

type commandBufferBeginInfo struct {
	sType            uint32
	pNext            uintptr
	flags            uint32
	pInheritanceInfo uintptr
}

type submitInfo struct {
	sType                uint32
	pNext                uintptr
	waitSemaphoreCount   uint32
	pWaitSemaphores      uintptr
	pWaitDstStageMask    uintptr
	commandBufferCount   uint32
	pCommandBuffers      uintptr
	signalSemaphoreCount uint32
	pSignalSemaphores    uintptr
}

type timelineSemaphoreSubmitInfo struct {
	sType                     uint32
	pNext                     uintptr
	waitSemaphoreValueCount   uint32
	pWaitSemaphoreValues      uintptr
	signalSemaphoreValueCount uint32
	pSignalSemaphoreValues    uintptr
}

type semaphoreCreateInfo struct {
	sType uint32
	pNext uintptr
	flags uint32
}

type semaphoreTypeCreateInfo struct {
	sType         uint32
	pNext         uintptr
	semaphoreType uint32
	initialValue  uint64
}

type semaphoreWaitInfo struct {
	sType          uint32
	pNext          uintptr
	flags          uint32
	semaphoreCount uint32
	pSemaphores    uintptr
	pValues        uintptr
}

type fenceCreateInfo struct {
	sType uint32
	pNext uintptr
	flags uint32
}

type memoryBarrier struct {
	sType         uint32
	pNext         uintptr
	srcAccessMask uint32
	dstAccessMask uint32
}

type bufferCopy struct {
	srcOffset uint64
	dstOffset uint64
	size      uint64
}

type importMemoryHostPointerInfoEXT struct {
	sType        uint32
	pNext        uintptr
	handleType   uint32
	pHostPointer uintptr
}

type memoryHostPointerPropertiesEXT struct {
	sType          uint32
	pNext          uintptr
	memoryTypeBits uint32
}

type externalMemoryBufferCreateInfo struct {
	sType       uint32
	pNext       uintptr
	handleTypes uint32
}

type physicalDeviceExternalBufferInfo struct {
	sType      uint32
	pNext      uintptr
	flags      uint32
	usage      uint32
	handleType uint32
}

type externalMemoryProperties struct {
	externalMemoryFeatures        uint32
	exportFromImportedHandleTypes uint32
	compatibleHandleTypes         uint32
}

type externalBufferProperties struct {
	sType                    uint32
	pNext                    uintptr
	externalMemoryProperties externalMemoryProperties
}

type conformanceVersion struct {
	major    uint8
	minor    uint8
	subminor uint8
	patch    uint8
}
