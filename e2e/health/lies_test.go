package health

import (
	"context"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	accesslogdata "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslogservice "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	loadservice "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"

	"steelyard/e2e/rig/grpctest"
	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/testbed"
	"steelyard/e2e/rig/xdstest"
)

// A liar is a client of the xDS port that subscribes to the cluster like an Envoy, and sends false reports.
type liar struct {
	f    *fleet
	conn *grpc.ClientConn
	node *corev3.Node
}

// lie starts one with the node id "liar".
func (f *fleet) lie() *liar {
	f.T.Helper()
	const name = "liar"
	client, err := xdstest.Dial(xdstest.Config{Address: f.XDS, NodeID: name,
		Clusters: []string{testbed.Cluster + "/failsafe"}})
	if err != nil {
		f.T.Fatal(err)
	}
	f.T.Cleanup(func() { client.Close() })
	return &liar{f, grpctest.Connect(f.T, f.XDS), &corev3.Node{Id: name}}
}

// claim sends load reports with requests in progress at servers, at the interval that Steelyard asks for, until the
// test ends.
func (l *liar) claim(inProgress uint64, at ...*modelsim.Server) {
	t := l.f.T
	t.Helper()
	stream, err := loadservice.NewLoadReportingServiceClient(l.conn).StreamLoadStats(t.Context())
	if err == nil {
		err = stream.Send(&loadservice.LoadStatsRequest{Node: l.node})
	}
	if err != nil {
		t.Fatal(err)
	}
	asked, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	locality := &endpointv3.UpstreamLocalityStats{}
	for _, s := range at {
		locality.UpstreamEndpointStats = append(locality.UpstreamEndpointStats, &endpointv3.UpstreamEndpointStats{
			Address: socketAddress(s.Address()), TotalRequestsInProgress: inProgress,
		})
	}
	report := &loadservice.LoadStatsRequest{ClusterStats: []*endpointv3.ClusterStats{{
		ClusterName: testbed.Cluster, ClusterServiceName: testbed.Cluster + "/failsafe",
		UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{locality},
	}}}
	l.repeat(asked.GetLoadReportingInterval().AsDuration(), func() error { return stream.Send(report) })
}

// repeat sends a message periodically, until the test ends.
func (l *liar) repeat(every time.Duration, say func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	l.f.T.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for say() == nil {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}()
}

// accuse sends, ten times a second, access log entries of twenty refused connections to a server.
func (l *liar) accuse(s *modelsim.Server) {
	t := l.f.T
	t.Helper()
	stream, err := accesslogservice.NewAccessLogServiceClient(l.conn).StreamAccessLogs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	entry := &accesslogdata.HTTPAccessLogEntry{CommonProperties: &accesslogdata.AccessLogCommon{
		AccessLogType:         accesslogdata.AccessLogType_UpstreamEnd,
		UpstreamRemoteAddress: socketAddress(s.Address()),
		ResponseFlags:         &accesslogdata.ResponseFlags{UpstreamConnectionFailure: true},
	}}
	entries := &accesslogservice.StreamAccessLogsMessage_HTTPAccessLogEntries{}
	for range 20 {
		entries.LogEntry = append(entries.LogEntry, entry)
	}
	message := &accesslogservice.StreamAccessLogsMessage{
		Identifier: &accesslogservice.StreamAccessLogsMessage_Identifier{Node: l.node, LogName: "steelyard"},
		LogEntries: &accesslogservice.StreamAccessLogsMessage_HttpLogs{HttpLogs: entries},
	}
	l.repeat(100*time.Millisecond, func() error { return stream.Send(message) })
}

func socketAddress(hostPort string) *corev3.Address {
	host, port, _ := net.SplitHostPort(hostPort)
	n, _ := strconv.ParseUint(port, 10, 16)
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(n)},
	}}}
}

// served returns the requests of each server so far.
func served(pool []*modelsim.Server) (n []float64) {
	for _, s := range pool {
		n = append(n, float64(s.Served()))
	}
	return n
}

// sharesOver returns the shares of the traffic that the servers get within d.
func sharesOver(pool []*modelsim.Server, d time.Duration) []float64 {
	before := served(pool)
	time.Sleep(d)
	shares, sum := served(pool), 0.0
	for i := range shares {
		shares[i] -= before[i]
		sum += shares[i]
	}
	for i := range shares {
		shares[i] /= sum
	}
	return shares
}

// mustBeFair checks that each of four servers gets about a quarter.
func mustBeFair(t *testing.T, shares []float64) {
	t.Helper()
	t.Logf("shares %.3f", shares)
	for i, share := range shares {
		if math.Abs(share-0.25) > 0.05 {
			t.Errorf("server %d gets %.3f of the traffic, want 0.25 within 0.05", i, share)
		}
	}
}

