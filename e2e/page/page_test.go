package page

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"steelyard/e2e/rig/proc"
	"steelyard/internal/api"
)

// routes has the routes of every view, given an endpoint of llama.
func routes(endpoint string) map[string]string {
	return map[string]string{
		"fleet": "#/", "cluster": "#/c/llama?range=5m", "endpoint": "#/c/llama/e/" + endpoint + "?range=5m",
		"envoys": "#/envoys?pool=llama", "events": "#/events?range=5m",
	}
}

// TestThePage runs one fleet for all that can be looked at one after the other: first what is calm, then trouble.
func TestThePage(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.traffic()
	f.counters = countServed(t, f.embed)
	b := newBrowser(t)
	f.warm()
	for _, c := range []struct {
		name string
		run  func(*testing.T, *fleet, *browser)
	}{
		{"every view fits every width in both themes, and axe finds nothing", viewsFit},
		{"values equal those of the API", valuesEqual},
		{"the work of engines, with sources and ages", workShown},
		{"keys, filter, sort and links", keysAndLinks},
		{"without script there are the clusters and the endpoints", withoutScript},
		{"behind a path prefix", behindPrefix},
		{"a node id is text", nodeIDIsText},
		{"an event names its endpoint among those of one host", eventsNamed},
		{"pause stands still, and goes on", pauses},
		{"a link to a cluster that is gone", goneCluster},
		{"a hidden tab lets go, and comes back", hiddenTab},
		{"what is not answered is not live", notAnswered},
		{"more Envoys than are listed", manyEnvoys},
		{"a stalled endpoint is shown as one", stalledWords},
		{"reloads, good and bad, are on the timeline", reloads},
		{"shares served are those of the servers' own counters", servedAsCounted},
		{"a proxy that buffers", bufferingProxies},
		{"the heap stays as it is over ten minutes of frames", heapIsBounded},
		{"a drained endpoint, until when and by whom", drained},
		{"an Envoy that refuses", refuses},
		{"the metrics of most of a pool", metricsBreak},
		{"a flag appears within two seconds of the API's", flagAppears},
		{"an Envoy that was killed stays listed as gone", envoyGone},
		{"in trouble every view fits, and axe finds nothing", viewsFit},
		{"without script there are the incidents", withoutScript},
		{"Steelyard is killed and comes back", killedAndBack},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, f, b) })
	}
}

// warm waits until shares were served for long enough to be shown.
func (f *fleet) warm() {
	f.t.Helper()
	f.eventually("every endpoint has a share of the last minute", func() error {
		var c api.Cluster
		f.get("/api/v1/clusters/llama", &c)
		for _, e := range c.Endpoints {
			if e.ServedShare1m.Or(0) == 0 {
				return fmt.Errorf("%s has none", e.Address)
			}
		}
		return nil
	})
}

func (f *fleet) eventually(what string, check func() error) {
	f.t.Helper()
	var err error
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	f.t.Fatalf("not within %v: %s: %v", limit, what, err)
}

func viewsFit(t *testing.T, f *fleet, b *browser) {
	p := b.tab(t, 1280, 900)
	state, widths := "calm", []int64{390, 768, 1280, 1920}
	if strings.Contains(t.Name(), "trouble") {
		state, widths = "trouble", []int64{390, 1280}
	}
	axe := axeScript(t)
	for name, hash := range routes(f.llama[0].Address()) {
		p.open(f.url(hash))
		for _, theme := range []string{"light", "dark"} {
			p.until(theme, fmt.Sprintf(`document.documentElement.dataset.theme === %q ||
				(document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'd', bubbles: true})), false)`, theme))
			for _, width := range widths {
				p.resize(width, 900)
				p.frames(2)
				if over := eval[int](p, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
					t.Errorf("%s, %s, %d px: %d px too wide: %s", name, theme, width, over, eval[string](p, tooWide))
				}
				if width == 390 || width == 1280 {
					p.shot(fmt.Sprintf("%s-%s-%d-%s", state, name, width, theme))
				}
				if (width == 390) == (theme == "dark") && (width == 390 || width == 1280) { // each theme and form once
					for _, v := range eval[[]string](p, axe+axeRun) {
						t.Errorf("%s, %s, %d px: %s", name, theme, width, v)
					}
				}
			}
		}
	}
	p.noErrors()
}

// tooWide names the elements that reach beyond the window.
const tooWide = `[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1
	&& !e.closest('.sideways')).slice(0, 6).map((e) => e.tagName + '.' + e.className).join(' ')`

// axeRun is a list of what axe-core finds, each with the first element that it is about.
const axeRun = `;axe.run(document,
	{ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] })
	.then((r) => r.violations.map((v) => v.id + ': ' + v.help + ': ' + v.nodes.length + ' times, ' +
		v.nodes[0].html.slice(0, 300) + ' ' + v.nodes[0].failureSummary))`

