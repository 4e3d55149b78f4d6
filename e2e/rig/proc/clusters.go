package proc

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"strconv"
)

// A Host is one endpoint as an Envoy sees it.
type Host struct {
	Address  string // host:port
	Weight   uint32 // load_balancing_weight in force
	Priority uint32
	Zone     string

	Health  string // from the control plane: HEALTHY, DEGRADED, DRAINING, UNHEALTHY, …
	Ejected bool   // by outlier detection

	Requests    uint64 // rq_total
	Active      uint64 // rq_active
	Errors      uint64 // rq_error: 5xx and requests without an answer
	Connections uint64 // cx_total: does not move while the host object is kept
}

// Clusters returns the hosts of every cluster, by cluster name and in the order
// in which Envoy lists them.
func (e *Envoy) Clusters(ctx context.Context) (map[string][]Host, error) {
	body, err := e.get(ctx, "/clusters", url.Values{"format": {"json"}})
	if err != nil {
		return nil, err
	}
	var all struct {
		Clusters []struct {
			Name  string      `json:"name"`
			Hosts []adminHost `json:"host_statuses"`
		} `json:"cluster_statuses"`
	}
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, fmt.Errorf("reading the clusters of %s: %w", e.name, err)
	}
	clusters := make(map[string][]Host, len(all.Clusters))
	for _, c := range all.Clusters {
		hosts := make([]Host, len(c.Hosts))
		for i, h := range c.Hosts {
			hosts[i] = h.host()
		}
		clusters[c.Name] = hosts
	}
	return clusters, nil
}

// adminHost is a host in the JSON of /clusters.
type adminHost struct {
	Address  socketAddress `json:"address"`
	Weight   uint32        `json:"weight"`
	Priority uint32        `json:"priority"`
	Locality struct {
		Zone string `json:"zone"`
	} `json:"locality"`
	Health struct {
		EDS     string `json:"eds_health_status"`
		Ejected bool   `json:"failed_outlier_check"`
	} `json:"health_status"`
	Stats []struct {
		Name  string `json:"name"`
		Value uint64 `json:"value,string"`
	} `json:"stats"`
}

func (a adminHost) host() Host {
	h := Host{
		Address: a.Address.String(), Weight: a.Weight, Priority: a.Priority, Zone: a.Locality.Zone,
		Health: a.Health.EDS, Ejected: a.Health.Ejected,
	}
	for _, s := range a.Stats {
		switch s.Name {
		case "rq_total":
			h.Requests = s.Value
		case "rq_active":
			h.Active = s.Value
		case "rq_error":
			h.Errors = s.Value
		case "cx_total":
			h.Connections = s.Value
		}
	}
	return h
}

// socketAddress is an address in the JSON of the admin listener.
type socketAddress struct {
	Socket struct {
		Address string `json:"address"`
		Port    int    `json:"port_value"`
	} `json:"socket_address"`
}

func (a socketAddress) String() string {
	return net.JoinHostPort(a.Socket.Address, strconv.Itoa(a.Socket.Port))
}
