package vulkan

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/dl"
)

// What a program needs for a dispatch of its own, beyond what fuel calls.
type userCalls struct {
	CreateShaderModule, DestroyShaderModule               dl.Proc
	CreateDescriptorSetLayout, DestroyDescriptorSetLayout dl.Proc
	CreatePipelineLayout, DestroyPipelineLayout           dl.Proc
	CreateComputePipelines, DestroyPipeline               dl.Proc
	CreateDescriptorPool, DestroyDescriptorPool           dl.Proc
	AllocateDescriptorSets, UpdateDescriptorSets          dl.Proc
	CreateCommandPool, DestroyCommandPool                 dl.Proc
	AllocateCommandBuffers                                dl.Proc
	BeginCommandBuffer, EndCommandBuffer                  dl.Proc
	CmdBindPipeline, CmdBindDescriptorSets                dl.Proc
	CmdPushConstants, CmdDispatch                         dl.Proc
	CreateSemaphore, DestroySemaphore                     dl.Proc
	QueueSubmit, QueueWaitIdle, SignalSemaphore           dl.Proc
}

type (
	shaderModuleCreateInfo struct {
		sType    uint32
		pNext    uintptr
		flags    uint32
		codeSize uintptr
		pCode    uintptr
	}
	descriptorSetLayoutBinding struct {
		binding            uint32
		descriptorType     uint32
		descriptorCount    uint32
		stageFlags         uint32
		pImmutableSamplers uintptr
	}
	descriptorSetLayoutCreateInfo struct {
		sType        uint32
		pNext        uintptr
		flags        uint32
		bindingCount uint32
		pBindings    uintptr
	}
	pushConstantRange struct {
		stageFlags, offset, size uint32
	}
	pipelineLayoutCreateInfo struct {
		sType                  uint32
		pNext                  uintptr
		flags                  uint32
		setLayoutCount         uint32
		pSetLayouts            uintptr
		pushConstantRangeCount uint32
		pPushConstantRanges    uintptr
	}
	pipelineShaderStageCreateInfo struct {
		sType               uint32
		pNext               uintptr
		flags               uint32
		stage               uint32
		module              uint64
		pName               uintptr
		pSpecializationInfo uintptr
	}
	computePipelineCreateInfo struct {
		sType              uint32
		pNext              uintptr
		flags              uint32
		stage              pipelineShaderStageCreateInfo
		layout             uint64
		basePipelineHandle uint64
		basePipelineIndex  int32
	}
	descriptorPoolSize struct {
		kind            uint32 `c:"type"`
		descriptorCount uint32
	}
	descriptorPoolCreateInfo struct {
		sType         uint32
		pNext         uintptr
		flags         uint32
		maxSets       uint32
		poolSizeCount uint32
		pPoolSizes    uintptr
	}
	descriptorSetAllocateInfo struct {
		sType              uint32
		pNext              uintptr
		descriptorPool     uint64
		descriptorSetCount uint32
		pSetLayouts        uintptr
	}
	descriptorBufferInfo struct {
		buffer uint64
		offset uint64
		length uint64 `c:"range"`
	}
	writeDescriptorSet struct {
		sType            uint32
		pNext            uintptr
		dstSet           uint64
		dstBinding       uint32
		dstArrayElement  uint32
		descriptorCount  uint32
		descriptorType   uint32
		pImageInfo       uintptr
		pBufferInfo      uintptr
		pTexelBufferView uintptr
	}
	semaphoreSignalInfo struct {
		sType     uint32
		pNext     uintptr
		semaphore uint64
		value     uint64
	}
)

const (
	typeShaderModule        = 16
	typeComputePipeline     = 29
	typeShaderStage         = 18
	typePipelineLayout      = 30
	typeDescriptorSetLayout = 32
	typeDescriptorPool      = 33
	typeDescriptorSet       = 34
	typeWriteDescriptorSet  = 35
	typeSemaphoreSignal     = 1000207005

	storageBuffer  = 7  // VkDescriptorType
	computeStage   = 32 // VkShaderStageFlagBits
	computeBinding = 1  // VkPipelineBindPoint
)

// A user is a program that has kernels of its own on fuel's device.
type user struct {
	t      testing.TB
	calls  userCalls
	m      fuel.VulkanMemory // of the first Storage: the device
	signal uint64            // timeline semaphores: the kernel signals this one
	gate   uint64            // and waits for this one

	module, sets, layout, pipeline, pool, commands uint64
	pin                                            pinned
}

