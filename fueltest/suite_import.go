package fueltest

import (
	"bytes"
	"slices"

	"github.com/go-fuel/fuel"
)

// imports reports whether a device says that it can use host memory.
func (x *subject) imports(dev fuel.Device) bool {
	x.Helper()
	if dev.Kind == fuel.CPU {
		return false
	}
	for _, s := range fuel.Probe(x.ctx) {
		for _, d := range s.Devices {
			if d.Device == dev {
				return d.HostImport
			}
		}
	}
	return false
}

// importTo is To with the wish for an import, and looks that the report says
// what happened.
func (x *subject) importTo(s *fuel.Storage, r *fuel.CopyReport) *fuel.Storage {
	x.Helper()
	if r == nil {
		r = new(fuel.CopyReport)
	}
	there := x.must(s.To(x.ctx, x.dev, &fuel.CopyOptions{Import: true, ImportMapped: true, Report: r}))
	in := there.Region()
	switch {
	case x.dev.Kind == fuel.CPU || s.LenBytes() == 0:
		if r.Path != fuel.PathNone || r.Note != "" {
			x.Errorf("import of %d bytes to %s reports %+v", s.LenBytes(), x.dev, *r)
		}
	case r.Path == fuel.PathImport:
		if in.Memory != fuel.MemoryImported || !in.ReadOnly || r.Note != "" || r.Bytes != 0 || r.Staged != 0 {
			x.Errorf("imported, and it reports %+v of %+v", *r, in)
		}
	default:
		if in.Memory == fuel.MemoryImported || r.Note == "" || r.Bytes != s.LenBytes() {
			x.Errorf("copied instead of imported, and it reports %+v of %+v", *r, in)
		}
	}
	return there
}

// checkImport looks that host memory which the device uses behaves as a
// snapshot does, whether it was imported or copied.
func checkImport(x *subject) {
	sources := map[string]func(n int) (*fuel.Storage, []byte){
		"memory": func(n int) (*fuel.Storage, []byte) {
			b := x.random(n)
			return x.must(fuel.FromBytes(fuel.Device{}, fuel.U8, b)), b
		},
		"a view": func(n int) (*fuel.Storage, []byte) {
			b := x.random(n + 4000)
			s := x.must(fuel.FromBytes(fuel.Device{}, fuel.U8, b))
			defer x.close(s)
			return x.must(s.View(3001, n)), b[3001:][:n]
		},
		"a mapped file": func(n int) (*fuel.Storage, []byte) { return x.mapped(n, 77) },
	}
	for name, source := range sources {
		for _, n := range []int{0, 1, 5000, 2<<20 + 1} {
			if n > x.big() && n != 2<<20+1 {
				continue
			}
			x.importOne(name, n, source)
		}
	}
}

func (x *subject) importOne(name string, n int, source func(n int) (*fuel.Storage, []byte)) {
	// The host closes first; the device reads on.
	s, want := source(n)
	var r fuel.CopyReport
	there := x.importTo(s, &r)
	x.holds(there, want, "%d bytes of %s, imported", n, name)
	again := x.importTo(s, nil)
	x.close(s)
	x.holds(there, want, "%d bytes of %s, after the host's Close", n, name)
	if n == 0 {
		x.close(there, again)
		return
	}
	copied := x.must(fuel.Alloc(x.dev, fuel.U8, n, nil))
	x.ok(copied.CopyFrom(x.ctx, there, nil))
	x.holds(copied, want, "a copy on the device of %s", name)
	part := x.must(there.View(n/3, n-n/3))
	x.holds(part, want[n/3:], "a View of %s", name)
	clone := x.must(there.Clone())
	if a := there.Alignment(); a&(a-1) != 0 || a == 0 {
		x.Errorf("imported bytes of %s have an alignment of %d", name, a)
	}

	// The device writes: nobody else sees it.
	_, err := there.WriteAt([]byte{want[n/2] ^ 1}, int64(n/2))
	x.ok(err)
	model := slices.Clone(want)
	model[n/2] ^= 1
	x.holds(there, model, "%s after the device's write", name)
	x.holds(part, model[n/3:], "a View of %s after the device's write", name)
	x.holds(clone, want, "a Clone of %s after the device's write", name)
	x.holds(again, want, "another import of %s after the device's write", name)
	if in := there.Region(); in.Memory == fuel.MemoryImported || in.ReadOnly {
		x.Errorf("after a write the Region is %+v", in)
	}
	x.close(there, part, clone, again, copied)

	// The host writes: the device does not see it.
	s, want = source(n)
	there = x.importTo(s, nil)
	x.ok(s.Fill(x.ctx, []byte{0x77}))
	x.holds(there, want, "%s after the host's write", name)
	x.holds(s, bytes.Repeat([]byte{0x77}, n), "the host's bytes of %s", name)
	x.close(there)
	x.ok(s.Fill(x.ctx, []byte{0x78}))
	x.holds(s, bytes.Repeat([]byte{0x78}, n), "the host's bytes of %s, after the device's Close", name)
	x.close(s)

	// Closed while queued work reads it.
	s, want = source(n)
	there = x.importTo(s, nil)
	to := x.must(fuel.AllocUninit(x.dev, fuel.U8, n, nil))
	q, err := fuel.QueueOf(x.dev)
	x.ok(err)
	p, err := q.Copy(to, there)
	x.ok(err)
	x.close(there, s)
	junk := x.must(fuel.FromBytes(fuel.Device{}, fuel.U8, x.random(n))) // where it was, if that is reused too early
	x.ok(q.Wait(x.ctx, p))
	x.holds(to, want, "a queued copy of %s, closed meanwhile", name)
	x.close(to, junk)
}