// problem waits for a problem of the cluster with all of these texts.
func (f *fleet) problem(texts ...string) {
	f.T.Helper()
	f.Eventually("a problem names it", func() error {
		v, err := f.View()
		if err != nil {
			return err
		}
		for _, p := range v.Problems {
			says := true
			for _, text := range texts {
				says = says && strings.Contains(p.Message, text)
			}
			if says {
				return nil
			}
		}
		return fmt.Errorf("problems %+v", v.Problems)
	})
}

// TestOneClientsLoadReportsDoNotOverruleTheServers: any client of the xDS port can send false load reports. Reports
// that contradict the servers, and that no other Envoy confirms, count for a few seconds only; a few requests, where
// that is much for a server, for some seconds more.
func TestOneClientsLoadReportsDoNotOverruleTheServers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		slots, at int     // of each of four servers; the servers that are lied about
		claims    uint64  // requests, at each of those
		most      float64 // load of a server that serves again
	}{
		"many at three of four servers":              {4, 3, 1000, 100},
		"many at one of them":                        {4, 1, 1000, 100},
		"a few at three of four servers of one slot": {1, 3, 8, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := testbed.Servers(t, testbed.Same(4, modelsim.Options{Slots: c.slots})...)
			f := start(t, testbed.Plan{Servers: pool, Envoys: 3})
			f.Send(load.Plan{Rate: 60, Work: load.Work{Mean: time.Duration(c.slots) * 25 * time.Millisecond}, Seed: 9})
			f.serving(pool)
			begun := time.Now()
			f.lie().claim(c.claims, pool[:c.at]...)
			f.problem("Envoy liar at 127.0.0.1", "requests in progress at", "the metrics there contradict it")
			t.Logf("named after %v", time.Since(begun))
			f.Eventually("all serve again", func() error {
				v, err := f.View()
				if err != nil {
					return err
				}
				for _, e := range v.Endpoints {
					if e.Overloaded || e.Share.Or(0) > 0.4 || e.Load.Or(math.Inf(1)) > c.most {
						return fmt.Errorf("%s: load %v, share %v, flagged %v: %s", e.Address, e.Load, e.Share,
							e.Overloaded, e.OverloadReason)
					}
				}
				return nil
			})
			t.Logf("all serve again after %v", time.Since(begun))
			mustBeFair(t, sharesOver(pool, 12*time.Second))
			v, err := f.View()
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range v.Endpoints {
				if e.Overloaded {
					t.Errorf("%s is flagged: %s", e.Address, e.OverloadReason)
				}
			}
			if len(v.Disputes) != 1 || v.Disputes[0].NodeID != "liar" || len(v.Disputes[0].Endpoints) != c.at ||
				v.Disputes[0].Requests.Or(0) < 0.9*float64(c.claims)*float64(c.at) {
				t.Errorf("disputes %+v", v.Disputes)
			}
		})
	}
}

// TestAnIdleServerIsNotKeptFromRequestsByAClaim: of requests that its own metrics do not show, before any load.
func TestAnIdleServerIsNotKeptFromRequestsByAClaim(t *testing.T) {
	t.Parallel()
	pool := testbed.Servers(t, testbed.Same(4, modelsim.Options{Slots: 4})...)
	f := start(t, testbed.Plan{Servers: pool, Envoys: 2})
	f.Eventually("all are scraped", func() error {
		v, err := f.View()
		for _, e := range v.Endpoints {
			if e.Input("queue").Value.Or(-1) < 0 {
				err = fmt.Errorf("%s is not", e.Address)
			}
		}
		return err
	})
	f.lie().claim(1000, pool[0])
	begun := time.Now()
	f.problem("Envoy liar at 127.0.0.1", "1000 requests in progress at "+pool[0].Address())
	if named := time.Since(begun); named > 5*time.Second { // 2.5 s, the next scrape, and those of the problems
		t.Errorf("named after %v", named)
	}
	if e, err := f.Endpoint(pool[0].Address()); err != nil || e.Load.Or(1000) > 0 || e.Overloaded {
		t.Errorf("load %v, flagged %v (%v)", e.Load, e.Overloaded, err)
	}
	f.Send(load.Plan{Rate: 60, Work: load.Work{Mean: 100 * time.Millisecond}, Seed: 9})
	mustBeFair(t, sharesOver(pool, 8*time.Second))
}

