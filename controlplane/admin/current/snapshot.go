package current

import (
	"cmp"
	"slices"
	"time"

	"steelyard/controlplane/admin/conditions"
	"steelyard/controlplane/admin/history"
	"steelyard/internal/api"
)

// A Snapshot asks the Source and completes its answers: counts, problems,
// empty lists instead of null. It copies what it changes.
type Snapshot struct {
	Source  history.Source
	Version string
	Refused api.RefusedRequests
	Access  api.AdminAccess
	Moment  *history.Moment // the latest of the Recorder; nil before the first
	// Seen is what problems are found in: the connected Envoys, and what the Recorder keeps of the past. The
	// methods add what they read.
	Seen conditions.Observation
}

// Clusters returns all clusters, completed.
func (s *Snapshot) Clusters() []api.Cluster {
	clusters := slices.Clone(s.Source.Clusters())
	for i := range clusters {
		clusters[i] = s.complete(clusters[i])
	}
	slices.SortFunc(clusters, func(a, b api.Cluster) int { return cmp.Compare(a.Name, b.Name) })
	return clusters
}

// Cluster returns one cluster, completed.
func (s *Snapshot) Cluster(name string) (api.Cluster, bool) {
	c, ok := s.Source.Cluster(name)
	if !ok {
		return api.Cluster{}, false
	}
	return s.complete(c), true
}

func (s *Snapshot) complete(c api.Cluster) api.Cluster {
	c.Endpoints = slices.Clone(api.OrEmpty(c.Endpoints))
	c = CompleteCluster(&s.Seen, c, s.Moment)
	m, capacity := s.Moment.MeasureOf(c.Name), conditions.CapacityOf(c.Endpoints)
	for i := range c.Endpoints {
		CompleteEndpoint(&s.Seen, &c, &c.Endpoints[i], capacity, m)
	}
	return c
}

// CompleteEndpoint fills in what follows from the rest, and what was measured; capacity is that of the pool. Why is for
// the few that are shown.
func CompleteEndpoint(
	p *conditions.Observation, c *api.Cluster, e *api.Endpoint, capacity float64, m *history.Measure,
) {
	e.Inputs = api.OrEmpty(e.Inputs)
	e.LoadPerSlot, e.State = conditions.LoadPerSlot(e), conditions.EndpointState(e)
	e.HeardSeconds = conditions.LastSeen(e)
	e.Problems = conditions.EndpointProblems(p, c, e)
	found := m.Of(e.Address)
	e.ServedShare10s, e.ServedShare1m, e.ServedRequests1m = found.Served10s, found.Served1m, found.Requests1m
	e.UseWithout = found.UseWithout
	e.CapacityShare = conditions.CapacityShare(e, capacity)
}

// CompleteCluster does the same for a cluster, but for its endpoints.
func CompleteCluster(p *conditions.Observation, c api.Cluster, m *history.Moment) api.Cluster {
	c.Sources = slices.Clone(api.OrEmpty(c.Sources))
	for i := range c.Sources {
		c.Sources[i].Envoys.Missing = api.OrEmpty(c.Sources[i].Envoys.Missing)
		c.Sources[i].Omitted.First = api.OrEmpty(c.Sources[i].Omitted.First)
	}
	c.Disputes = slices.Clone(api.OrEmpty(c.Disputes))
	for i := range c.Disputes {
		c.Disputes[i].Endpoints = api.OrEmpty(c.Disputes[i].Endpoints)
	}
	c.Terminating = api.OrEmpty(c.Terminating)
	c.State, c.Use.IfLost = api.StateOK, []api.IfLost{}
	if found := m.MeasureOf(c.Name); found != nil {
		c.Served, c.Use, c.ShadowEnvoys = found.Served, found.Use, found.ShadowEnvoys
	}
	if m != nil {
		c.State = conditions.WorstState(conditions.ClusterIncidents(m.Incidents, c.Name))
	}
	c.Counts = conditions.CountEndpoints(c.Endpoints)
	c.Counts.Terminating = len(c.Terminating)
	c.Problems = conditions.ClusterProblems(p, &c)
	return c
}

