package cpu

import "unsafe"

// CopyStrided copies elements of elem bytes from places in src to dst, where
// they lie one after the other in row-major order: the last index changes
// first. Element (i, j, …) comes from byte off + i·strides[0] + j·strides[1] +
// … of src. Strides count bytes and may be negative, or 0 to repeat what is
// there; elements may overlap in src, and lie at any address.
//
// An empty shape is one element, and a length of 0 none; dst has exactly the
// bytes of all elements. CopyStrided panics where it has not, where an element
// is not all inside src, where dst and src overlap, where strides are not as
// many as shape, and for a negative length or an elem below 1. Nothing has been
// written then.
func CopyStrided(dst, src []byte, off, elem int, shape, strides []int) {
	if len(shape) != len(strides) {
		panic("cpu.CopyStrided: shape and strides differ in length")
	}
	if elem < 1 {
		panic("cpu.CopyStrided: an element has no bytes")
	}
	if !fills(len(dst), elem, shape) {
		panic("cpu.CopyStrided: dst has not the bytes of the shape")
	}
	if len(dst) == 0 {
		return
	}
	if !inside(len(src), off, elem, shape, strides) {
		panic("cpu.CopyStrided: an element is outside of src")
	}
	if Overlap(dst, src) {
		panic("cpu.CopyStrided: dst and src overlap")
	}
	var few [8]axis // so that usual shapes allocate nothing
	axes := few[:0]
	for i, n := range shape {
		if n == 1 {
			continue
		}
		next := axis{n: n, stride: strides[i]}
		if last := len(axes) - 1; last >= 0 && axes[last].stride == n*next.stride {
			next.n *= axes[last].n // the two are one
			axes = axes[:last]
		}
		axes = append(axes, next)
	}
	run := elem // bytes that lie together
	if last := len(axes) - 1; last >= 0 && axes[last].stride == elem {
		run *= axes[last].n
		axes = axes[:last]
	}
	if len(axes) == 0 {
		Copy(dst, src[off:off+run])
		return
	}
	// The last axis is done at once, or the last two, and the others are counted
	// through.
	row := axes[len(axes)-1]
	outer := axes[:len(axes)-1]
	rows := axis{n: 1}
	if last := len(outer) - 1; last >= 0 && transposes(outer[last], row) {
		rows, outer = outer[last], outer[:last]
	}
	block := rows.n * row.n * run
	for {
		if rows.n == 1 {
			copyRow(dst[:block], src, off, run, row)
		} else {
			copyRows(dst[:block], src, off, run, rows, row)
		}
		dst = dst[block:]
		k := len(outer) - 1
		for ; k >= 0; k-- {
			a := &outer[k]
			off += a.stride
			if a.i++; a.i < a.n {
				break
			}
			off -= a.n * a.stride
			a.i = 0
		}
		if k < 0 {
			return
		}
	}
}

// An axis has n places, stride bytes apart. i counts through them.
type axis struct{ n, stride, i int }

// fills reports whether the elements of shape are size bytes.
func fills(size, elem int, shape []int) bool {
	empty := false
	for _, n := range shape {
		if n < 0 {
			return false
		}
		empty = empty || n == 0
	}
	if empty {
		return size == 0
	}
	for _, n := range shape {
		if n > size/elem {
			return false
		}
		elem *= n
	}
	return elem == size
}

// inside reports whether every element lies within size bytes. No length is 0.
func inside(size, off, elem int, shape, strides []int) bool {
	if off < 0 || off > size || elem > size-off {
		return false
	}
	before, after := uint(off), uint(size-off-elem) // that may be reached yet
	for i, n := range shape {
		left, step := &after, uint(strides[i])
		if strides[i] < 0 {
			left, step = &before, -step
		}
		steps := uint(n - 1)
		if step != 0 && steps > *left/step {
			return false
		}
		*left -= steps * step
	}
	return true
}

// A tile has as many rows, and as many runs of each, as copyTiles copies
// together: then what follows in a line of the cache is used while it is there.
// BenchmarkTranspose chose them.
const (
	tileHeight = 256
	tileWidth  = 8
)

