//go:build !linux

package proc

import (
	"os/exec"
	"syscall"
)

// childAttr puts a child into a process group of its own. Only Linux can tie a
// child's life to its parent's: elsewhere a parent that is killed leaves its
// children behind.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// reap waits for the child's end and kills what it left behind in its group.
func reap(cmd *exec.Cmd) error {
	err := cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	return err
}
