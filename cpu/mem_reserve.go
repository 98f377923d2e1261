//go:build unix && !linux && !darwin

package cpu

// mapNoReserve is a flag of Linux and macOS; other systems have no such
// accounting or no such flag.
const mapNoReserve = 0