// Clients returns all clients, completed, given the clusters there are.
func (s *Snapshot) Clients(clusters []api.Cluster) []api.Client {
	s.Seen.Clusters = clusters
	clients := slices.Clone(api.OrEmpty(s.Seen.Clients))
	for i := range clients {
		c := &clients[i]
		c.Subscriptions = api.OrEmpty(c.Subscriptions)
		c.Signals = c.Signals.Complete(s.Seen.Now)
		c.State = conditions.ClientState(c, s.Seen.Now)
		c.Problems = conditions.ClientProblems(&s.Seen, c)
	}
	return clients
}

// Elsewhere returns the Envoys and pickers of the other replicas, of each kind the first.
func (s *Snapshot) Elsewhere() []api.OtherEnvoy {
	out, counts := []api.OtherEnvoy{}, map[api.FollowerKind]int{}
	for _, e := range s.Seen.Elsewhere {
		if counts[e.Kind]++; counts[e.Kind] <= maxElsewhere {
			e.Clusters = api.OrEmpty(e.Clusters)
			out = append(out, e)
		}
	}
	return out
}

// maxElsewhere bounds the Envoys and the pickers of other replicas in an answer.
const maxElsewhere = 2000

// Status returns the status of the process, given its clusters.
func (s *Snapshot) Status(clusters []api.Cluster) api.Status {
	status, now := s.Source.Status(), s.Seen.Now
	status.Version = s.Version
	status.Now = api.At(now)
	status.UptimeSeconds = status.StartedAt.Age(now)
	status.Signals = status.Signals.Complete()
	status.Ready = conditions.Ready(status, clusters)
	status.RefusedRequests, status.AdminAccess = s.Refused, s.Access
	status.EnvoyGateway, status.Pools = status.EnvoyGateway.Complete(), status.Pools.Complete()
	status.Replicas, status.Pickers = CompleteReplicas(status.Replicas, now), status.Pickers.Complete()
	status.RefusedHandshakes, status.GoneEnvoys = api.OrEmpty(status.RefusedHandshakes), api.OrEmpty(status.GoneEnvoys)
	status.XDSAccess.Denied = api.OrEmpty(status.XDSAccess.Denied)
	status.Pods.Wedged = api.OrEmpty(status.Pods.Wedged)
	status.Certificates = conditions.CurrentCertificates(status.Certificates, now)
	s.Seen.Status = status
	status.Problems = conditions.StatusProblems(&s.Seen)
	status.Certificates = api.Limit(status.Certificates, conditions.MaxCertificates)
	return status
}

// CompleteReplicas works out what follows from the rest.
func CompleteReplicas(r api.Replicas, now time.Time) api.Replicas {
	others := make([]api.Replica, len(r.Others))
	for i, o := range r.Others {
		o.AgeSeconds = o.LastMessage.Age(now)
		others[i] = o
	}
	r.Others = others
	return r
}

// matrixNumbers bounds a matrix.
const matrixNumbers = 250_000

// CompleteMatrix sorts a matrix, adds it up, and cuts it to what an answer has room for.
func CompleteMatrix(m api.Matrix, now time.Time) api.Matrix {
	m.At, m.Envoys = api.At(now), slices.Clone(api.OrEmpty(m.Envoys))
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
	slices.SortStableFunc(m.Envoys, func(a, b api.MatrixRow) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.NodeID, b.NodeID), cmp.Compare(a.Host, b.Host))
	})
	rows := max(1, matrixNumbers/max(1, len(m.Endpoints)))
	m.EnvoysLeftOut = max(0, len(m.Envoys)-rows)
	m.Envoys = api.Limit(m.Envoys, rows)
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