func axeScript(t *testing.T) string {
	t.Helper()
	root, err := proc.Root()
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile(filepath.Join(root, ".tools", "axe", "axe.min.js"))
	if err != nil {
		t.Fatalf("%v: run make tools-chromium", err)
	}
	return string(script)
}

// workShown looks for what was learned of requests and engines, and for what is outstanding at one.
func workShown(t *testing.T, f *fleet, b *browser) {
	p, views := b.tab(t, 1280, 900), routes(f.llama[0].Address())
	for _, c := range []struct{ hash, words string }{
		{views["cluster"], `From the counters of \d+ engines \([\d.]+ m?s old\): a request has ` +
			`[\d,.]+ prompt tokens to compute and [\d,.]+ of output. .* tokens per byte .*`},
		{views["endpoint"], `Prompt tokens: .*, corrected by its counters \([\d.]+ m?s old\)\. ` +
			`Prefill rate: .*(measured|typical)`},
	} {
		p.open(f.url(c.hash))
		p.until(c.words, fmt.Sprintf(`[...document.querySelectorAll('p.note')].some((e) =>
			new RegExp(%q).test(e.textContent.replaceAll('\u00a0', ' ')))`, c.words))
	}
	p.noErrors()
}

// valuesEqual compares what rows show with the API's answers of the same seconds.
func valuesEqual(t *testing.T, f *fleet, b *browser) {
	p := b.tab(t, 1280, 900)
	p.open(f.url("#/c/llama?range=5m"))
	p.until("the rows have shares", `document.querySelectorAll('[data-value=served_share_1m]').length === 5 &&
		![...document.querySelectorAll('[data-value=served_share_1m]')].some((e) => e.textContent.startsWith('–'))`)
	lowest, highest := map[string]float64{}, map[string]float64{}
	sample := func() {
		var c api.Cluster
		f.get("/api/v1/clusters/llama", &c)
		for _, e := range c.Endpoints {
			v := 100 * e.ServedShare1m.Or(math.NaN())
			if _, ok := lowest[e.Address]; !ok {
				lowest[e.Address], highest[e.Address] = v, v
			}
			lowest[e.Address], highest[e.Address] = min(lowest[e.Address], v), max(highest[e.Address], v)
		}
	}
	// The page asks each second: what it shows was an answer within the last ones.
	for end := time.Now().Add(2500 * time.Millisecond); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		sample()
	}
	shown := eval[map[string]string](p, `Object.fromEntries([...document.querySelectorAll('tr[data-row]')].map((r) =>
		[r.dataset.row, r.querySelector('[data-value]').textContent]))`)
	sample()
	for address, low := range lowest {
		v, err := strconv.ParseFloat(strings.TrimRight(shown[address], " %\u00a0"), 64)
		if err != nil || v < low-0.11 || v > highest[address]+0.11 {
			t.Errorf("%s shows the served share %q, and the API had %.2f to %.2f %%", address, shown[address], low,
				highest[address])
		}
	}
	p.noErrors()
}

func keysAndLinks(t *testing.T, f *fleet, b *browser) {
	p := b.tab(t, 1280, 900)
	p.open(f.url("#/"))
	hash := func(want string) {
		t.Helper()
		p.until("the address is "+want, fmt.Sprintf("location.hash === %q", want))
		p.frames(1)
	}
	p.key("ge")
	hash("#/envoys")
	p.key("gv")
	hash("#/events")
	p.key("gf")
	hash("#/")
	p.key("t")
	hash("#/?range=1h")
	p.until("an hour is chosen", "document.querySelector('#range [aria-pressed=true]').textContent === '1 h'")
	p.key("t")
	hash("#/?range=5m")

	p.open(f.url("#/c/llama?range=5m"))
	p.until("there are rows", "document.querySelectorAll('tr[data-row]').length === 5")
	slow := f.llama[4].Address()
	p.key("/")
	p.until("the filter has the focus, and is empty", focused("filter"))
	p.key(slow[len(slow)-4:])
	p.until("the filter leaves one row", "document.querySelectorAll('tr[data-row]').length === 1")
	filtered := eval[string](p, "location.hash")
	if !strings.Contains(filtered, "q=") {
		t.Errorf("the filter is not part of the address: %s", filtered)
	}
	p.do(chromedp.KeyEvent("\x1b"))
	p.key("j")
	p.until("the row is chosen", "document.querySelector('tr.chosen')")
	p.do(chromedp.KeyEvent("\r"))
	endpoint := "#/c/llama/e/" + slow + "?range=5m"
	hash(endpoint)
	p.until("the view is that of the endpoint", fmt.Sprintf("document.querySelector('h1').textContent === %q", slow))

	p.do(chromedp.NavigateBack())
	hash(filtered)
	p.until("back has the filter", "document.querySelectorAll('tr[data-row]').length === 1")
	p.do(chromedp.Reload())
	p.live()
	p.until("so has a reload", `document.querySelectorAll('tr[data-row]').length === 1 &&
		document.getElementById('filter').value !== ''`)
	p.open(f.url(endpoint)) // as pasted
	p.until("a pasted link shows the same view", fmt.Sprintf("document.querySelector('h1').textContent === %q", slow))
	p.key("u")
	hash("#/c/llama?range=5m")

	p.until("there are rows again", "document.querySelectorAll('tr[data-row]').length === 5")
	eval[bool](p, "[...document.querySelectorAll('th button')].find((e) => e.textContent === 'Endpoint').click(), true")
	p.until("rows are sorted by address, upwards", `(() => {
		const rows = [...document.querySelectorAll('tr[data-row]')].map((e) => e.dataset.row);
		return document.querySelector('th[aria-sort=ascending]') && rows.join() === [...rows].sort().join();
	})()`)
	p.key("?")
	p.until("the help is open", "document.getElementById('help').open")
	p.do(chromedp.KeyEvent("\x1b"))
	p.until("the help is closed", "!document.getElementById('help').open")
	p.key("f")
	p.until("the field has the focus, and is empty", focused("finder"))
	p.key("embed")
	p.until("it is known", "document.querySelector(`#found option[value=embed]`)")
	p.do(chromedp.KeyEvent("\r"))
	hash("#/c/embed?range=5m")
	p.noErrors()
}

