package admin

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"sync"

	"steelyard/controlplane/admin/conditions"
	"steelyard/controlplane/admin/current"
	"steelyard/controlplane/admin/history"
	"steelyard/internal/api"
)

// A topic is what a stream is about.
type topic struct {
	cluster, endpoint string // empty: none
	matrix            bool
}

// frames has the encoder of the latest second, which all streams share.
type frames struct {
	mu     sync.Mutex
	latest *encoder
}

func (f *frames) of(m *history.Moment, s history.Source, past *history.History) *encoder {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.latest == nil || f.latest.Moment != m {
		f.latest = &encoder{Moment: m, source: s, history: past, parts: map[partKey][]byte{}}
	}
	return f.latest
}

// An encoder makes the frames of one second, when streams ask for them: what these have in common is encoded once. It
// is safe for concurrent use.
type encoder struct {
	*history.Moment
	source  history.Source
	history *history.History

	mu    sync.Mutex
	parts map[partKey][]byte
}

type partKey struct {
	kind, cluster, endpoint string
	order                   uint64 // of the addresses, where the part is about their columns
}

// part encodes a part once.
func (e *encoder) part(k partKey, value func() any) []byte {
	body, ok := e.parts[k]
	if !ok {
		var err error
		if body, err = json.Marshal(value()); err != nil {
			body = []byte("null")
		}
		e.parts[k] = body
	}
	return body
}

// frame puts the parts together, in the form of type frame. known is the order of the addresses that the stream has,
// and order that of those in the frame, or of those before.
func (e *encoder) frame(t topic, known uint64) (body []byte, order uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	order = known
	none := []byte("null")
	fleet := e.part(partKey{kind: "fleet"}, func() any { return e.Fleet })
	cluster, endpoint, matrix := none, none, none
	if c := e.cluster(t.cluster); c != nil {
		now := e.history.Latest(c.Name)
		// A row may be added while streams ask for the frames of a second.
		key := partKey{kind: "cluster", cluster: c.Name, order: now.Order}
		if now.Order != 0 && now.Order != known {
			key.kind, order = "cluster with addresses", now.Order
		}
		cluster = e.part(key, func() any { return e.clusterFrame(c, now, key.kind != "cluster") })
		if i := indexOf(c.Endpoints, t.endpoint); i >= 0 {
			key := partKey{kind: "endpoint", cluster: c.Name, endpoint: t.endpoint}
			endpoint = e.part(key, func() any { return e.endpoint(c, i) })
		}
		if t.matrix {
			matrix = e.part(partKey{kind: "matrix", cluster: c.Name}, func() any { return e.matrix(c.Name) })
		}
	}
	body = fmt.Appendf(nil, "id: %d\nevent: frame\ndata: {\"at\":%s,\"fleet\":%s,\"cluster\":%s,\"endpoint\":%s,"+
		"\"matrix\":%s}\n\n", e.Now.Unix(), e.part(partKey{kind: "at"}, func() any { return api.At(e.Now) }), fleet,
		cluster, endpoint, matrix)
	return body, order
}

func (e *encoder) cluster(name string) *api.Cluster {
	for i := range e.Clusters {
		if name != "" && e.Clusters[i].Name == name {
			return &e.Clusters[i]
		}
	}
	return nil
}

// clusterFrame is a cluster in columns.
func (e *encoder) clusterFrame(c *api.Cluster, now history.Columns, withAddresses bool) api.ClusterFrame {
	whole := current.CompleteCluster(&e.Observation, *c, e.Moment)
	whole.Endpoints = nil
	f := api.ClusterFrame{Cluster: whole, Fields: []string{"share", "served", "load", "in_flight", "latency", "state"},
		Order: now.Order, Columns: base64.StdEncoding.EncodeToString(now.Data)}
	if withAddresses {
		f.Addresses = now.Addresses
	}
	return f
}

func (e *encoder) endpoint(c *api.Cluster, i int) api.Endpoint {
	one := c.Endpoints[i]
	current.CompleteEndpoint(&e.Observation, c, &one, conditions.CapacityOf(c.Endpoints), e.Measures[c.Name])
	one.Why = c.Working.Explain(one.Address)
	return one
}

func (e *encoder) matrix(cluster string) any {
	m, ok := e.source.Matrix(cluster)
	if !ok {
		return nil
	}
	return current.CompleteMatrix(m, e.Now)
}
