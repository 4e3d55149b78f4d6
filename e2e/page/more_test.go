package page

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"steelyard/internal/api"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/xdstest"
)

// reloads applies a configuration, and one that is refused.
func reloads(t *testing.T, f *fleet, b *browser) {
	p := b.tab(t, 1280, 900)
	p.open(f.url("#/events?range=5m"))
	f.warmUp = "6s"
	f.writeConfig("")
	p.until("the reload is on the timeline",
		`[...document.querySelectorAll('.event')].some((e) => /generation 2/.test(e.innerText))`)
	f.write("steelyard.yaml", "clusters: []\n")
	p.until("so is the one that was refused, and it is an incident",
		`[...document.querySelectorAll('.event')].some((e) => e.innerText.includes('refused')) &&
		[...document.querySelectorAll('.incident')].some((e) => e.innerText.includes('configuration was refused'))`)
	f.writeConfig("")
	p.until("a good one ends it", `![...document.querySelectorAll('.incident')].some((e) =>
		e.innerText.includes('configuration was refused'))`)
	p.noErrors()
}

// proxied returns the page behind a proxy that changes how answers are passed on.
func (f *fleet) proxied(t *testing.T, wrap func(http.Handler) http.Handler) string {
	t.Helper()
	target, err := url.Parse("http://" + f.admin)
	if err != nil {
		t.Fatal(err)
	}
	// A ReverseProxy itself passes on each event at once.
	proxy := httptest.NewServer(wrap(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}))
	t.Cleanup(func() { proxy.CloseClientConnections(); proxy.Close() })
	return proxy.URL
}

// A buffer keeps an answer until it has ended, as proxies do by default.
type buffer struct {
	http.ResponseWriter
	honours bool // what an answer asks for with X-Accel-Buffering, as nginx does
	held    []byte
}

func (b *buffer) passes() bool { return b.honours && b.Header().Get("X-Accel-Buffering") == "no" }

func (b *buffer) Write(p []byte) (int, error) {
	if b.passes() {
		return b.ResponseWriter.Write(p)
	}
	b.held = append(b.held, p...)
	return len(p), nil
}

func (b *buffer) WriteHeader(code int) {
	if b.passes() || code != http.StatusOK {
		b.ResponseWriter.WriteHeader(code)
	}
}

func (b *buffer) Flush() {
	if f, ok := b.ResponseWriter.(http.Flusher); ok && b.passes() {
		f.Flush()
	}
}

func bufferingProxies(t *testing.T, f *fleet, b *browser) {
	buffering := func(honours bool) string {
		return f.proxied(t, func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				held := &buffer{ResponseWriter: w, honours: honours}
				next.ServeHTTP(held, r)
				_, _ = w.Write(held.held)
			})
		})
	}
	t.Run("and honours X-Accel-Buffering", func(t *testing.T) {
		p := b.tab(t, 1280, 900)
		p.open(buffering(true) + "/#/c/llama?range=5m")
		p.until("there are rows", "document.querySelectorAll('tr[data-row]').length === 5")
		p.noErrors()
		p.leave()
	})
	t.Run("whatever the answer asks for", func(t *testing.T) {
		p := b.tab(t, 1280, 900)
		p.navigate(buffering(false) + "/#/c/llama?range=5m")
		p.until("it names the proxy", "document.getElementById('main').innerText.includes('a proxy in between')")
		if is := eval[string](p, "document.body.dataset.is"); is != "loading" {
			t.Errorf("without one event the page is %s", is)
		}
		if words := p.text("#live"); !strings.Contains(words, "Connecting") {
			t.Errorf("the page claims to be %q", words)
		}
		p.leave()
	})
}

// heapIsBounded hands the page the frames of ten minutes, as fast as it draws them.
func heapIsBounded(t *testing.T, f *fleet, b *browser) {
	p := b.tab(t, 1280, 900)
	p.open(f.url("#/c/llama?range=5m"))
	p.until("there are rows", "document.querySelectorAll('tr[data-row]').length === 5")
	heapFrames(t, p)
	p.noErrors()
}

