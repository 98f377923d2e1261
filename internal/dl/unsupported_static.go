//go:build fuel_static

package dl

const unsupported = "it was built with the tag fuel_static, which keeps a program static by leaving out the loader; build without the tag"
