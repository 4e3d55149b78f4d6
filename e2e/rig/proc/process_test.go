package proc_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
)

// patience is how long a test waits for what has to come.
const patience = 30 * time.Second

// eventually waits until check returns nil.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// gone returns nil when no process has the id, or only one that is dead already.
func gone(pid int) func() error {
	return func() error {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return nil
		}
		return errors.New("process " + strconv.Itoa(pid) + " is still there")
	}
}

// script runs a shell script as a process that is ready when it has printed
// "ready".
func script(t *testing.T, name, text string, grace time.Duration) *proc.Process {
	t.Helper()
	p, err := proc.Start(proc.Spec{Name: name, Path: "/bin/sh", Args: []string{"-c", text}, Dir: proctest.Dir(t),
		Grace: grace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	if err := p.WaitReady(t.Context(), printed(p, "ready")); err != nil {
		t.Fatal(err)
	}
	return p
}

func printed(p *proc.Process, text string) func(context.Context) error {
	return func(context.Context) error {
		if !strings.Contains(p.Tail(), text) {
			return errors.New(text + " is not in the log")
		}
		return nil
	}
}

// lastNumber returns the number in the last line of a process's log.
func lastNumber(t *testing.T, p *proc.Process) int {
	t.Helper()
	lines := strings.Fields(p.Tail())
	n, err := strconv.Atoi(lines[len(lines)-1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestStopLetsAProcessEndInOrder(t *testing.T) {
	p := script(t, "polite", `trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.01; done`, patience)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	if p.Running() {
		t.Error("it is still running")
	}
	if err := p.Wait(t.Context()); err == nil || err.Error() != "exit status 3" {
		t.Errorf("it ended with %v, want exit status 3", err)
	}
	if !strings.Contains(p.Tail(), "bye") {
		t.Errorf("its last word is lost: %s", p.Tail())
	}
	if err := errors.Join(p.Stop(), p.Kill(), p.Pause(), p.Resume()); err != nil {
		t.Errorf("signals to a process that has ended: %v", err)
	}
}

func TestStopKillsAProcessThatDoesNotEndAndReportsIt(t *testing.T) {
	p := script(t, "stubborn", `trap 'echo no' TERM; echo ready; while :; do sleep 0.01; done`, 50*time.Millisecond)
	err := p.Stop()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"stubborn did not end within 50ms", "end of ", "no"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	if p.Running() {
		t.Error("it is still running")
	}
}

func TestStopEndsAPausedProcess(t *testing.T) {
	p := script(t, "paused", `trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done`, patience)
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
}

func TestNothingOfTheGroupIsLeftWhenTheLeaderEnds(t *testing.T) {
	tests := []struct {
		name string
		end  func(*proc.Process) error
	}{
		{"stopped", (*proc.Process).Stop},
		{"killed", (*proc.Process).Kill},
		{"crashed", func(p *proc.Process) error { return p.Signal(syscall.SIGSEGV) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := script(t, "leader", `sleep 600 & echo "ready $!"; wait`, patience)
			child := lastNumber(t, p)
			if err := gone(child)(); err == nil {
				t.Fatal("the child never ran")
			}
			if err := tt.end(p); err != nil {
				t.Fatal(err)
			}
			eventually(t, gone(child))
		})
	}
}

func TestChildrenDieWithAParentThatIsKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Log("only Linux ties a child's life to its parent's")
		return
	}
	dir := proctest.Dir(t)
	parent := proctest.Start(t, proc.Spec{Name: "parent", Path: os.Args[0], Env: []string{asParent + "=" + dir},
		Dir: dir})
	eventually(t, func() error { return printed(parent, "\n")(t.Context()) })
	child := lastNumber(t, parent)
	if gone(child)() == nil {
		t.Fatal("the child never ran")
	}
	// Only the parent: its group does not hold the child, which has its own.
	if err := parent.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, gone(child))
}

func TestAChildOutlivesTheThreadThatAskedForIt(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Log("only Linux ties a child's life to a thread")
		return
	}
	dir := proctest.Dir(t)
	var r *proc.Redis
	thread := onADyingThread(func() {
		var err error
		if r, err = proc.StartRedis(t.Context(), proc.RedisConfig{Dir: dir}); err != nil {
			t.Error(err)
		}
	})
	if r == nil {
		t.FailNow()
	}
	t.Cleanup(func() { _ = r.Stop() })
	task := "/proc/self/task/" + strconv.Itoa(thread)
	eventually(t, func() error {
		if _, err := os.Stat(task); err == nil {
			return errors.New("the thread has not ended")
		}
		return nil
	})
	if err := ping(t, r.Address()); err != nil {
		t.Errorf("the child died with the thread: %v", err)
	}
}

// onADyingThread runs f on a thread that ends with it, and returns its id.
func onADyingThread(f func()) int {
	id := make(chan int)
	go func() {
		runtime.LockOSThread() // and never unlocked, which ends the thread
		if syscall.Gettid() == syscall.Getpid() {
			// Go parks the program's first thread instead of ending it. While
			// it is locked here, another goroutine gets another thread.
			id <- onADyingThread(f)
			return
		}
		f()
		id <- syscall.Gettid()
	}()
	return <-id
}

func TestWaitReadyReportsAProcessThatEnds(t *testing.T) {
	p := proctest.Start(t, proc.Spec{Name: "broken", Path: "/bin/sh",
		Args: []string{"-c", `echo 'cannot open the thing' >&2; exit 7`}})
	err := p.WaitReady(t.Context(), func(context.Context) error { return errors.New("nothing answers") })
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"broken ended before it was ready", "exit status 7", "nothing answers",
		"cannot open the thing", "broken.log"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
}

func TestWaitReadyEndsWithItsContext(t *testing.T) {
	p := script(t, "slow", `echo ready; sleep 600`, patience)
	stop := errors.New("the caller has other plans")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	err := p.WaitReady(ctx, func(context.Context) error { return errors.New("nothing answers") })
	if !errors.Is(err, stop) {
		t.Errorf("error %v, want one that wraps the context's cause", err)
	}
}

func TestEachRunHasALogOfItsOwn(t *testing.T) {
	dir := proctest.Dir(t)
	for _, want := range []string{"twin.log", "twin-2.log"} {
		p := proctest.Start(t, proc.Spec{Name: "twin", Path: "/bin/echo", Args: []string{want}, Dir: dir})
		if err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, want))
		if err != nil || string(b) != want+"\n" || p.LogFile() != filepath.Join(dir, want) {
			t.Errorf("%s holds %q (%v); the process says its log is %s", want, b, err, p.LogFile())
		}
	}
}

