package loadstats

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"steelyard/collectors/ledger"
	"steelyard/collectors/wire"
	"steelyard/e2e/rig/grpctest"
)

const endpoint = "10.0.0.1:80"

// served is a server on a loopback port, and a connection to it.
type served struct {
	*Server
	ledger   *ledger.Ledger
	client   loadstatsv3.LoadReportingServiceClient
	interval atomic.Int64
}

func serve(t *testing.T, options ...grpc.ServerOption) *served {
	t.Helper()
	s := &served{ledger: ledger.New(nil)}
	s.interval.Store(int64(time.Second))
	interval := func(ledger.Envoy) time.Duration { return time.Duration(s.interval.Load()) }
	s.Server = New(s.ledger, Options{Interval: interval}, slog.New(slog.DiscardHandler))
	t.Cleanup(s.Close)
	address, _ := grpctest.Serve(t, s.Register, options...)
	s.client = loadstatsv3.NewLoadReportingServiceClient(grpctest.Connect(t, address))
	s.ledger.SetMembers("chat", []string{endpoint})
	s.ledger.SetWatchers("chat", []ledger.Envoy{{NodeID: "envoy-1", Host: "127.0.0.1"}})
	return s
}

func withCodec() grpc.ServerOption { return grpc.ForceServerCodecV2(wire.Codec()) }

// peer is an Envoy's end of a stream.
type peer struct {
	loadstatsv3.LoadReportingService_StreamLoadStatsClient
	t *testing.T
}

// open opens a stream with a first message.
func (s *served) open(t *testing.T, first *loadstatsv3.LoadStatsRequest) peer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	stream, err := s.client.StreamLoadStats(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p := peer{stream, t}
	p.send(first)
	return p
}

// send sends a report. Of a stream that has ended meanwhile, Recv returns why.
func (p peer) send(m *loadstatsv3.LoadStatsRequest) {
	p.t.Helper()
	if err := p.Send(m); err != nil && !errors.Is(err, io.EOF) {
		p.t.Fatal(err)
	}
}

// asked returns the interval of the next response.
func (p peer) asked() time.Duration {
	p.t.Helper()
	r, err := p.Recv()
	if err != nil {
		p.t.Fatal(err)
	}
	if !r.GetSendAllClusters() || !r.GetReportEndpointGranularity() || len(r.GetClusters()) > 0 {
		p.t.Errorf("asked for %v", r)
	}
	return r.GetLoadReportingInterval().AsDuration()
}

// ended returns the status of a stream.
func (p peer) ended() error {
	for {
		if _, err := p.Recv(); err != nil {
			return err
		}
	}
}

func named(node string) *loadstatsv3.LoadStatsRequest {
	return &loadstatsv3.LoadStatsRequest{Node: &corev3.Node{Id: node}}
}

