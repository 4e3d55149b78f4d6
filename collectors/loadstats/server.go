package loadstats

import (
	"errors"
	"io"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"steelyard/internal/api"

	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"steelyard/collectors/ledger"
	"steelyard/collectors/wire"
)

const (
	maxStreamsEach = 8   // of one Envoy: it has one, and may open the next before the last one ends here
	minChange      = 0.1 // of the interval, as a share of it, that is sent to the Envoy
)

// Options of a Server.
type Options struct {
	// Interval returns how often an Envoy is to report. It is called after each of its reports; a change of more than a
	// tenth is sent to the Envoy. It must not block.
	Interval func(ledger.Envoy) time.Duration
}

// A Server receives load reports.
type Server struct {
	*wire.Service
	ledger  *ledger.Ledger
	options Options
	log     *slog.Logger
	size    meanSize // of the reports of Envoys that watch a cluster

	reports atomic.Uint64
}

// Stats has counters since the start.
type Stats struct {
	api.SignalStreams
	Reports uint64 // received
}

// New makes a server that passes every report on to l.
func New(l *ledger.Ledger, o Options, log *slog.Logger) *Server {
	return &Server{Service: wire.NewService("load reports", maxStreamsEach, log), ledger: l, options: o, log: log,
		size: meanSize{bytes: ReportBytes}}
}

// Register adds the service to a gRPC server, which must use wire.Codec.
func (s *Server) Register(g *grpc.Server) {
	s.Service.Register(g, loadstatsv3.LoadReportingService_ServiceDesc, s.serve)
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	return Stats{SignalStreams: s.StreamStats(), Reports: s.reports.Load()}
}

// ReportBytes returns the mean size of the latest reports, for Fleet.Intervals. It is over Envoys that watch a cluster
// only: the reports of other Envoys must not make theirs rare.
func (s *Server) ReportBytes() float64 { return s.size.now() }

// serve receives one stream: the name of its Envoy, and then its reports, until the Envoy closes it.
func (s *Server) serve(stream grpc.ServerStream) error {
	if err := s.receive(stream); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

func (s *Server) receive(stream grpc.ServerStream) error {
	m := &report{wantNode: true}
	if err := s.Receive(stream, m); err != nil {
		return err
	}
	envoy, err := s.Identify(stream.Context(), m.node)
	if err != nil {
		return err
	}
	m.wantNode, m.node = false, nil
	if _, err := s.Admit(envoy); err != nil {
		return err
	}
	defer s.Dismiss(envoy)
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
	may := s.Reporter.Of(stream.Context())
	for {
		if err := s.Receive(stream, m); err != nil {
			return err
		}
		for i := range m.loads {
			if err := may([]byte(m.loads[i].Address)); err != nil {
				return err
			}
		}
		s.reports.Add(1)
		if watches := l.Report(time.Now(), m.clusters); watches {
			s.size.add(m.size)
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
