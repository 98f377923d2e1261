package gpu

import (
	"context"

	"github.com/go-fuel/fuel/internal/backend"
)

// A Port is what one vendor's API has to do: driver memory in blocks, and work
// in a queue. Device makes a backend.Device of it: it cuts blocks up, stages
// what the host cannot reach, makes fills and copies of any offset and length
// from those that the API has, and keeps memory until work on it has passed.
//
// Device calls Submit from one goroutine at a time, and the others from any.
// Errors wrap backend.ErrNoMemory, ErrLost or ErrTooLarge where they mean that.
type Port interface {
	// Allocate gets memory from the driver: one allocation of n bytes, n > 0.
	// Its contents are unspecified.
	Allocate(n int, use Use) (Block, error)

	// Release gives a Block back. No work uses it any more, or the device is
	// lost.
	Release(b Block)

	// Submit queues ops, in order, behind all work before; p, one more than
	// that of the Submit before, passes when they are done. What an op writes
	// the next ones see, and the host after p, once it has invalidated. What
	// the host has written and flushed the ops see. Nothing is queued where it
	// fails.
	Submit(p backend.Point, ops []Op) error

	// Reached tells the last Point that has passed. It does not block.
	Reached() (backend.Point, error)

	// Await returns when p, which has been submitted, has passed, or early
	// with ctx's error. It may hold a thread: Device has at most a few in it
	// at once.
	Await(ctx context.Context, p backend.Point) error

	// Flush makes what the host wrote to a range of mapped memory visible to
	// work that is submitted later. Invalidate makes what work wrote visible
	// to the host. The range is of whole Limits.Atom, or ends with the Block.
	// They are only called for a Block that is not Coherent.
	Flush(b Block, off, n int) error
	Invalidate(b Block, off, n int) error

	// Memory tells the device's total and free bytes now, as the driver sees
	// it: Free is backend.Unknown where it does not tell.
	Memory() backend.MemInfo

	// Handles tells what a user's own kernels need to use b; Offset is that of
	// b itself.
	Handles(b Block) backend.Handles

	// Close gives the device back. All work has passed, or it is lost, and
	// every Block is released.
	Close() error
}

// A Pager is a Port that tells whether it had to give ordinary memory for
// staging where it would give page-locked memory.
type Pager interface {
	Pageable() bool
}

// A PeerPort is a Port whose device may get bytes from another one's memory.
// Reaches is backend.Peer's; where it is nil, an OpPeer may follow.
type PeerPort interface {
	Reaches(from Port) error
}

// Use says what a Block is for.
type Use uint8

const (
	Storage  Use = iota // memory of Storages
	Upload              // staging that the host writes
	Readback            // staging that the host reads
)

// A Block is one allocation of the driver.
type Block struct {
	ID   uint64 // the Port's own name for it, never 0
	Size int    // bytes, at least what was asked for

	// Host is the memory itself where the host has it mapped, for as long as
	// the Block lives, else nil. It is not Go memory.
	Host []byte

	// Coherent says that Flush and Invalidate are not needed for Host.
	Coherent bool

	// Cached says that the host reads Host through its caches: where it does
	// not, a read costs many times what one through staging does.
	Cached bool
}

// An OpKind is what an Op does.
type OpKind uint8

const (
	// OpCopy copies N bytes of Src from SrcOff on to Dst from DstOff on, as
	// Limits.CopyUnit allows. The ranges do not overlap.
	OpCopy OpKind = iota

	// OpFill repeats Word, little end first, over N bytes of Dst from DstOff
	// on, as Limits.FillUnit, FillAlign and
	// FillByte allow.
	OpFill

	// OpWait makes all later work wait for External.
	OpWait

	// OpPeer is OpCopy where Src is a Block of From, on which no work is.
	OpPeer
)

// An Op is one piece of work for the device.
type Op struct {
	Kind           OpKind
	Dst, Src       Block
	DstOff, SrcOff int
	N              int // bytes, more than 0 and at most MaxOp
	Word           uint32
	External       backend.External
	From           Port
}

// MaxOp is the most bytes that one Op is for: long ones trip the watchdogs of
// GPU drivers (gfx-rs/wgpu#8133).
const MaxOp = 256 << 20

// Limits are what a Port's device allows. They are facts; Device draws the
// conclusions.
type Limits struct {
	MaxBlock       int  // bytes of the largest allocation that can be used as one
	MaxAllocations int  // driver allocations at once; 0 where there is no limit
	Heap           int  // bytes of the memory that Storages are in; 0 is unknown
	Shared         bool // staging is in that memory, too
	Align          int  // alignment in bytes of a Buffer within a Block, a power of two, at least 64
	Atom           int  // unit of Flush and Invalidate, a power of two; 1 where all memory is coherent
	CopyUnit       int  // 4 where offsets and length of a copy are multiples of it; 0 or 1 where any will do
	FillUnit       int  // 4 where offset and length of a fill are multiples of it; 1 where any will do, and all four bytes of Word are the same
	FillAlign      int  // of the first byte of a fill, a power of two, at least FillUnit
	FillByte       bool // all four bytes of Word are the same whatever FillUnit is
}

// forStaging is what Storages leave of the heap, so that on a full device what
// they hold can still be read.
func (l Limits) forStaging() int {
	if !l.Shared {
		return 0
	}
	return min(2*stagingSize, l.Heap/16)
}
