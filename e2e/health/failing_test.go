package health

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"steelyard/e2e/rig/grpctest"
	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/testbed"
	"steelyard/internal/api"
)

// short is a load of sixty requests a second that ends with the test.
var short = load.Plan{Rate: 60, Work: load.Work{Mean: 20 * time.Millisecond}, Seed: 8}

// serving waits until all servers have served some requests.
func (f *fleet) serving(pool []*modelsim.Server) {
	f.T.Helper()
	f.Eventually("all serve", func() error {
		for _, s := range pool {
			if s.Served() < 20 {
				return fmt.Errorf("%s has served %d", s.Address(), s.Served())
			}
		}
		return nil
	})
}

// errors returns how many requests have ended in an error so far, at all endpoints, and fails if one of these is
// flagged.
func (f *fleet) errors() (sum float64, err error) {
	v, err := f.View()
	for _, e := range v.Endpoints {
		sum += e.ErrorRequests.Or(0)
		if e.Overloaded {
			f.T.Errorf("%s is flagged: %s", e.Address, e.OverloadReason)
		}
	}
	return sum, err
}

// flagsNoEndpoint watches the pool for so many errors.
func (f *fleet) flagsNoEndpoint(errors float64) {
	f.T.Helper()
	before, err := f.errors()
	if err != nil {
		f.T.Fatal(err)
	}
	f.Eventually("so many requests end in an error", func() error {
		now, err := f.errors()
		if err == nil && now < before+errors {
			err = fmt.Errorf("%v do", now-before)
		}
		return err
	})
}

func TestAServerThatAnswersWithErrorsIsFlaggedUnlessAllDo(t *testing.T) {
	t.Parallel()
	pool := testbed.Pool(t, 4)
	f := start(t, testbed.Plan{Servers: pool})
	f.Send(short)
	f.serving(pool)
	faults := []modelsim.ServingFault{
		modelsim.ServingTooManyRequests, modelsim.ServingFailedDependency, modelsim.ServingNotFound,
	}
	for i, fault := range faults {
		pool[i].SetServingFault(fault)
		f.flaggedWithin(4*time.Second, pool[i].Address(), "failing: ")
		pool[i].SetServingFault(modelsim.ServingHealthy)
	}
	for i := range faults {
		f.WellAgain(pool[i])
	}
	for _, fault := range faults {
		for _, s := range pool {
			s.SetServingFault(fault)
		}
		f.flagsNoEndpoint(120)
	}
}

// Nine requests in ten are bad requests of one client, which any server answers with an error. No server is at fault.
func TestAClientThatIsAnsweredWithErrorsFlagsNoEndpoint(t *testing.T) {
	t.Parallel()
	pool := testbed.Pool(t, 4)
	f := start(t, testbed.Plan{Servers: pool})
	f.Send(load.Plan{Rate: 10, Work: load.Work{Mean: 500 * time.Millisecond}, Seed: 9})
	f.serving(pool)
	ctx, end := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for range 2 {
		clients.Go(func() {
			for ctx.Err() == nil {
				testbed.Ask(ctx, f.URLs[0], modelsim.HeaderService, "no number")
				time.Sleep(20 * time.Millisecond) // as often as a client may that tries again and again
			}
		})
	}
	f.flagsNoEndpoint(400)
	end()
	clients.Wait()
}

// A grpcServer is a gRPC server that echoes every call after 20 ms, or answers it at once with a status.
type grpcServer struct {
	address string
	fault   atomic.Uint32 // a codes.Code
	bare    atomic.Bool   // the status stands in the headers, and there is nothing else
	served  atomic.Int64
}

func startGRPC(t *testing.T) *grpcServer {
	t.Helper()
	s := new(grpcServer)
	s.address, _ = grpctest.Serve(t, func(*grpc.Server) {}, grpc.ForceServerCodec(rawCodec{}),
		grpc.UnknownServiceHandler(s.answer))
	return s
}

