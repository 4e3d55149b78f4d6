package signals

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"steelyard/collectors/accesslog"
	"steelyard/collectors/ledger"
	"steelyard/collectors/loadstats"
	"steelyard/collectors/wire"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/e2e/rig/testbed"
	envoybootstrap "steelyard/envoy-bootstrap"
	"steelyard/weighting"
	"steelyard/weighting/flight"
	"steelyard/weighting/push"
	"steelyard/xds"
)

// A receiver is Steelyard's services for Envoys in the test's own process, so that a test can read its counts one by
// one and make faults.
type receiver struct {
	t        testing.TB
	address  string
	interval atomic.Int64                     // of load reports, as a time.Duration
	tls      credentials.TransportCredentials // nil for plain text

	ledger  *ledger.Ledger
	streams *xds.Server
	logs    *accesslog.Server
	reports *loadstats.Server
	members []string
	stop    func()
}

// receive starts a receiver whose cluster has these endpoints, all of one weight.
func receive(t testing.TB, members ...string) *receiver {
	t.Helper()
	r := &receiver{t: t, address: "127.0.0.1:0", members: members}
	r.interval.Store(int64(100 * time.Millisecond))
	r.start(r.everything)
	t.Cleanup(func() { r.stop() })
	return r
}

// start serves at the same address as before, with empty counts, like a Steelyard that was restarted.
func (r *receiver) start(register func(*grpc.Server)) {
	r.t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	r.ledger = ledger.New(nil)
	r.streams = xds.NewServer(xds.Options{Log: quiet})
	r.logs = accesslog.New(r.ledger, quiet)
	interval := func(ledger.Envoy) time.Duration { return time.Duration(r.interval.Load()) }
	r.reports = loadstats.New(r.ledger, loadstats.Options{Interval: interval}, quiet)
	r.ledger.SetMembers(testbed.Cluster, r.members)
	r.publish(r.members...)

	listener, err := net.Listen("tcp", r.address)
	if err != nil {
		r.t.Fatal(err)
	}
	r.address = listener.Addr().String()
	server := grpc.NewServer(append(xds.GRPCOptions(r.tls), grpc.ForceServerCodecV2(wire.Codec()))...)
	register(server)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	r.stop = func() { server.Stop(); <-done }
}

// everything registers all services of Steelyard.
func (r *receiver) everything(s *grpc.Server) {
	r.streams.Register(s)
	r.logs.Register(s)
	r.reports.Register(s)
}

// publish sends endpoints with equal weights.
func (r *receiver) publish(members ...string) {
	d := weighting.Decision{At: time.Now()}
	for _, m := range members {
		d.Endpoints = append(d.Endpoints, weighting.EndpointDecision{Address: m, Share: 1 / float64(len(members))})
	}
	r.streams.Publish(testbed.Cluster, push.Verdict{Decision: d, Members: true})
}

// watch lets the Envoys that subscribe move the counts, and returns how many do.
func (r *receiver) watch() int {
	watchers := r.streams.Watchers(testbed.Cluster)
	r.ledger.SetWatchers(testbed.Cluster, watchers)
	r.ledger.Tick(time.Now())
	return len(watchers)
}

// counts returns the counts of the cluster at this time, in the order of its members.
func (r *receiver) counts() []flight.Counts {
	r.watch()
	return r.ledger.Read(testbed.Cluster, time.Now(), nil)
}

// sum adds up the known values of a number over all endpoints.
func (r *receiver) sum(of func(flight.Counts) weighting.Reading) int {
	r.t.Helper()
	total := 0.0
	for _, c := range r.counts() {
		if n := of(c); n.Known() {
			total += n.Value
		}
	}
	return int(total)
}

func inFlight(c flight.Counts) weighting.Reading   { return c.InFlight }
func issued(c flight.Counts) weighting.Reading     { return c.Proxies.Issued }
func ended(c flight.Counts) weighting.Reading      { return c.Proxies.Ended }
func failed(c flight.Counts) weighting.Reading     { return c.Proxies.Failed }
func errored(c flight.Counts) weighting.Reading    { return c.Proxies.Errors }
func sized(c flight.Counts) weighting.Reading      { return c.Proxies.Sized }
func sizedBytes(c flight.Counts) weighting.Reading { return c.Proxies.SizedBytes }

