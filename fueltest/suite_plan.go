package fueltest

import (
	"fmt"
	"slices"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/race"
)

// A home is a kind of memory that bytes can be in. make returns a Storage there,
// and whoever shares its memory.
type home struct {
	name string
	make func(b []byte) []*fuel.Storage
}

// homes are the memories between which copies are planned.
func (x *subject) homes() []home {
	one := func(s *fuel.Storage) []*fuel.Storage { return []*fuel.Storage{s} }
	var list []home
	for _, dev := range x.places() {
		from := func(b []byte) *fuel.Storage { return x.must(fuel.FromBytes(dev, fuel.U8, b)) }
		list = append(list, home{"memory of " + dev.String(), func(b []byte) []*fuel.Storage {
			return one(from(b))
		}}, home{"shared memory of " + dev.String(), func(b []byte) []*fuel.Storage {
			s := from(b)
			return append(one(s), x.must(s.Clone()))
		}}, home{"a View of shared memory of " + dev.String(), func(b []byte) []*fuel.Storage {
			s := from(append([]byte{1, 2, 3}, b...))
			return append(one(x.must(s.View(3, len(b)))), s, x.must(s.Clone()))
		}})
	}
	list = append(list, home{"wrapped memory", func(b []byte) []*fuel.Storage {
		return one(x.must(fuel.Wrap(fuel.U8, slices.Clone(b), nil)))
	}}, home{"a mapped file", func(b []byte) []*fuel.Storage {
		s, in := x.mapped(len(b), 3)
		copy(b, in)
		return one(s)
	}})
	if x.dev.Kind != fuel.CPU {
		pinned := func(b []byte) *fuel.Storage { s, _ := x.pinned(b); return s }
		list = append(list, home{"memory that is page-locked for " + x.dev.String(), func(b []byte) []*fuel.Storage {
			return one(pinned(b))
		}}, home{"a View of shared memory that is page-locked for " + x.dev.String(), func(b []byte) []*fuel.Storage {
			s := pinned(append([]byte{1, 2, 3, 4, 5}, b...))
			return append(one(x.must(s.View(5, len(b)))), s, x.must(s.Clone()))
		}})
	}
	if x.imports(x.dev) {
		list = append(list, home{"host memory that " + x.dev.String() + " imports", func(b []byte) []*fuel.Storage {
			s := x.must(fuel.FromBytes(fuel.Device{}, fuel.U8, b))
			return append(one(x.importTo(s, nil)), s)
		}})
	}
	return list
}

// checkPlan looks that PlanCopy says what CopyFrom then reports, and does
// nothing.
func checkPlan(x *subject) {
	homes := x.homes()
	sizes := []int{0, 1, 4097, x.big()}
	if race.Enabled {
		sizes = []int{4097} // each takes ten times as long
	}
	for _, n := range sizes {
		for _, to := range homes {
			for _, at := range homes {
				what := fmt.Sprintf("copy of %d bytes from %s to %s", n, at.name, to.name)
				b := x.random(n)
				src := at.make(b)
				dst := to.make(x.random(n))
				x.planned(what, dst[0], src[0])
				x.holds(dst[0], b, "%s", what)
				x.close(src...)
				x.close(dst...)
			}
		}
	}
	s := x.from(x.random(64))
	half := x.must(s.View(0, 32))
	_, err := fuel.PlanCopy(s, half)
	x.is(err, fuel.ErrMismatch, "PlanCopy of another length")
	other := x.must(s.View(32, 32))
	x.planned("a copy within a Storage", other, half)
	clone := x.must(s.Clone())
	x.planned("a copy within a Storage that is shared", half, other)
	x.close(clone, half)
	_, err = fuel.PlanCopy(other, half)
	x.is(err, fuel.ErrClosed, "PlanCopy from a closed Storage")
	_, err = fuel.PlanCopy(half, other)
	x.is(err, fuel.ErrClosed, "PlanCopy to a closed Storage")
	x.close(s, other)
}

// planned copies src to dst and looks that this goes as planned.
func (x *subject) planned(what string, dst, src *fuel.Storage) {
	x.Helper()
	type state struct {
		id, version uint64
		region      fuel.RegionInfo
		inUse       int64
		copies      int64
	}
	now := func(s *fuel.Storage) state {
		in := x.stats(s.Device())
		return state{s.ID(), s.Version(), s.Region(), in.InUse, in.PrivateCopies}
	}
	a, b := now(dst), now(src)
	p, err := fuel.PlanCopy(dst, src)
	x.ok(err)
	if now(dst) != a || now(src) != b {
		x.Errorf("PlanCopy of a %s changed %+v to %+v, or %+v to %+v", what, a, now(dst), b, now(src))
	}
	var r fuel.CopyReport
	x.ok(dst.CopyFrom(x.ctx, src, &fuel.CopyOptions{Report: &r}))
	if p.Bytes != r.Bytes || p.Path != r.Path || p.Staged != r.Staged || p.Private != r.Private {
		x.Errorf("a %s was planned as %+v and went as %+v", what, p, r)
	}
	if p.Reason == "" || (p.Staging > 0) != (p.Staged > 0) || (p.PrivateBytes > 0) != p.Private || p.Private && dst.Region().Bytes != p.PrivateBytes {
		x.Errorf("a %s was planned as %+v, and the Region is %+v", what, p, dst.Region())
	}
	if mapped := b.region.Memory == fuel.MemoryMapped && p.Bytes > 0; p.Guarded != mapped {
		x.Errorf("a %s was planned as %+v from %s memory", what, p, b.region.Memory)
	}
}
