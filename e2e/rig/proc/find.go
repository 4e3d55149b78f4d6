package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A Program is something that `make tools` provides: the name of a file in
// .tools/bin and on PATH.
type Program string

// The programs of the rig.
const (
	ProgramEnvoy      Program = "envoy"
	ProgramRedis      Program = "redis-server"
	ProgramPromtool   Program = "promtool"
	ProgramPrometheus Program = "prometheus"
	ProgramTriton     Program = "tritonserver"
	ProgramChromium   Program = "chromium"
	ProgramEtcd       Program = "etcd"
	ProgramAPIServer  Program = "kube-apiserver"

	ProgramEnvoyGateway   Program = "envoy-gateway"
	ProgramPilotAgent     Program = "pilot-agent"
	ProgramPilotDiscovery Program = "pilot-discovery"
	ProgramContour        Program = "contour"
	ProgramEndpointPicker Program = "epp"
)

// variable names the environment variable that overrides where the program is.
func (p Program) variable() string {
	return strings.ToUpper(strings.ReplaceAll(string(p), "-", "_"))
}

// target returns the make target that provides the program.
func (p Program) target() string {
	switch p {
	case ProgramRedis:
		return "tools-redis"
	case ProgramTriton:
		return "tools-triton"
	case ProgramAPIServer:
		return "tools-apiserver"
	case ProgramPilotAgent, ProgramPilotDiscovery:
		return "tools-istio"
	default:
		return "tools-" + string(p)
	}
}

// Find returns the absolute path of a program: the one that its environment
// variable names (ENVOY, REDIS_SERVER, KUBE_APISERVER and so on), else the one in .tools/bin of the checkout that
// holds the working directory or the running binary, else the one on PATH.
func Find(p Program) (string, error) {
	if given := os.Getenv(p.variable()); given != "" {
		path, err := exec.LookPath(given)
		if err != nil {
			return "", fmt.Errorf("the environment says %s=%s: %w", p.variable(), given, err)
		}
		return filepath.Abs(path)
	}
	for _, root := range checkouts() {
		if path, err := exec.LookPath(filepath.Join(root, ".tools", "bin", string(p))); err == nil {
			return path, nil
		}
	}
	if path, err := exec.LookPath(string(p)); err == nil {
		return filepath.Abs(path)
	}
	return "", fmt.Errorf("%s not found in .tools/bin nor on PATH: run `make %s`", p, p.target())
}

// checkouts lists the checkouts of this module that the working directory and
// the running binary (bin/steelyard) stand in.
func checkouts() []string {
	var roots []string
	if wd, err := os.Getwd(); err == nil {
		if root, err := moduleRoot(wd); err == nil {
			roots = append(roots, root)
		}
	}
	if exe, err := os.Executable(); err == nil {
		if root, err := moduleRoot(filepath.Dir(exe)); err == nil {
			roots = append(roots, root)
		}
	}
	return roots
}

// Root returns the checkout that holds the working directory.
func Root() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the checkout: %w", err)
	}
	return moduleRoot(wd)
}

// moduleRoot goes up from dir to the folder of this module's go.mod.
func moduleRoot(dir string) (string, error) {
	for at := dir; ; at = filepath.Dir(at) {
		mod, err := os.ReadFile(filepath.Join(at, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module steelyard\n") {
			return at, nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("finding the checkout: %w", err)
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("finding the checkout: no go.mod of module steelyard in %s or above", dir)
		}
	}
}