func load(inProgress, issued uint64) *loadstatsv3.LoadStatsRequest {
	m := named("envoy-1")
	m.ClusterStats = []*endpointv3.ClusterStats{{
		ClusterName: "chat_failsafe", ClusterServiceName: "chat",
		DroppedRequests: []*endpointv3.ClusterStats_DroppedRequests{{Category: "drop_overload", DroppedCount: 2}},
		UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{{
			UpstreamEndpointStats: []*endpointv3.UpstreamEndpointStats{{
				Address: address("10.0.0.1", 80), TotalRequestsInProgress: inProgress, TotalIssuedRequests: issued,
			}},
		}},
	}}
	return m
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

func (s *served) inFlight() int {
	all := s.ledger.Read("chat", time.Now(), nil)
	if !all[0].InFlight.Known() {
		return -1
	}
	return int(all[0].InFlight.Value)
}

func TestReportsAreCounted(t *testing.T) {
	s := serve(t, withCodec())
	p := s.open(t, named("envoy-1"))
	if got := p.asked(); got != time.Second {
		t.Errorf("asked for reports every %v", got)
	}
	if got := s.inFlight(); got != -1 {
		t.Errorf("%d in flight before the first report, want unknown", got)
	}
	p.send(load(3, 5))
	eventually(t, "three in flight", func() bool { return s.inFlight() == 3 })
	p.send(load(4, 2))
	eventually(t, "four in flight", func() bool { return s.inFlight() == 4 })
	if got := s.ledger.Read("chat", time.Now(), nil)[0].Proxies.Issued.Value; got != 2 {
		t.Errorf("%v issued, want 2", got)
	}
	if got := s.ledger.Cluster("chat", time.Now()).Dropped; got != 2 {
		t.Errorf("%d dropped, want 2", got)
	}
	p.send(named("envoy-1")) // all idle
	eventually(t, "none in flight", func() bool { return s.inFlight() == 0 })
	if err := p.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := p.ended(); status.Code(err) == codes.Unknown && err.Error() != "EOF" {
		t.Errorf("%v", err)
	}
	eventually(t, "no Envoy counts", func() bool { return s.inFlight() == -1 && s.Stats().Open == 0 })
	got := s.Stats()
	if got.Reports != 3 || got.Refused != 0 || got.Broken != 0 {
		t.Errorf("%+v", got)
	}
}

func TestAChangeOfTheIntervalIsSent(t *testing.T) {
	s := serve(t, withCodec())
	p := s.open(t, named("envoy-1"))
	p.asked()
	s.interval.Store(int64(1090 * time.Millisecond)) // not worth it
	p.send(load(1, 0))
	eventually(t, "the report taken", func() bool { return s.Stats().Reports == 1 })
	s.interval.Store(int64(1200 * time.Millisecond))
	p.send(load(1, 0))
	if got := p.asked(); got != 1200*time.Millisecond {
		t.Errorf("asked for reports every %v", got)
	}
	eventually(t, "the interval shown", func() bool {
		return s.ledger.Envoys(time.Now())[0].ReportInterval == 1200*time.Millisecond
	})
	s.interval.Store(int64(100 * time.Millisecond))
	p.send(load(1, 0))
	if got := p.asked(); got != 100*time.Millisecond {
		t.Errorf("asked for reports every %v", got)
	}
}

// TestTheSizeOfReportsIsMeasured: a report of ten thousand endpoints is several times that of
// a few. An Envoy that watches no cluster may send anything.
func TestTheSizeOfReportsIsMeasured(t *testing.T) {
	const size, reports = 344_000, 500
	s := serve(t, withCodec(), grpc.MaxRecvMsgSize(2*maxMessage))
	if got := s.ReportBytes(); got != ReportBytes {
		t.Errorf("%v bytes before the first report", got)
	}
	send := func(node string, size int) {
		t.Helper()
		p := s.open(t, named(node))
		p.asked()
		m := named(node)
		m.Node.Cluster = strings.Repeat("x", size)
		before := s.Stats().Reports
		for range reports {
			p.send(m)
		}
		eventually(t, "the reports taken", func() bool { return s.Stats().Reports == before+reports })
	}
	send("envoy-1", size)
	if got := s.ReportBytes(); got < 0.97*size || got > 1.03*size {
		t.Errorf("%v bytes a report, want %d", got, size)
	}
	send("made up", 10)
	if got := s.ReportBytes(); got < 0.97*size {
		t.Errorf("%v bytes a report, want %d", got, size)
	}
	send("envoy-1", 10)
	if got := s.ReportBytes(); got > 0.03*size {
		t.Errorf("%v bytes a report, after many small ones", got)
	}
}

// TestARealEnvoysReportsAreUnderstood: each with the whole node.
func TestARealEnvoysReportsAreUnderstood(t *testing.T) {
	s := serve(t, withCodec())
	messages := make([]*loadstatsv3.LoadStatsRequest, 2)
	for i, name := range []string{"0-node", "1-streaming"} {
		messages[i] = &loadstatsv3.LoadStatsRequest{}
		if err := proto.Unmarshal(recorded(t, name), messages[i]); err != nil {
			t.Fatal(err)
		}
	}
	up := ""
	for _, load := range byReference(t, recorded(t, "1-streaming")) {
		if load.Cluster == "up" {
			up = load.Endpoints[0].Address
		}
	}
	s.ledger.SetMembers("chat", []string{up})
	s.ledger.SetWatchers("chat", []ledger.Envoy{{NodeID: "recorded", Host: "127.0.0.1"}})
	p := s.open(t, messages[0])
	p.asked()
	p.send(messages[1])
	eventually(t, "one in flight", func() bool { return s.inFlight() == 1 })
}

func TestStreamsThatEndWithAReason(t *testing.T) {
	huge := named("a")
	huge.Node.Cluster = strings.Repeat("x", maxMessage)
	tooHuge := named("a")
	tooHuge.Node.Cluster = strings.Repeat("x", 2*maxMessage)
	cases := []struct {
		name  string
		first *loadstatsv3.LoadStatsRequest
		code  codes.Code
		err   string
		count func(Stats) uint64
	}{
		{"no node", &loadstatsv3.LoadStatsRequest{}, codes.InvalidArgument, "names no node",
			func(s Stats) uint64 { return s.Refused }},
		{"no id", named(""), codes.InvalidArgument, "--service-node", func(s Stats) uint64 { return s.Refused }},
		{"too long", huge, codes.Internal, "want at most", func(s Stats) uint64 { return s.Broken }},
		{"too long for gRPC", tooHuge, codes.ResourceExhausted, "larger than max",
			func(s Stats) uint64 { return s.Broken }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, withCodec(), grpc.MaxRecvMsgSize(2*maxMessage))
			err := s.open(t, c.first).ended()
			if status.Code(err) != c.code || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v, want %v: …%s…", err, c.code, c.err)
			}
			eventually(t, "the end counted", func() bool { return c.count(s.Stats()) == 1 })
			if got := s.ledger.Envoys(time.Now()); len(got) != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestAnEnvoyHasSoManyStreams(t *testing.T) {
	s := serve(t, withCodec())
	for range maxStreamsEach {
		s.open(t, named("envoy-1")).asked()
	}
	if err := s.open(t, named("envoy-1")).ended(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%v", err)
	}
	s.open(t, named("envoy-2")).asked()
}

func TestCloseEndsOpenStreams(t *testing.T) {
	s := serve(t, withCodec())
	p := s.open(t, named("envoy-1"))
	p.asked()
	s.Close()
	if got := s.Stats().Open; got != 0 {
		t.Errorf("%d streams after Close", got)
	}
	for _, p := range []peer{p, s.open(t, named("envoy-1"))} {
		if err := p.ended(); status.Code(err) != codes.Unavailable {
			t.Errorf("%v", err)
		}
	}
	if got := s.ledger.Envoys(time.Now()); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// TestWithoutTheCodecEveryStreamFails: a server that was put together wrongly does
// not look like one that hears nothing.
func TestWithoutTheCodecEveryStreamFails(t *testing.T) {
	s := serve(t)
	if err := s.open(t, named("envoy-1")).ended(); status.Code(err) != codes.Internal {
		t.Errorf("%v", err)
	}
	eventually(t, "the end counted", func() bool { return s.Stats().Broken == 1 })
}
