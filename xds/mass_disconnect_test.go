package xds

import (
	"fmt"
	"testing"
	"time"

	"steelyard/internal/api"
)

const streamsPerEnvoy = 4

// crowd makes a tracker with that many streams, streamsPerEnvoy for each Envoy, and returns the peers.
func crowd(t testing.TB, streams int) (*tracker, []string) {
	tr := newTestTracker()
	now := time.Unix(1_700_000_000, 0)
	tr.now = func() time.Time { return now }
	peers := make([]string, streams/streamsPerEnvoy)
	for i := range peers {
		peers[i] = fmt.Sprintf("10.0.%d.%d:4711", i/256, i%256)
		for n := range streamsPerEnvoy {
			key := streamKey{id: int64(streamsPerEnvoy*i + n)}
			if err := tr.opened(t.Context(), key, TransportEDS, peers[i]); err != nil {
				t.Fatal(err)
			}
			if err := tr.requested(key, request{node: api.Node{NodeID: fmt.Sprint("envoy-", i)}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return tr, peers
}

// disconnectAll ends all connections, as a network failure does, and returns the time for each.
func disconnectAll(t testing.TB, streams int) time.Duration {
	tr, peers := crowd(t, streams)
	began := time.Now()
	for _, p := range peers {
		tr.connectionEnded(p, causeReset)
	}
	took := time.Since(began) / time.Duration(len(peers))
	if want := min(len(peers), maxGone); len(tr.vanished()) != want {
		t.Fatalf("%d Envoys vanished, want %d", len(tr.vanished()), want)
	}
	return took
}

func BenchmarkMassDisconnect(b *testing.B) {
	for _, streams := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(streams, " streams"), func(b *testing.B) {
			var sum time.Duration
			for range b.N {
				sum += disconnectAll(b, streams)
			}
			b.ReportMetric(float64(sum.Nanoseconds())/float64(b.N), "ns/connection")
		})
	}
}

// TestTheCostOfAnEndedConnectionDoesNotGrowWithTheStreamsOfOthers: every stream needs the lock that is held
// meanwhile, and a network failure ends all connections at once.
func TestTheCostOfAnEndedConnectionDoesNotGrowWithTheStreamsOfOthers(t *testing.T) {
	best := func(streams int) time.Duration {
		least := disconnectAll(t, streams)
		for range 4 {
			least = min(least, disconnectAll(t, streams))
		}
		return least
	}
	few, many := best(1000), best(10_000)
	if ratio := float64(many) / float64(few); ratio > 5 {
		t.Errorf("%v for each connection of %d streams and %v of %d: %.1f times, want about the same",
			few, 1000, many, 10_000, ratio)
	}
}
