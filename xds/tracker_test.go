package xds

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"steelyard/internal/api"
	"steelyard/internal/envoyid"
	"steelyard/xds/port"
)

// A clockedTracker is a tracker with a clock of its own. Its methods call it as delta streams do.
type clockedTracker struct {
	*tracker
	t     *testing.T
	clock time.Time
}

func newClockedTracker(t *testing.T) *clockedTracker {
	b := &clockedTracker{t: t, clock: time.Unix(1_700_000_000, 0)}
	b.tracker = newTestTracker()
	b.tracker.now = func() time.Time { return b.clock }
	return b
}

func newTestTracker() *tracker {
	return newTracker("p.", time.Now, slog.New(slog.DiscardHandler), noObserver{}, port.NewQuota(DefaultNames))
}

// open opens a stream that subscribes to llama.
func (b *clockedTracker) open(id int64) streamKey {
	b.t.Helper()
	key := streamKey{delta: true, id: id}
	if err := b.opened(b.t.Context(), key, TransportEDSDelta, "10.0.0.1:1"); err != nil {
		b.t.Fatal(err)
	}
	b.request(key, request{node: api.Node{NodeID: fmt.Sprint("envoy-", id)}, subscribe: []string{"llama"}})
	return key
}

func (b *clockedTracker) request(key streamKey, r request) {
	b.t.Helper()
	r.typeURL = resource.EndpointType
	if err := b.requested(key, r); err != nil {
		b.t.Fatal(err)
	}
}

func (b *clockedTracker) send(key streamKey, nonce string, seq uint64) {
	b.sent(key, nonce, fmt.Sprint("p.", seq), []part{{cluster: "llama"}})
}

func TestOnlyTheNewestUnansweredResponsesAreRemembered(t *testing.T) {
	b := newClockedTracker(t)
	key := b.open(1)
	b.published("llama", 1, b.clock, 1)
	const sent = 3 * maxPending
	for n := range sent {
		b.send(key, fmt.Sprint("nonce-", n), 1)
	}
	pending := b.streams[key].pending
	if len(pending) != maxPending {
		t.Fatalf("%d responses are remembered, want %d", len(pending), maxPending)
	}
	for i, p := range pending {
		if want := fmt.Sprint("nonce-", sent-maxPending+i); p.nonce != want {
			t.Errorf("response %d is %s, want %s", i, p.nonce, want)
		}
	}
	b.request(key, request{nonce: fmt.Sprint("nonce-", sent-maxPending-1)})
	b.request(key, request{nonce: fmt.Sprint("nonce-", sent-maxPending)})
	if got := b.clients()[0].Subscriptions[0].Acks; got != 1 {
		t.Errorf("%d ACKs, want that of the oldest response that is remembered", got)
	}
}

// One slow Envoy among many changes the cluster's delay in proportion to its share of them, whether they subscribed
// before the cluster was served or after; among a few, by an eighth.
func TestAckDelayIsSmoothedOverTheSubscribers(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after int // streams that come before the first push, and after it
		gone          int // of those
		unsubscribed  int // of those
		want          time.Duration
	}{
		{"a few", 2, 1, 0, 0, 28 * time.Second},
		{"as many as the least weight is for", 4, 4, 0, 0, 28 * time.Second},
		{"many, there before", 16, 0, 0, 0, 30 * time.Second},
		{"many, come later", 1, 15, 0, 0, 30 * time.Second},
		{"some have gone", 10, 10, 4, 0, 30 * time.Second},
		{"some want it no more", 10, 10, 0, 4, 30 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newClockedTracker(t)
			var keys []streamKey
			for range c.before {
				keys = append(keys, b.open(int64(len(keys))))
			}
			b.published("llama", 1, b.clock, 1)
			for range c.after {
				keys = append(keys, b.open(int64(len(keys))))
			}
			for range c.gone {
				b.closed(keys[len(keys)-1])
				keys = keys[:len(keys)-1]
			}
			for i := range c.unsubscribed {
				b.request(keys[len(keys)-1-i], request{unsubscribe: []string{"llama"}})
			}
			b.send(keys[0], "slow", 1)
			b.clock = b.clock.Add(32 * time.Second)
			b.request(keys[0], request{nonce: "slow"})
			b.published("llama", 2, b.clock, 1)
			b.send(keys[0], "quick", 2)
			b.request(keys[0], request{nonce: "quick"})
			if got := b.ackDelay("llama"); got != c.want {
				t.Errorf("smoothed delay %v after 32s and 0s, want %v", got, c.want)
			}
		})
	}
}

func TestAStreamWatchesForTheNodeOfItsFirstRequest(t *testing.T) {
	b := newClockedTracker(t)
	key := streamKey{delta: true, id: 1}
	for peer, host := range map[string]string{"[fd00::1]:4711": "fd00::1", "10.0.0.1:4711": "10.0.0.1",
		"/run/envoy.sock": "/run/envoy.sock"} {
		if err := b.opened(t.Context(), key, TransportEDSDelta, peer); err != nil {
			t.Fatal(err)
		}
		b.request(key, request{node: api.Node{NodeID: "envoy-1"}, subscribe: []string{"llama", "llama/failsafe"}})
		b.request(key, request{node: api.Node{NodeID: "envoy-2"}}) // the first holds
		if got := b.watching("llama"); len(got) != 1 || got[0] != (envoyid.ID{NodeID: "envoy-1", Host: host}) {
			t.Errorf("%v watch, want envoy-1 at %s", got, host)
		}
		b.closed(key)
		if got := b.watches.clusters; len(got) != 0 {
			t.Errorf("%v is left of a stream that ended", got)
		}
	}
}