// newUser needs a Storage on the device, for its handles.
func newUser(t testing.TB, s *fuel.Storage) *user {
	t.Helper()
	u := &user{t: t, m: memoryOf(t, s)}
	lib := value(openLibrary(libraries()))(t)
	get := lib.proc(u.m.Instance)("vkGetDeviceProcAddr")
	ok(t, lookUp(&u.calls, func(name string) dl.Proc { return lib.lookUpWith(get, u.m.Device, name) }))

	c, p := &u.calls, &u.pin
	u.create(c.CreateShaderModule, at(p, shaderModuleCreateInfo{
		sType: typeShaderModule, codeSize: uintptr(4 * len(numbersWords)), pCode: listOf(p, numbersWords),
	}), &u.module)
	u.create(c.CreateDescriptorSetLayout, at(p, descriptorSetLayoutCreateInfo{
		sType: typeDescriptorSetLayout, bindingCount: 1,
		pBindings: at(p, descriptorSetLayoutBinding{descriptorType: storageBuffer, descriptorCount: 1, stageFlags: computeStage}),
	}), &u.sets)
	u.create(c.CreatePipelineLayout, at(p, pipelineLayoutCreateInfo{
		sType: typePipelineLayout, setLayoutCount: 1, pSetLayouts: at(p, u.sets),
		pushConstantRangeCount: 1, pPushConstantRanges: at(p, pushConstantRange{stageFlags: computeStage, size: 8}),
	}), &u.layout)
	info := computePipelineCreateInfo{
		sType: typeComputePipeline, layout: u.layout,
		stage: pipelineShaderStageCreateInfo{sType: typeShaderStage, stage: computeStage, module: u.module, pName: text(p, "main")},
	}
	u.must("vkCreateComputePipelines", c.CreateComputePipelines.Call(u.m.Device, 0, 1, at(p, info), 0, address(keep(p, &u.pipeline))))
	u.create(c.CreateDescriptorPool, at(p, descriptorPoolCreateInfo{
		sType: typeDescriptorPool, maxSets: 64, poolSizeCount: 1, pPoolSizes: at(p, descriptorPoolSize{storageBuffer, 64}),
	}), &u.pool)
	u.create(c.CreateCommandPool, at(p, commandPoolCreateInfo{sType: typeCommandPoolCreateInfo, queueFamilyIndex: u.m.Family}), &u.commands)
	u.signal, u.gate = u.timeline(), u.timeline()
	t.Cleanup(u.close)
	return u
}

func (u *user) must(name string, r dl.Result) {
	u.t.Helper()
	ok(u.t, failed(name, result(r.Int32())))
}

func (u *user) create(f dl.Proc, info uintptr, object *uint64) {
	u.t.Helper()
	u.must("vkCreate...", f.Call(u.m.Device, info, 0, address(keep(&u.pin, object))))
}

func (u *user) timeline() uint64 {
	u.t.Helper()
	p, s := &u.pin, new(uint64)
	u.create(u.calls.CreateSemaphore, at(p, semaphoreCreateInfo{
		sType: typeSemaphoreCreateInfo, pNext: at(p, semaphoreTypeCreateInfo{sType: typeSemaphoreTypeCreateInfo, semaphoreType: timelineSemaphore}),
	}), s)
	return *s
}

// close gives all back. The work has passed.
func (u *user) close() {
	c, d := &u.calls, u.m.Device
	if u.t.Failed() { // so that what waits for the gate ends
		u.open(1 << 30)
	}
	// A semaphore may go when all work that names it has passed, but Mesa 22.3's
	// queue thread looks at it once more after that.
	u.m.Lock.Lock()
	r := c.QueueWaitIdle.Call(u.m.Queue)
	u.m.Lock.Unlock()
	u.must("vkQueueWaitIdle", r)
	for _, o := range []struct {
		f      dl.Proc
		object uint64
	}{
		{c.DestroySemaphore, u.gate}, {c.DestroySemaphore, u.signal}, {c.DestroyCommandPool, u.commands}, {c.DestroyDescriptorPool, u.pool},
		{c.DestroyPipeline, u.pipeline}, {c.DestroyPipelineLayout, u.layout}, {c.DestroyDescriptorSetLayout, u.sets}, {c.DestroyShaderModule, u.module},
	} {
		o.f.Call(d, uintptr(o.object), 0)
	}
	u.pin.Unpin()
}

