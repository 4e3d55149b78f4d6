package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"go.yaml.in/yaml/v4"

	"steelyard/e2e/rig/output"
	"steelyard/e2e/rig/proc"
)

// A fileRouted is an Envoy with its own round robin, whose endpoints are in a file.
type fileRouted struct {
	envoy   *proc.Envoy
	file    string
	address string
}

const fileRoutedConfig = `
node: {id: demo, cluster: demo}
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}
static_resources:
  listeners:
  - name: clients
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: clients
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
          route_config:
            virtual_hosts:
            - {name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: replicas, timeout: 0s}}]}
  clusters:
  - name: replicas
    type: EDS
    lb_policy: ROUND_ROBIN
    connect_timeout: 2s
    eds_cluster_config: {eds_config: {path_config_source: {path: %q}}}
`

func startFileRouted(ctx context.Context, dir string) (*fileRouted, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	r := &fileRouted{file: filepath.Join(dir, "endpoints.yaml")}
	if err := r.write(nil); err != nil {
		return nil, err
	}
	var err error
	if r.envoy, err = proc.StartEnvoy(ctx, proc.EnvoyConfig{Bootstrap: fmt.Appendf(nil, fileRoutedConfig, r.file),
		Dir: dir, Name: "round-robin"}); err != nil {
		return nil, err
	}
	if r.address, err = r.envoy.Listener(ctx, "clients"); err != nil {
		return nil, errors.Join(err, r.envoy.Stop())
	}
	return r, nil
}

func (r *fileRouted) url() string  { return "http://" + r.address + "/v1/images" }
func (r *fileRouted) close() error { return r.envoy.Stop() }

// write replaces the file: Envoy reads it when another is moved there.
func (r *fileRouted) write(replicas []string) error {
	resource := map[string]any{"@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"}
	if err := proc.SetStatic(resource, "replicas", replicas); err != nil {
		return err
	}
	assignment := resource["load_assignment"].(map[string]any)
	assignment["@type"] = resource["@type"]
	text, err := yaml.Marshal(map[string]any{"version_info": fmt.Sprint(len(replicas)), "resources": []any{assignment}})
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.file+".new", text, 0o600); err != nil {
		return fmt.Errorf("writing the endpoints: %w", err)
	}
	return os.Rename(r.file+".new", r.file)
}

// set writes the endpoints and waits until Envoy has them.
func (r *fileRouted) set(ctx context.Context, replicas []string) error {
	if err := r.write(replicas); err != nil {
		return err
	}
	return r.envoy.WaitReady(ctx, func(ctx context.Context) error {
		clusters, err := r.envoy.Clusters(ctx)
		if n := len(clusters["replicas"]); err == nil && n != len(replicas) {
			err = fmt.Errorf("Envoy has %d of %d replicas", n, len(replicas))
		}
		return err
	})
}

// A router is a `steelyard router`.
type router struct {
	address string
	stop    context.CancelFunc
	ended   chan error
	log     *output.Buffer
}

func startRouter(ctx context.Context, out io.Writer, run Router) (*router, error) {
	address, err := proc.FreeAddress()
	if err != nil {
		return nil, err
	}
	environment := map[string]string{"CUSTOM_ROUTER_PORT": proc.Port(address), "CUSTOM_ROUTER_STATE_LOG_INTERVAL": "0",
		// Far below the time of an answer: one request at a time at each replica.
		"CUSTOM_ROUTER_LATENCY_THRESHOLD": "0.05"}
	// It ends after the load, and not with the caller's context.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &router{address: address, stop: stop, ended: make(chan error, 1), log: new(output.Buffer)}
	go func() {
		r.ended <- run(running, func(name string) string { return environment[name] }, r.log)
	}()
	if err := r.ready(ctx); err != nil {
		return nil, errors.Join(err, r.close())
	}
	fmt.Fprintf(out, "State: http://%s/_custom_router/health\n", address)
	return r, nil
}

// ready waits until the router answers.
func (r *router) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	check := proc.AnswersHTTP("http://" + r.address + "/_custom_router/health")
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		last := check(ctx)
		if last == nil {
			return nil
		}
		select {
		case err := <-r.ended:
			r.ended <- err
			return fmt.Errorf("the router ended: %w\n%s", err, r.log)
		case <-ctx.Done():
			return fmt.Errorf("the router does not answer: %w\n%s", last, r.log)
		case <-tick.C:
		}
	}
}

func (r *router) url() string { return "http://" + r.address + "/v1/images" }

func (r *router) close() error {
	r.stop()
	return <-r.ended
}

// set is what a platform does when it scales.
func (r *router) set(ctx context.Context, replicas []string) error {
	body, err := json.Marshal(map[string][]string{"backends": replicas})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.address+"/_custom_router/set-backends",
		bytes.NewReader(body))
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("setting the backends: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		answer, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("setting the backends: %s: %s", resp.Status, answer)
	}
	return nil
}
