//go:build linux || windows

package fuel

const canTrimAll = true // also the free blocks between live ones
