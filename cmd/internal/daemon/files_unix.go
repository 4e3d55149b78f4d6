//go:build unix

package daemon

import (
	"math"
	"syscall"
)

// openFilesLimit is how many files and connections the process may have open at once, 0 if that is unknown. The Go
// runtime has raised it at the start, to one below the hard limit.
func openFilesLimit() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(limit.Cur, math.MaxInt32))
}
