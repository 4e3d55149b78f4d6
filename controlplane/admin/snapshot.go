package admin

import (
	"cmp"
	"slices"

	"steelyard/controlplane/view"
)

// A snapshot asks the Source and completes its answers: counts, problems,
// empty lists instead of null. It copies what it changes.
type snapshot struct {
	source  Source
	version string
	refused RefusedRequests
	access  AdminAccess
	moment  *moment // the latest of the Recorder; nil before the first
	// seen is what problems are found in: the connected Envoys, and what the Recorder keeps of the past. The
	// methods add what they read.
	seen observation
}

func (h *handler) snapshot() *snapshot {
	s := &snapshot{source: h.Source, version: h.Version, refused: h.hosts.totals(), access: h.Access.status(),
		moment: h.Recorder.latest.Load(),
		seen:   observation{now: h.Now(), stuck: h.Stuck(), clients: h.Source.Clients()}}
	if m := s.moment; m != nil {
		s.seen.left, s.seen.refusing = m.left, m.refusing
	}
	return s
}

// clusters returns all clusters, completed.
func (s *snapshot) clusters() []view.Cluster {
	clusters := slices.Clone(s.source.Clusters())
	for i := range clusters {
		clusters[i] = s.complete(clusters[i])
	}
	slices.SortFunc(clusters, func(a, b view.Cluster) int { return cmp.Compare(a.Name, b.Name) })
	return clusters
}

// cluster returns one cluster, completed.
func (s *snapshot) cluster(name string) (view.Cluster, bool) {
	c, ok := s.source.Cluster(name)
	if !ok {
		return view.Cluster{}, false
	}
	return s.complete(c), true
}

func (s *snapshot) complete(c view.Cluster) view.Cluster {
	c.Endpoints = slices.Clone(orEmpty(c.Endpoints))
	c = completeCluster(&s.seen, c, s.moment)
	m, capacity := s.moment.measureOf(c.Name), capacityOf(c.Endpoints)
	for i := range c.Endpoints {
		completeEndpoint(&s.seen, &c, &c.Endpoints[i], capacity, m)
	}
	return c
}

// capacityOf is the capacity of a pool.
func capacityOf(endpoints []view.Endpoint) (sum float64) {
	for i := range endpoints {
		sum += endpoints[i].Capacity.Or(0)
	}
	return sum
}

// completeEndpoint fills in what follows from the rest, and what was measured; capacity is that of the pool. Why is for
// the few that are shown.
func completeEndpoint(p *observation, c *view.Cluster, e *view.Endpoint, capacity float64, m *measure) {
	e.Inputs = orEmpty(e.Inputs)
	e.LoadPerSlot, e.State, e.HeardSeconds = loadPerSlot(e), endpointState(e), lastSeen(e)
	e.Problems = endpointProblems(p, c, e)
	found := m.of(e.Address)
	e.ServedShare10s, e.ServedShare1m, e.ServedRequests1m = found.served10s, found.served1m, found.requests1m
	e.UseWithout = found.useWithout
	e.CapacityShare = capacityShare(e, capacity)
}

// capacityShare is a part of the capacity, by the decision that the endpoint is shown with: one of another moment would
// differ from the sentence about it in the last digit.
func capacityShare(e *view.Endpoint, capacity float64) view.Number {
	if n, known := e.Capacity.Value(); known {
		return part(n, capacity)
	}
	return view.Number{}
}

