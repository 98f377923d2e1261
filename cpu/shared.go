package cpu

import (
	"errors"
	"os"
)

// Errors of shared memory. They come together with what the system said.
var (
	// ErrNotShared is what OpenShared answers to a file that is no memfd, or
	// one that may be truncated.
	ErrNotShared = errors.New("cpu: not shared memory")

	// ErrInUse is what Seal returns where memory is mapped for writing.
	ErrInUse = errors.New("cpu: the shared memory is mapped for writing")
)

// Shared is memory that processes share: a memfd of Linux (memfd_create(2)),
// which has no name, no place in a file system and no limit but that of memory.
// Its size never changes. Methods are not safe for use by several goroutines
// unless they say so.
type Shared struct {
	// Size is that of all of the memory, in bytes.
	Size int64

	// Bytes is the part that Map mapped, and Offset its place in the memory.
	Bytes  []byte
	Offset int64

	// MayFault is set where reading Bytes can fault when the system is out of
	// memory: somebody else made it without reserving it, and it is open for
	// reading only.
	MayFault bool

	// Writable says whether Bytes may be written to.
	Writable bool

	fd    int
	pages []byte // what the system gave: whole pages around Bytes
}

// NewShared makes n ≥ 0 zeroed bytes of shared memory, and takes all of them
// from the system: a page that is not there when it is touched would end the
// program (SIGBUS). So what the system refuses is refused here, and is an error
// that wraps ErrNoMemory. More than ReadBudget says is free is refused without
// asking the system, which would rather kill a process than refuse.
//
// The memory is sealed against any change of its size. Elsewhere than on Linux
// it is errors.ErrUnsupported.
func NewShared(n int) (*Shared, error) { return newShared(n) }

// OpenShared makes a Shared of a file that is one, from whatever process. f
// may be closed afterwards. It is ErrNotShared unless f is a memfd that is
// sealed against truncation (F_SEAL_SHRINK).
func OpenShared(f *os.File) (*Shared, error) { return openShared(f) }

// Map maps n bytes from byte off on, which must be inside, once; off need not
// be a multiple of anything. It makes sure that the system has them, as
// NewShared does. Where the memory may not be written and write is set it is
// fs.ErrPermission. After an error there is nothing to do but Close.
func (m *Shared) Map(off int64, n int, write bool) error { return m.mapPart(off, n, write) }

// Sealed reports whether nobody can change the memory any more. It is safe for
// use by several goroutines.
func (m *Shared) Sealed() bool { return m.sealed() }

// Seal makes the memory immutable for every process, for ever. Bytes stays
// where it is and may be read meanwhile, but not written to from now on.
//
// Where another mapping of the memory may be written, in any process, it is
// ErrInUse. After an error everything is as it was, unless Writable says
// otherwise: somebody else has forbidden new mappings for writing.
func (m *Shared) Seal() error { return m.seal() }

// File returns a new open file of the memory, for another process. The caller
// closes it. It is safe for use by several goroutines.
func (m *Shared) File() (*os.File, error) { return m.file() }

// Close unmaps Bytes, which must not be used afterwards. The memory itself goes
// with the last process that has it.
func (m *Shared) Close() error { return m.close() }
