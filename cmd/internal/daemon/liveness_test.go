package daemon

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"steelyard/controlplane"
	"steelyard/controlplane/config"
	"steelyard/controlplane/liveness"
	"steelyard/internal/api"
	"steelyard/internal/loops"
	"steelyard/picking"
	"steelyard/weighting/push"
	"steelyard/xds/envoyspec"
	"steelyard/xds/loads"
	"steelyard/xds/loads/follow"
)

// health asks /healthz.
func health(t *testing.T, base string) (code int, body string) {
	t.Helper()
	client := http.Client{Timeout: time.Minute}
	resp, err := client.Get(base + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

const two = `
clusters:
- {name: llama, engine: vllm, scrape: {disabled: true}, endpoints: {static: [{address: 10.0.0.1:80}]}}
- {name: mixtral, engine: vllm, scrape: {disabled: true}, endpoints: {static: [{address: 10.0.0.2:80}]}}
`

// wedged is a publisher that does not return from publishing one cluster.
type wedged struct {
	publisher
	cluster string
	release chan struct{}
}

func (w wedged) Publish(cluster string, v push.Verdict) (string, error) {
	if cluster == w.cluster {
		<-w.release
	}
	return w.publisher.Publish(cluster, v)
}

func TestALoopThatIsWedgedFailsHealthzByNameUntilItMoves(t *testing.T) {
	held := make(chan struct{})
	d := withPublisher(t, parse(t, two), func(p publisher) controlplane.Publisher { return wedged{p, "llama", held} })
	base := running(t, d)
	release := sync.OnceFunc(func() { close(held) })
	t.Cleanup(release) // before the daemon is stopped
	eventually(t, "/healthz fails for the one loop", func() error {
		d.monitor.Check() // which the Monitor does once a second
		if code, body := health(t, base); code != http.StatusServiceUnavailable || !strings.HasPrefix(body, "stuck") ||
			!strings.Contains(body, "\ncluster llama: no progress for ") || strings.Contains(body, "mixtral") {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	release()
	eventually(t, "/healthz is well again", healthy(t, d, base))
}

// wedgedLater is a publisher that does not return from publishing once wedge is closed.
type wedgedLater struct {
	publisher
	wedge, release chan struct{}
}

func (w wedgedLater) Publish(cluster string, v push.Verdict) (string, error) {
	select {
	case <-w.wedge:
		<-w.release
	default:
	}
	return w.publisher.Publish(cluster, v)
}

// TestPickersGoByTheWeightsWhileALoopIsWedged, although Steelyard goes on sending them the loads that it has.
func TestPickersGoByTheWeightsWhileALoopIsWedged(t *testing.T) {
	wedge, held := make(chan struct{}), make(chan struct{})
	d := withPublisher(t, parse(t, two), func(p publisher) controlplane.Publisher {
		return wedgedLater{p, wedge, held}
	})
	running(t, d)
	release := sync.OnceFunc(func() { close(held) })
	t.Cleanup(release) // before the daemon is stopped
	conn, err := follow.Dial(d.XDSAddress(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	f := follow.New(conn, "envoy-1", []string{"llama"}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { _ = f.Run(ctx) }) // nil once ctx is done
	defer following.Wait()
	defer cancel()
	chooses := func(want picking.Reason, older time.Duration) func() error {
		return func() error {
			now := time.Now()
			choice := f.Pool("llama").Choose(now, picking.Request{Size: -1}, nil)
			if _, age, _ := f.Pool("llama").State(now); choice.Reason != want || age < older {
				return fmt.Errorf("the choice is %+v, the loads are %v old", choice, age)
			}
			return nil
		}
	}
	eventually(t, "an endpoint is chosen", chooses(picking.ReasonFill, 0))
	close(wedge)
	// Heartbeats have come since.
	eventually(t, "the loads stay too old to choose by", chooses(picking.ReasonStale, picking.Stale+2*loads.Heartbeat))
	if err := f.Status(); err != nil {
		t.Errorf("the stream is lost: %v", err)
	}
	release()
	eventually(t, "an endpoint is chosen again", chooses(picking.ReasonFill, 0))
}

// heldRemoval is a publisher that does not return from removing a cluster.
type heldRemoval struct {
	publisher
	release chan struct{}
}

func (h heldRemoval) Remove(cluster string) {
	<-h.release
	h.publisher.Remove(cluster)
}

// withPublisher makes a Daemon whose clusters publish through p of its own publisher. Nothing runs yet: the manager
// gives way to one with a fault.
func withPublisher(t *testing.T, cfg *config.Config, p func(publisher) controlplane.Publisher) *Daemon {
	t.Helper()
	empty := *cfg
	empty.Clusters = nil
	d, err := New(&empty, Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	d.manager.Close()
	d.manager = controlplane.NewManager(p(d.publisher()), envoyspec.PushCost,
		d.signals, d.observer(), d.outdated, d.monitor, d.options.Log)
	if err := d.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	return d
}

// stuckOnly looks until /healthz names one part only, and the API's problems do, too.
func stuckOnly(t *testing.T, d *Daemon, base, name string) {
	t.Helper()
	eventually(t, "/healthz and the problems name "+name, func() error {
		d.monitor.Check() // which the Monitor does once a second
		code, body := health(t, base)
		if code != http.StatusServiceUnavailable ||
			!strings.HasPrefix(body, "stuck, restart it\n"+name+": no progress for ") ||
			strings.Count(body, "\n") != 2 {
			return fmt.Errorf("%d %s", code, body)
		}
		var s api.Status
		if err := get(base, "/api/v1/status", &s); err != nil {
			return err
		}
		return hasProblem(s, name+": no progress for ")
	})
}

func TestAReloadThatIsStuckFailsHealthzAndIsAProblem(t *testing.T) {
	cfg := parse(t, two)
	release := make(chan struct{})
	d := withPublisher(t, cfg, func(p publisher) controlplane.Publisher { return heldRemoval{p, release} })
	base := running(t, d)
	free := sync.OnceFunc(func() { close(release) })
	t.Cleanup(free) // before the daemon is stopped
	less := *cfg
	less.Clusters = cfg.Clusters[:1]
	applied := make(chan error, 1)
	go func() { applied <- d.Apply(&less) }()
	stuckOnly(t, d, base, "reload of the configuration")
	free()
	if err := <-applied; err != nil {
		t.Error(err)
	}
	eventually(t, "/healthz is well again", healthy(t, d, base))
}

func TestTheCollectorsThatAreStuckFailHealthzAndAreAProblem(t *testing.T) {
	d, base := serve(t, parse(t, two))
	for name, activity := range map[string]*liveness.Activity{
		"scrape targets": &d.scraping, "counts in Redis": &d.polling,
	} {
		activity.Begin()
		stuckOnly(t, d, base, name)
		activity.End()
		eventually(t, "/healthz is well again", healthy(t, d, base))
	}
}

// healthy takes a look, and wants /healthz to be well.
func healthy(t *testing.T, d *Daemon, base string) func() error {
	return func() error {
		d.monitor.Check()
		if code, body := health(t, base); code != http.StatusOK || body != "ok\n" {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	}
}

// silentListener accepts connections and never answers. Each that is accepted is reported.
func silentListener(t *testing.T) (address string, accepted <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	reports := loops.NewSignal()
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			reports.Set()
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return l.Addr().String(), reports
}

// TestPeersThatHangNeverFailHealthz: a restart would not help them, and would take the control plane from the others.
func TestPeersThatHangNeverFailHealthz(t *testing.T) {
	redis, redisAsked := silentListener(t)
	server, scraped := silentListener(t)
	d, base := serve(t, parse(t, fmt.Sprintf(`
redis: {addresses: [%q], interval: 3s, timeout: 3s}
clusters:
- name: llama
  engine: vllm
  endpoints: {static: [{address: %q}]}
  scrape: {interval: 500ms, timeout: 500ms}
  inflight: {redis_key: "inflight:{cluster}"}
`, redis, server)))
	<-redisAsked
	<-scraped
	for range 200 { // while both wait
		d.monitor.Check()
	}
	if err := healthy(t, d, base)(); err != nil {
		t.Error(err)
	}
}

func TestALockThatIsNeverFreeFailsHealthzWhichNeedsNone(t *testing.T) {
	d, err := New(parse(t, two), Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	base := running(t, d)
	d.mu.Lock()
	unlock := sync.OnceFunc(d.mu.Unlock)
	t.Cleanup(unlock)
	eventually(t, "/healthz fails for the lock", func() error {
		d.monitor.Check()
		if code, body := health(t, base); code != http.StatusServiceUnavailable ||
			!strings.Contains(body, "\nconfiguration in force: no progress for ") {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	client := http.Client{Timeout: 100 * time.Millisecond}
	if resp, err := client.Get(base + "/readyz"); err == nil {
		resp.Body.Close()
		t.Error("/readyz answers without the lock: the test holds the wrong one")
	}
	unlock()
}

func TestEveryProbeReturns(t *testing.T) {
	d, _ := serve(t, parse(t, two))
	for _, probe := range d.probes() {
		probe()
	}
}
