//go:build long

package main

import (
	"maps"
	"math"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
)

// TestNoReaderIsWorseThanLinear: four times as much takes about four times the CPU time, and sixteen times where a
// reader begins again for each thing that it reads. What is read within 100 ms at its largest size may do as it likes.
func TestNoReaderIsWorseThanLinear(t *testing.T) {
	const most, harmless = 9, 100 * time.Millisecond
	all := readers(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		r := all[name]
		small, _ := r.prepare(t, r.size/4)
		large, length := r.prepare(t, r.size)
		least := [2]time.Duration{math.MaxInt64, math.MaxInt64}
		for range 5 { // others run on this machine: the least is closest to what the reader costs
			least[0], least[1] = min(least[0], cpuOf(small)), min(least[1], cpuOf(large))
			if least[1] < harmless || least[1] < most*least[0] {
				break
			}
		}
		t.Logf("%-40s %8d bytes in %v, a quarter of them in %v", name, length, least[1].Round(time.Millisecond),
			least[0].Round(time.Millisecond))
		if least[1] >= harmless && least[1] >= most*least[0] {
			t.Errorf("%s: %v for %d, and %v for a quarter of them", name, least[1], r.size, least[0])
		}
	}
}

// cpuOf is the CPU time of this process that f takes.
func cpuOf(f func()) time.Duration {
	runtime.GC()
	used := func() time.Duration {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	f()
	return used() - before
}