// dispatch queues a kernel that writes the first n numbers of m: it begins when
// the gate is at begin, and takes the signal to end.
func (u *user) dispatch(m fuel.VulkanMemory, n, seed uint32, begin, end uint64) {
	u.t.Helper()
	c, p, d := &u.calls, &u.pin, m.Device
	set, commands := keep(p, new(uint64)), keep(p, new(uintptr))
	u.must("vkAllocateDescriptorSets", c.AllocateDescriptorSets.Call(d, at(p, descriptorSetAllocateInfo{
		sType: typeDescriptorSet, descriptorPool: u.pool, descriptorSetCount: 1, pSetLayouts: at(p, u.sets),
	}), address(set)))
	c.UpdateDescriptorSets.Call(d, 1, at(p, writeDescriptorSet{
		sType: typeWriteDescriptorSet, dstSet: *set, descriptorCount: 1, descriptorType: storageBuffer,
		pBufferInfo: at(p, descriptorBufferInfo{m.Buffer, m.Offset, uint64(m.Bytes)}),
	}), 0, 0)
	u.must("vkAllocateCommandBuffers", c.AllocateCommandBuffers.Call(d, at(p, commandBufferAllocateInfo{
		sType: typeCommandBufferAllocateInfo, commandPool: u.commands, commandBufferCount: 1,
	}), address(commands)))
	u.must("vkBeginCommandBuffer", c.BeginCommandBuffer.Call(*commands, at(p, commandBufferBeginInfo{sType: typeCommandBufferBeginInfo, flags: oneTimeSubmit})))
	c.CmdBindPipeline.Call(*commands, computeBinding, uintptr(u.pipeline))
	c.CmdBindDescriptorSets.Call(*commands, computeBinding, uintptr(u.layout), 0, 1, address(set), 0, 0)
	c.CmdPushConstants.Call(*commands, uintptr(u.layout), computeStage, 0, 8, at(p, [2]uint32{n, seed}))
	c.CmdDispatch.Call(*commands, uintptr((n+63)/64), 1, 1)
	u.must("vkEndCommandBuffer", c.EndCommandBuffer.Call(*commands))
	info := at(p, submitInfo{
		sType: typeSubmitInfo, waitSemaphoreCount: 1, pWaitSemaphores: at(p, u.gate), pWaitDstStageMask: at(p, uint32(stageAll)),
		commandBufferCount: 1, pCommandBuffers: address(commands), signalSemaphoreCount: 1, pSignalSemaphores: at(p, u.signal),
		pNext: at(p, timelineSemaphoreSubmitInfo{
			sType: typeTimelineSubmitInfo, waitSemaphoreValueCount: 1, pWaitSemaphoreValues: at(p, begin),
			signalSemaphoreValueCount: 1, pSignalSemaphoreValues: at(p, end),
		}),
	})
	m.Lock.Lock()
	defer m.Lock.Unlock()
	u.must("vkQueueSubmit", c.QueueSubmit.Call(m.Queue, 1, info, 0))
}

// open takes the gate to a value.
func (u *user) open(v uint64) {
	u.t.Helper()
	u.must("vkSignalSemaphore", u.calls.SignalSemaphore.Call(u.m.Device, at(&u.pin, semaphoreSignalInfo{sType: typeSemaphoreSignal, semaphore: u.gate, value: v})))
}

// run dispatches on a Storage, as Visit's contract asks, and returns the Point
// of the kernel's end.
func (u *user) run(s *fuel.Storage, n, seed uint32, begin, end uint64) fuel.Point {
	u.t.Helper()
	q := value(fuel.QueueOf(s.Device()))(u.t)
	p := value(fuel.VisitMutable(s, &fuel.Cases[fuel.Point]{Vulkan: func(m fuel.VulkanMemory) (fuel.Point, error) {
		u.dispatch(m, n, seed, begin, end)
		return q.WaitExternal(fuel.External{Handle: u.signal, Value: end})
	}}))(u.t)
	ok(u.t, s.UsedUntil(p))
	return p
}

func memoryOf(t testing.TB, s *fuel.Storage) fuel.VulkanMemory {
	t.Helper()
	return value(fuel.Visit(s, &fuel.Cases[fuel.VulkanMemory]{Vulkan: func(m fuel.VulkanMemory) (fuel.VulkanMemory, error) { return m, nil }}))(t)
}

// numbers is what the kernel writes.
func numbers(n, seed uint32) []byte {
	var b []byte
	for i := range n {
		b = binary.LittleEndian.AppendUint32(b, i*2654435761+seed)
	}
	return b
}

// timelines is for tests that hand out semaphores.
func timelines(t *testing.T, f func(t *testing.T, dev fuel.Device)) {
	for name, c := range ways {
		t.Run(name, func(t *testing.T) { f(t, use(t, testDriver(c))) })
	}
}

