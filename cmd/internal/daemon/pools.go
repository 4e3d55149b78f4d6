package daemon

import (
	"context"
	"fmt"
	"maps"

	"steelyard/cmd/internal/gateway"
	"steelyard/controlplane/config"
	"steelyard/controlplane/discovery/kubernetes"
	"steelyard/internal/api"
	"steelyard/internal/loops"
)

// pools are the InferencePools that become clusters.
type pools struct {
	found map[string][]kubernetes.FoundPool // by namespace, those that the API has answered for
	err   error
}

// withPools returns a configuration with the clusters of the pools that are known.
func (d *Daemon) withPools(cfg *config.Config) *config.Config {
	if cfg.Pools == nil {
		return cfg
	}
	own := d.kubernetes.client.Namespace()
	d.mu.Lock()
	found := maps.Clone(d.pools.found)
	d.mu.Unlock()
	for _, namespace := range cfg.Pools.Watched(own) {
		for _, p := range found[namespace] {
			if !p.Picker && len(cfg.Clusters) < maxClusters {
				cfg = cfg.WithPool(p.Namespace, p.Name, own)
			}
		}
	}
	return cfg
}

// maxClusters bounds the clusters that pools make, as the configuration bounds those that it names.
const maxClusters = 1000

// followPools makes clusters of the pools that are found, and ends those of pools that are gone, until ctx is done.
func (d *Daemon) followPools(ctx context.Context) error {
	watching := loops.Start(ctx, func(context.Context) {})
	for {
		select {
		case <-ctx.Done():
			watching.Stop()
			return nil
		case <-d.poolsChanged:
		}
		watching.Stop()
		watching = loops.Start(ctx, func(ctx context.Context) {
			if section := d.configuration().Pools; section != nil {
				d.kubernetes.client.Pools(ctx, section.Watched(d.kubernetes.client.Namespace()), d.poolsFound)
			}
		})
	}
}

// poolsFound makes the clusters those of the pools that the API has. Where it does not answer, those known stay.
func (d *Daemon) poolsFound(found map[string][]kubernetes.FoundPool, err error) {
	d.mu.Lock()
	next := map[string][]kubernetes.FoundPool{}
	maps.Copy(next, d.pools.found)
	maps.Copy(next, found)
	d.pools = pools{next, err}
	d.mu.Unlock()
	if err := d.applyAgain(); err != nil {
		d.options.Log.Error("the clusters of InferencePools stay as they are", "error", err)
	}
}

// poolsStatus is what is known of them.
func (d *Daemon) poolsStatus() (s api.Pools) {
	section := d.configuration().Pools
	if section == nil {
		return s
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.Enabled, s.Answered = true, true
	if d.pools.err != nil {
		s.Error = d.pools.err.Error()
	}
	for _, namespace := range section.Watched(d.kubernetes.client.Namespace()) {
		found, answered := d.pools.found[namespace]
		s.Answered = s.Answered && answered
		s.Found += len(found)
		for _, p := range found {
			if p.Picker {
				s.Pickers++
			}
		}
	}
	return s
}

// backends reads the backends of a rule, for Envoy Gateway.
func (k *kubernetesAPI) backends(ctx context.Context, id gateway.RuleID) ([]gateway.Backend, error) {
	select {
	case <-k.connected:
	default:
		return nil, fmt.Errorf("no cluster is found in the Kubernetes API, so Steelyard has no access to it: write a " +
			"section pools, or a cluster with inferencePool")
	}
	found, err := k.client.Backends(ctx, id.Kind, id.Namespace, id.Name, id.Rule)
	out := make([]gateway.Backend, len(found))
	for i, b := range found {
		out[i] = gateway.Backend{Pool: b.Kind == "InferencePool" && b.Group == "inference.networking.k8s.io",
			Namespace: b.Namespace, Name: b.Name, Weight: b.Weight, Filters: b.Filters, TLSPolicy: b.TLSPolicy}
	}
	return out, err
}
