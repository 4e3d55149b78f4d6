package accesslog

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"steelyard/internal/api"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"steelyard/collectors/ledger"
	"steelyard/collectors/wire"
	"steelyard/e2e/rig/grpctest"
	"steelyard/internal/streams"
)

// served is a server on a loopback port, and a connection to it.
type served struct {
	*Server
	ledger *ledger.Ledger
	client accesslogv3.AccessLogServiceClient
	woken  chan struct{}
}

func serve(t *testing.T, options ...grpc.ServerOption) *served {
	t.Helper()
	s := &served{woken: make(chan struct{}, 1)}
	s.ledger = ledger.New(func(string) {
		select {
		case s.woken <- struct{}{}:
		default:
		}
	})
	s.Server = New(s.ledger, slog.New(slog.DiscardHandler))
	t.Cleanup(s.Close)
	address, _ := grpctest.Serve(t, s.Register, options...)
	s.client = accesslogv3.NewAccessLogServiceClient(grpctest.Connect(t, address))
	return s
}

func withCodec() grpc.ServerOption { return grpc.ForceServerCodecV2(wire.Codec()) }

func (s *served) open(t *testing.T) accesslogv3.AccessLogService_StreamAccessLogsClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	stream, err := s.client.StreamAccessLogs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// logs returns a recorded message, with a node if it has an id.
func logs(t *testing.T, name, node string) *accesslogv3.StreamAccessLogsMessage {
	t.Helper()
	var m accesslogv3.StreamAccessLogsMessage
	if err := proto.Unmarshal(recorded(t, name), &m); err != nil {
		t.Fatal(err)
	}
	m.Identifier = nil
	if node != "" {
		m.Identifier = &accesslogv3.StreamAccessLogsMessage_Identifier{Node: &corev3.Node{Id: node},
			LogName: "steelyard"}
	}
	return &m
}

// send sends entries. Of a stream that has ended meanwhile, the answer is why.
func send(t *testing.T, stream accesslogv3.AccessLogService_StreamAccessLogsClient,
	m *accesslogv3.StreamAccessLogsMessage) {
	t.Helper()
	if err := stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}

// eventually waits for a condition, each time something changed.
func (s *served) eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-s.woken:
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within 10 s: %s; %+v", what, s.StreamStats())
		}
	}
}

func (s *served) inFlight() int {
	all := s.ledger.Read("chat", time.Now(), nil)
	if len(all) != 1 || !all[0].InFlight.Known() {
		return -1
	}
	return int(all[0].InFlight.Value)
}

// watched has the node at 127.0.0.1 watch the recorded endpoint.
func (s *served) watched(t *testing.T, node string) {
	t.Helper()
	events, _ := byHand(t, recorded(t, "02-500-begin"))
	s.ledger.SetMembers("chat", []string{events[0].Address})
	s.ledger.SetWatchers("chat", []ledger.Envoy{{NodeID: node, Host: "127.0.0.1"}})
}

func TestRequestsAreCountedOverTheirStreams(t *testing.T) {
	s := serve(t, withCodec())
	s.watched(t, "envoy-1")
	first, second := s.open(t), s.open(t)
	send(t, first, logs(t, "00-first-with-node-begin", "envoy-1"))
	s.eventually(t, "one in flight", func() bool { return s.inFlight() == 1 })
	send(t, second, logs(t, "02-500-begin", "envoy-1"))
	s.eventually(t, "two in flight", func() bool { return s.inFlight() == 2 })
	send(t, first, logs(t, "03-500", "")) // over the other stream than it began
	s.eventually(t, "one in flight", func() bool { return s.inFlight() == 1 })
	counts := s.ledger.Read("chat", time.Now(), nil)[0]
	proxies := counts.Proxies
	if proxies.Issued.Value != 2 || proxies.Ended.Value != 1 || proxies.Failed.Value != 1 ||
		proxies.Answered.Value != 1 || counts.ResponseBytes.Value != 138 {
		t.Errorf("%+v", proxies)
	}
	if _, err := first.CloseAndRecv(); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, "what began over the first stream gone", func() bool { return s.inFlight() == 0 })
	if _, err := second.CloseAndRecv(); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, "no Envoy counts", func() bool { return s.inFlight() == -1 && s.StreamStats().Open == 0 })
	if got := s.ledger.Totals().Received; got != 3 {
		t.Errorf("%d entries, want 3", got)
	}
	if got := s.StreamStats(); got != (api.SignalStreams{}) {
		t.Errorf("%+v, want none open, refused or broken", got)
	}
}

