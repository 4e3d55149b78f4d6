package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"steelyard/cmd/internal/gateway"
	"steelyard/controlplane/config"
	"steelyard/controlplane/discovery/kubernetes"
	"steelyard/internal/api"
	"steelyard/internal/loops"
)

// pools are the InferencePools that are found.
type pools struct {
	found map[string][]kubernetes.FoundPool // by namespace, those that the API has answered for
	// unserved says why a pool is no cluster; under an empty name, why another one of the namespace would be none.
	unserved map[types.NamespacedName]string
	err      error
	settled  bool // the process waits for none of them, or no more
}

// maxClusters bounds the clusters that pools make, as the configuration bounds those that it names.
const maxClusters = 1000

// refusedPatience is how long a start waits for namespaces that the API refuses, such as those without a Role.
const refusedPatience = 10 * time.Second

// withPools returns a configuration with the clusters of the pools that are known, and why others have none.
func (d *Daemon) withPools(cfg *config.Config) (*config.Config, map[types.NamespacedName]string) {
	client := d.kubernetes.known()
	if cfg.Pools == nil || client == nil { // a configuration that is only compared
		return cfg, nil
	}
	own := client.Namespace()
	d.mu.Lock()
	found := maps.Clone(d.pools.found)
	d.mu.Unlock()
	served, unserved := shareOut(found, cfg, own)
	return cfg.WithPools(served, own), unserved
}

// shareOut returns the pools that get a cluster, and why others do not. Each namespace has the same number of clusters
// to give, and gives them to its oldest pools: replicas agree, and a pool that comes later, in this namespace or
// another, takes no cluster of an older one. A configuration with more namespaces or clusters may: shares get smaller.
func shareOut(found map[string][]kubernetes.FoundPool, cfg *config.Config, own string) (
	served []config.PoolName, unserved map[types.NamespacedName]string) {
	unserved = map[types.NamespacedName]string{}
	namespaces := cfg.Pools.Watched(own)
	share := max(0, maxClusters-len(cfg.Clusters)) / len(namespaces)
	for _, namespace := range namespaces {
		full := fmt.Sprintf("older pools of its namespace have the %d clusters that each of the %d namespaces of "+
			"pools.namespaces may have: delete pools, or name it in clusters", share, len(namespaces))
		n := 0
		for _, p := range slices.SortedFunc(slices.Values(found[namespace]), byAge) {
			name := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
			switch {
			case p.Picker || cfg.PoolCluster(p.Namespace, p.Name, own) != "":
			case p.Unserved() != "":
				unserved[name] = p.Unserved()
			case n == share:
				unserved[name] = full
			default:
				served = append(served, config.PoolName(name))
				n++
			}
		}
		if n == share {
			unserved[types.NamespacedName{Namespace: namespace}] = full
		}
	}
	return served, unserved
}

func byAge(a, b kubernetes.FoundPool) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
}

// clusterOfPool returns the cluster that serves a pool, or will when it is found; an error says why none does.
func (d *Daemon) clusterOfPool(namespace, name string) (string, error) {
	cluster, err := d.configuration().ServesPool(namespace, name, d.kubernetes.client.Namespace())
	d.mu.Lock()
	defer d.mu.Unlock()
	isIt := func(p kubernetes.FoundPool) bool { return p.Name == name }
	reason := d.pools.unserved[types.NamespacedName{Namespace: namespace, Name: name}]
	if !slices.ContainsFunc(d.pools.found[namespace], isIt) && d.config.Cluster(cluster) == nil {
		reason = d.pools.unserved[types.NamespacedName{Namespace: namespace}]
	}
	if err == nil && reason != "" {
		return "", errors.New(reason)
	}
	return cluster, err
}

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
			if client := d.kubernetes.known(); client != nil { // without namespaces, those known are dropped
				client.Pools(ctx, poolNamespaces(d.configuration(), client), d.poolsFound)
			}
		})
	}
}

