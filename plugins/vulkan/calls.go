package vulkan

import (
	"reflect"
	"runtime"
	"unsafe"

	"github.com/go-fuel/fuel/internal/dl"
)

// A field is one function of a struct of calls.
type field struct {
	name string
	tag  reflect.StructTag
	proc *dl.Proc
}

func fields(calls any) []field {
	v := reflect.ValueOf(calls).Elem()
	var list []field
	for i := range v.NumField() {
		f := v.Type().Field(i)
		list = append(list, field{f.Name, f.Tag, v.Field(i).Addr().Interface().(*dl.Proc)})
	}
	return list
}

// A pinned keeps what the arguments of a call point to, on the heap and where
// it is, until unpin. Its zero value is ready.
type pinned struct{ runtime.Pinner }

// at copies x there and returns its address as a field of another struct takes
// it.
func at[T any](p *pinned, x T) uintptr { return address(keep(p, &x)) }

// keep pins what x points to, and returns x.
func keep[T any](p *pinned, x *T) *T {
	p.Pin(x)
	return x
}

// address is where x is, which must be pinned.
func address[T any](x *T) uintptr { return uintptr(unsafe.Pointer(x)) }

// listOf is the address of the first of xs, or 0.
func listOf[T any](p *pinned, xs []T) uintptr {
	if len(xs) == 0 {
		return 0
	}
	return address(keep(p, unsafe.SliceData(xs)))
}

// text is the address of s with a zero byte after it.
func text(p *pinned, s string) uintptr { return listOf(p, append([]byte(s), 0)) }

// cString is a text in a field of fixed length.
func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
