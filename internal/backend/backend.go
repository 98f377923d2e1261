// Package backend is the contract between fuel and its drivers.
//
// It is internal, and no exported identifier of fuel lets anyone name its
// types, so the set of drivers is closed: those in this module. It speaks in
// plain integers and small types; fuel declares the public ones.
//
// The core never passes a driver a length of zero, a range outside a Buffer, a
// Buffer of another device, or host memory that may fault (a mapped file):
// it has checked, and what reads mappings is its own, see UploadFrom.
package backend

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A Kind is one of the closed set of backends, with the values of fuel.Kind.
type Kind uint8

// The kinds. NumKinds counts them.
const (
	CPU Kind = iota
	CUDA
	Vulkan
	Metal
	NumKinds
)

// A Driver is what a plugin registers: a description and two functions that
// the core calls when somebody first asks. Registering loads nothing.
type Driver struct {
	Kind    Kind
	Package string // import path, for messages

	// Probe looks for the vendor library and its devices. It may take long
	// and may block; the core calls it in a goroutine of its own, holding no
	// lock, once per Reprobe. A failure to find anything is an error that
	// tells a person what was tried and what to do.
	Probe func(ctx context.Context) (Info, error)

	// Open returns the device with the given index into Info.Devices. The
	// core calls it at most once per index, holding no lock.
	Open func(ctx context.Context, index int) (Device, error)
}

// Info is what a driver found out. It may be filled in part beside an error.
type Info struct {
	Library       string // path or name of the vendor library that was loaded
	DriverVersion string
	Tier          string // implementation of the kernels, for the CPU
	Note          string // what a person should know though all is well
	Devices       []DeviceInfo
}

// DeviceInfo is what one device can do.
type DeviceInfo struct {
	// Broken says why the device cannot be used, if not nil. It has its index
	// all the same, so that the others have theirs, and is not listed.
	Broken error

	Name   string
	UUID   string // stable name of the device, empty where there is none
	Memory MemInfo

	MaxAlloc   int // largest Buffer in bytes; 0 means no limit known
	Alignment  int // alignment in bytes of every Buffer
	Unified    bool
	Pinned     bool
	Peer       bool
	HostImport bool
	HostAlign  int // of Importer and Pinner, 0 where it is neither
}

// Unknown stands for a figure that the system does not tell, apart from 0.
const Unknown = -1

// MemInfo counts bytes of a device's memory; each may be Unknown.
type MemInfo struct {
	Total, Free int64
}

// A Buffer is memory on one device. The zero Buffer is no memory.
type Buffer struct {
	Handle uint64 // the driver's own name for it
	Size   int    // bytes

	// Host is the memory itself where it is the CPU's, else nil.
	Host []byte

	// MayFault says that reading Host may fault: a mapped file. Only Buffers
	// that the core made itself have it.
	MayFault bool
}

// A Point is a place in a device's one ordered queue of work. Points grow; a
// later Point includes all work before it. 0 is before all work.
type Point uint64

// An External is work outside fuel that a queue can be made to wait for.
type External struct {
	Handle uint64          // event or semaphore, by Kind
	Value  uint64          // value of a timeline semaphore
	Done   <-chan struct{} // for the CPU: closed when the work is done
}

// Handles are what a user's own kernels need, by Kind: see the public types
// of fuel that name each field.
type Handles struct {
	Buffer  uint64 // device pointer, VkBuffer, MTLBuffer
	Offset  uint64 // of the memory in Buffer, bytes
	Device  uint64 // context, VkDevice, MTLDevice
	Queue   uint64 // stream, VkQueue, MTLCommandQueue
	Family  uint32 // Vulkan: queue family
	Address uint64 // device address, where there is one

	Instance uint64      // Vulkan: VkInstance
	Physical uint64      // Vulkan: VkPhysicalDevice
	Lock     sync.Locker // Vulkan: to be held while Queue is used
}

