package demo

import (
	"context"
	"errors"
	"fmt"

	"go.yaml.in/yaml/v4"

	"steelyard/e2e/rig/proc"
	envoybootstrap "steelyard/envoy-bootstrap"
)

// The listeners of each Envoy: the one of `steelyard bootstrap`, and its copy that routes to a cluster without weights.
const (
	weightedListener = "ingress"
	plainListener    = "plain"
	plainCluster     = "plain"
)

// completionsPath is the path of requests to servers with slots.
const completionsPath = "/v1/completions"

// startEnvoys starts the Envoys and waits until each has weights for every server.
func (d *demo) startEnvoys(ctx context.Context) (*envoys, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	servers := d.fleet.servers.Addresses()
	e, err := startEnvoys(ctx, d.options.Envoys, "demo-envoy", bothPolicies(d.control.XDSAddress(), servers,
		d.options.RoundRobin))
	if err != nil {
		return nil, err
	}
	for _, envoy := range e.all {
		if err := awaitWeights(ctx, envoy, len(servers)); err != nil {
			return nil, errors.Join(err, e.close())
		}
	}
	return e, nil
}

// awaitWeights waits until Steelyard's endpoints have reached the Envoy, which opens its listeners without them after a
// while.
func awaitWeights(ctx context.Context, e *proc.Envoy, want int) error {
	return e.WaitReady(ctx, func(ctx context.Context) error {
		clusters, err := e.Clusters(ctx)
		if n := len(clusters[clusterName]); err == nil && n != want {
			err = fmt.Errorf("%s has %d of %d endpoints from Steelyard", e.Name(), n, want)
		}
		return err
	})
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

// bothPolicies makes the bootstraps of the demo.
func bothPolicies(xds string, servers []string, roundRobin bool) func(nodeID string) ([]byte, error) {
	plain := bootstrap(xds, envoybootstrap.Options{})
	return func(nodeID string) ([]byte, error) {
		text, err := plain(nodeID)
		if err != nil {
			return nil, err
		}
		return withPlain(text, servers, roundRobin)
	}
}

// withPlain adds a copy of the listener and of the cluster, without Steelyard, to what `steelyard bootstrap`
// prints.
func withPlain(text []byte, servers []string, roundRobin bool) ([]byte, error) {
	doc, _, _, err := proc.ReadBootstrap(text, weightedListener, clusterName)
	if err != nil {
		return nil, err
	}
	// A second reading shares nothing with the first: a deep copy.
	_, listener, cluster, err := proc.ReadBootstrap(text, weightedListener, clusterName)
	if err != nil {
		return nil, err
	}
	if err := withoutWeights(listener, cluster, servers, roundRobin); err != nil {
		return nil, err
	}
	doc.Static.Listeners = append(doc.Static.Listeners, listener)
	doc.Static.Clusters = append(doc.Static.Clusters, cluster)
	return yaml.Marshal(doc)
}

// withoutWeights turns the copies into Envoy's own least request, or round robin, over a fixed list.
func withoutWeights(listener, cluster proc.Object, servers []string, roundRobin bool) error {
	listener["name"] = plainListener
	if err := proc.Reroute(listener, plainCluster); err != nil {
		return err
	}
	if err := proc.SetStatic(cluster, plainCluster, servers); err != nil {
		return err
	}
	if roundRobin {
		delete(cluster, "least_request_lb_config")
		cluster["lb_policy"] = "ROUND_ROBIN"
	}
	return nil
}