func TestUsersWorkNeverReachesAClone(t *testing.T) {
	timelines(t, func(t *testing.T, dev fuel.Device) {
		const n = 5000
		old := bytes.Repeat([]byte{0xA5}, 4*n)
		s := closed(t, value(fuel.FromBytes(dev, fuel.U32, old))(t))
		u := newUser(t, s)
		q := value(fuel.QueueOf(dev))(t)

		// After fuel's own work that is queued before, on memory that nobody
		// shares and on a private copy.
		before := s.ID()
		value(q.Fill(s, []byte{0x5A}))(t)
		u.run(s, n-7, 1, 0, 1)
		want := append(numbers(n-7, 1), bytes.Repeat([]byte{0x5A}, 28)...)
		c := closed(t, value(s.Clone())(t))
		if got := contents(t, s); !bytes.Equal(got, want) {
			t.Errorf("the kernel wrote %x…, want %x…", got[:32], want[:32])
		}
		u.run(s, n, 2, 0, 2)
		d := closed(t, value(fuel.AllocUninit(dev, fuel.U32, n, nil))(t))
		value(q.Copy(d, s))(t) // fuel's work after it
		for name, x := range map[string]struct {
			s    *fuel.Storage
			want []byte
		}{"the clone": {c, want}, "the original": {s, numbers(n, 2)}, "the copy": {d, numbers(n, 2)}} {
			if got := contents(t, x.s); !bytes.Equal(got, x.want) {
				t.Errorf("%s holds %x…, want %x…", name, got[:32], x.want[:32])
			}
		}
		if before == c.ID() {
			t.Error("the clone has the ID of the original")
		}

		// A view is a part of the same buffer.
		v := closed(t, value(s.View(64, 640))(t))
		u.run(v, 640, 3, 0, 3)
		want = numbers(n, 2)
		copy(want[256:], numbers(640, 3))
		if got := contents(t, s); !bytes.Equal(got, want) {
			t.Error("a kernel on a view wrote elsewhere")
		}
	})
}

func TestUsersWorkNeverFindsItsMemoryReused(t *testing.T) {
	timelines(t, func(t *testing.T, dev fuel.Device) {
		const n = 16 << 10
		s := value(fuel.Alloc(dev, fuel.U32, n, nil))(t)
		u := newUser(t, s)
		place := memoryOf(t, s)
		end := u.run(s, n, 1, 1, 1) // which waits for the gate
		ok(t, s.Close())

		q := value(fuel.QueueOf(dev))(t)
		var others []*fuel.Storage
		for i := range 40 {
			o := closed(t, value(fuel.AllocUninit(dev, fuel.U32, n, nil))(t))
			m := memoryOf(t, o)
			value(q.Fill(o, []byte{byte(i)}))(t) // the host must not wait for it
			if m.Buffer == place.Buffer && m.Offset < place.Offset+4*n && place.Offset < m.Offset+4*n {
				t.Errorf("storage %d is at %d of the buffer, where a kernel will write from %d on", i, m.Offset, place.Offset)
			}
			others = append(others, o)
		}
		if q.Done(end) {
			t.Error("the kernel's Point has passed, and the kernel waits")
		}
		u.open(1)
		ok(t, q.Wait(t.Context(), end))
		for i, o := range others {
			if !all(contents(t, o), byte(i)) {
				t.Errorf("storage %d was written to", i)
			}
		}
		// After the Point it is.
		for range 3 {
			o := closed(t, value(fuel.Alloc(dev, fuel.U32, n, nil))(t))
			m := memoryOf(t, o)
			if m.Buffer == place.Buffer && m.Offset == place.Offset {
				if !all(contents(t, o), 0) {
					t.Error("the memory is not cleared")
				}
				return
			}
		}
		t.Error("the memory is not used again after the Point")
	})
}

// The host's own access waits for the kernel, and work beside it does not hold
// threads.
func TestUsersWorkIsNeverReadEarly(t *testing.T) {
	timelines(t, func(t *testing.T, dev fuel.Device) {
		const n = 4096
		s := closed(t, value(fuel.Alloc(dev, fuel.U32, n, nil))(t))
		u := newUser(t, s)
		for i := range uint32(5) {
			u.run(s, n, i, uint64(i)+1, uint64(i)+1)
			got := make(chan error)
			go func() {
				b := make([]byte, 4*n)
				_, _ = s.ReadAt(b, 0) // io.EOF: it is all of it
				if !bytes.Equal(b, numbers(n, i)) {
					got <- fmt.Errorf("round %d: read %x…", i, b[:16])
				}
				got <- nil
			}()
			select {
			case err := <-got:
				t.Fatalf("the read came back before the kernel ran: %v", err)
			case <-time.After(20 * time.Millisecond):
			}
			u.open(uint64(i) + 1)
			if err := <-got; err != nil {
				t.Fatal(err)
			}
		}
	})
}