// focused is true once an element has the focus. It also removes the character of the key that moved it there: the
// driver sends that by itself, while a keyboard does not send what a page has taken.
func focused(id string) string {
	return fmt.Sprintf("document.activeElement.id === %q && (document.activeElement.value = '', true)", id)
}

func withoutScript(t *testing.T, f *fleet, b *browser) {
	p := b.tab(t, 1280, 900)
	p.do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled,
			emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	}), chromedp.Navigate(f.url("")))
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	words, err := chromedp.Run(ctx, chromedp.Text(chromedp.CSS("body")))
	if err != nil {
		t.Fatal(err)
	}
	wanted := append([]string{"The views need scripts", "llama", "embed"}, addresses(f)...)
	if strings.Contains(t.Name(), "incidents") {
		wanted = append(wanted, "takes requests", "Is Steelyard the cause?", "What to do")
	}
	for _, want := range wanted {
		if !strings.Contains(words, want) {
			t.Errorf("the page without script lacks %q:\n%s", want, words)
		}
	}
	p.resize(390, 900)
	for _, narrow := range eval[[]string](p, `[...document.querySelectorAll('.incident summary > span')].filter((e) =>
		e.getClientRects().length && e.offsetWidth < 100).map((e) => e.innerText + ': ' + e.offsetWidth + ' px')`) {
		t.Errorf("too narrow on a phone: %s", narrow)
	}
}

func eventsNamed(t *testing.T, f *fleet, b *browser) {
	p := b.tab(t, 1280, 900)
	p.open(f.url(""))
	for subject, want := range map[string]string{"10.0.3.7:8001": "3.7:8001 flagged",
		"gpu-7:8001": "gpu-7:8001 flagged"} {
		got := eval[string](p, fmt.Sprintf(`import('/assets/views.js').then((m) =>
			m.readEvent({ kind: 'flagged', count: 1, subjects: [%q], at: '2026-11-01T10:00:00Z' }).brief)`, subject))
		if got != want {
			t.Errorf("%s is %q on the lane, want %q", subject, got, want)
		}
	}
	p.noErrors()
}

func addresses(f *fleet) (out []string) {
	for _, s := range f.llama {
		out = append(out, s.Address())
	}
	return out
}

// behindPrefix has a proxy that serves the page below a path.
func behindPrefix(t *testing.T, f *fleet, b *browser) {
	target, err := url.Parse("http://" + f.admin)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(http.StripPrefix("/ops/steelyard", &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, FlushInterval: -1,
	}))
	defer func() { proxy.CloseClientConnections(); proxy.Close() }()
	p := b.tab(t, 1280, 900)
	p.open(proxy.URL + "/ops/steelyard/#/c/llama?range=5m")
	p.until("there are rows", "document.querySelectorAll('tr[data-row]').length === 5")
	if clock := p.text("#live"); !strings.Contains(clock, "Live") {
		t.Errorf("the page is %q", clock)
	}
	p.noErrors()
	p.leave()
}

