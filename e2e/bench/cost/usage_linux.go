package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns what a process has used of all cores since its start. The kernel keeps a
// clock for it, of a nanosecond; the fields of /proc count in ticks of 10 ms.
func cpuTime(pid int) (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED: user and system time, as the scheduler counts it
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &t); err != nil {
		return 0, fmt.Errorf("reading the CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}