// A Device is one opened device. Its methods are safe for use by several
// goroutines at once. Work runs in the order in which it was given; a method
// that returns a Point returns when the work is in the queue, and an error of
// work that was queued comes from Wait on its Point.
//
// Errors wrap ErrNoMemory, ErrLost or ErrTooLarge where they mean that.
type Device interface {
	// Memory tells the free and total bytes now.
	Memory() MemInfo

	// Alloc returns a Buffer of n bytes, n > 0, aligned as DeviceInfo says;
	// all bytes are zero if zero is set, else unspecified. The driver may
	// queue the clearing, since whatever uses the Buffer is queued later.
	Alloc(n int, zero bool) (Buffer, error)

	// Free gives b back, for reuse only after the Point has passed. It never
	// blocks and cannot fail: a lost device frees too.
	Free(b Buffer, after Point)

	// Fill repeats pattern (1, 2, 4, 8 or 16 bytes, dividing n) over a range
	// at any offset.
	Fill(b Buffer, off, n int, pattern []byte) (Point, error)

	// Copy copies n bytes between Buffers of this device, at any offsets.
	// The ranges may overlap: dst then holds what src held before.
	Copy(dst Buffer, dstOff int, src Buffer, srcOff, n int) (Point, error)

	// Upload copies host memory into a range. When it returns src may be
	// written again; the Point tells when dst is written. staged says that the
	// bytes went through host memory of the driver's in between.
	Upload(dst Buffer, off int, src []byte) (p Point, staged bool, err error)

	// UploadFrom is Upload of n bytes that read writes to p, those from byte at
	// on, where the driver must not read the host's memory itself. It is called
	// once for each part, from several goroutines at once and in any order, and
	// not any more when UploadFrom returns. Its first error is that of the
	// call; the range is unspecified then.
	UploadFrom(dst Buffer, off, n int, read func(p []byte, at int) error) (p Point, staged bool, err error)

	// Download copies a range to host memory and returns when dst is written,
	// or with an error, after which nothing writes to dst any more. staged is
	// as Upload has it.
	Download(dst []byte, src Buffer, off int) (staged bool, err error)

	// Staging tells through how many bytes of host memory an Upload of mem to b
	// from off on would go if it came now, or, with read set, a Download from
	// there to mem; and why, in words for a person. 0 is none: the host reaches b itself, or the
	// device reaches mem. The zero Buffer stands for one that is allocated for
	// the transfer. It asks nothing of the device, reads nothing of mem, and
	// what others do meanwhile may change the answer.
	Staging(b Buffer, off int, mem []byte, read bool) (size int, why string)

	// Done reports whether p has passed. It does not block.
	Done(p Point) bool

	// Wait returns when p has passed, with the error of p's own work, or
	// early with ctx's error; the work goes on then. It holds no operating
	// system thread for each waiter.
	Wait(ctx context.Context, p Point) error

	// WaitExternal makes work that is queued later wait for x.
	WaitExternal(x External) (Point, error)

	// Handles tells what a user's own kernels need to use b.
	Handles(b Buffer) Handles

	// Close waits for the queue and gives the device back. Later calls of
	// other methods, except Free, fail with an error that wraps ErrClosed.
	Close() error
}

// An Importer is a Device that can use host memory as its own. The core asks it
// where a user wants a copy to be none.
type Importer interface {
	// ImportAlign is what address and length of the host memory must be
	// multiples of, in bytes, a power of two; 0 where the device cannot.
	ImportAlign() int

	// Import makes a Buffer of host memory, which work then only reads; the
	// core never asks for more. The Buffer has mem's Size and no Host. mem is
	// not the Go heap's, and stays where it is until release is called: once,
	// when the device has done with it, which is after Free and its Point, and
	// all work that the driver itself gave it, or with Close. mayFault says
	// that reading mem may: only the device may do it then, at the user's risk.
	// A refusal is an error after which release is not called.
	Import(mem []byte, mayFault bool, release func()) (Buffer, error)
}

// A Pinner is a Device that can page-lock host memory: an Upload from a part of
// it, or a Download to one, needs no staging then.
type Pinner interface {
	// PinAlign is what address and length of the host memory must be multiples
	// of, in bytes, a power of two; 0 where the device cannot.
	PinAlign() int

	// Pin page-locks mem, which cannot fault and can be written. It stays where
	// it is until Unpin has told that the driver has let go of it. A refusal is
	// an error, and the driver has nothing of mem then.
	Pin(mem []byte) (Pin, error)
}

// A Pin is host memory that a Pinner has page-locked.
type Pin interface {
	// Held reports whether it still is: Close of the device ends it.
	Held() bool

	// Unpin gives the memory back; nobody starts a transfer with it any more.
	// It calls gone, once, when the driver has nothing to do with the memory
	// any more: mostly before it returns, later where the driver refuses, and
	// never where it does so to the end.
	Unpin(gone func())
}

// A Cacher is a Device that keeps freed memory to hand it out again. The core
// calls Trim(0) where Alloc fails with ErrNoMemory, before it tries once more;
// the rest when a user asks.
type Cacher interface {
	// Trim gives kept memory back to the system until at most target bytes
	// are kept, and returns the bytes given back.
	Trim(target int64) (freed int64)

	// Cache tells what is kept, Cached only how many bytes, about, at no cost.
	Cache() CacheInfo
	Cached() int64

	// SetCache sets the most bytes to keep and how long they may lie unused.
	// 0 is the driver's default, below zero none and for ever.
	SetCache(max int64, idle time.Duration)
}

// A Stager is a Device that copies from and to the host through page-locked
// memory of its own. Pageable reports whether the system refused some of it, so
// that ordinary memory does, and transfers take longer.
type Stager interface {
	Pageable() bool
}

// A Peer is a Device that may get bytes from another one of its driver directly.
type Peer interface {
	// Reaches is nil where it may: the first call for a Device has looked
	// whether what is sent arrives. Else the error says why not.
	Reaches(from Device) error

	// CopyPeer copies n bytes from a Buffer of from, for which Reaches is nil,
	// after the work on both, and returns when they are there.
	CopyPeer(dst Buffer, dstOff int, from Device, src Buffer, srcOff, n int) error
}

// CacheInfo counts memory that a Cacher keeps.
type CacheInfo struct {
	Bytes   int64 // of freed memory
	Largest int64 // bytes of the largest freed block
	Padding int64 // bytes of live Buffers beyond their Size
}

// What a driver's error may mean to the core.
var (
	ErrNoMemory = errors.New("out of device memory")
	ErrLost     = errors.New("device lost")
	ErrTooLarge = errors.New("larger than the device allows")
	ErrClosed   = errors.New("device closed")
)

// Replace is set by fuel: it puts d in the place of the driver of d.Kind, or
// takes that driver out where d is nil, and returns a function that undoes it.
// Devices of the replaced driver are closed. It is how fueltest gives a test a
// fake; nothing else may call it.
var Replace func(kind Kind, d *Driver) (restore func())
