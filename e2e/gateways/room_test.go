package gateways

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// inside is set for the process in the namespaces.
const inside = "STEELYARD_GATEWAYS_ROOM"

// certs is where Envoy Gateway looks for its certificate.
const certs = "/certs"

func TestMain(m *testing.M) {
	if os.Getenv(inside) != "" {
		code := 1
		if err := furnish(os.Getenv(inside)); err != nil {
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

// enter runs this program again, in network and mount namespaces of its own.
func enter() (code int, err error) {
	dir, err := os.MkdirTemp("", "gateways")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if err := os.Mkdir(certs, 0o755); err == nil {
		defer os.Remove(certs)
	} else if !errors.Is(err, os.ErrExist) {
		return 1, err
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	return cmd.ProcessState.ExitCode(), err
}

// hosts are the names by which Pods reach the control planes, and the Service of a pool.
const hosts = "127.0.0.1 localhost envoy-gateway envoy-gateway.envoy-gateway-system " +
	"envoy-gateway.envoy-gateway-system.svc envoy-gateway.envoy-gateway-system.svc.cluster.local\n" +
	"127.0.0.1 istiod.istio-system.svc\n" +
	"10.244.0.1 llama.models.svc.cluster.local\n10.244.0.4 next.models.svc.cluster.local\n"

// servers are the addresses of the Pods: the API server takes none of the loopback network.
var servers = []string{"10.244.0.1", "10.244.0.2", "10.244.0.3", "10.244.0.4", "10.244.0.5", "10.244.0.6"}

// furnish gives the namespaces what the tests need.
func furnish(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "hosts"), []byte(hosts), 0o644); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, "certs"), 0o755); err != nil {
		return err
	}
	commands := [][]string{
		{"mount", "--make-rprivate", "/"},
		{"mount", "--bind", filepath.Join(dir, "hosts"), "/etc/hosts"},
		{"mount", "--bind", filepath.Join(dir, "certs"), certs},
		{"ip", "link", "set", "lo", "up"},
	}
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
