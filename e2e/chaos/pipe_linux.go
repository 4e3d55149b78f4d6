package chaos

import (
	"os"

	"golang.org/x/sys/unix"
)

// shrink makes a pipe as small as possible, one page, so that it is full after some lines instead of 64 KiB of them.
func shrink(pipe *os.File) error {
	_, err := unix.FcntlInt(pipe.Fd(), unix.F_SETPIPE_SZ, 4096)
	return err
}
