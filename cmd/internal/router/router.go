package router

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"text/template"
	"time"

	"steelyard/internal/customrouter"
)

const (
	// drainTime bounds the time for which requests that wait or are in progress are answered before the end. Kubernetes
	// kills after 30 s.
	drainTime = 25 * time.Second
	// grace is the time that Envoy has to end; requests still in progress end with it.
	grace     = 5 * time.Second
	drainTick = 50 * time.Millisecond
	// SearchPath is the environment variable that names the folder in which Envoy looks for the module.
	SearchPath = "ENVOY_DYNAMIC_MODULES_SEARCH_PATH"
	moduleFile = "libsteelyard.so"
)

//go:embed envoy.yaml.tmpl
var envoyConfig string

// Run runs Envoy until ctx is done. That Envoy ends before is an error.
func Run(ctx context.Context, o Options) error {
	module, err := ModuleFolder()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "steelyard-router-")
	if err != nil {
		return fmt.Errorf("making a folder for Envoy's configuration: %w", err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "envoy.yaml")
	socket := filepath.Join(dir, "api")
	config, err := o.envoyConfig(socket)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, config, 0o600); err != nil {
		return fmt.Errorf("writing Envoy's configuration: %w", err)
	}
	cmd := exec.CommandContext(ctx, o.Envoy, "--config-path", path, "--disable-hot-restart", "--log-level", "warning",
		"--concurrency", "2")
	cmd.Env = append(os.Environ(), SearchPath+"="+module)
	cmd.Stderr, cmd.WaitDelay, cmd.SysProcAttr = o.EnvoyLog, grace, diesWithUs()
	cmd.Cancel = func() error {
		drain(socket, drainTime)
		return cmd.Process.Signal(syscall.SIGTERM)
	}
	o.Log.Info("serving", "clients", o.address(), "envoy", o.Envoy, "module", module, "threshold", o.Queue.Threshold,
		"queue_max_size", o.Queue.QueueMax, "queue_timeout", o.Queue.QueueTimeout)
	runtime.LockOSThread() // whose end the kernel takes for that of this process
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("running Envoy (%s): %w", o.Envoy, err)
	}
	return fmt.Errorf("running Envoy (%s): it ended", o.Envoy)
}

// drain waits until no request waits or is in progress, or Envoy is gone, for at most some time. Meanwhile health is
// not ok. Requests that still wait then are refused.
func drain(socket string, most time.Duration) {
	var dialer net.Dialer
	const api = "http://router"
	client := http.Client{Timeout: grace, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}}}
	post := func(path string) error {
		resp, err := client.Post(api+path, "", nil)
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
	if post(customrouter.DrainPath) != nil {
		return
	}
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(drainTick) {
		resp, err := client.Get(api + customrouter.APIPath + "health")
		if err != nil {
			return
		}
		h := customrouter.Health{QueueDepth: 1} // unless the answer says otherwise
		_ = json.NewDecoder(resp.Body).Decode(&h)
		resp.Body.Close()
		if h.Idle() {
			return
		}
	}
	if post(customrouter.StopPath) == nil {
		time.Sleep(drainTick) // for Envoy to send the refusals
	}
}

// ModuleFolder is where the module is: the folder of the environment, or that of this program.
func ModuleFolder() (string, error) {
	folder := os.Getenv(SearchPath)
	if folder == "" {
		program, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("finding the module: %w", err)
		}
		folder = filepath.Dir(program)
	}
	if _, err := os.Stat(filepath.Join(folder, moduleFile)); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("there is no %s in %s: `make module` builds it; set %s to its folder", moduleFile, folder,
			SearchPath)
	} else if err != nil {
		return "", fmt.Errorf("finding the module: %w", err)
	}
	return folder, nil
}

// envoyConfig is the configuration of Envoy, with the API on a Unix socket.
func (o Options) envoyConfig(socket string) ([]byte, error) {
	settings, err := json.Marshal(customrouter.Settings{Socket: socket, JSON: o.JSON,
		Options: customrouter.Options{Queue: o.Queue, LogInterval: o.LogInterval, Own: o.address()}})
	if err != nil {
		return nil, fmt.Errorf("making the module's configuration: %w", err)
	}
	again, err := json.Marshal(customrouter.Settings{Socket: socket, Again: true})
	if err != nil {
		return nil, fmt.Errorf("making the module's configuration: %w", err)
	}
	quoted := func(text string) (string, error) { // JSON strings are YAML
		out, err := json.Marshal(text)
		return string(out), err
	}
	t, err := template.New("").Funcs(template.FuncMap{"quote": quoted}).Option("missingkey=error").Parse(envoyConfig)
	if err != nil {
		return nil, fmt.Errorf("reading the template of Envoy's configuration: %w", err)
	}
	var out bytes.Buffer
	err = t.Execute(&out, map[string]any{"Host": o.Host, "Port": o.Port, "Socket": socket,
		"Filter": customrouter.FilterName, "Settings": string(settings), "Again": socket + "-again",
		"AgainSettings": string(again), "API": customrouter.Paths, "JSON": o.JSON})
	return out.Bytes(), err
}