func TestAnotherNodeMovesNothing(t *testing.T) {
	s := serve(t, withCodec())
	s.watched(t, "envoy-1")
	stream := s.open(t)
	send(t, stream, logs(t, "02-500-begin", "envoy-2"))
	s.eventually(t, "the entry taken", func() bool { return s.ledger.Totals().Received == 1 })
	if got := s.inFlight(); got != -1 {
		t.Errorf("%d in flight", got)
	}
}

// TestTheRealFirstMessageIsUnderstood: with the node of a real Envoy, 61 KB.
func TestTheRealFirstMessageIsUnderstood(t *testing.T) {
	s := serve(t, withCodec())
	s.watched(t, "recorded")
	stream := s.open(t)
	var m accesslogv3.StreamAccessLogsMessage
	if err := proto.Unmarshal(recorded(t, "00-first-with-node-begin"), &m); err != nil {
		t.Fatal(err)
	}
	send(t, stream, &m)
	s.eventually(t, "one in flight", func() bool { return s.inFlight() == 1 })
}

func TestStreamsThatEndWithAReason(t *testing.T) {
	huge := logs(t, "02-500-begin", "a")
	huge.GetHttpLogs().GetLogEntry()[0].CommonProperties.RouteName = strings.Repeat("x", maxMessage)
	cases := []struct {
		name  string
		first *accesslogv3.StreamAccessLogsMessage
		code  codes.Code
		err   string
		count func(api.SignalStreams) uint64
	}{
		{"no node", logs(t, "02-500-begin", ""), codes.InvalidArgument, "names no node",
			func(s api.SignalStreams) uint64 { return s.Refused }},
		{"no id", &accesslogv3.StreamAccessLogsMessage{
			Identifier: &accesslogv3.StreamAccessLogsMessage_Identifier{Node: &corev3.Node{Cluster: "c"}}},
			codes.InvalidArgument, "--service-node", func(s api.SignalStreams) uint64 { return s.Refused }},
		{"too long", huge, codes.Internal, "want at most", func(s api.SignalStreams) uint64 { return s.Broken }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, withCodec())
			stream := s.open(t)
			if err := stream.Send(c.first); err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			err := stream.RecvMsg(&accesslogv3.StreamAccessLogsResponse{})
			if status.Code(err) != c.code || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v, want %v: …%s…", err, c.code, c.err)
			}
			s.eventually(t, "the end counted", func() bool { return c.count(s.StreamStats()) == 1 })
			if got := s.ledger.Envoys(time.Now()); len(got) != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestAnEnvoyHasSoManyStreams(t *testing.T) {
	s := serve(t, withCodec())
	s.Gate = streams.New(streams.Limits{Each: 1})
	first := s.open(t)
	send(t, first, logs(t, "02-500-begin", "a"))
	s.eventually(t, "the first open", func() bool { return s.ledger.Totals().Received == 1 })
	second := s.open(t)
	send(t, second, logs(t, "02-500-begin", "a"))
	if err := second.RecvMsg(&accesslogv3.StreamAccessLogsResponse{}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%v", err)
	}
	other := s.open(t)
	send(t, other, logs(t, "02-500-begin", "b"))
	s.eventually(t, "another Envoy's open", func() bool { return s.ledger.Totals().Received == 2 })
}

func TestCloseEndsOpenStreams(t *testing.T) {
	s := serve(t, withCodec())
	stream, silent := s.open(t), s.open(t)
	send(t, stream, logs(t, "02-500-begin", "a"))
	s.eventually(t, "both open", func() bool { return s.StreamStats().Open == 2 && s.ledger.Totals().Received == 1 })
	s.Close()
	if got := s.StreamStats().Open; got != 0 {
		t.Errorf("%d streams after Close", got)
	}
	for _, stream := range []accesslogv3.AccessLogService_StreamAccessLogsClient{stream, silent, s.open(t)} {
		if err := stream.RecvMsg(&accesslogv3.StreamAccessLogsResponse{}); status.Code(err) != codes.Unavailable {
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
	stream := s.open(t)
	send(t, stream, logs(t, "02-500-begin", "a"))
	if err := stream.RecvMsg(&accesslogv3.StreamAccessLogsResponse{}); status.Code(err) != codes.Internal {
		t.Errorf("%v", err)
	}
	s.eventually(t, "the end counted", func() bool { return s.StreamStats().Broken == 1 })
}
