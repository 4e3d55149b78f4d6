package console

import (
	"cmp"
	"context"

	"steelyard/internal/api"
)

// Clusters are the names of the clusters, for completion.
func (c *Client) Clusters(ctx context.Context) ([]string, error) {
	var list api.ClusterList
	if err := c.get(ctx, &list, []string{"clusters"}); err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Clusters {
		names = append(names, list.Clusters[i].Name)
	}
	return names, nil
}

// Endpoints are the names of the Pods of a cluster, or their addresses, for completion.
func (c *Client) Endpoints(ctx context.Context, cluster string) ([]string, error) {
	var v api.Cluster
	if err := c.get(ctx, &v, []string{"clusters", cluster}); err != nil {
		return nil, err
	}
	var names []string
	for i := range v.Endpoints {
		names = append(names, cmp.Or(v.Endpoints[i].Pod, v.Endpoints[i].Address))
	}
	return names, nil
}
