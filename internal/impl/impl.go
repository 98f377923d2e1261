// Package impl is a registry of alternative implementations, so that tests can
// choose each of them by name. Programs never choose here: packages do, once,
// when they start.
//
// It follows the package of that name in Go's crypto.
package impl

import "slices"

// Generic names the implementation in Go that every package has; it is not
// registered.
const Generic = "generic"

type implementation struct {
	pkg, name string
	available bool
	use       *bool
}

var all []implementation

// Register records an implementation of package pkg. use is what the package
// looks at before it calls it; available says whether this machine can run it.
// It is for init functions, and panics where the name is taken.
func Register(pkg, name string, available bool, use *bool) {
	if name == Generic || slices.Contains(List(pkg), name) {
		panic("impl: " + pkg + " has an implementation " + name)
	}
	all = append(all, implementation{pkg, name, available, use})
}

// List returns the names of what package pkg registered, whether available or
// not, in that order.
func List(pkg string) []string {
	var names []string
	for _, i := range all {
		if i.pkg == pkg {
			names = append(names, i.name)
		}
	}
	return names
}

// Select makes package pkg use the implementation of that name and no other
// until restore is called. ok is false, and nothing changes, where there is
// none of that name or this machine cannot run it. Nobody may use the package
// meanwhile.
func Select(pkg, name string) (restore func(), ok bool) {
	ok = name == Generic || slices.ContainsFunc(all, func(i implementation) bool {
		return i.pkg == pkg && i.name == name && i.available
	})
	if !ok {
		return func() {}, false
	}
	before := make([]bool, len(all))
	for n, i := range all {
		before[n] = *i.use
		if i.pkg == pkg {
			*i.use = i.name == name
		}
	}
	return func() {
		for n, was := range before {
			*all[n].use = was
		}
	}, true
}
