package signals

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	accesslogservice "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	loadservice "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"steelyard/e2e/rig/certs"
	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/testbed"
	envoybootstrap "steelyard/envoy-bootstrap"
)

// broken are services that fail: they never read, or answer the first message with an error.
type broken struct {
	accesslogservice.UnimplementedAccessLogServiceServer
	loadservice.UnimplementedLoadReportingServiceServer
	deaf bool
}

func (b *broken) StreamAccessLogs(s accesslogservice.AccessLogService_StreamAccessLogsServer) error {
	return b.fail(s.Context(), func() error { _, err := s.Recv(); return err })
}

func (b *broken) StreamLoadStats(s loadservice.LoadReportingService_StreamLoadStatsServer) error {
	return b.fail(s.Context(), func() error { _, err := s.Recv(); return err })
}

func (b *broken) fail(ctx context.Context, receive func() error) error {
	if b.deaf {
		<-ctx.Done()
		return nil
	}
	if err := receive(); err != nil {
		return err
	}
	return status.Error(codes.Internal, "broken for a test")
}

func TestNoRequestSuffersFromBrokenSignals(t *testing.T) {
	pool := testbed.Pool(t, 2)
	for name, register := range map[string]func(*grpc.Server){
		"they are not served": func(*grpc.Server) {},
		"they fail":           func(s *grpc.Server) { registerBroken(s, &broken{}) },
	} {
		t.Run(name, func(t *testing.T) {
			envoy := receiveBroken(t, register, testbed.Addresses(pool)).envoy(envoybootstrap.Options{}, 2)
			carry(t, mixed(envoy.url, 800))
		})
	}
}

// TestALogThatIsDisabledIsNotSent: an Envoy would otherwise open a stream, which is refused, with each entry.
func TestALogThatIsDisabledIsNotSent(t *testing.T) {
	f := testbed.Start(t, testbed.Plan{Servers: testbed.Pool(t, 1), Listen: ", access_log: {disabled: true}"})
	before := f.EnvoyStat("cluster.steelyard_xds.upstream_rq_total")
	if result := f.Send(testbed.Quick(200)).Wait(t); result.Errors != 0 {
		t.Errorf("%d errors", result.Errors)
	}
	if streams := f.EnvoyStat("cluster.steelyard_xds.upstream_rq_total") - before; streams > 5 {
		t.Errorf("200 requests opened %v streams to Steelyard, want none", streams)
	}
	if n := f.EnvoyStat("access_logs.grpc_access_log.logs_written"); n != 0 {
		t.Errorf("%v entries were written, want none", n)
	}
}

func TestAnAccessLogThatIsNotReadIsDroppedAndCostsNoRequest(t *testing.T) {
	pool := testbed.Pool(t, 2)
	r := receiveBroken(t, func(s *grpc.Server) { registerBroken(s, &broken{deaf: true}) }, testbed.Addresses(pool))
	envoy := r.envoy(envoybootstrap.Options{}, 1)
	// Two entries of about 250 bytes for each request: more than Envoy keeps.
	const requests = 2600
	carry(t, load.Plan{Targets: []string{envoy.url}, Rate: 700, Count: requests,
		Work: load.Work{Mean: time.Millisecond}, Seed: 7})
	const log = "access_logs.grpc_access_log."
	dropped, failed := envoy.stat(t, log+"logs_dropped"), envoy.stat(t, log+"grpc_entries_flush_failed")
	if dropped == 0 {
		t.Error("nothing was dropped: Envoy keeps it all")
	}
	// If each entry were written together with all entries before it, it would be the sum over all requests.
	if failed > 2*requests {
		t.Errorf("%v entries were written without success, for %d requests", failed, requests)
	}
}

// receiveBroken starts a receiver with other services than Steelyard's.
func receiveBroken(t *testing.T, register func(*grpc.Server), members []string) *receiver {
	t.Helper()
	r := receive(t, members...)
	r.stop()
	r.start(func(s *grpc.Server) { r.streams.Register(s); register(s) })
	return r
}

func registerBroken(s *grpc.Server, b *broken) {
	accesslogservice.RegisterAccessLogServiceServer(s, b)
	loadservice.RegisterLoadReportingServiceServer(s, b)
}

