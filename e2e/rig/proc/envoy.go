package proc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// EnvoyVersion is the version of Envoy that the project is tested with.
const EnvoyVersion = "1.40"

// adminBodyLimit bounds what is read from an Envoy's admin listener.
const adminBodyLimit = 64 << 20

// EnvoyConfig is how to run an Envoy.
type EnvoyConfig struct {
	Bootstrap []byte // YAML; its admin listener and others may ask for port 0
	Dir       string // an existing directory for the bootstrap, the log and small files
	Name      string // "envoy" when empty; different for each Envoy of one Dir, so that the logs can be distinguished

	Concurrency int      // worker threads, 1 when 0
	LogLevel    string   // "warning" when empty
	Args        []string // more of Envoy's arguments
	Path        string   // the binary, Find's when empty
}

// An Envoy is a running Envoy whose admin listener answers.
type Envoy struct {
	*Process
	admin  string // host:port
	client *http.Client
}

// StartEnvoy runs an Envoy and returns when its admin listener reports that it is
// live, which is when all its clusters and listeners are initialised. ctx bounds
// the start only; the Envoy runs until Stop or Kill.
func StartEnvoy(ctx context.Context, c EnvoyConfig) (*Envoy, error) {
	e, err := LaunchEnvoy(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := e.ReadyOrKill(ctx, e.Ready); err != nil {
		e.client.CloseIdleConnections()
		return nil, err
	}
	return e, nil
}

// LaunchEnvoy is StartEnvoy without the wait for live: it returns when the admin listener is bound. It is for Envoys
// that cannot become live yet, for instance because their control plane is not there.
func LaunchEnvoy(ctx context.Context, c EnvoyConfig) (*Envoy, error) {
	spec, adminFile, err := c.prepare()
	if err != nil {
		return nil, err
	}
	p, err := Start(spec)
	if err != nil {
		return nil, err
	}
	e := &Envoy{Process: p, client: &http.Client{Transport: &http.Transport{MaxIdleConns: 2}}}
	err = p.ReadyOrKill(ctx, func(context.Context) error {
		addr, err := os.ReadFile(adminFile)
		if err == nil && len(addr) == 0 {
			err = errors.New("its admin address is not written yet")
		}
		e.admin = string(addr)
		return err
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// prepare writes the bootstrap and returns how to run Envoy with it, and the
// file into which Envoy will write the address of its admin listener.
func (c EnvoyConfig) prepare() (Spec, string, error) {
	if c.Path == "" {
		path, err := Find(ProgramEnvoy)
		if err != nil {
			return Spec{}, "", err
		}
		c.Path = path
	}
	c.Name, c.LogLevel = cmp.Or(c.Name, "envoy"), cmp.Or(c.LogLevel, "warning")
	files, err := os.MkdirTemp(c.Dir, c.Name+"-")
	if err != nil {
		return Spec{}, "", fmt.Errorf("starting %s: %w", c.Name, err)
	}
	bootstrap, adminFile := filepath.Join(files, "bootstrap.yaml"), filepath.Join(files, "admin-address")
	if err := os.WriteFile(bootstrap, c.Bootstrap, 0o600); err != nil {
		return Spec{}, "", fmt.Errorf("starting %s: %w", c.Name, err)
	}
	args := []string{
		"--config-path", bootstrap,
		"--admin-address-path", adminFile,
		"--concurrency", strconv.Itoa(max(1, c.Concurrency)),
		"--log-level", c.LogLevel,
		// Hot restart shares memory and a socket between Envoys of one base id.
		"--use-dynamic-base-id", "--disable-hot-restart",
	}
	return Spec{Name: c.Name, Path: c.Path, Args: append(args, c.Args...), Dir: c.Dir}, adminFile, nil
}

// ValidateEnvoy makes the real Envoy check a bootstrap (--mode validate) and returns what it prints, such as warnings
// of deprecated fields. The error quotes Envoy. Files are put into dir, which must exist.
func ValidateEnvoy(ctx context.Context, dir string, bootstrap []byte) (string, error) {
	spec, _, err := EnvoyConfig{Bootstrap: bootstrap, Dir: dir, Name: "validate"}.prepare()
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, spec.Path, append(spec.Args, "--mode", "validate")...).CombinedOutput()
	said := strings.TrimSpace(string(out))
	if err != nil {
		return said, fmt.Errorf("envoy --mode validate: %w\n%s", err, said)
	}
	return said, nil
}

// Stop ends the Envoy as Process.Stop does.
func (e *Envoy) Stop() error {
	e.client.CloseIdleConnections()
	return e.Process.Stop()
}

// Kill ends the Envoy as Process.Kill does.
func (e *Envoy) Kill() error {
	e.client.CloseIdleConnections()
	return e.Process.Kill()
}

// Admin returns the address of the admin listener, host:port.
func (e *Envoy) Admin() string { return e.admin }

// Ready asks the admin listener whether the Envoy is live.
func (e *Envoy) Ready(ctx context.Context) error {
	_, err := e.get(ctx, "/ready", nil)
	return err
}

// Listener returns the address on which the named listener really listens.
func (e *Envoy) Listener(ctx context.Context, name string) (string, error) {
	body, err := e.get(ctx, "/listeners", url.Values{"format": {"json"}})
	if err != nil {
		return "", err
	}
	var all struct {
		Statuses []struct {
			Name    string
			Address socketAddress `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal(body, &all); err != nil {
		return "", fmt.Errorf("reading the listeners of %s: %w", e.name, err)
	}
	for _, l := range all.Statuses {
		if l.Name == name {
			return l.Address.String(), nil
		}
	}
	return "", fmt.Errorf("%s has no listener %q", e.name, name)
}

// Stats returns the counters and gauges whose names match the regular
// expression (RE2, anywhere in the name), by name. Histograms are left out.
func (e *Envoy) Stats(ctx context.Context, filter string) (map[string]float64, error) {
	body, err := e.get(ctx, "/stats", url.Values{"format": {"json"}, "filter": {filter}})
	if err != nil {
		return nil, err
	}
	var all struct {
		Stats []struct {
			Name  string   `json:"name"`
			Value *float64 `json:"value"`
		} `json:"stats"`
	}
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, fmt.Errorf("reading the stats of %s: %w", e.name, err)
	}
	stats := make(map[string]float64, len(all.Stats))
	for _, s := range all.Stats {
		if s.Value != nil {
			stats[s.Name] = *s.Value
		}
	}
	return stats, nil
}

// get fetches a page of the admin listener.
func (e *Envoy) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	return e.admined(ctx, http.MethodGet, path, query)
}

// Post changes something through the admin listener, for instance
// "/logging?level=debug" or "/reset_counters", and returns the answer.
func (e *Envoy) Post(ctx context.Context, path string, query url.Values) ([]byte, error) {
	return e.admined(ctx, http.MethodPost, path, query)
}

func (e *Envoy) admined(ctx context.Context, method, path string, query url.Values) ([]byte, error) {
	u := url.URL{Scheme: "http", Host: e.admin, Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", e.name, err)
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", e.name, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, adminBodyLimit))
	if err != nil {
		return nil, fmt.Errorf("asking %s for %s: %w", e.name, path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking %s for %s: %s: %s", e.name, path, resp.Status, strings.TrimSpace(string(body)))
	}
	return body, nil
}

// EnvoyBuild returns the version of an Envoy, and how it was built, without its path.
func EnvoyBuild(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("asking %s for its version: %w", path, err)
	}
	_, build, found := strings.Cut(string(out), "version: ")
	if !found {
		return "", fmt.Errorf("%s --version says %q, want a version", path, out)
	}
	return strings.TrimSpace(build), nil
}
