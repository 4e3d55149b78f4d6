package daemon

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"steelyard/controlplane"
	"steelyard/weighting"
	"steelyard/xds/envoyspec"
)

// health asks /healthz.
func health(t *testing.T, base string) (code int, body string) {
	t.Helper()
	client := http.Client{Timeout: 5 * time.Second}
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

func (w wedged) Publish(cluster string, d weighting.Decision, staleAfter time.Duration) (string, error) {
	if cluster == w.cluster {
		<-w.release
	}
	return w.publisher.Publish(cluster, d, staleAfter)
}

func TestALoopThatIsWedgedFailsHealthzByNameUntilItMoves(t *testing.T) {
	cfg := parse(t, two)
	empty := *cfg
	empty.Clusters = nil
	d, err := New(&empty, Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	// Nothing runs yet: the manager gives way to one with a fault.
	d.manager.Close()
	p := wedged{publisher{d.streams, d.metrics, d.history}, "llama", make(chan struct{})}
	d.manager = controlplane.NewManager(p, envoyspec.PushCost, d.signals, observer{d.metrics, d.history}, d.outdated, d.beats, d.options.Log)
	if err := d.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	base := running(t, d)
	release := sync.OnceFunc(func() { close(p.release) })
	t.Cleanup(release) // before the daemon is stopped
	eventually(t, "/healthz fails for the one loop", func() error {
		d.beats.Check() // which the Monitor does once a second
		if code, body := health(t, base); code != http.StatusServiceUnavailable || !strings.HasPrefix(body, "stuck") ||
			!strings.Contains(body, "\ncluster llama: no progress for ") || strings.Contains(body, "mixtral") {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	release()
	eventually(t, "/healthz is well again", func() error {
		d.beats.Check()
		if code, body := health(t, base); code != http.StatusOK || body != "ok\n" {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
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
		d.beats.Check()
		if code, body := health(t, base); code != http.StatusServiceUnavailable || !strings.Contains(body, "\nconfiguration in force: no progress for ") {
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