func nodeIDIsText(t *testing.T, f *fleet, b *browser) {
	p := b.tab(t, 1280, 900)
	for _, hash := range []string{"#/envoys?pool=embed", "#/", "#/events"} {
		p.open(f.url(hash))
		p.until("the node id is shown", fmt.Sprintf("document.body.innerText.includes(%q)", hostileNode))
		if n := eval[int](p, "[...document.images].filter((e) => !e.closest('.brand')).length"); n != 0 {
			t.Errorf("%s: %d images were made of a node id", hash, n)
		}
	}
	p.noErrors()
}

func pauses(t *testing.T, f *fleet, b *browser) {
	p := b.tab(t, 1280, 900)
	p.open(f.url("#/"))
	p.key(" ")
	p.until("it is paused", "document.body.dataset.is === 'paused'")
	before := p.text("main")
	p.until("it has been paused for two seconds",
		"/, [2-9]\\s+s ago/.test(document.getElementById('live').innerText)")
	if after := p.text("main"); after != before {
		t.Errorf("a paused page changed:\n%s\n---\n%s", before, after)
	}
	p.key(" ")
	p.live()
	p.noErrors()
}

func flagAppears(t *testing.T, f *fleet, b *browser) {
	const promised = 2 * time.Second
	p := b.tab(t, 1280, 900)
	p.open(f.url("#/c/llama?range=5m"))
	stalled := f.llama[1]
	p.until("there are rows", "document.querySelectorAll('tr[data-row]').length === 5")
	stalled.SetFrozen(true)
	var flagged time.Time
	f.eventually("it is flagged", func() error {
		var c api.Cluster
		f.get("/api/v1/clusters/llama", &c)
		for _, e := range c.Endpoints {
			if e.Address == stalled.Address() && e.Overloaded {
				flagged = time.Now()
				return nil
			}
		}
		return errors.New("no flag")
	})
	p.until("the row is marked", fmt.Sprintf(
		"document.querySelector('tr.error[data-row=\"%[1]s\"], tr.warning[data-row=\"%[1]s\"]')", stalled.Address()))
	if took := time.Since(flagged); took > promised {
		t.Errorf("the flag was shown after %v, want %v", took, promised)
	}
	p.until("it is an incident, and on the timeline", fmt.Sprintf(
		"document.querySelector('.incident')?.innerText.includes(%q)", stalled.Address()))
	first := p.text(".incident")
	for _, want := range []string{"Why", "Is Steelyard the cause?", "What to do", "for "} {
		if !strings.Contains(first, want) {
			t.Errorf("the incident lacks %q:\n%s", want, first)
		}
	}
	if title := eval[string](p, "document.title"); !strings.HasPrefix(title, "(") {
		t.Errorf("the title %q does not count the incident", title)
	}
	p.open(f.url("#/events?range=5m"))
	p.until("the timeline has the flag", fmt.Sprintf(
		"document.querySelector('main').innerText.includes(%q)", stalled.Address()))
	p.noErrors()
}

func envoyGone(t *testing.T, f *fleet, b *browser) {
	p := b.tab(t, 1280, 900)
	p.open(f.url("#/envoys?pool=llama"))
	p.until("it is connected", `document.querySelector('tr[data-envoy="gw-2"]')`)
	if err := f.envoys[1].Kill(); err != nil {
		t.Fatal(err)
	}
	p.until("it is listed as gone", `document.querySelector('tr.gone[data-envoy="gw-2"]')`)
	p.until("it is an incident",
		`[...document.querySelectorAll('.incident')].some((e) => e.innerText.includes('gw-2'))`)
	p.noErrors()
}

func killedAndBack(t *testing.T, f *fleet, b *browser) {
	p := b.tab(t, 1280, 900)
	p.open(f.url("#/c/llama?range=5m"))
	p.until("there are rows", "document.querySelectorAll('tr[data-row]').length === 5")
	eval[bool](p, "window.sameDocument = true")
	if err := f.control.Kill(); err != nil {
		t.Fatal(err)
	}
	p.until("it reconnects", "document.body.dataset.is === 'reconnecting'")
	p.until("it is stale", "document.body.dataset.is === 'stale' && !document.getElementById('old').hidden")
	p.shot("stale-cluster-1280-light")
	if chain := p.text("#chain"); !strings.Contains(chain, "not known since") || strings.Contains(chain, "receives") {
		t.Errorf("a stale page claims: %s", chain)
	}
	if lead := p.text(".lead"); strings.Contains(lead, "uses") {
		t.Errorf("a stale page claims: %s", lead)
	}
	f.start("steelyard-2")
	p.live()
	p.until("it has the restart", "document.querySelector('main').innerText.includes('Steelyard started')")
	p.until("there are rows again", "document.querySelectorAll('tr[data-row]').length === 5")
	if !eval[bool](p, "Boolean(window.sameDocument)") {
		t.Error("the page was loaded again")
	}
	p.noErrors("Failed to load resource", "ERR_CONNECTION", "ERR_INCOMPLETE", "ERR_EMPTY")
}
