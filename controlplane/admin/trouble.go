package admin

import (
	"fmt"
	"net/http"
	"slices"

	"steelyard/controlplane/admin/conditions"
	"steelyard/controlplane/admin/current"
	"steelyard/internal/api"
)

func (h *handler) getIncidents(r *http.Request) (api.IncidentList, error) {
	out := api.IncidentList{At: api.At(h.Now()), State: api.StateOK, Clusters: []api.ClusterState{},
		Incidents: []api.Incident{}}
	m := h.Recorder.Latest()
	if m == nil {
		return out, nil
	}
	out.At, out.State = api.At(m.Now), conditions.WorstState(m.Incidents)
	for _, c := range m.Fleet.Clusters {
		out.Clusters = append(out.Clusters, api.ClusterState{Name: c.Name, State: c.State})
	}
	out.Incidents = m.Incidents
	if name := r.URL.Query().Get("cluster"); name != "" {
		if _, ok := h.Source.Cluster(name); !ok {
			return out, h.noCluster(name)
		}
		out.Incidents = conditions.ClusterIncidents(m.Incidents, name)
	}
	out.LeftOut = max(0, len(out.Incidents)-conditions.MaxIncidents)
	out.Incidents = api.Limit(out.Incidents, conditions.MaxIncidents)
	return out, nil
}

func (h *handler) getEvents(r *http.Request) (api.EventList, error) {
	q, now := r.URL.Query(), h.Now()
	most, err := parseCount(q, "limit")
	if err != nil {
		return api.EventList{}, err
	}
	since, err := parseID(q, "since")
	if err != nil {
		return api.EventList{}, err
	}
	out := api.EventList{At: api.At(now)}
	out.Events, out.OldestID, out.LatestID = h.Recorder.Events(now, since)
	cluster, kinds := q.Get("cluster"), q["kind"]
	out.Events = slices.DeleteFunc(out.Events, func(e api.Event) bool {
		return cluster != "" && e.Cluster != cluster || len(kinds) > 0 && !slices.Contains(kinds, string(e.Kind))
	})
	if most > 0 && len(out.Events) > most {
		out.Events = out.Events[len(out.Events)-most:]
	}
	out.Events = api.OrEmpty(out.Events)
	return out, nil
}

func (h *handler) getMatrix(r *http.Request) (api.Matrix, error) {
	m, ok := h.Source.Matrix(r.PathValue("name"))
	if !ok {
		return m, h.noCluster(r.PathValue("name"))
	}
	return current.CompleteMatrix(m, h.Now()), nil
}

func (h *handler) getShadow(r *http.Request) (api.Shadow, error) {
	s := h.snapshot()
	c, ok := s.Cluster(r.PathValue("name"))
	v, _ := h.Source.Shadow(c.Name)
	if !ok {
		return v, h.noCluster(r.PathValue("name"))
	}
	v.Arrivals, v.Service = api.OrEmpty(v.Arrivals), api.OrEmpty(v.Service)
	v.Envoys, v.Endpoints = api.OrEmpty(v.Envoys), api.OrEmpty(v.Endpoints)
	v.PromptTokens, v.OutputTokens = c.Decision.Work.PromptTokens, c.Decision.Work.OutputTokens
	for i := range v.Endpoints {
		if k := indexOf(c.Endpoints, v.Endpoints[i].Address); k >= 0 {
			e := &c.Endpoints[k]
			v.Endpoints[i].Pod, v.Endpoints[i].CapacityShare = e.Pod, e.CapacityShare
			v.Endpoints[i].RelativeSpeed = e.RelativeSpeed
		}
	}
	return v, nil
}

func (h *handler) getExplanation(r *http.Request) (api.Explanation, error) {
	s := h.snapshot()
	c, ok := s.Cluster(r.PathValue("name"))
	if !ok {
		return api.Explanation{}, h.noCluster(r.PathValue("name"))
	}
	q := r.URL.Query()
	e, err := find(c.Endpoints, q.Get("endpoint"), c.Name)
	if err != nil {
		return api.Explanation{}, err
	}
	address := e.Address
	past, asked, err := parseAt(q, s.Seen.Now)
	if err != nil {
		return api.Explanation{}, err
	}
	working, kept, step, found := h.Recorder.Working(c.Name, asked, s.Seen.Now)
	out := api.Explanation{Cluster: c.Name, KeptSeconds: api.Seconds(kept), StepSeconds: api.Seconds(step)}
	if !past {
		i := indexOf(c.Endpoints, address)
		if i < 0 {
			return out, noEndpoint(address, c.Name)
		}
		out.At, out.Decision, out.Endpoint = c.Decision.At, c.Decision, c.Endpoints[i]
		out.Endpoint.Why = c.Working.Explain(address)
		return out, nil
	}
	if !found {
		return out, Missing(fmt.Errorf("no decision of that time is kept: they go back %s, since the start",
			conditions.FormatSeconds(kept.Seconds())))
	}
	decision, endpoint, found := working.Endpoint(address)
	if !found {
		return out, noEndpoint(address, c.Name+" at that time")
	}
	out.At, out.Decision, out.Endpoint = api.At(working.At()), decision, completePast(&c, endpoint, working)
	return out, nil
}

// completePast fills in what follows from a past decision.
func completePast(c *api.Cluster, e api.Endpoint, w api.Working) api.Endpoint {
	e.Inputs, e.Problems = api.OrEmpty(e.Inputs), []api.Problem{}
	e.Engine = c.Engine
	e.LoadPerSlot, e.State = conditions.LoadPerSlot(&e), conditions.EndpointState(&e)
	e.HeardSeconds = conditions.LastSeen(&e)
	e.CapacityShare = conditions.CapacityShare(&e, w.Capacity())
	return e
}
