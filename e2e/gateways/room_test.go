package gateways

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// inside is set for the process in the room.
const inside = "STEELYARD_GATEWAYS_ROOM"

// certsFolder is where Envoy Gateway looks for its certificate.
const certsFolder = "/certs"

func TestMain(m *testing.M) {
	if os.Getenv(inside) != "" {
		code := 1
		if err := furnish(); err != nil {
			fmt.Fprintln(os.Stderr, "gateways:", err)
		} else {
			code = m.Run()
		}
		os.Exit(code)
	}
	code, err := enter()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gateways: starting the tests in namespaces of their own, which needs root:", err)
	}
	os.Exit(code)
}

// enter runs this program again in a room: namespaces of networks, mounts and processes. All that is in it ends with
// its first process, and that one with this thread.
func enter() (code int, err error) {
	runtime.LockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"=yes")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	return cmd.ProcessState.ExitCode(), err
}

// hosts are the names by which Pods reach the control planes, and the Services of pools.
const hosts = "127.0.0.1 localhost envoy-gateway envoy-gateway.envoy-gateway-system " +
	"envoy-gateway.envoy-gateway-system.svc envoy-gateway.envoy-gateway-system.svc.cluster.local\n" +
	"127.0.0.1 istiod.istio-system.svc\n" +
	"10.244.0.1 llama.models.svc.cluster.local\n10.244.0.4 next.models.svc.cluster.local\n" +
	"10.244.0.4 llama.team.svc.cluster.local\n"

// servers are the addresses of the Pods: the API server takes none of the loopback network.
var servers = []string{"10.244.0.1", "10.244.0.2", "10.244.0.3", "10.244.0.4", "10.244.0.5", "10.244.0.6"}

// furnish gives the room a file system of its own in memory, with the folders of the machine in it, and a network.
func furnish() error {
	root, err := os.MkdirTemp("", "gateways")
	if err != nil {
		return err
	}
	for _, step := range []func(root string) error{begin, machine, own, move} {
		if err := step(root); err != nil {
			return err
		}
	}
	commands := [][]string{{"ip", "link", "set", "lo", "up"}}
	for _, ip := range append(servers, podAddress) {
		commands = append(commands, []string{"ip", "addr", "add", ip + "/32", "dev", "lo"})
	}
	for _, c := range commands {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w: %s", c, err, out)
		}
	}
	return nil
}

func mount(what, where, kind string, flags uintptr) error {
	if err := syscall.Mount(what, where, kind, flags, ""); err != nil {
		return fmt.Errorf("mounting %s at %s: %w", what, where, err)
	}
	return nil
}

// begin makes the new root, not to be found in the folders of the machine that it gets.
func begin(root string) error {
	return errors.Join(mount("none", "/", "", syscall.MS_PRIVATE|syscall.MS_REC), mount("room", root, "tmpfs", 0),
		mount("none", root, "", syscall.MS_UNBINDABLE))
}

// machine has the folders of the machine in the new root.
func machine(root string) error {
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, e := range entries {
		from, to := filepath.Join("/", e.Name()), filepath.Join(root, e.Name())
		switch {
		case from == certsFolder || from == "/proc":
		case e.IsDir():
			err = errors.Join(os.Mkdir(to, 0o755), mount(from, to, "", syscall.MS_BIND|syscall.MS_REC))
		case e.Type() == os.ModeSymlink:
			var target string
			if target, err = os.Readlink(from); err == nil {
				err = os.Symlink(target, to)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// own has what is not the machine's in the new root.
func own(root string) error {
	temporary := "/" + filepath.Base(root)
	for _, dir := range []string{certsFolder, temporary, "/proc"} {
		if err := os.Mkdir(root+dir, 0o755); err != nil {
			return err
		}
	}
	file := filepath.Join(root, "hosts")
	return errors.Join(mount("none", root, "", syscall.MS_PRIVATE), // no longer unbindable
		os.WriteFile(file, []byte(hosts), 0o644), mount(file, root+"/etc/hosts", "", syscall.MS_BIND),
		mount("proc", root+"/proc", "proc", 0), os.Setenv("TMPDIR", temporary))
}

// move makes the new root the root, and leaves nothing of it in the machine.
func move(root string) error {
	at, err := os.Getwd()
	if err != nil {
		return err
	}
	const old = "/old"
	if err := os.Mkdir(root+old, 0o755); err != nil {
		return err
	}
	if err := syscall.PivotRoot(root, root+old); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	return errors.Join(os.Chdir(at), syscall.Unmount(old, syscall.MNT_DETACH), os.Remove(old), os.Remove(root))
}

// neighbour is set for a second run that TestRunsDoNotMeet starts.
const neighbour = "STEELYARD_GATEWAYS_NEIGHBOUR"

func TestRunsDoNotMeet(t *testing.T) {
	if os.Getenv(neighbour) != "" {
		live(t)
		return
	}
	mine := filepath.Join(certsFolder, "mine")
	if err := os.WriteFile(mine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(mine)
	listener, err := net.Listen("tcp", hooksAddress)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=", neighbour+"=yes")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read, said := bufio.NewReader(out), ""
	for said != lives && err == nil {
		said, err = read.ReadString('\n')
	}
	if err != nil {
		t.Fatalf("the other run does not live: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(read) // until all of its processes have ended, which have this end of the pipe
	_ = cmd.Wait()
	if _, err := os.Stat(mine); err != nil {
		t.Errorf("after the end of the other run: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "gateways*")); err != nil || len(left) > 0 {
		t.Errorf("the other run leaves %v (%v)", left, err)
	}
}

const lives = "the run lives\n"

// live is a run that does not end.
func live(t *testing.T) {
	if found, err := os.ReadDir(certsFolder); err != nil || len(found) > 0 {
		t.Fatalf("%s has %v (%v)", certsFolder, found, err)
	}
	listener, err := net.Listen("tcp", hooksAddress)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	child := exec.CommandContext(t.Context(), "sleep", "1000")
	child.Stdout = os.Stdout
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Print(lives)
	_ = child.Wait()
}