// heapFrames compares the heap of a page before and after 600 frames.
func heapFrames(t *testing.T, p *tab) {
	t.Helper()
	eval[bool](p, `(async () => {
		const reader = (await fetch('api/v1/stream?cluster=llama')).body.getReader();
		let text = '';
		while (!/\ndata: (.*)\n/.test(text)) text += new TextDecoder().decode((await reader.read()).value);
		await reader.cancel();
		window.oneFrame = /\ndata: (.*)\n/.exec(text)[1];
		window.store = await import('./assets/store.js');
		window.feed = async (n) => {
			for (let i = 0; i < n; i++) {
				const frame = JSON.parse(window.oneFrame);
				frame.at = new Date(Date.parse(frame.at) + 1000 * i).toISOString();
				window.store.take(frame);
				document.body.dispatchEvent(new Event('scroll'));
				if (i % 10 === 9) await new Promise((done) => requestAnimationFrame(done));
			}
			return true;
		};
		return true;
	})()`)
	used := func() int64 {
		eval[bool](p, "window.feed(600)")
		return p.heap()
	}
	used() // what is made once
	before := used()
	after := used()
	const most = 2 << 20 // bytes; a leak of one frame each second is above
	t.Logf("heap: %d bytes, and %d after 600 more frames", before, after)
	if after > before+most {
		t.Errorf("600 frames left %d bytes behind", after-before)
	}
}

// drained drains an endpoint as an operator does.
func drained(t *testing.T, f *fleet, b *browser) {
	p := b.tab(t, 1280, 900)
	p.open(f.url("#/c/llama?range=5m"))
	address := f.llama[2].Address()
	request := func(method, body string) error {
		r, err := http.NewRequestWithContext(t.Context(), method,
			"http://"+f.admin+"/api/v1/clusters/llama/overrides/"+address, strings.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+operatorToken)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			answer, _ := io.ReadAll(resp.Body)
			return errors.New(string(answer))
		}
		return nil
	}
	if err := request(http.MethodPut, `{"kind":"drain","for_seconds":600,"reason":"a new driver"}`); err != nil {
		t.Fatal(err)
	}
	card := fmt.Sprintf("document.querySelector('tr[data-override=%q]')", address)
	p.until("the card has who, why and until when", fmt.Sprintf(`[ 'drained', '9 min', 'anna', 'a new driver',
		'is lost' ].every((w) => (%s?.innerText || '').replaceAll('\u00a0', ' ').includes(w))`, card))
	p.until("so has the row", fmt.Sprintf(
		"document.querySelector('tr[data-row=%q] .state').innerText.includes('drained')", address))
	p.shot("calm-drained-1280-light")
	if err := request(http.MethodDelete, ""); err != nil {
		t.Fatal(err)
	}
	p.until("it is gone with the override", "!"+card)
	p.noErrors()
}

// refuses has an Envoy that refuses its assignment, in words that a page must not read as HTML.
func refuses(t *testing.T, f *fleet, b *browser) {
	const words = "<b>weight</b> is 0"
	envoy, err := xdstest.Dial(xdstest.Config{Address: f.xds, NodeID: "gw-nack", Clusters: []string{"llama"},
		Refuse: func(*endpointv3.ClusterLoadAssignment) error { return errors.New(words) }})
	if err != nil {
		t.Fatal(err)
	}
	defer envoy.Close()
	p := b.tab(t, 1280, 900)
	p.open(f.url("#/envoys?pool=llama"))
	p.until("it refuses, in its own words", fmt.Sprintf(`document.querySelector('tr[data-envoy=gw-nack]')?.innerText
		.includes('refuses') && document.querySelector('.quote')?.innerText.includes(%q)`, words))
	p.until("it is an incident, and the strip is red", `[...document.querySelectorAll('.incident.error')].some((e) =>
		e.innerText.includes('gw-nack')) && document.querySelector('#chain .sign.error')`)
	p.open(f.url("#/events?range=5m"))
	p.until("it is on the timeline",
		`[...document.querySelectorAll('.event')].some((e) => e.innerText.includes('gw-nack'))`)
	p.noErrors()
	envoy.Close()
	p.until("the incident ends when it leaves", `![...document.querySelectorAll('.incident')].some((e) =>
		e.innerText.includes('gw-nack') && e.innerText.includes('refuses'))`)
}