func (s *grpcServer) answer(_ any, stream grpc.ServerStream) error {
	var message []byte
	if err := stream.RecvMsg(&message); err != nil {
		return err
	}
	fault := codes.Code(s.fault.Load())
	if fault == codes.OK {
		time.Sleep(20 * time.Millisecond) // the service
		s.served.Add(1)
	} else if s.bare.Load() {
		return status.Error(fault, "simulated failure")
	}
	if err := stream.SendHeader(metadata.Pairs("model", "none")); err != nil {
		return err
	}
	if err := stream.SendMsg(&message); err != nil {
		return err
	}
	return status.Error(fault, "simulated failure") // nil for OK
}

// rawCodec treats messages as bytes.
type rawCodec struct{}

var _ encoding.Codec = rawCodec{}

func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (rawCodec) Name() string                  { return "raw" }
func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

// callers make gRPC calls through the first Envoy until the test ends, one after another each.
func (f *fleet) callers(n int) {
	f.T.Helper()
	target := strings.TrimSuffix(strings.TrimPrefix(f.URLs[0], "http://"), "/")
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{})))
	if err != nil {
		f.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.T.Context())
	var clients sync.WaitGroup
	for range n {
		clients.Go(func() {
			for ctx.Err() == nil {
				in, out := []byte("a prompt"), []byte(nil)
				if err := conn.Invoke(ctx, "/inference.GRPCInferenceService/ModelInfer", &in, &out); err != nil {
					time.Sleep(20 * time.Millisecond) // before it tries again
				}
			}
		})
	}
	f.T.Cleanup(func() { cancel(); clients.Wait(); _ = conn.Close() })
}

// grpcFleet returns a fleet of gRPC servers, each with the metrics page of an idle model server.
func grpcFleet(t *testing.T, n int, p testbed.Plan) (*fleet, []*grpcServer) {
	t.Helper()
	p.Cluster = "endpoints:\n  static:\n"
	pool := make([]*grpcServer, n)
	for i, page := range testbed.Pool(t, n) {
		pool[i] = startGRPC(t)
		_, port, err := net.SplitHostPort(page.Address())
		if err != nil {
			t.Fatal(err)
		}
		p.Cluster += fmt.Sprintf("  - {address: %s, metrics_port: %s}\n", pool[i].address, port)
	}
	p.Edits = append(p.Edits, testbed.ToHTTP2)
	f := start(t, p)
	f.callers(4)
	f.Eventually("all serve", func() error {
		for _, s := range pool {
			if n := s.served.Load(); n < 20 {
				return fmt.Errorf("%s has served %d", s.address, n)
			}
		}
		return nil
	})
	return f, pool
}

func TestAServerThatAnswersWithGRPCErrorsIsFlaggedUnlessAllDo(t *testing.T) {
	t.Parallel()
	f, pool := grpcFleet(t, 4, testbed.Plan{})
	faults := []struct {
		code codes.Code
		bare bool
	}{{codes.Unavailable, false}, {codes.NotFound, true}, {codes.ResourceExhausted, false}}
	for i, fault := range faults {
		pool[i].bare.Store(fault.bare)
		pool[i].fault.Store(uint32(fault.code))
		f.flaggedWithin(4*time.Second, pool[i].address, "failing: ")
		pool[i].fault.Store(uint32(codes.OK))
	}
	for i := range faults {
		served := pool[i].served.Load()
		f.Eventually(pool[i].address+" serves again, without a flag", func() error {
			e, err := f.Endpoint(pool[i].address)
			if err == nil && (e.Overloaded || pool[i].served.Load() < served+20) {
				err = fmt.Errorf("flagged %v: %q", e.Overloaded, e.OverloadReason)
			}
			return err
		})
	}
	for _, fault := range faults {
		for _, s := range pool {
			s.bare.Store(fault.bare)
			s.fault.Store(uint32(fault.code))
		}
		f.flagsNoEndpoint(120)
	}
}