// poolNamespaces are those whose pools are followed: each that becomes a cluster, and those that clusters name, because
// of their status.
func poolNamespaces(cfg *config.Config, client *kubernetes.Client) (all []string) {
	if client == nil {
		return nil
	}
	if cfg.Pools != nil {
		all = append(all, cfg.Pools.Watched(client.Namespace())...)
	}
	for i := range cfg.Clusters {
		if p := cfg.Clusters[i].Endpoints.InferencePool; p != nil {
			all = append(all, cmp.Or(p.Namespace, client.Namespace()))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// poolsFound makes the clusters those of the pools that the API has. Where it does not answer, those known stay.
func (d *Daemon) poolsFound(found map[string][]kubernetes.FoundPool, err error) {
	next, same := map[string][]kubernetes.FoundPool{}, true
	var left []kubernetes.FoundPool
	d.mu.Lock()
	for _, namespace := range poolNamespaces(d.config, d.kubernetes.known()) {
		before, known := d.pools.found[namespace]
		now, answered := found[namespace]
		if same = same && known == answered && slices.EqualFunc(before, now, alike); answered {
			next[namespace] = now
		} else if known {
			next[namespace] = before
		}
	}
	for namespace, pools := range d.pools.found {
		if _, stays := next[namespace]; !stays {
			left = append(left, pools...)
		}
	}
	d.pools.found, d.pools.err = next, err
	d.mu.Unlock()
	if len(left) > 0 {
		d.parents.leave(left)
	}
	if same {
		return
	}
	if err := d.applyAgain(); err != nil {
		d.options.Log.Error("the clusters of InferencePools stay as they are", "error", err)
	}
}

// alike reports whether two pools make the same cluster.
func alike(a, b kubernetes.FoundPool) bool {
	return a.Name == b.Name && a.Picker == b.Picker && a.AppProtocol == b.AppProtocol && a.Created.Equal(b.Created)
}

// poolsStatus is what is known of them.
func (d *Daemon) poolsStatus() (s api.Pools) {
	section, serves := d.configuration().Pools, d.manager.EverReady()
	d.mu.Lock()
	defer d.mu.Unlock()
	if section == nil {
		d.pools.settled = d.pools.settled || serves // a section that a reload adds takes nothing from the Envoys
		return s
	}
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
	refused := apierrors.IsForbidden(d.pools.err) || apierrors.IsNotFound(d.pools.err)
	if refused && time.Since(d.started) >= refusedPatience { // where nothing is known, other replicas serve better
		s.Answered = s.Answered || serves || len(d.pools.found) > 0
	}
	d.pools.settled = d.pools.settled || s.Answered
	s.Answered = d.pools.settled
	for pool, why := range d.pools.unserved {
		if pool.Name != "" {
			s.Unserved = append(s.Unserved, api.UnservedPool{Namespace: pool.Namespace, Name: pool.Name, Reason: why})
		}
	}
	slices.SortFunc(s.Unserved, func(a, b api.UnservedPool) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return s
}

// backends reads the backends of a rule, for Envoy Gateway.
func (k *kubernetesAPI) backends(ctx context.Context, id gateway.RuleID) ([]gateway.Backend, error) {
	client := k.known()
	if client == nil {
		return nil, fmt.Errorf("no cluster is found in the Kubernetes API, so Steelyard has no access to it: write a " +
			"section pools, or a cluster with inferencePool")
	}
	found, err := client.Backends(ctx, id.Kind, id.Namespace, id.Name, id.Rule)
	out := make([]gateway.Backend, len(found))
	for i, b := range found {
		out[i] = gateway.Backend{Pool: b.Kind == "InferencePool" && b.Group == "inference.networking.k8s.io",
			Namespace: b.Namespace, Name: b.Name, Weight: b.Weight, ByFilter: b.ByFilter, Generation: b.Generation,
			Filters: b.Filters, TLSPolicy: b.TLSPolicy}
	}
	return out, err
}
