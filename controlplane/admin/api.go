package admin

import (
	"fmt"
	"net/http"

	"steelyard/controlplane/admin/conditions"
	"steelyard/controlplane/admin/history"
	"steelyard/internal/api"
)

func (h *handler) getStatus(*http.Request) (api.Status, error) {
	s := h.snapshot()
	return s.Status(s.Clusters()), nil
}

func (h *handler) getClusters(*http.Request) (api.ClusterList, error) {
	clusters := h.snapshot().Clusters()
	for i := range clusters {
		clusters[i].Endpoints = nil
	}
	return api.ClusterList{Clusters: clusters}, nil
}

func (h *handler) getCluster(r *http.Request) (api.Cluster, error) {
	s := h.snapshot()
	c, ok := s.Cluster(r.PathValue("name"))
	if !ok {
		return c, h.noCluster(r.PathValue("name"))
	}
	order, err := parseOrder(r.URL.Query())
	if order.worstFirst {
		conditions.SortWorstFirst(c.Endpoints)
	}
	c.Endpoints = api.Limit(c.Endpoints, order.limit)
	for i := range c.Endpoints {
		c.Endpoints[i].Why = c.Working.Explain(c.Endpoints[i].Address)
	}
	return c, err
}

func (h *handler) getClients(r *http.Request) (api.ClientList, error) {
	order, err := parseOrder(r.URL.Query())
	s := h.snapshot()
	clients := s.Clients(s.Source.Clusters())
	if order.worstFirst {
		conditions.SortClientsWorstFirst(clients)
	}
	return api.ClientList{Total: len(clients), Clients: api.Limit(clients, order.limit),
		Left: s.Moment.LeftEnvoys(s.Seen.Now), Elsewhere: s.Elsewhere()}, err
}

func (h *handler) getHistory(r *http.Request) (api.Window, error) {
	name, now := r.PathValue("name"), h.Now()
	if _, ok := h.Source.Cluster(name); !ok {
		return api.Window{}, h.noCluster(name)
	}
	q, err := parseWindow(r.URL.Query(), now)
	if err != nil {
		return api.Window{}, err
	}
	if n := h.Recorder.History().Numbers(name, q); n > history.WindowNumbers {
		return api.Window{}, fmt.Errorf("this asks for %d numbers, and an answer has at most %d: ask for fewer "+
			"endpoints or fields, or for fewer moments with points=150", n, history.WindowNumbers)
	}
	return h.Recorder.History().Window(name, now, q), nil
}
