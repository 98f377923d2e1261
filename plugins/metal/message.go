package metal

// A signature is what Objective-C says of a message.
type signature struct {
	class    string // protocol or class that has it
	selector string
	result   string // type, see below
	owned    bool   // the result is the caller's to release; else it is kept by a pool or by its parent
	args     string // types, a letter each but for structs
}

// Types are written as the runtime encodes them: @ an object, Q and q 64-bit
// integers, C one byte, B a boolean, ^v and * pointers, {_NSRange=QQ} two integers
// by value, v nothing. All of them go in integer registers, a struct of two in two
// of them.

// A message is an index of messages.
type message int

const (
	retain message = iota
	release

	count
	objectAtIndex
	utf8String
	code
	localizedDescription

	name
	registryID
	hasUnifiedMemory
	recommendedMaxWorkingSetSize
	maxBufferLength
	currentAllocatedSize
	newCommandQueue
	newSharedEvent
	newBuffer
	newBufferNoCopy

	contents

	signaledValue
	setSignaledValue
	waitUntilSignaledValue

	commandBuffer

	blitCommandEncoder
	encodeWaitForEvent
	encodeSignalEvent
	commit
	waitUntilCompleted
	status
	errorOf

	copyFromBuffer
	fillBuffer
	endEncoding

	numMessages
)

// messages are all that this package sends. testdata/signatures has what others say of
// them.
var messages = [numMessages]signature{
	retain:  {"NSObject", "retain", "@", false, ""},
	release: {"NSObject", "release", "v", false, ""},

	count:                {"NSArray", "count", "Q", false, ""},
	objectAtIndex:        {"NSArray", "objectAtIndex:", "@", false, "Q"},
	utf8String:           {"NSString", "UTF8String", "*", false, ""},
	code:                 {"NSError", "code", "q", false, ""},
	localizedDescription: {"NSError", "localizedDescription", "@", false, ""},

	name:                         {"MTLDevice", "name", "@", false, ""},
	registryID:                   {"MTLDevice", "registryID", "Q", false, ""},
	hasUnifiedMemory:             {"MTLDevice", "hasUnifiedMemory", "B", false, ""},
	recommendedMaxWorkingSetSize: {"MTLDevice", "recommendedMaxWorkingSetSize", "Q", false, ""},
	maxBufferLength:              {"MTLDevice", "maxBufferLength", "Q", false, ""},
	currentAllocatedSize:         {"MTLDevice", "currentAllocatedSize", "Q", false, ""},
	newCommandQueue:              {"MTLDevice", "newCommandQueueWithMaxCommandBufferCount:", "@", true, "Q"},
	newSharedEvent:               {"MTLDevice", "newSharedEvent", "@", true, ""},
	newBuffer:                    {"MTLDevice", "newBufferWithLength:options:", "@", true, "QQ"},
	newBufferNoCopy:              {"MTLDevice", "newBufferWithBytesNoCopy:length:options:deallocator:", "@", true, "^vQQ@"},

	contents: {"MTLBuffer", "contents", "^v", false, ""},

	signaledValue:          {"MTLSharedEvent", "signaledValue", "Q", false, ""},
	setSignaledValue:       {"MTLSharedEvent", "setSignaledValue:", "v", false, "Q"},
	waitUntilSignaledValue: {"MTLSharedEvent", "waitUntilSignaledValue:timeoutMS:", "B", false, "QQ"}, // macOS 12

	commandBuffer: {"MTLCommandQueue", "commandBuffer", "@", false, ""},

	blitCommandEncoder: {"MTLCommandBuffer", "blitCommandEncoder", "@", false, ""},
	encodeWaitForEvent: {"MTLCommandBuffer", "encodeWaitForEvent:value:", "v", false, "@Q"},
	encodeSignalEvent:  {"MTLCommandBuffer", "encodeSignalEvent:value:", "v", false, "@Q"},
	commit:             {"MTLCommandBuffer", "commit", "v", false, ""},
	waitUntilCompleted: {"MTLCommandBuffer", "waitUntilCompleted", "v", false, ""},
	status:             {"MTLCommandBuffer", "status", "Q", false, ""},
	errorOf:            {"MTLCommandBuffer", "error", "@", false, ""},

	copyFromBuffer: {"MTLBlitCommandEncoder", "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:", "v", false, "@Q@QQ"},
	fillBuffer:     {"MTLBlitCommandEncoder", "fillBuffer:range:value:", "v", false, "@{_NSRange=QQ}C"},
	endEncoding:    {"MTLCommandEncoder", "endEncoding", "v", false, ""},
}
