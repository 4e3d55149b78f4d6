package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.yaml.in/yaml/v4"
	"golang.org/x/sync/errgroup"

	"steelyard/e2e/rig/proc"
	envoybootstrap "steelyard/envoy-bootstrap"
)

// The listeners of each Envoy: the one of `steelyard bootstrap`, and its copy
// that routes to a cluster without weights.
const (
	weightedListener   = "ingress"
	roundRobinListener = "round_robin"
	roundRobinCluster  = "round_robin"
)

// startTimeout bounds the start of an Envoy, with the arrival of its weights.
const startTimeout = 30 * time.Second

// envoys are running Envoys and the folder with their files.
type envoys struct {
	dir string
	all []*proc.Envoy
}

// startEnvoys starts n Envoys and waits until each has weights for every server.
// What was started is returned with an error too, to be closed.
func startEnvoys(ctx context.Context, n int, xds string, servers []string) (*envoys, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	e := &envoys{all: make([]*proc.Envoy, n)}
	var err error
	if e.dir, err = os.MkdirTemp("", "steelyard-demo-"); err != nil {
		return e, fmt.Errorf("making a folder for the Envoys: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	for i := range e.all {
		group.Go(func() (err error) {
			e.all[i], err = startEnvoy(ctx, e.dir, fmt.Sprintf("demo-envoy-%d", i+1), xds, servers)
			return err
		})
	}
	return e, group.Wait()
}

func startEnvoy(ctx context.Context, dir, name, xds string, servers []string) (*proc.Envoy, error) {
	bootstrap, err := makeBootstrap(name, xds, servers)
	if err != nil {
		return nil, fmt.Errorf("making the bootstrap of %s: %w", name, err)
	}
	e, err := proc.StartEnvoy(ctx, proc.EnvoyConfig{Bootstrap: bootstrap, Dir: dir, Name: name})
	if err != nil {
		return nil, err
	}
	return e, awaitWeights(ctx, e, name, len(servers))
}

// awaitWeights waits until Steelyard's endpoints have reached the Envoy, which
// opens its listeners without them after a while.
func awaitWeights(ctx context.Context, e *proc.Envoy, name string, want int) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		clusters, err := e.Clusters(ctx)
		if err == nil && len(clusters[clusterName]) == want {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s has %d of %d endpoints from Steelyard: %w", name,
				len(clusters[clusterName]), want, ctx.Err()), err)
		case <-ticker.C:
		}
	}
}

// close stops all Envoys at once and removes their files.
func (e *envoys) close() error {
	var group errgroup.Group
	for _, envoy := range e.all {
		if envoy != nil {
			group.Go(envoy.Stop)
		}
	}
	err := group.Wait()
	if e.dir != "" {
		err = errors.Join(err, os.RemoveAll(e.dir))
	}
	return err
}

// urls are where a listener of each Envoy takes requests.
func (e *envoys) urls(ctx context.Context, listener string) ([]string, error) {
	urls := make([]string, len(e.all))
	for i, envoy := range e.all {
		address, err := envoy.Listener(ctx, listener)
		if err != nil {
			return nil, err
		}
		urls[i] = "http://" + address + "/v1/completions"
	}
	return urls, nil
}

// weights are the shares of the traffic, 0..1 by address, that the first Envoy
// gives to its endpoints at this moment.
func (e *envoys) weights(ctx context.Context) (map[string]float64, error) {
	clusters, err := e.all[0].Clusters(ctx)
	if err != nil {
		return nil, err
	}
	sum := 0.0
	for _, h := range clusters[clusterName] {
		sum += float64(h.Weight)
	}
	shares := make(map[string]float64)
	for _, h := range clusters[clusterName] {
		shares[h.Address] = float64(h.Weight) / sum
	}
	return shares, nil
}

// object is a mapping of a YAML document.
type object = map[string]any

// makeBootstrap is what `steelyard bootstrap` prints, and in it a copy of the
// listener and of the cluster, without Steelyard.
func makeBootstrap(name, xds string, servers []string) ([]byte, error) {
	text, err := envoybootstrap.Render(envoybootstrap.Options{
		Cluster: clusterName, XDS: xds, NodeID: name, Listen: "127.0.0.1:0", Admin: "127.0.0.1:0",
	})
	if err != nil {
		return nil, err
	}
	var doc struct {
		Static struct {
			Listeners []object `yaml:"listeners"`
			Clusters  []object `yaml:"clusters"`
			Rest      object   `yaml:",inline"`
		} `yaml:"static_resources"`
		Rest object `yaml:",inline"`
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	listener, err := copyOf(doc.Static.Listeners, weightedListener)
	if err != nil {
		return nil, err
	}
	cluster, err := copyOf(doc.Static.Clusters, clusterName)
	if err != nil {
		return nil, err
	}
	if err := withoutWeights(listener, cluster, servers); err != nil {
		return nil, err
	}
	doc.Static.Listeners = append(doc.Static.Listeners, listener)
	doc.Static.Clusters = append(doc.Static.Clusters, cluster)
	return yaml.Marshal(doc)
}

// copyOf returns a deep copy of the resource with this name.
func copyOf(resources []object, name string) (object, error) {
	for _, r := range resources {
		if r["name"] == name {
			text, err := yaml.Marshal(r)
			if err != nil {
				return nil, err
			}
			var c object
			err = yaml.Unmarshal(text, &c)
			return c, err
		}
	}
	return nil, fmt.Errorf("the template of `steelyard bootstrap` has nothing named %q", name)
}

// withoutWeights turns the copies into Envoy's own round robin over a fixed list.
func withoutWeights(listener, cluster object, servers []string) error {
	listener["name"] = roundRobinListener
	if n := proc.Reroute(listener, roundRobinCluster); n != 1 {
		return fmt.Errorf("the template of `steelyard bootstrap` has %d routes, want 1", n)
	}
	if err := proc.SetStatic(cluster, roundRobinCluster, servers); err != nil {
		return err
	}
	delete(cluster, "least_request_lb_config")
	cluster["lb_policy"] = "ROUND_ROBIN"
	return nil
}
