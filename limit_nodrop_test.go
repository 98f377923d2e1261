//go:build !linux && !windows

package fuel

const canTrimAll = false
