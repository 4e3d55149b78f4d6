package admin

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"steelyard/controlplane/view"
)

func (h *handler) getIncidents(r *http.Request) (IncidentList, error) {
	out := IncidentList{At: view.At(h.Now()), State: view.StateOK, Clusters: []clusterState{},
		Incidents: []view.Incident{}}
	m := h.Recorder.latest.Load()
	if m == nil {
		return out, nil
	}
	out.At, out.State = view.At(m.now), worstState(m.incidents)
	for _, c := range m.fleet.Clusters {
		out.Clusters = append(out.Clusters, clusterState{c.Name, c.State})
	}
	out.Incidents = m.incidents
	if name := r.URL.Query().Get("cluster"); name != "" {
		if _, ok := h.Source.Cluster(name); !ok {
			return out, h.noCluster(name)
		}
		out.Incidents = clusterIncidents(m.incidents, name)
	}
	out.LeftOut = max(0, len(out.Incidents)-maxIncidents)
	out.Incidents = limit(out.Incidents, maxIncidents)
	return out, nil
}

func (h *handler) getEvents(r *http.Request) (EventList, error) {
	q, now := r.URL.Query(), h.Now()
	most, err := parseCount(q, "limit")
	if err != nil {
		return EventList{}, err
	}
	since, err := parseID(q, "since")
	if err != nil {
		return EventList{}, err
	}
	out := EventList{At: view.At(now), LatestID: h.Recorder.events.last()}
	out.Events, out.OldestID = h.Recorder.events.since(now, since)
	cluster, kinds := q.Get("cluster"), q["kind"]
	out.Events = slices.DeleteFunc(out.Events, func(e view.Event) bool {
		return cluster != "" && e.Cluster != cluster || len(kinds) > 0 && !slices.Contains(kinds, string(e.Kind))
	})
	if most > 0 && len(out.Events) > most {
		out.Events = out.Events[len(out.Events)-most:]
	}
	out.Events = orEmpty(out.Events)
	return out, nil
}

func parseID(q url.Values, key string) (uint64, error) {
	s := q.Get(key)
	if s == "" {
		return 0, nil
	}
	id, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%s=%q is not the id of an event", key, s)
	}
	return id, nil
}

func (h *handler) getMatrix(r *http.Request) (view.Matrix, error) {
	m, ok := h.Source.Matrix(r.PathValue("name"))
	if !ok {
		return m, h.noCluster(r.PathValue("name"))
	}
	return completeMatrix(m, h.Now()), nil
}

// matrixNumbers bounds a matrix.
const matrixNumbers = 250_000

// completeMatrix sorts a matrix, adds it up, and cuts it to what an answer has room for.
func completeMatrix(m view.Matrix, now time.Time) view.Matrix {
	m.At, m.Envoys = view.At(now), slices.Clone(orEmpty(m.Envoys))
	by := byAddress(m.Endpoints)
	m.Endpoints = arranged(m.Endpoints, by)
	m.EndpointTotals = make([]int, len(m.Endpoints))
	m.Total = 0
	for i := range m.Envoys {
		row := &m.Envoys[i]
		row.InFlight, row.Total = arranged(row.InFlight, by), 0
		for k, n := range row.InFlight {
			m.EndpointTotals[k] += n
			row.Total += n
		}
		m.Total += row.Total
	}
	slices.SortStableFunc(m.Envoys, func(a, b view.MatrixRow) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.NodeID, b.NodeID), cmp.Compare(a.Host, b.Host))
	})
	rows := max(1, matrixNumbers/max(1, len(m.Endpoints)))
	m.EnvoysLeftOut = max(0, len(m.Envoys)-rows)
	m.Envoys = limit(m.Envoys, rows)
	return m
}

// byAddress is the indexes of addresses in their order.
func byAddress(addresses []string) []int {
	by := make([]int, len(addresses))
	for i := range by {
		by[i] = i
	}
	slices.SortStableFunc(by, func(a, b int) int { return cmp.Compare(addresses[a], addresses[b]) })
	return by
}

// arranged are the items in the order of these indexes.
func arranged[T any](items []T, by []int) []T {
	out := make([]T, 0, len(by))
	for _, i := range by {
		out = append(out, items[i])
	}
	return out
}