// metricsBreak breaks the pages of most of a pool: the source is red, and the shares go on.
func metricsBreak(t *testing.T, f *fleet, b *browser) {
	p := b.tab(t, 1280, 900)
	p.open(f.url("#/c/llama?range=5m"))
	repair := func() {
		for _, s := range f.llama {
			s.SetMetricsFault(modelsim.MetricsHealthy)
		}
	}
	defer repair()
	for _, s := range f.llama[1:] {
		s.SetMetricsFault(modelsim.MetricsError)
	}
	p.until("it is one incident, in red", `document.querySelector('.incident.error')?.innerText
		.includes('metrics of most endpoints')`)
	p.until("the source is red", `[...document.querySelectorAll('table.plain tr')].some((e) =>
		e.innerText.includes('Server metrics') && e.querySelector('.sign.error'))`)
	p.shot("trouble-metrics-1280-light")
	repair()
	p.until("it ends with its cause", `![...document.querySelectorAll('.incident')].some((e) =>
		e.innerText.includes('metrics of most endpoints'))`)
	p.noErrors()
}

// operatorToken is the token of anna, who may operate.
const operatorToken = "0123456789abcdef"

// writeTokens makes the file of tokens, with which everyone may still view.
func (f *fleet) writeTokens() {
	f.t.Helper()
	line := []byte("operate anna " + operatorToken + "\n")
	if err := os.WriteFile(filepath.Join(f.dir, "tokens"), line, 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// counters are what servers count of their own requests, over the last minutes.
type counters struct {
	servers []*modelsim.Server

	mu   sync.Mutex
	seen []reading // oldest first
}

type reading struct {
	at     time.Time
	served []uint64
}

// countServed reads the counters until the test ends.
func countServed(t *testing.T, servers []*modelsim.Server) *counters {
	c := &counters{servers: servers}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(200 * time.Millisecond)
		defer ticker.Stop()
		for {
			c.read(time.Now())
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
	return c
}

func (c *counters) read(now time.Time) {
	r := reading{at: now}
	for _, s := range c.servers {
		r.served = append(r.served, s.Served())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, r)
}

// shares returns the parts of the servers in what they served in a time that ends now; nil while it is not known.
func (c *counters) shares(window time.Duration) map[string]float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.seen[len(c.seen)-1]
	first := -1
	for i := range c.seen {
		if last.at.Sub(c.seen[i].at) >= window {
			first = i
		}
	}
	if first < 0 {
		return nil
	}
	sum, out := 0.0, map[string]float64{}
	for i, s := range c.servers {
		n := float64(last.served[i] - c.seen[first].served[i])
		out[s.Address()], sum = n, sum+n
	}
	for address := range out {
		out[address] /= sum
	}
	return out
}

// servedAsCounted compares the shares of the last minute with the servers' own counters, which no Envoy reports: within
// one point of a hundred.
func servedAsCounted(t *testing.T, f *fleet, _ *browser) {
	const tolerance = 0.01
	var counted map[string]float64
	for end := time.Now().Add(2 * time.Minute); counted == nil; time.Sleep(100 * time.Millisecond) {
		if counted = f.counters.shares(time.Minute); time.Now().After(end) {
			t.Fatal("the counters were not read for a minute")
		}
	}
	f.eventually("the API agrees", func() error {
		var c api.Cluster
		f.get("/api/v1/clusters/embed", &c)
		counted = f.counters.shares(time.Minute)
		if c.Served.Source != api.ServedBegun {
			return fmt.Errorf("what is served is %q", c.Served.Source)
		}
		for _, e := range c.Endpoints {
			gap := math.Abs(e.ServedShare1m.Or(math.NaN()) - counted[e.Address])
			if !(gap <= tolerance) {
				return fmt.Errorf("%s served %v of the last minute, by its own counter %.4f", e.Address,
					e.ServedShare1m, counted[e.Address])
			}
		}
		return nil
	})
}
