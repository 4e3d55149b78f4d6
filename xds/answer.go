package xds

import (
	"log/slog"
	"slices"
	"time"

	"steelyard/internal/api"
)

// clientSmoothing is the weight of the newest ACK in a client's smoothed delay.
const clientSmoothing = 0.2

// An answer is an Envoy's ACK or NACK of a response, for the observer, and the names that it is the first to subscribe
// to. The tracker reports both after it has released its lock.
type answer struct {
	acked      []ack
	nacked     []string // clusters
	firstNames []string
}

type ack struct {
	cluster string
	delay   time.Duration
}

func (a answer) report(o Observer) {
	for _, p := range a.acked {
		o.Acked(p.cluster, p.delay)
	}
	for _, cluster := range a.nacked {
		o.Nacked(cluster)
	}
}

// answer finds the response that a request acknowledges or refuses, if any.
func (t *tracker) answer(st *stream, r request, a *answer) {
	i := slices.IndexFunc(st.pending, func(p response) bool { return p.nonce == r.nonce })
	if r.nonce == "" || i < 0 {
		return
	}
	sent := st.pending[i]
	st.pending = slices.Delete(st.pending, 0, i+1) // answers come in order: no earlier response gets one now
	now := t.now()
	for _, p := range sent.parts {
		if r.refused {
			a.nacked = append(a.nacked, p.cluster)
			t.nack(st, p, refusal(r.message), now)
		} else {
			t.ack(st, p, sent.at, a, now)
		}
	}
}

// ack records an ACK. The delay starts at the push, so that it includes the time for which a slow Envoy made the
// assignment wait; on a stream that subscribed after the push it starts at the subscription.
func (t *tracker) ack(st *stream, p part, sentAt time.Time, a *answer, now time.Time) {
	start := p.published
	sub := st.subscriptions[p.cluster]
	if sub != nil && sub.since.After(start) {
		start = sub.since
	}
	if p.published.IsZero() {
		start = sentAt
	}
	delay := max(0, now.Sub(start))
	a.acked = append(a.acked, ack{p.cluster, delay})
	t.clusters[p.cluster].acked(delay, t.watches.names[p.cluster])
	if sub == nil {
		return
	}
	if sub.Nack.Current {
		t.mu.logLater(slog.LevelInfo, "envoy accepts the assignment again",
			"cluster", p.cluster, "node", st.node.NodeID, "peer", st.peer, "version", p.version)
	}
	sub.Nack.Current = false
	sub.Acks++
	sub.VersionAcked, sub.LastAck = p.version, api.At(now)
	sub.ackDelay = smooth(sub.ackDelay, delay, clientSmoothing)
	sub.AckDelaySeconds = api.Seconds(sub.ackDelay)
}

// nack records a NACK. It covers the whole response, so it marks every cluster in it.
func (t *tracker) nack(st *stream, p part, message string, now time.Time) {
	level := slog.LevelWarn
	if sub := st.subscriptions[p.cluster]; sub != nil {
		if sub.Nack.Current {
			level = slog.LevelDebug // already logged: the state has not changed
		}
		sub.Nacks++
		sub.Nack = api.Nack{Message: message, At: api.At(now), Current: true}
	}
	t.mu.logLater(level, "envoy refuses the assignment",
		"cluster", p.cluster, "node", st.node.NodeID, "peer", st.peer, "version", p.version, "message", message)
}
