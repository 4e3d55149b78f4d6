package proc

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// childAttr puts a child into a process group of its own, so that a Ctrl-C at
// the terminal reaches only its parent, and has the kernel kill it when the
// thread that started it ends.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reap waits for the child's end and kills what it left behind in its group.
// The group is swept while the dead leader is not yet reaped: it still holds
// the id then, which therefore cannot have become another group's.
func reap(cmd *exec.Cmd) error {
	pid := cmd.Process.Pid
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), syscall.EINTR) {
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	return cmd.Wait()
}