// TestOneClientsFailuresFlagNoServerThatWorksForOthers: an access log of refused connections to a server that answers
// all other clients.
func TestOneClientsFailuresFlagNoServerThatWorksForOthers(t *testing.T) {
	t.Parallel()
	pool := testbed.Servers(t, testbed.Same(4, modelsim.Options{Slots: 4})...)
	f := start(t, testbed.Plan{Servers: pool, Envoys: 3})
	f.Send(load.Plan{Rate: 60, Work: load.Work{Mean: 100 * time.Millisecond}, Seed: 10})
	f.serving(pool)
	f.lie().accuse(pool[0])
	f.problem("Envoy liar at 127.0.0.1 has reported", "its requests to "+pool[0].Address()+" fail")
	mustBeFair(t, sharesOver(pool, 8*time.Second))
	if e, err := f.Endpoint(pool[0].Address()); err != nil || e.Overloaded {
		t.Errorf("flagged %v: %s (%v)", e.Overloaded, e.OverloadReason, err)
	}
}

// TestOneClientsFailuresFlagNoServerWithoutRequests: the last answers are enough for a while. In light traffic there
// are such gaps all the time.
func TestOneClientsFailuresFlagNoServerWithoutRequests(t *testing.T) {
	t.Parallel()
	pool := testbed.Servers(t, testbed.Same(4, modelsim.Options{Slots: 4})...)
	f := start(t, testbed.Plan{Servers: pool, Envoys: 3})
	f.Send(load.Plan{Rate: 20, Count: 60, Work: load.Work{Mean: 100 * time.Millisecond}, Seed: 10}).Wait(t)
	f.lie().accuse(pool[0])
	f.problem("Envoy liar at 127.0.0.1 has reported", "its requests to "+pool[0].Address()+" fail",
		"no endpoint is flagged")
	for begun := time.Now(); time.Since(begun) < 6*time.Second; time.Sleep(200 * time.Millisecond) {
		if e, err := f.Endpoint(pool[0].Address()); err != nil || e.Overloaded {
			t.Fatalf("flagged %v after %v: %s (%v)", e.Overloaded, time.Since(begun), e.OverloadReason, err)
		}
	}
}

// TestReportsOfSeveralEnvoysCount: a server that stalls while its metrics show it idle, and one that fails.
func TestReportsOfSeveralEnvoysCount(t *testing.T) {
	pool := testbed.Pool(t, 4)
	f := start(t, testbed.Plan{Servers: pool, Envoys: 3, Cluster: "push: {heartbeat: 300ms}"})
	f.Send(load.Plan{Rate: 60, Work: load.Work{Mean: 50 * time.Millisecond}, Seed: 12})
	f.serving(pool)
	pool[0].SetMetricsFault(modelsim.MetricsIdle)
	pool[0].SetFrozen(true)
	f.flaggedWithin(4*time.Second, pool[0].Address(), "stalled since ")
	pool[1].SetServingFault(modelsim.ServingUnavailable)
	f.flaggedWithin(3*time.Second, pool[1].Address(), "failing: ")
	v, err := f.View()
	if err != nil || len(v.Disputes) > 0 {
		t.Errorf("disputes %+v (%v), want none", v.Disputes, err)
	}
}

// TestAnInsaneCounterIsForgottenAndShown: a metrics page shows 10^18 completions for a second.
func TestAnInsaneCounterIsForgottenAndShown(t *testing.T) {
	t.Parallel()
	pool := testbed.Servers(t, testbed.Same(4, modelsim.Options{Slots: 4})...)
	f := start(t, testbed.Plan{Servers: pool, Envoys: 3})
	f.Send(load.Plan{Rate: 60, Work: load.Work{Mean: 100 * time.Millisecond}, Seed: 11})
	f.Eventually("speeds are learned", func() error {
		for _, s := range pool {
			if s.Served() < 80 {
				return fmt.Errorf("%s has served %d", s.Address(), s.Served())
			}
		}
		return nil
	})
	pool[0].SetMetricsFault(modelsim.MetricsInsane)
	f.Eventually("it is shown", func() error {
		e, err := f.Endpoint(pool[0].Address())
		if err == nil && (e.ImplausibleReadings.Or(0) == 0 || len(e.Problems) == 0) {
			err = fmt.Errorf("%v implausible readings, problems %+v", e.ImplausibleReadings, e.Problems)
		}
		return err
	})
	pool[0].SetMetricsFault(modelsim.MetricsHealthy)
	mustBeFair(t, sharesOver(pool, 8*time.Second))
	if e, err := f.Endpoint(pool[0].Address()); err != nil || math.Abs(e.RelativeSpeed.Or(0)-1) > 0.3 {
		t.Errorf("relative speed %v (%v), want about 1", e.RelativeSpeed, err)
	}
}
