package faults

import (
	"fmt"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/testbed"
	"steelyard/internal/api"
)

// stopLimit bounds the time that the process takes to end, whatever its peers do.
const stopLimit = 1500 * time.Millisecond

// frozen waits until an Envoy that is paused has not answered for longer than Steelyard waits.
func (f *fleet) frozen(node string) {
	f.T.Helper()
	f.Eventually(node+" is frozen", func() error {
		clients, err := f.Clients()
		if err != nil {
			return err
		}
		for _, c := range clients {
			for _, s := range c.Subscriptions {
				if c.NodeID == node && !s.InSync && time.Since(s.LastSent.Time) > 600*time.Millisecond {
					return nil
				}
			}
		}
		return fmt.Errorf("it answers")
	})
}

func (f *fleet) stopWithin(limit time.Duration) {
	f.T.Helper()
	began := time.Now()
	if err := f.Control.Stop(); err != nil {
		f.T.Error(err)
	}
	took := time.Since(began)
	f.T.Logf("it took %v", took)
	if took > limit {
		f.T.Errorf("it took %v to end, want at most %v", took, limit)
	}
	if err := f.Control.Wait(f.T.Context()); err != nil {
		f.T.Errorf("it ended with %v, want exit status 0", err)
	}
}

// port returns the xDS port as the admin API shows it.
func (f *fleet) port() (api.Port, error) {
	var s api.Status
	err := f.Get("/api/v1/status", &s)
	return s.XDSPort, err
}

// taken waits until the server has accepted this number of connections and streams.
func (f *fleet) taken(connections, streams int) {
	f.T.Helper()
	f.Eventually("the connections are accepted", func() error {
		p, err := f.port()
		if err == nil && (p.Connections.Used < connections || p.Streams.Used < streams) {
			err = fmt.Errorf("%d connections and %d streams", p.Connections.Used, p.Streams.Used)
		}
		return err
	})
}

func TestSIGTERMEndsTheProcessWhateverPeersDo(t *testing.T) {
	pool := testbed.Pool(t, 2)
	f := start(t, testbed.Plan{Servers: pool, Envoys: 2})
	for i, tt := range []struct {
		name  string
		peers func(*fleet)
		limit time.Duration
	}{
		{"all Envoys answer", func(*fleet) {}, time.Second},
		{"connections that say nothing", connectSilently, stopLimit},
		{"clients that do not read", subscribeWithoutReading, stopLimit},
		{"clients that open a call and send nothing", callAndSendNothing, stopLimit},
		{"readers of the admin API that say nothing", readSilently, stopLimit},
		{"a frozen Envoy", freezeOne, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f.T = t
			f.Eventually("every Envoy is in sync", f.allInSync)
			tt.peers(f)
			f.stopWithin(tt.limit)
		})
		f.T = t
		f.Control = f.StartControl(fmt.Sprint("steelyard-", i+2))
	}
}

func connectSilently(f *fleet) {
	for range 50 {
		connect(f.T, loopback, f.XDS)
	}
	f.taken(50, 0)
}

func subscribeWithoutReading(f *fleet) {
	request := &discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "stranger"},
		ResourceNames: []string{testbed.Cluster}}
	for range 50 {
		if err := intrude(f.T, loopback, f.XDS).call(streamEndpoints, request); err != nil {
			f.T.Fatal(err)
		}
	}
	f.taken(50, 50)
}

func callAndSendNothing(f *fleet) {
	methods := []string{fetchEndpoints, fetchRuntime, streamEndpoints, deltaEndpoints, streamAggregated, streamRuntime,
		streamAccessLogs, streamLoadStats}
	for _, method := range methods {
		if err := intrude(f.T, loopback, f.XDS).call(method); err != nil {
			f.T.Fatal(err)
		}
	}
	f.taken(len(methods), len(methods)-2)
}

func readSilently(f *fleet) {
	for range 20 {
		connect(f.T, loopback, f.Admin)
		half := connect(f.T, loopback, f.Admin)
		if _, err := fmt.Fprint(half, "GET /metrics HTTP/1.1\r\nHost: "); err != nil {
			f.T.Fatal(err)
		}
	}
	if _, err := f.port(); err != nil { // over a connection that comes after those
		f.T.Fatal(err)
	}
}

func freezeOne(f *fleet) {
	if err := f.Envoys[1].Pause(); err != nil {
		f.T.Fatal(err)
	}
	f.frozen("envoy-1")
}

// TestARestartWithAFrozenEnvoyIsQuickForTheOthers: they get the last push of the old process, which avoids no endpoint,
// and soon have weights of the new one. No request fails.
func TestARestartWithAFrozenEnvoyIsQuickForTheOthers(t *testing.T) {
	// Wide enough that the requests which an avoided server gets are served.
	pool := testbed.Pool(t, 3)
	f := start(t, testbed.Plan{Servers: pool, Envoys: 3})
	busy := pool[0].Address()
	testbed.Flood(t, pool[0], 500)
	f.AvoidsEverywhere(busy)
	if err := f.Envoys[2].Pause(); err != nil {
		t.Fatal(err)
	}
	f.frozen("envoy-2")
	f.URLs, f.Envoys = f.URLs[:2], f.Envoys[:2]
	traffic := f.Send(load.Plan{Rate: 100, Work: load.Work{Mean: 5 * time.Millisecond}, Seed: 4})

	began := time.Now()
	f.stopWithin(time.Second)
	for i := range f.Envoys {
		if hosts := f.Hosts(i); testbed.Avoided(hosts, busy) {
			t.Errorf("envoy %d has not got the last push, which avoids no endpoint: %v", i, hosts)
		}
	}
	f.Control = f.StartControl("steelyard-2")
	f.Everywhere("the busy server is avoided again",
		func(hosts map[string]proc.Host) bool { return testbed.Avoided(hosts, busy) })
	took := time.Since(began)
	t.Logf("new weights %v after SIGTERM", took)
	if took > stopLimit {
		t.Errorf("the others have new weights %v after SIGTERM, want at most %v", took, stopLimit)
	}
	if requests, failed := traffic.Stop(t); failed != 0 || requests == 0 {
		t.Errorf("%d of %d requests failed", failed, requests)
	}
}
