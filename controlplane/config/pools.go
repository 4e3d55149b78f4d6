package config

import (
	"fmt"
	"slices"
)

// WithPool returns the configuration with a cluster for an InferencePool, unless there is one; own is the namespace
// that pools without one are in. The configuration itself stays as it is.
func (c *Config) WithPool(namespace, name, own string) *Config {
	if c.PoolCluster(namespace, name, own) != "" || c.Cluster(poolCluster(namespace, name)) != nil {
		return c
	}
	text := fmt.Appendf(nil, "clusters: [{name: %q, engine: %q, endpoints: {inferencePool: {namespace: %q, name: %q, "+
		"metrics_port: %d}}}]", poolCluster(namespace, name), c.Pools.Engine, namespace, name, c.Pools.MetricsPort)
	made, err := Parse("pool", text)
	if err != nil {
		return c // the API allows no name that is not one here
	}
	next := *c
	next.Clusters = append(slices.Clone(c.Clusters), made.Clusters[0])
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
