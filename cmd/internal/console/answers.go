package console

import (
	"context"

	"steelyard/controlplane/admin"
	"steelyard/controlplane/view"
)

// The answers of the admin API, as docs/admin-api.md describes them.

type clusterList struct {
	Clusters []view.Cluster `json:"clusters"`
}

type clientList struct {
	Total   int               `json:"total"`
	Clients []admin.Client    `json:"clients"`
	Left    []admin.LeftEnvoy `json:"left"`
}

type incidentList struct {
	State     view.State      `json:"state"`
	Incidents []view.Incident `json:"incidents"`
	LeftOut   int             `json:"left_out"`
}

type eventList struct {
	At       view.Time    `json:"at"`
	Events   []view.Event `json:"events"`
	OldestID uint64       `json:"oldest_id"`
	LatestID uint64       `json:"latest_id"`
}

type overrideList struct {
	Overrides []view.Override `json:"overrides"`
}

// explanation is how a share came about at some time.
type explanation struct {
	Cluster     string        `json:"cluster"`
	At          view.Time     `json:"at"`
	Decision    view.Decision `json:"decision"`
	Endpoint    view.Endpoint `json:"endpoint"`
	KeptSeconds view.Number   `json:"kept_seconds"`
	StepSeconds view.Number   `json:"step_seconds"`
}

// Clusters are the names of the clusters, for completion.
func (c *Client) Clusters(ctx context.Context) ([]string, error) {
	var list clusterList
	if err := c.get(ctx, &list, []string{"clusters"}); err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Clusters {
		names = append(names, list.Clusters[i].Name)
	}
	return names, nil
}

// Endpoints are the addresses of a cluster, for completion.
func (c *Client) Endpoints(ctx context.Context, cluster string) ([]string, error) {
	var v view.Cluster
	if err := c.get(ctx, &v, []string{"clusters", cluster}); err != nil {
		return nil, err
	}
	var addresses []string
	for i := range v.Endpoints {
		addresses = append(addresses, v.Endpoints[i].Address)
	}
	return addresses, nil
}