func TestCountsComeBackWithARestartedSteelyardAndNoRequestIsLost(t *testing.T) {
	t.Parallel()
	pool := testbed.Servers(t, modelsim.Options{Slots: 1000}, modelsim.Options{Slots: 1000})
	r := receive(t, testbed.Addresses(pool)...)
	envoy := r.envoy(envoybootstrap.Options{}, 1)
	const long = 12 // requests that are open throughout
	ctx, end := context.WithCancel(t.Context())
	wait := testbed.Asking(ctx, t, long, envoy.url, modelsim.HeaderService, "60")
	r.becomes("the long requests are in flight", inFlight, long)

	traffic := carrying(t, load.Plan{
		Targets: []string{envoy.url}, Rate: 100, Duration: 5 * time.Second,
		Work: load.Work{Mean: 10 * time.Millisecond}, Seed: 3,
	})
	for range 2 {
		r.stop()
		served := pool[0].Served()
		eventually(t, "traffic goes on without Steelyard", func() error {
			if pool[0].Served() < served+20 {
				return fmt.Errorf("%d served", pool[0].Served()-served)
			}
			return nil
		})
		r.start(r.everything)
		eventually(t, "the log comes back", func() error {
			if r.ledger.Totals().Received == 0 {
				return fmt.Errorf("no entry")
			}
			return nil
		})
	}
	traffic()
	// The new Steelyard has not seen the requests begin: it counts them by the load reports.
	r.becomes("the long requests are in flight again", inFlight, long)
	end()
	wait()
	r.becomes("none is in flight", inFlight, 0)
}

func TestLoadReportsCountTheRequestsInProgress(t *testing.T) {
	pool := testbed.Pool(t, 3)
	r := receive(t, testbed.Addresses(pool)...)
	envoy := r.envoy(envoybootstrap.Options{NoUpstreamLog: true}, 2)
	const n = 15
	for _, interval := range []time.Duration{50 * time.Millisecond, time.Second, 100 * time.Millisecond} {
		r.interval.Store(int64(interval)) // while the stream is open
		ctx, end := context.WithCancel(t.Context())
		wait := testbed.Asking(ctx, t, n, envoy.url, modelsim.HeaderService, "60")
		r.becomes("all are in progress", inFlight, n)
		eventually(t, "each server has as many as are counted", func() error {
			for i, c := range r.counts() {
				if got, want := c.InFlight.Value, float64(pool[i].InFlight()); got != want {
					return fmt.Errorf("every %v: server %d has %v in progress, want %v", interval, i, got, want)
				}
			}
			return nil
		})
		end()
		wait()
		r.becomes("none is in progress", inFlight, 0)
	}
}

func TestAnEndpointThatWasRemovedMovesNoCountWhenItsRequestsEnd(t *testing.T) {
	pool := testbed.Pool(t, 2)
	r := receive(t, testbed.Addresses(pool)...)
	envoy := r.envoy(envoybootstrap.Options{}, 1)
	ctx, end := context.WithCancel(t.Context())
	const n = 6
	wait := testbed.Asking(ctx, t, n, envoy.url, modelsim.HeaderService, "60")
	r.becomes("all are in flight", inFlight, n)
	var stays int
	eventually(t, "all are at the servers", func() error {
		gone := pool[0].InFlight()
		if stays = pool[1].InFlight(); gone+stays != n {
			return fmt.Errorf("%d and %d", gone, stays)
		}
		return nil
	})
	r.publish(r.members[1])
	r.ledger.SetMembers(testbed.Cluster, r.members[1:])
	r.becomes("only the other's are counted", inFlight, stays)
	end()
	wait()
	r.becomes("none is in flight", inFlight, 0)
}

func TestSignalsGoThroughTLS(t *testing.T) {
	pool := testbed.Pool(t, 2)
	r := receive(t, testbed.Addresses(pool)...)
	r.stop()
	var authority string
	r.tls, authority = selfSigned(t)
	r.start(r.everything)
	envoy := r.envoy(envoybootstrap.Options{TLS: envoybootstrap.TLS{CAFile: authority}}, 1)
	ctx, end := context.WithCancel(t.Context())
	const n = 5
	wait := testbed.Asking(ctx, t, n, envoy.url, modelsim.HeaderService, "60")
	r.becomes("all are in flight", inFlight, n)
	end()
	wait()
	r.becomes("none is in flight", inFlight, 0)
	eventually(t, "both services hear the Envoy", func() error {
		if entries, reports := r.ledger.Totals().Received, r.reports.Stats().Reports; entries < 2*n || reports < 2 {
			return fmt.Errorf("%d entries, %d reports", entries, reports)
		}
		return nil
	})
}

// selfSigned makes a server's certificate for 127.0.0.1, and a file with the certificate of its authority.
func selfSigned(t *testing.T) (credentials.TransportCredentials, string) {
	t.Helper()
	own := certs.New("test", nil)
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, own.CertPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	return credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{own.TLS()}}), path
}