// transposes reports whether rows read from the same lines of the cache as those
// before them, and each from many.
func transposes(rows, row axis) bool {
	near, far := max(rows.stride, -rows.stride), max(row.stride, -row.stride)
	return near < 64 && near < far && row.n >= tileWidth
}

// copyRows copies rows of runs, the first from off.
func copyRows(dst, src []byte, off, run int, rows, row axis) {
	switch run {
	case 1:
		copyTiles[[1]byte](dst, src, off, rows, row)
	case 2:
		copyTiles[[2]byte](dst, src, off, rows, row)
	case 4:
		copyTiles[[4]byte](dst, src, off, rows, row)
	case 8:
		copyTiles[[8]byte](dst, src, off, rows, row)
	case 16:
		copyTiles[[16]byte](dst, src, off, rows, row)
	default:
		for size := row.n * run; len(dst) > 0; dst = dst[size:] {
			copyRow(dst[:size], src, off, run, row)
			off += rows.stride
		}
	}
}

// copyTiles is copyRows for runs of type T.
func copyTiles[T any](dst, src []byte, off int, rows, row axis) {
	var one T
	run, stride := int(unsafe.Sizeof(one)), row.stride
	size := row.n * run
	whole := row.n &^ (tileWidth - 1) // runs of a row that are in tiles
	// Every place has been found to be inside.
	to, from := unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src))
	for i := 0; i < rows.n; i += tileHeight {
		height := min(tileHeight, rows.n-i)
		for j := 0; j < whole; j += tileWidth {
			d, s := i*size+j*run, off+i*rows.stride+j*stride
			for range height {
				t := (*[tileWidth]T)(unsafe.Add(to, d))
				t[0] = *(*T)(unsafe.Add(from, s))
				t[1] = *(*T)(unsafe.Add(from, s+stride))
				t[2] = *(*T)(unsafe.Add(from, s+2*stride))
				t[3] = *(*T)(unsafe.Add(from, s+3*stride))
				t[4] = *(*T)(unsafe.Add(from, s+4*stride))
				t[5] = *(*T)(unsafe.Add(from, s+5*stride))
				t[6] = *(*T)(unsafe.Add(from, s+6*stride))
				t[7] = *(*T)(unsafe.Add(from, s+7*stride))
				d += size
				s += rows.stride
			}
		}
		if whole < row.n {
			for k := i; k < i+height; k++ {
				copyRow(dst[k*size+whole*run:(k+1)*size], src, off+k*rows.stride+whole*stride, run, row)
			}
		}
	}
}

// copyRow copies runs that lie a.stride bytes apart, the first at off.
func copyRow(dst, src []byte, off, run int, a axis) {
	// Every place has been found to be inside.
	p := unsafe.Pointer(unsafe.SliceData(src))
	switch run {
	case 1:
		for i := range dst {
			dst[i] = *(*byte)(unsafe.Add(p, off))
			off += a.stride
		}
	case 2:
		for ; len(dst) >= 2; dst = dst[2:] {
			*(*[2]byte)(dst) = *(*[2]byte)(unsafe.Add(p, off))
			off += a.stride
		}
	case 4:
		for ; len(dst) >= 4; dst = dst[4:] {
			*(*[4]byte)(dst) = *(*[4]byte)(unsafe.Add(p, off))
			off += a.stride
		}
	case 8:
		for ; len(dst) >= 8; dst = dst[8:] {
			*(*[8]byte)(dst) = *(*[8]byte)(unsafe.Add(p, off))
			off += a.stride
		}
	case 16:
		for ; len(dst) >= 16; dst = dst[16:] {
			*(*[16]byte)(dst) = *(*[16]byte)(unsafe.Add(p, off))
			off += a.stride
		}
	default:
		for ; len(dst) > 0; dst = dst[run:] {
			Copy(dst[:run], src[off:off+run])
			off += a.stride
		}
	}
}
