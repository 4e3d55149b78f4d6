package loadstats

import (
	"errors"
	"io"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"steelyard/collectors/ledger"
	"steelyard/collectors/wire"
	"steelyard/internal/streams"
)

const (
	maxStreamsEach = 8   // of one Envoy: it has one, and may open the next before the last one ends here
	minChange      = 0.1 // of the interval, as a share of it, that is sent to the Envoy
)

// Options of a Server.
type Options struct {
	// Reporter is as in package accesslog.
	Reporter wire.Reporter
	// Interval returns how often an Envoy is to report. It is called after each of its reports; a change of more than a
	// tenth is sent to the Envoy. It must not block.
	Interval func(ledger.Envoy) time.Duration
}

// A Server receives load reports.
type Server struct {
	ledger  *ledger.Ledger
	options Options
	log     *slog.Logger
	gate    *streams.Gate
	size    meanSize // of the reports of Envoys that watch a cluster

	reports, bytes, refused, broken atomic.Uint64
}

// Stats has counters since the start.
type Stats struct {
	Streams int    // open now
	Reports uint64 // received
	Bytes   uint64 // of all messages
	Refused uint64 // streams refused, because they had no identity or were too many
	Broken  uint64 // streams ended because of a message that could not be read
}

// New makes a server that passes every report on to l.
func New(l *ledger.Ledger, o Options, log *slog.Logger) *Server {
	return &Server{
		ledger: l, options: o, log: log, gate: streams.New(streams.Limits{Each: maxStreamsEach}),
		size: meanSize{bytes: ReportBytes},
	}
}

// Register adds the service to a gRPC server, which must use wire.Codec.
func (s *Server) Register(g *grpc.Server) {
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: loadstatsv3.LoadReportingService_ServiceDesc.ServiceName,
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{
			StreamName:    "StreamLoadStats",
			ClientStreams: true,
			ServerStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error {
				return s.gate.Run(func() error { return ended(s.serve(stream)) })
			},
		}},
		Metadata: "envoy/service/load_stats/v3/lrs.proto",
	}, s)
}

// Close ends all streams, refuses new ones, and returns when all have ended.
func (s *Server) Close() {
	s.gate.Close()
	s.gate.Wait()
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	return Stats{
		Streams: s.gate.Open(),
		Reports: s.reports.Load(),
		Bytes:   s.bytes.Load(),
		Refused: s.refused.Load() + s.gate.Refused(),
		Broken:  s.broken.Load(),
	}
}

// ReportBytes returns the mean size of the latest reports, for Fleet.Intervals. It is over Envoys that watch a cluster
// only: the reports of other Envoys must not make theirs rare.
func (s *Server) ReportBytes() float64 { return s.size.now() }

// serve receives one stream: the name of its Envoy, and then its reports.
func (s *Server) serve(stream grpc.ServerStream) error {
	m := &report{wantNode: true}
	if err := s.receive(stream, m); err != nil {
		return err
	}
	envoy, err := wire.EnvoyOf(stream.Context(), m.node)
	if err != nil {
		s.refused.Add(1)
		s.log.Debug("load reports refused", "error", err)
		return status.Error(codes.InvalidArgument, "load reports: "+err.Error())
	}
	m.wantNode, m.node = false, nil
	if _, err := s.gate.Admit(envoy); err != nil {
		return err
	}
	defer s.gate.Dismiss(envoy)
	log := s.log.With("node", envoy.NodeID, "host", envoy.Host)
	err = s.follow(stream, m, envoy, log)
	log.Info("load reports ended", "error", err)
	return err
}

// follow asks for reports and passes each on to the ledger. The message in m only names the Envoy: it came before
// reports were asked for.
func (s *Server) follow(stream grpc.ServerStream, m *report, envoy ledger.Envoy, log *slog.Logger) error {
	asked := s.options.Interval(envoy)
	if err := ask(stream, asked); err != nil {
		return err
	}
	log.Info("load reports asked for", "interval", asked)
	l := s.ledger.Reporting(envoy, asked, time.Now())
	defer l.Close()
	may := s.options.Reporter.Of(stream.Context())
	for {
		if err := s.receive(stream, m); err != nil {
			return err
		}
		for i := range m.loads {
			if err := may([]byte(m.loads[i].Address)); err != nil {
				return err
			}
		}
		s.reports.Add(1)
		if watches := l.Report(time.Now(), m.clusters); watches {
			s.size.note(m.size)
		}
		m.release()
		next := s.options.Interval(envoy)
		if !differs(asked, next) {
			continue
		}
		if err := ask(stream, next); err != nil {
			return err
		}
		log.Debug("load reports asked for", "interval", next, "before", asked)
		asked = next
		l.Asked(asked)
	}
}

// receive reads the next message. Its error is the stream's status.
func (s *Server) receive(stream grpc.ServerStream, m *report) error {
	err := stream.RecvMsg(m)
	switch {
	case err == nil:
		s.bytes.Add(uint64(m.size))
	case wire.Unreadable(err):
		s.broken.Add(1)
		s.log.Debug("load reports broken", "error", err)
	}
	return err
}

// ended returns the status of a stream: nil for one that the Envoy closed.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// ask requests reports of all clusters, by endpoint, at the interval.
func ask(stream grpc.ServerStream, interval time.Duration) error {
	return stream.SendMsg(&loadstatsv3.LoadStatsResponse{
		SendAllClusters:           true,
		ReportEndpointGranularity: true,
		LoadReportingInterval:     durationpb.New(interval),
	})
}

func differs(asked, next time.Duration) bool {
	return math.Abs(float64(next-asked)) > minChange*float64(asked)
}
