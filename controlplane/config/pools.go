package config

import (
	"fmt"
	"slices"
)

// A PoolName names an InferencePool.
type PoolName struct{ Namespace, Name string }

// WithPools returns the configuration with a cluster for each InferencePool, unless there is one; own is the namespace
// that pools without one are in. The configuration itself stays as it is.
func (c *Config) WithPools(pools []PoolName, own string) *Config {
	text := fmt.Appendf(nil, "clusters: [{name: pool, engine: %q, endpoints: {inferencePool: {name: pool, "+
		"metrics_port: %d}}}]", c.Pools.Engine, c.Pools.MetricsPort)
	made, err := Parse("pool", text)
	if err != nil {
		return c // what the section has was checked
	}
	next := *c
	next.Clusters = slices.Clone(c.Clusters)
	for _, p := range pools {
		name := poolCluster(p.Namespace, p.Name)
		if c.PoolCluster(p.Namespace, p.Name, own) != "" || c.Cluster(name) != nil {
			continue
		}
		cluster, pool := made.Clusters[0], *made.Clusters[0].Endpoints.InferencePool
		pool.Namespace, pool.Name = p.Namespace, p.Name
		cluster.Name, cluster.Endpoints.InferencePool = name, &pool
		next.Clusters = append(next.Clusters, cluster)
	}
	return &next
}

// PoolCluster returns the name of the cluster whose endpoints an InferencePool has; empty for none.
func (c *Config) PoolCluster(namespace, name, own string) string {
	for i := range c.Clusters {
		if p := c.Clusters[i].Endpoints.InferencePool; p != nil && p.Name == name &&
			(p.Namespace == namespace || p.Namespace == "" && namespace == own) {
			return c.Clusters[i].Name
		}
	}
	return ""
}

// ServesPool returns the name of the cluster that serves an InferencePool, or will when it is found; an error says why
// none does.
func (c *Config) ServesPool(namespace, name, own string) (string, error) {
	if cluster := c.PoolCluster(namespace, name, own); cluster != "" {
		return cluster, nil
	}
	if c.Pools == nil {
		return "", fmt.Errorf("no cluster has it as its inferencePool, and there is no section pools")
	}
	if !slices.Contains(c.Pools.Watched(own), namespace) {
		return "", fmt.Errorf("pools.namespaces does not have the namespace %s", namespace)
	}
	return poolCluster(namespace, name), nil
}

// Watched returns the namespaces whose pools become clusters.
func (p *Pools) Watched(own string) []string {
	if len(p.Namespaces) == 0 {
		return []string{own}
	}
	return p.Namespaces
}

// poolCluster is the name of a pool's own cluster. A namespace has no dot in its name, so no two pools share one.
func poolCluster(namespace, name string) string { return namespace + "." + name }
