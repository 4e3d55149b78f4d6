package fleet

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// niceness is how far the processes of a row stand back behind the load generator
// and the model servers. Those stand for other machines, where they would not wait
// for a core; on this one they would, behind a burst of ten Envoys that take a push. A
// third of the weight is enough for that, and not so little that work of others on
// the machine would starve what is measured.
const niceness = 5

// standBack makes all threads of a process nicer than this one by niceness. Threads that it starts later are as
// nice as those that start them.
func standBack(pid int) error {
	own, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0) // 20 - niceness, as the kernel returns it
	if err != nil {
		return fmt.Errorf("reading the own priority: %w", err)
	}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return fmt.Errorf("listing the threads of process %d: %w", pid, err)
	}
	for _, task := range tasks {
		id, err := strconv.Atoi(task.Name())
		if err != nil {
			return err
		}
		// A thread may have ended since.
		if err := syscall.Setpriority(syscall.PRIO_PROCESS, id, 20-own+niceness); err != nil &&
			!errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("making process %d nice: %w", pid, err)
		}
	}
	return nil
}

// standBack makes all processes of the row nice.
func (f *Fleet) standBack() error {
	var errs []error
	if f.redis != nil {
		errs = append(errs, standBack(f.redis.Pid()))
	}
	if f.extension != nil {
		errs = append(errs, standBack(f.extension.Process().Pid()))
	}
	for _, r := range f.replicas {
		errs = append(errs, standBack(r.process.Pid()))
	}
	for _, e := range f.envoys {
		errs = append(errs, standBack(e.Pid()))
	}
	return errors.Join(errs...)
}