// refusedSized returns the requests of a known size that ended with a 4xx, and refusedBytes the sum of their sizes.
func refusedSized(c flight.Counts) weighting.Reading { return c.Proxies.Refused }
func refusedBytes(c flight.Counts) weighting.Reading { return c.Proxies.RefusedBytes }

// unsized returns the requests that began without a known size.
func unsized(c flight.Counts) weighting.Reading {
	p := c.Proxies
	return weighting.Reading{Value: p.Issued.Value - p.Sized.Value, At: p.Issued.At}
}
func answered(c flight.Counts) weighting.Reading { return c.Proxies.Answered }

// eventually waits for a condition: check returns why it does not hold yet.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	(&testbed.Fleet{T: t}).Eventually(what, check)
}

// becomes waits until a sum has a value.
func (r *receiver) becomes(what string, of func(flight.Counts) weighting.Reading, want int) {
	r.t.Helper()
	eventually(r.t, what, func() error {
		if got := r.sum(of); got != want {
			return fmt.Errorf("%d, want %d", got, want)
		}
		return nil
	})
}

// knows waits until every endpoint has a count.
func (r *receiver) knows() {
	r.t.Helper()
	eventually(r.t, "every endpoint has a count", func() error {
		for _, c := range r.counts() {
			if !c.InFlight.Known() {
				return fmt.Errorf("none of %s", c.Address)
			}
		}
		return nil
	})
}

// form switches the access log of all Envoys.
func (r *receiver) form(immediate, batched float64) {
	for _, w := range r.streams.Watchers(testbed.Cluster) {
		r.streams.SetRuntime(w, map[string]float64{xds.RuntimeImmediate: immediate, xds.RuntimeBatched: batched})
	}
}

// A receiverEnvoy is an Envoy that reports its requests to a receiver.
type receiverEnvoy struct {
	*proc.Envoy
	url string
}

// envoy starts an Envoy on a receiver.
func (r *receiver) envoy(o envoybootstrap.Options, workers int, edits ...testbed.Edit) *receiverEnvoy {
	r.t.Helper()
	o.Cluster, o.XDS, o.Mode = testbed.Cluster, r.address, cmp.Or(o.Mode, envoybootstrap.ModeShedding)
	o.Listen, o.Admin = "127.0.0.1:0", "127.0.0.1:0"
	text, err := envoybootstrap.Render(o)
	if err != nil {
		r.t.Fatal(err)
	}
	e := proctest.Envoy(r.t, proc.EnvoyConfig{Bootstrap: testbed.Edited(r.t, text, edits), Concurrency: workers})
	listener, err := e.Listener(r.t.Context(), "ingress")
	if err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, "the Envoy subscribes", func() error {
		if r.watch() == 0 {
			return errors.New("no Envoy does")
		}
		return nil
	})
	return &receiverEnvoy{e, "http://" + listener + "/"}
}

// stat returns one of the Envoy's counters.
func (e *receiverEnvoy) stat(t *testing.T, name string) float64 {
	t.Helper()
	all, err := e.Stats(t.Context(), "^"+name+"$")
	if err != nil {
		t.Fatal(err)
	}
	return all[name]
}

// An upstream is a model server that does what the path of a request says, when the test lets it.
type upstream struct {
	address string
	let     chan struct{} // one for each request that goes on
}

// startUpstream serves HTTP/1.1, and HTTP/2 without TLS.
func startUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{let: make(chan struct{})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u.address = listener.Addr().String()
	server := &http.Server{Handler: u, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() { server.Close(); <-done })
	return u
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	// The server notices a client that goes away only for a request that was read to its end.
	_, _ = io.Copy(io.Discard, req.Body)
	say := func() { fmt.Fprint(w, "some of the answer"); w.(http.Flusher).Flush() }
	if strings.HasPrefix(req.URL.Path, "/stream") {
		say()
	}
	select {
	case <-u.let:
	case <-req.Context().Done():
		return
	}
	switch req.URL.Path {
	case "/500":
		w.WriteHeader(http.StatusInternalServerError)
	case "/400":
		w.WriteHeader(http.StatusBadRequest)
	case "/503":
		w.WriteHeader(http.StatusServiceUnavailable)
	case "/reset", "/stream-reset":
		panic(http.ErrAbortHandler)
	default:
		say()
	}
}
