package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	accessdatav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"steelyard/e2e/rig/grpctest"
	"steelyard/e2e/rig/xdstest"
)

// flood sends requests as fast as it can, on a stream of its own. next returns the names of a request, by its number,
// and whether it answers the last response. read: it reads the responses.
func flood(t *testing.T, address string, read bool, next func(i int) (names []string, answers bool)) (
	sent *atomic.Int64, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	client := discoveryv3.NewAggregatedDiscoveryServiceClient(grpctest.Connect(t, address))
	stream, err := client.StreamAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	var nonce atomic.Value
	nonce.Store("")
	sent = &atomic.Int64{}
	if read {
		work.Go(func() {
			for {
				var m discoveryv3.DiscoveryResponse
				if stream.RecvMsg(&m) != nil {
					return
				}
				nonce.Store(m.GetNonce())
			}
		})
	}
	work.Go(func() {
		for i := 0; ; i++ {
			names, answers := next(i)
			r := &discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "flood"}, TypeUrl: resource.EndpointType,
				ResourceNames: names, ResponseNonce: "stale"}
			if last := nonce.Load().(string); answers || i == 0 {
				r.ResponseNonce = last
			}
			if stream.Send(r) != nil {
				return
			}
			sent.Add(1)
		}
	})
	return sent, func() { cancel(); work.Wait() }
}

// TestAFloodOfRequestsLeavesAnEnvoyItsPushInterval: a client subscribes to everything and sends requests as fast as it
// can. Before this was limited, an Envoy's pushes fell from 63 to 4 in two seconds: its interval was that of a client
// with so many clusters.
func TestAFloodOfRequestsLeavesAnEnvoyItsPushInterval(t *testing.T) {
	const clusters, length = 60, 1500 * time.Millisecond
	var all []string
	var body strings.Builder
	body.WriteString("clusters:\n")
	for i := range clusters {
		all = append(all, fmt.Sprintf("c%d", i), fmt.Sprintf("c%d/failsafe", i), fmt.Sprintf("c%d/fallback", i))
		fmt.Fprintf(&body, "- name: c%d\n  warm_up: 0s\n  scrape: {disabled: true}\n  endpoints:\n    static:\n", i)
		for j := range 50 {
			fmt.Fprintf(&body, "    - {address: 10.%d.0.%d:80}\n", i, j+1)
		}
	}
	d, _ := serveLogged(t, parse(t, body.String()), slog.New(slog.DiscardHandler))
	const own = "c0/failsafe"
	c, err := xdstest.Dial(xdstest.Config{Address: d.XDSAddress(), NodeID: "envoy-1", Clusters: []string{own}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	eventually(t, "the Envoy has endpoints", func() error {
		if c.State().Received[own] == 0 {
			return errors.New("none yet")
		}
		return nil
	})
	log, err := accesslogv3.NewAccessLogServiceClient(grpctest.Connect(t, d.XDSAddress())).StreamAccessLogs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	// pushes returns how many the Envoy gets while its requests begin and end.
	pushes := func() int {
		t.Helper()
		before := c.State().Received[own]
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(length); time.Now().Before(end); n++ {
			<-tick.C
			kind := accessdatav3.AccessLogType_UpstreamPoolReady
			if n/25%2 == 1 {
				kind = accessdatav3.AccessLogType_UpstreamEnd
			}
			if err := log.Send(entry(fmt.Sprintf("10.0.0.%d", n%25+1), fmt.Sprint(n%25), kind)); err != nil {
				t.Fatal(err)
			}
		}
		return c.State().Received[own] - before
	}
	pushes() // the first use up what was saved
	alone := pushes()
	for name, tt := range map[string]struct {
		read bool
		next func(i int) ([]string, bool)
	}{
		"the same names again":        {true, func(int) ([]string, bool) { return all, false }},
		"all names and none in turns": {true, func(i int) ([]string, bool) { return all[:len(all)*((i+1)%2)], true }},
		"nothing is read":             {false, func(i int) ([]string, bool) { return all[:len(all)*((i+1)%2)], true }},
		"other names each time": {true, func(i int) ([]string, bool) {
			names := make([]string, 100)
			for j := range names {
				names[j] = fmt.Sprintf("x%d-%d", i, j)
			}
			return names, true
		}},
	} {
		// Other programs of the machine may slow both; a flood that is not limited takes nine of ten pushes each time.
		for try := 1; ; try++ {
			sent, stop := flood(t, d.XDSAddress(), tt.read, tt.next)
			flooded := pushes()
			v, _ := d.Cluster("c0")
			stop()
			t.Logf("%s: %d pushes in %v alone, %d with %d requests of the flood, %.0f ms apart at least", name, alone,
				length, flooded, sent.Load(), 1e3*v.MinIntervalSeconds.Or(-1))
			if interval := v.MinIntervalSeconds.Or(1); interval > 0.2 {
				t.Errorf("%s: pushes are %.3f s apart", name, interval)
			}
			if flooded >= alone*2/3 {
				break
			}
			if try == 3 {
				t.Errorf("%s: %d pushes during the flood, %d without it", name, flooded, alone)
				break
			}
			alone = pushes()
		}
	}
}
