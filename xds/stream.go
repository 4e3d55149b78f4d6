package xds

import (
	"cmp"
	"context"
	"time"

	"steelyard/internal/api"
	"steelyard/internal/envoyid"
)

// streamKey identifies a stream: go-control-plane numbers the two protocols apart.
type streamKey struct {
	delta bool
	id    int64
}

// A stream is one open stream.
type stream struct {
	ctx           context.Context // done when the Envoy has ended the stream, or the connection has ended
	node          api.Node
	transport     string
	peer, host    string // host is peer without its port
	certificate   string // the names in that of the client, empty without one
	connected     time.Time
	subscriptions map[string]*subscription
	held          map[string]struct{} // type URLs
	pending       []response          // sent and not answered, oldest first
	pace          *pace               // nil until the stream has named its node
	requests      uint64
	changes       int // of subscriptions, by the current request
}

// A streamIndex finds streams by one of their properties.
type streamIndex[K comparable] map[K]map[*stream]struct{}

func (x streamIndex[K]) add(key K, st *stream) {
	if x[key] == nil {
		x[key] = make(map[*stream]struct{}, 1)
	}
	x[key][st] = struct{}{}
}

func (x streamIndex[K]) remove(key K, st *stream) {
	delete(x[key], st)
	if len(x[key]) == 0 {
		delete(x, key)
	}
}

// A subscription is one cluster on one stream.
type subscription struct {
	since    time.Time
	ackDelay time.Duration // smoothed; zero if there was no ACK
	api.Subscription
}

// A response is an unanswered one.
type response struct {
	nonce string
	at    time.Time
	parts []part
}

// A part is one cluster in a response.
type part struct {
	cluster   string
	version   string    // of the cluster, not of the response
	published time.Time // when version was pushed, zero when that is no longer known
}

// A request is what the tracker needs of one, in either protocol.
type request struct {
	node                   api.Node
	typeURL                string
	nonce                  string
	refused                bool
	message                string // of the refusal
	subscribe, unsubscribe []string
	replace                bool // subscribe is the whole list (state of the world)
}

// An envoy is one whatever address it connects from. Another certificate is another Envoy, even with the same node id.
type envoy struct{ node, certificate string }

func (st *stream) envoy() envoy { return envoy{st.node.NodeID, st.certificate} }

// watcher returns the Envoy of the stream.
func (st *stream) watcher() envoyid.ID {
	return envoyid.ID{NodeID: st.node.NodeID, Host: st.host, Certificate: st.certificate}
}

// hostOf returns the IP address of a peer, or the peer itself where that has none: it is no TCP connection.
func hostOf(peer string) string { return cmp.Or(envoyid.HostOf(peer), peer) }