// completeCluster does the same for a cluster, but for its endpoints.
func completeCluster(p *observation, c view.Cluster, m *moment) view.Cluster {
	c.Sources = slices.Clone(orEmpty(c.Sources))
	for i := range c.Sources {
		c.Sources[i].Envoys.Missing = orEmpty(c.Sources[i].Envoys.Missing)
		c.Sources[i].Omitted.First = orEmpty(c.Sources[i].Omitted.First)
	}
	c.Disputes = slices.Clone(orEmpty(c.Disputes))
	for i := range c.Disputes {
		c.Disputes[i].Endpoints = orEmpty(c.Disputes[i].Endpoints)
	}
	c.Terminating = orEmpty(c.Terminating)
	c.State, c.Use.IfLost = view.StateOK, []view.IfLost{}
	if found := m.measureOf(c.Name); found != nil {
		c.Served, c.Use = found.served, found.use
	}
	if m != nil {
		c.State = worstState(clusterIncidents(m.incidents, c.Name))
	}
	c.Counts = count(c.Endpoints)
	c.Counts.Terminating = len(c.Terminating)
	c.Problems = clusterProblems(p, &c)
	return c
}

// measureOf is what was measured of a cluster; nil where there is nothing.
func (m *moment) measureOf(cluster string) *measure {
	if m == nil {
		return nil
	}
	return m.measures[cluster]
}

// clients returns all clients, completed, given the clusters there are.
func (s *snapshot) clients(clusters []view.Cluster) []Client {
	s.seen.clusters = clusters
	clients := slices.Clone(orEmpty(s.seen.clients))
	for i := range clients {
		c := &clients[i]
		c.Subscriptions = orEmpty(c.Subscriptions)
		c.Signals = c.Signals.complete(s.seen.now)
		c.State = clientState(c, s.seen.now)
		c.Problems = clientProblems(&s.seen, c)
	}
	return clients
}

// status returns the status of the process, given its clusters.
func (s *snapshot) status(clusters []view.Cluster) Status {
	status, now := s.source.Status(), s.seen.now
	status.Version = s.version
	status.Now = view.At(now)
	status.UptimeSeconds = status.StartedAt.Age(now)
	status.Signals = status.Signals.complete()
	status.Ready = ready(status, clusters)
	status.RefusedRequests, status.AdminAccess = s.refused, s.access
	status.Replicas, status.Pickers = completeReplicas(status.Replicas, now), status.Pickers.complete()
	status.RefusedHandshakes, status.GoneEnvoys = orEmpty(status.RefusedHandshakes), orEmpty(status.GoneEnvoys)
	status.XDSAccess.Denied = orEmpty(status.XDSAccess.Denied)
	status.Certificates = currentCertificates(status.Certificates, now)
	s.seen.status = status
	status.Problems = statusProblems(&s.seen)
	status.Certificates = limit(status.Certificates, maxCertificates)
	return status
}

// ready reports whether the process can serve new Envoys: it has a config, is not about to stop, and every cluster has
// usable weights. A cluster that was added after that, or whose discovery does not answer, is no reason to deny them
// the others.
func ready(s Status, clusters []view.Cluster) bool {
	if s.Draining || s.ConfigGeneration == 0 {
		return false
	}
	return s.BeenReady || !slices.ContainsFunc(clusters, func(c view.Cluster) bool { return !c.Ready })
}

func count(endpoints []view.Endpoint) view.EndpointCounts {
	n := view.EndpointCounts{Total: len(endpoints)}
	for i := range endpoints {
		e := &endpoints[i]
		n.Overloaded += boolToInt(e.Overloaded)
		n.Stale += boolToInt(e.Reason == reasonDecay || e.Reason == reasonNeutral)
		n.New += boolToInt(e.Reason == reasonBlackout || e.Reason == reasonRamp)
		n.Failing += boolToInt(fails(e))
	}
	return n
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// orEmpty keeps null out of the JSON where a list is meant.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// loadPerSlot is how full an endpoint is: above 1, requests wait. An engine has no slots; there it is the work in mean
// requests.
func loadPerSlot(e *view.Endpoint) view.Number {
	if _, byWork := e.Work.Requests.Value(); byWork {
		return e.Work.Requests
	}
	load, okLoad := e.Load.Value()
	slots, okSlots := e.Slots.Value()
	if !okLoad || !okSlots || slots <= 0 {
		return view.Number{}
	}
	return view.Num(load / slots)
}