func TestTailIsBoundedAndStartsWithAWholeLine(t *testing.T) {
	p := proctest.Start(t, proc.Spec{Path: "/bin/sh",
		Args: []string{"-c", `i=0; while [ $i -lt 5000 ]; do i=$((i+1)); echo "line $i"; done`}})
	if err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(p.Tail(), "\n")
	if len(p.Tail()) > 5000 || !strings.HasPrefix(lines[1], "line ") || lines[len(lines)-1] != "line 5000" {
		t.Errorf("%d bytes from %q to %q", len(p.Tail()), lines[1], lines[len(lines)-1])
	}
}

func TestStartReportsWhatCannotBeStarted(t *testing.T) {
	tests := []struct {
		name string
		spec proc.Spec
		want string
	}{
		{"no such program", proc.Spec{Path: "/no/such/program", Dir: t.TempDir()}, "starting program: "},
		{"no folder", proc.Spec{Path: "/bin/true"}, "set Dir"},
		{"folder missing", proc.Spec{Path: "/bin/true", Dir: "/no/such/folder"}, "no such file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := proc.Start(tt.spec)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestStandardErrorCanGoToAPipe(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	args := []string{"-c", "echo logged; echo piped >&2"}
	p, err := proc.Start(proc.Spec{Path: "/bin/sh", Args: args, Dir: t.TempDir(), Stderr: write})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(write.Close(), p.Wait(t.Context())); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(read); err != nil || string(b) != "piped\n" {
		t.Errorf("the pipe holds %q (%v)", b, err)
	}
	if b, err := os.ReadFile(p.LogFile()); err != nil || string(b) != "logged\n" {
		t.Errorf("the log holds %q (%v)", b, err)
	}
}
