package cpu

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// memfdName is what /proc/self/maps shows, behind "memfd:".
const memfdName = "fuel"

func newShared(n int) (*Shared, error) {
	fd, err := memfd()
	if err != nil {
		return nil, err
	}
	m := &Shared{Size: int64(n), fd: fd}
	if err := m.create(); err != nil {
		_ = m.close() // cannot fail, and err is what matters
		return nil, err
	}
	return m, nil
}

// memfd makes an empty one.
func memfd() (int, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	// Where vm.memfd_noexec says so a memfd must not be executable. Kernels
	// before 6.3 do not know the flag.
	fd, err := unix.MemfdCreate(memfdName, flags|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL {
		fd, err = unix.MemfdCreate(memfdName, flags)
	}
	switch err {
	case nil:
		return fd, nil
	case unix.ENOSYS:
		return 0, fmt.Errorf("cpu: this kernel has no memfd_create: %w", err)
	case unix.EPERM, unix.EACCES:
		return 0, fmt.Errorf("cpu: memfd_create is forbidden, as by a seccomp filter: %w", err)
	}
	return 0, systemError("memfd_create", err)
}

// create gives a new memfd its size and its pages.
func (m *Shared) create() error {
	// Beyond RLIMIT_FSIZE this also sends SIGXFSZ, which Go programs ignore.
	if err := restarted(func() error { return unix.Ftruncate(m.fd, m.Size) }); err != nil {
		return systemError("ftruncate", err)
	}
	if err := m.addSeals(unix.F_SEAL_SHRINK | unix.F_SEAL_GROW); err != nil {
		return systemError("sealing the size", err)
	}
	return m.reserve(0, m.Size)
}

// reserved is how much is reserved in one call at most: for a signal, as
// profiling sends every 10 ms, a kernel may give the whole call up.
const reserved = 4 << 20

// reserve takes the pages of a range from the system. Those that are there
// already stay as they are.
func (m *Shared) reserve(off, n int64) error {
	missing, err := m.missing()
	if err != nil || missing == 0 || n == 0 {
		return err
	}
	if missing = min(missing, n); missing > reserved { // less is not worth reading a handful of files
		// Limits of the process are not for pages but for the mapping, which is there already or comes after.
		if b := ReadBudget(os.DirFS("/")); b.Free >= 0 && missing > b.Free {
			return fmt.Errorf("%w: %d bytes of shared memory, and the %s has %d free", ErrNoMemory, missing, b.By, b.Free)
		}
	}
	for most, end := int64(reserved), off+n; off < end; {
		k := min(most, end-off)
		switch err := unix.Fallocate(m.fd, 0, off, k); err {
		case nil:
			off += k
		case unix.EINTR:
			most = max(most/2, int64(pageSize))
		default:
			return systemError("fallocate", err)
		}
	}
	return nil
}

// missing is how many bytes the memory has no pages for.
func (m *Shared) missing() (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(m.fd, &st); err != nil {
		return 0, systemError("fstat", err)
	}
	return max(0, m.Size-int64(st.Blocks)*512), nil
}

func openShared(f *os.File) (*Shared, error) {
	conn, err := f.SyscallConn()
	if err == nil {
		_, err = f.Stat() // names a file that is closed
	}
	if err != nil {
		return nil, err
	}
	m := &Shared{}
	var dupErr error
	if err := conn.Control(func(fd uintptr) { m.fd, dupErr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return nil, err
	}
	if dupErr != nil {
		return nil, systemError("dup", dupErr)
	}
	if err := m.identify(f.Name()); err != nil {
		_ = m.close() // cannot fail, and err is what matters
		return nil, err
	}
	return m, nil
}

// identify makes sure that it is memory that cannot be truncated, and finds
// its size.
func (m *Shared) identify(name string) error {
	seals, err := unix.FcntlInt(uintptr(m.fd), unix.F_GET_SEALS, 0)
	if err != nil { // EINVAL, of every other kind of file
		return fmt.Errorf("%w: %s is no memfd: %w", ErrNotShared, name, err)
	}
	var fs unix.Statfs_t
	if err := restarted(func() error { return unix.Fstatfs(m.fd, &fs) }); err != nil {
		return systemError("fstatfs", err)
	}
	if int64(fs.Type) != unix.TMPFS_MAGIC {
		return fmt.Errorf("%w: %s is of huge pages (MFD_HUGETLB), which is not supported", ErrNotShared, name)
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		return fmt.Errorf("%w: %s may be truncated; who made it must add F_SEAL_SHRINK", ErrNotShared, name)
	}
	var st unix.Stat_t
	if err := unix.Fstat(m.fd, &st); err != nil {
		return systemError("fstat", err)
	}
	m.Size = st.Size
	return nil
}

func (m *Shared) mapPart(off int64, n int, write bool) error {
	m.Offset, m.Writable = off, write
	if n == 0 {
		m.Bytes = []byte{}
		return m.mayMap(write)
	}
	start, length, skip, ok := window(off, n, pageSize)
	if !ok {
		return systemError("mmap", unix.EOVERFLOW)
	}
	p, err := m.mmap(nil, start, length, write)
	if err != nil {
		return explain(err)
	}
	m.pages = unsafe.Slice((*byte)(p), length)
	m.Bytes = m.pages[skip:length:length]
	err = m.reserve(start, int64(length))
	if err != nil && !write && errors.Is(err, unix.EBADF) { // open for reading only
		var missing int64
		missing, err = m.missing()
		m.MayFault = missing > 0
	}
	return err
}

// mayMap is for a part of no bytes: nothing is mapped, but the same is refused.
func (m *Shared) mayMap(write bool) error {
	if !write {
		return nil
	}
	flags, err := unix.FcntlInt(uintptr(m.fd), unix.F_GETFL, 0)
	if err == nil && flags&unix.O_ACCMODE != unix.O_RDWR {
		err = unix.EACCES
	}
	if err == nil && m.sealed() {
		err = unix.EPERM
	}
	if err != nil {
		return explain(err)
	}
	return nil
}

// explain says what a refusal to map means.
func explain(err error) error {
	switch err {
	case unix.EPERM:
		return fmt.Errorf("cpu: the shared memory is sealed against writing: open it for reading: %w", err)
	case unix.EACCES:
		return fmt.Errorf("cpu: the file descriptor of the shared memory is for reading only: open it for reading: %w", err)
	}
	return systemError("mmap", err)
}

// mmap maps length bytes from start on, at an address of the system's choice,
// or in place of what is at addr.
func (m *Shared) mmap(addr unsafe.Pointer, start int64, length int, write bool) (unsafe.Pointer, error) {
	fd, flags, prot := m.fd, unix.MAP_SHARED, unix.PROT_READ
	switch {
	case write:
		prot |= unix.PROT_WRITE
	case addr != nil || m.sealed():
		// No write, so private and shared are the same. Kernels before 6.7 take
		// shared for a wish to write, which is against the seal.
		flags = unix.MAP_PRIVATE
	default:
		// Through a descriptor that can write, a mapping for reading counts as
		// one for writing, and nobody could seal the memory. Without /proc that
		// is how it is.
		if ro, err := unix.Open("/proc/self/fd/"+strconv.Itoa(m.fd), unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			fd = ro
			defer unix.Close(ro)
		}
	}
	if addr != nil {
		flags |= unix.MAP_FIXED
	}
	return unix.MmapPtr(fd, start, addr, uintptr(length), prot, flags)
}

func (m *Shared) sealed() bool {
	seals, err := unix.FcntlInt(uintptr(m.fd), unix.F_GET_SEALS, 0)
	return err == nil && seals&unix.F_SEAL_WRITE != 0
}

func (m *Shared) addSeals(seals int) error {
	_, err := unix.FcntlInt(uintptr(m.fd), unix.F_ADD_SEALS, seals)
	return err
}

func (m *Shared) seal() error {
	// No mapping may be writable, so ours is replaced in one step, at the same
	// addresses.
	if err := m.remap(false); err != nil {
		return systemError("mmap", err)
	}
	err := m.addSeals(unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE | unix.F_SEAL_SEAL)
	if err == nil {
		m.Writable = false
		return nil
	}
	if err == unix.EBUSY {
		err = fmt.Errorf("%w: %w", ErrInUse, err)
	} else {
		err = systemError("F_ADD_SEALS", err)
	}
	// Somebody may have added F_SEAL_FUTURE_WRITE meanwhile.
	if back := m.remap(true); back != nil {
		m.Writable = false
		err = errors.Join(err, explain(back))
	}
	return err
}

// remap changes what may be done with the pages.
func (m *Shared) remap(write bool) error {
	if len(m.pages) == 0 {
		return nil
	}
	start := m.Offset - int64(len(m.pages)-len(m.Bytes))
	_, err := m.mmap(unsafe.Pointer(unsafe.SliceData(m.pages)), start, len(m.pages), write)
	return err
}

func (m *Shared) file() (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(m.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, systemError("dup", err)
	}
	return os.NewFile(uintptr(fd), "memfd:"+memfdName), nil
}

func (m *Shared) close() error {
	fd := m.fd
	m.fd = -1
	return errors.Join(m.unmap(), unix.Close(fd))
}

func (m *Shared) unmap() error {
	pages := m.pages
	m.pages, m.Bytes = nil, nil
	if len(pages) == 0 {
		return nil
	}
	return unmapFile(pages)
}

// restarted repeats a call that a signal interrupts.
func restarted(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// systemError says which call failed, and whether for want of memory.
func systemError(call string, err error) error {
	switch err {
	case unix.ENOMEM, unix.ENOSPC, unix.EFBIG:
		return fmt.Errorf("%w: %s: %w", ErrNoMemory, call, err)
	}
	return fmt.Errorf("cpu: shared memory: %s: %w", call, err)
}
