//go:build !windows

package cpu

const wine = false
