package proc

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// BuildSteelyard builds cmd/steelyard of the checkout that holds the working
// directory, once in the life of the calling program, and returns the path of
// the binary. The file stays in bin/e2e, where git ignores it and the next
// build replaces it: there is nothing to clean up.
func BuildSteelyard() (string, error) { return buildOnce() }

var buildOnce = sync.OnceValues(func() (string, error) {
	return build("steelyard", ".", "./cmd/steelyard")
})

// BuildDemo builds cmd/steelyard-demo in the same way.
func BuildDemo() (string, error) { return buildDemoOnce() }

var buildDemoOnce = sync.OnceValues(func() (string, error) {
	return build("steelyard-demo", ".", "./cmd/steelyard-demo")
})

// BuildModule builds the picker inside Envoy, once per process, and returns the folder that has it: Envoys look for it
// in those that the environment variable ModulePath names.
func BuildModule() (folder string, err error) {
	library, err := buildModuleOnce()
	return filepath.Dir(library), err
}

// ModulePath is the environment variable by which an Envoy finds modules.
const ModulePath = "ENVOY_DYNAMIC_MODULES_SEARCH_PATH"

var buildModuleOnce = sync.OnceValues(func() (string, error) {
	return build("libsteelyard.so", "envoy-module", "-buildmode=c-shared", "-trimpath", "-ldflags", "-s -w", ".")
})

// build builds a file of the checkout, in one of its modules.
func build(name, module string, args ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(root, "bin", "e2e")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("building %s: %w", name, err)
	}
	binary := filepath.Join(folder, name)
	// Moved into place, because a file that is running cannot be written to. A link to what was built before tells the
	// go command whether that is up to date: linking a program takes seconds of CPU.
	fresh := binary + "." + strconv.Itoa(os.Getpid())
	_ = os.Link(binary, fresh) // there may be none
	cmd := exec.Command("go", append([]string{"build", "-o", fresh}, args...)...)
	cmd.Dir = filepath.Join(root, module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", name, err, strings.TrimSpace(string(out)))
	}
	if err := os.Rename(fresh, binary); err != nil {
		return "", fmt.Errorf("building %s: %w", name, err)
	}
	return binary, nil
}

// SteelyardConfig is how to run steelyard serve.
type SteelyardConfig struct {
	Path   string // the binary: BuildSteelyard's
	Config string // path of the YAML file
	Admin  string // host:port of the admin listener in Config
	Dir    string // an existing directory for the log
	Name   string // "steelyard" when empty
	Args   []string
	Stderr *os.File // instead of the log, as in Spec
}

// StartSteelyard runs `steelyard serve` and returns when /healthz of its admin
// listener answers 200: it serves, and may still be warming up. ctx bounds the
// start only.
func StartSteelyard(ctx context.Context, c SteelyardConfig) (*Process, error) {
	c.Name = cmp.Or(c.Name, "steelyard")
	args := append([]string{"serve", "--config", c.Config}, c.Args...)
	return StartReady(ctx, Spec{Name: c.Name, Path: c.Path, Args: args, Dir: c.Dir, Stderr: c.Stderr},
		AnswersHTTP("http://"+c.Admin+"/healthz"))
}

// AnswersHTTP returns a check for WaitReady: a GET of url is answered with 200.
func AnswersHTTP(url string) func(context.Context) error {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", url, resp.Status)
		}
		return nil
	}
}
