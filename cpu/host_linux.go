package cpu

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
)

// HostMemory tells the bytes of the machine's memory, and how many of them a
// program could get without swapping, as the system estimates it. -1 is
// unknown. Limits of the process or its container are not in it.
func HostMemory() (total, available int64) {
	total, available = -1, -1
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		f := bytes.Fields(s.Bytes())
		if len(f) < 2 {
			continue
		}
		kib, err := strconv.ParseInt(string(f[1]), 10, 53)
		if err != nil {
			continue
		}
		switch string(f[0]) {
		case "MemTotal:":
			total = kib << 10
		case "MemAvailable:":
			available = kib << 10
		}
	}
	return
}
