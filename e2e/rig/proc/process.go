package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// DefaultGrace is how long Stop waits between SIGTERM and SIGKILL.
const DefaultGrace = 10 * time.Second

// tailBytes bounds how much of a log an error message repeats.
const tailBytes = 4 << 10

// A Spec describes a program to run.
type Spec struct {
	Program Program       // to find where Path is empty
	Name    string        // names the log file and the process in errors; the base name of Path when empty
	Path    string        // the program, Find's when empty
	Args    []string      // without the program's name
	Env     []string      // added to the caller's environment, as "KEY=value"
	Dir     string        // an existing directory: working directory, and where the log goes
	Grace   time.Duration // between SIGTERM and SIGKILL in Stop; DefaultGrace when 0
	// Stderr takes the place of the log as standard error, where a test is to be its reader. The
	// child has a descriptor of its own.
	Stderr *os.File
}

// A Process is a running child. Its methods may be called from any goroutine,
// and Stop and Kill any number of times.
type Process struct {
	name  string
	log   string
	grace time.Duration
	cmd   *exec.Cmd
	done  chan struct{} // closed when the process has been reaped
	err   error         // how it ended; to be read after done
}

// Start runs spec. It returns when the process exists, which is long before it
// serves: see WaitReady.
func Start(spec Spec) (*Process, error) {
	if spec.Path == "" {
		path, err := Find(spec.Program)
		if err != nil {
			return nil, err
		}
		spec.Path = path
	}
	if spec.Name == "" {
		spec.Name = filepath.Base(spec.Path)
	}
	if spec.Grace == 0 {
		spec.Grace = DefaultGrace
	}
	log, err := createLog(spec.Dir, spec.Name)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	defer log.Close() // the child has its own descriptor

	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Dir = spec.Dir
	cmd.Env = append(os.Environ(), spec.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	if spec.Stderr != nil {
		cmd.Stderr = spec.Stderr
	}
	cmd.SysProcAttr = childAttr()
	p := &Process{name: spec.Name, log: log.Name(), grace: spec.Grace, cmd: cmd, done: make(chan struct{})}

	started := make(chan error)
	go p.keep(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	return p, nil
}

// keep starts the process and waits for its end on one locked thread: the
// kernel sends the parent-death signal when the thread that forked ends, not
// when the program does, so that thread has to live as long as the child.
func (p *Process) keep(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	started <- nil
	p.err = reap(p.cmd)
	close(p.done)
}

// Name returns the name of the process, as in errors.
func (p *Process) Name() string { return p.name }

// Pid returns the process id, which is also the id of its group.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// LogFile returns the path of the file that holds what the process printed.
func (p *Process) LogFile() string { return p.log }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Wait blocks until the process has ended and returns how: nil for exit status
// 0, an *exec.ExitError otherwise. It returns ctx's error when that is first.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s to end: %w", p.name, context.Cause(ctx))
	}
}

// Signal sends sig to the process, not to its group.
func (p *Process) Signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("sending %s to %s: %w", sig, p.name, err)
	}
	return nil
}

// Stop ends the process: SIGTERM, the grace period, SIGKILL. It returns when
// the process is gone, and an error when it had to be killed. How the process
// itself judges its end is for Wait to say.
func (p *Process) Stop() error {
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return errors.Join(err, p.Kill())
	}
	// A paused process takes the signal only once it runs again.
	_ = p.killGroup(syscall.SIGCONT)
	grace := time.NewTimer(p.grace)
	defer grace.Stop()
	select {
	case <-p.done:
		return nil
	case <-grace.C:
		err := p.Kill()
		return errors.Join(fmt.Errorf("%s did not end within %s of SIGTERM and was killed\n%s", p.name, p.grace,
			p.Tail()), err)
	}
}

// Kill ends the process and its group with SIGKILL and returns when the process
// is gone.
func (p *Process) Kill() error {
	if err := p.killGroup(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// Pause freezes the process and its group (SIGSTOP): its sockets stay open and
// nothing answers.
func (p *Process) Pause() error { return p.killGroup(syscall.SIGSTOP) }

// Resume lets a paused process and its group go on (SIGCONT).
func (p *Process) Resume() error { return p.killGroup(syscall.SIGCONT) }

// killGroup signals the whole group; a process that has ended takes no signal
// and that is no error.
func (p *Process) killGroup(sig syscall.Signal) error {
	if !p.Running() {
		return nil
	}
	err := syscall.Kill(-p.Pid(), sig)
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("sending %s to the group of %s: %w", sig, p.name, err)
	}
	return nil
}

// Tail returns the end of the log under a line that names the file, for error
// messages.
func (p *Process) Tail() string {
	b, err := readTail(p.log)
	switch {
	case err != nil:
		return fmt.Sprintf("(its log cannot be read: %v)", err)
	case len(b) == 0:
		return fmt.Sprintf("(%s is empty)", p.log)
	}
	return fmt.Sprintf("end of %s:\n%s", p.log, bytes.TrimRight(b, "\n"))
}

// readTail reads the last whole lines of a file, at most tailBytes of them.
func readTail(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	start := max(0, info.Size()-tailBytes)
	b, err := io.ReadAll(io.NewSectionReader(f, start, tailBytes))
	if start > 0 {
		_, b, _ = bytes.Cut(b, []byte("\n")) // the first line is cut
	}
	return b, err
}

// createLog makes a new file for a process's output: name.log, or name-2.log
// and so on where a process of that name ran in dir before.
func createLog(dir, name string) (*os.File, error) {
	if dir == "" {
		return nil, errors.New("no directory given for its log: set Dir to an existing one")
	}
	for i := 1; ; i++ {
		file := name + ".log"
		if i > 1 {
			file = name + "-" + strconv.Itoa(i) + ".log"
		}
		f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
		if !errors.Is(err, os.ErrExist) {
			return f, err
		}
	}
}
