package modelserver

import (
	"runtime"
	"testing"
)

// bytesPerRun is testing.AllocsPerRun for bytes: the mean number allocated by a
// run, after a first one that may fill pools.
func bytesPerRun(t *testing.T, run func() error) float64 {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const runs = 50
	if err := run(); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		if err := run(); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc-before.TotalAlloc) / runs
}