// The log of each Envoy comes in batches above five requests a second, or is off above ten.
const (
	batches = ", access_log: {batch_above: 5}"
	noLog   = ", access_log: {batch_above: 5, reports_above: 10}"
)

func TestErrorsFlagAServerInEveryModeOfTheLog(t *testing.T) {
	for name, c := range map[string]struct {
		listen string
		mode   api.SignalMode
		fault  modelsim.ServingFault
	}{
		"batches":      {batches, api.ModeBatched, modelsim.ServingNotFound},
		"reports":      {noLog, api.ModeReports, modelsim.ServingUnavailable},
		"reports, 500": {noLog, api.ModeReports, modelsim.ServingFailing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := testbed.Pool(t, 4)
			f := start(t, testbed.Plan{Servers: pool, Listen: c.listen})
			f.Send(short)
			f.serving(pool)
			f.Eventually("the Envoy is in the mode", func() error { return f.Modes(c.mode) })
			pool[1].SetServingFault(c.fault)
			f.flaggedWithin(5*time.Second, pool[1].Address(), "failing: ")
			if c.fault == modelsim.ServingUnavailable {
				return // the Envoy ejects it, for longer than is of interest here
			}
			pool[1].SetServingFault(modelsim.ServingHealthy)
			f.WellAgain(pool[1])
		})
	}
	t.Run("reports, gRPC", func(t *testing.T) {
		t.Parallel()
		f, pool := grpcFleet(t, 4, testbed.Plan{Listen: noLog})
		f.Eventually("the Envoy is in the mode", func() error { return f.Modes(api.ModeReports) })
		pool[1].fault.Store(uint32(codes.Unavailable))
		f.flaggedWithin(5*time.Second, pool[1].address, "failing: ")
	})
}

// A log that goes off and on again unflags no endpoint: neither one with errors in the load reports, nor one whose
// errors count as successes there.
func TestAChangeOfTheModeUnflagsNoEndpoint(t *testing.T) {
	for name, fault := range map[string]modelsim.ServingFault{"404": modelsim.ServingNotFound,
		"500": modelsim.ServingFailing} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := testbed.Pool(t, 4)
			f := start(t, testbed.Plan{Servers: pool, Listen: ", access_log: {batch_above: 80, reports_above: 100}"})
			f.Send(short)
			f.serving(pool)
			bad := pool[2].Address()
			pool[2].SetServingFault(fault)
			f.flaggedWithin(5*time.Second, bad, "failing: ")
			watched := f.watchTrust(bad)
			more := f.Send(load.Plan{Rate: 200, Work: load.Work{Mean: 20 * time.Millisecond}, Seed: 3})
			f.Eventually("the log goes off", func() error { return f.Modes(api.ModeReports) })
			f.tries(bad)
			more.Stop(t)
			f.Eventually("the log comes back", func() error {
				if f.Modes(api.ModeReports) == nil {
					return fmt.Errorf("still by reports")
				}
				return nil
			})
			f.tries(bad)
			watched()
		})
	}
}

// watchTrust looks at an endpoint all the time until it is stopped, and fails the test if the endpoint is neither
// flagged nor being probed.
func (f *fleet) watchTrust(address string) (stop func()) {
	const tried = 0.1
	ctx, cancel := context.WithCancel(f.T.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if e, err := f.Endpoint(address); err == nil && !e.Overloaded && e.Ramp.Or(1) > tried {
				f.T.Errorf("%s has no flag, and is trusted with %v", address, e.Ramp)
				return
			}
			time.Sleep(10 * time.Millisecond) // as often as a push may come
		}
	}()
	stop = func() { cancel(); <-done }
	f.T.Cleanup(stop)
	return stop
}

// tries waits until the Envoys have sent an endpoint some more requests.
func (f *fleet) tries(address string) {
	f.T.Helper()
	before := f.Hosts(0)[address].Requests
	f.Eventually(address+" is tried", func() error {
		if n := f.Hosts(0)[address].Requests - before; n < 3 {
			return fmt.Errorf("with %d requests", n)
		}
		return nil
	})
}
