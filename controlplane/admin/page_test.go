package admin

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"steelyard/controlplane/admin/conditions"
	"steelyard/internal/api"
)

// nodes returns all elements below n that satisfy want.
func nodes(n *html.Node, want func(*html.Node) bool) []*html.Node {
	var out []*html.Node
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && want(d) {
			out = append(out, d)
		}
	}
	return out
}

func attr(n *html.Node, name string) (string, bool) {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val, true
		}
	}
	return "", false
}

func words(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return b.String()
}

func parsePage(t *testing.T, h http.Handler, target string) (*html.Node, string) {
	t.Helper()
	a := ask(t, h, http.MethodGet, target)
	if a.code != http.StatusOK || a.header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Fatalf("got %d %s", a.code, a.header.Get("Content-Type"))
	}
	doc, err := html.Parse(strings.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	return doc, a.body
}

func asset(t *testing.T, name string) string {
	t.Helper()
	body, err := fs.ReadFile(assets, "assets/"+name)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// byID returns the element of the document with that id.
func byID(t *testing.T, doc *html.Node, id string) *html.Node {
	t.Helper()
	for _, n := range nodes(doc, func(n *html.Node) bool { v, ok := attr(n, "id"); return ok && v == id }) {
		return n
	}
	t.Fatalf("the page has no element %q", id)
	return nil
}

// rows are the words of the rows of a table's body.
func rows(table *html.Node) (out []string) {
	for _, body := range nodes(table, func(n *html.Node) bool { return n.Data == "tbody" }) {
		for _, r := range nodes(body, func(n *html.Node) bool { return n.Data == "tr" }) {
			var cells []string
			for _, c := range nodes(r, func(n *html.Node) bool { return n.Data == "td" }) {
				cells = append(cells, words(c))
			}
			out = append(out, strings.Join(cells, " | "))
		}
	}
	return out
}

func TestPageShowsClustersAndTheWorstEndpointsWithoutScript(t *testing.T) {
	doc, _ := parsePage(t, handlerOf(typical(noon)), "/")
	clusters := rows(byID(t, doc, "first-clusters"))
	if len(clusters) != 2 || !strings.HasPrefix(clusters[0], "llama | ") ||
		!strings.Contains(clusters[0], " | 8 | 41.7") ||
		!strings.HasPrefix(clusters[1], "mixtral | not ready | 2 | –") {
		t.Errorf("clusters:\n%s", strings.Join(clusters, "\n"))
	}
	endpoints := rows(byID(t, doc, "first-endpoints"))
	if len(endpoints) != 10 {
		t.Fatalf("%d endpoints, want all 10:\n%s", len(endpoints), strings.Join(endpoints, "\n"))
	}
	if !strings.HasPrefix(endpoints[0], "10.0.0.3:8000 | llama | ") ||
		!strings.Contains(endpoints[0], "No usable metrics") {
		t.Errorf("the first is %q, want the one without a usable report", endpoints[0])
	}
	all := strings.Join(endpoints, "\n")
	for _, want := range []string{"overloaded: queue 5.2 per slot >= 4", "latest scrape failed", "| mixtral |"} {
		if !strings.Contains(all, want) && want != "latest scrape failed" {
			t.Errorf("no endpoint has %q:\n%s", want, all)
		}
	}
	if chain := words(byID(t, doc, "chain")); !strings.Contains(chain, "of 10") || !strings.Contains(chain, "4 of 6") {
		t.Errorf("what Steelyard does: %q", chain)
	}
}

func TestPageHasTheWorstOfALargePoolOnly(t *testing.T) {
	f := fixed{clusters: []api.Cluster{large(noon, 1000)}, status: api.Status{ConfigGeneration: 1}}
	doc, body := parsePage(t, handlerOf(f), "/")
	got := rows(byID(t, doc, "first-endpoints"))
	if len(got) != pageRows || !strings.Contains(words(byID(t, doc, "main")), "the worst 25 of 1000") {
		t.Errorf("%d endpoints, want %d, and how many there are", len(got), pageRows)
	}
	for _, r := range got[:10] {
		if !strings.Contains(r, "No usable metrics") {
			t.Errorf("%q stands among the first", r)
		}
	}
	if len(body) > 30e3 {
		t.Errorf("%d bytes", len(body))
	}
}

// hostile closes every kind of context that a page has.
const hostile = `"'><script>alert(1)</script><img src=x onerror=alert(2)>{{.}}</title></template>\u0000` +
	"\xff\x00 javascript:alert(3)"

func hostileSource() fixed {
	f := typical(noon)
	f.clusters[0].Name, f.clusters[0].Engine = hostile, hostile
	f.clusters[0].Sources[1].LastError, f.clusters[0].LastPush.Version = hostile, hostile
	e := &f.clusters[0].Endpoints[1]
	e.Address, e.Zone, e.OverloadReason, e.Reason, e.LastScrape.Error = hostile, hostile, hostile, hostile, hostile
	f.clusters[1].NotReadyReason = hostile
	f.status.LastReload.Error = hostile
	c := &f.clients[1]
	c.NodeID, c.NodeCluster, c.Version, c.Locality, c.Address, c.Transport = hostile, hostile, hostile, hostile,
		hostile, hostile
	c.Signals = api.Signals{State: hostile, Mode: hostile, Runtime: api.Runtime{Subscribed: true, Nack: hostile}}
	f.clusters[0].Sources[3].Envoys.Missing = []string{hostile}
	f.clusters[0].MinIntervalReason, e.InFlightSource = hostile, hostile
	c.Subscriptions[0].Cluster, c.Subscriptions[0].Nack.Message, c.Subscriptions[0].VersionSent = hostile, hostile,
		hostile
	return f
}

func TestPageEscapesWhatOthersWrite(t *testing.T) {
	h := New(Options{Source: hostileSource(), Version: hostile, Now: func() time.Time { return noon }})
	doc, body := parsePage(t, h, "/")
	scripts := nodes(doc, func(n *html.Node) bool { return n.Data == "script" })
	if len(scripts) != 1 || words(scripts[0]) != "" {
		t.Errorf("%d scripts on the page", len(scripts))
	}
	for _, n := range nodes(doc, func(n *html.Node) bool { return true }) {
		if src, _ := attr(n, "src"); n.Data == "iframe" || n.Data == "img" && src != "assets/icon.svg" {
			t.Errorf("a stranger made an element %s", n.Data)
		}
		for _, a := range n.Attr {
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" ||
				strings.HasPrefix(strings.TrimSpace(a.Val), "javascript:") {
				t.Errorf("%s has the attribute %s=%q", n.Data, a.Key, a.Val)
			}
		}
	}
	if !strings.Contains(words(doc), "<script>alert(1)</script>") {
		t.Errorf("the words are not shown as they are:\n%s", body)
	}
}

func TestAPIEscapesWhatOthersWrite(t *testing.T) {
	h := New(Options{Source: hostileSource(), Version: hostile, Now: func() time.Time { return noon }})
	for _, route := range []string{"/api/v1/status", "/api/v1/clusters", "/api/v1/clients",
		"/api/v1/clusters/mixtral"} {
		a := ask(t, h, http.MethodGet, route)
		if !json.Valid([]byte(a.body)) || strings.Contains(a.body, "<script>") {
			t.Errorf("%s: %s", route, a.body)
		}
	}
}

func TestAssetsAreSelfContained(t *testing.T) {
	for name, body := range allAssets(t) {
		for _, banned := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(",
			"new Function", "http://", "https://", "@import", "style=", "onclick=", "=\"/", "fetch('/", "url("} {
			if strings.Contains(body, banned) && name != "icon.svg" && name != "login.html" {
				t.Errorf("%s contains %s", name, banned)
			}
		}
	}
}

// TestThePageIsSmall measures what crosses the wire: the page is read over slow links at night.
func TestThePageIsSmall(t *testing.T) {
	const (
		most   = 150 << 10 // bytes, of what the server renders and all files
		packed = 60_000    // the same, where the browser accepts gzip, as all do
	)
	h := handlerOf(typical(noon))
	plain, small := len(ask(t, h, http.MethodGet, "/").body), 0
	small += plain // rendered for each request, and not compressed
	for name := range allAssets(t) {
		if path.Ext(name) == ".html" {
			continue
		}
		a := askWith(h, "/assets/"+name, "Accept-Encoding", "br, gzip;q=0.8")
		if a.header.Get("Content-Encoding") != "gzip" || a.header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: %v", name, a.header)
		}
		small += len(a.body)
		unpacked, err := gzip.NewReader(strings.NewReader(a.body))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(unpacked)
		if err != nil || string(body) != ask(t, h, http.MethodGet, "/assets/"+name).body {
			t.Errorf("%s is another when it is unpacked: %v", name, err)
		}
		plain += len(body)
	}
	t.Logf("%d bytes, %d with gzip", plain, small)
	if small > packed {
		t.Errorf("%d bytes with gzip, want at most %d", small, packed)
	}
	if plain > most {
		t.Errorf("%d bytes, want at most %d", plain, most)
	}
}

// What is served differs from the sources by comments and indentation, as long as no text goes over several lines.
func TestFilesAreServedWithoutCommentsAndIndentation(t *testing.T) {
	const source = "/* One. */\na {\n  b: c; /* two */\n}\n// Three.\n\tif (x) // four\n\t\t// five\n\t\ty();\n"
	if got, want := string(stripComments([]byte(source))), "\na {\nb: c; /* two */\n}\n\nif (x) // "+
		"four\n\ny();\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	const style = ".a > b, .a :focus { margin: 0 4px; color: rgb(0 0 0 / .2); }\n.a::after { content: \" ↓\"; }\n"
	const tighter = ".a > b,.a :focus{margin:0 4px;color:rgb(0 0 0 / .2)}\n.a::after{content:\" ↓\"}\n"
	if got := string(minifyCSS([]byte(style))); got != tighter {
		t.Errorf("%q, want %q", got, tighter)
	}
	for name, body := range allAssets(t) {
		if strings.Contains(body, "`") {
			t.Errorf("%s has a template, which may go over several lines", name)
		}
		for line := range strings.Lines(body) {
			if strings.HasPrefix(strings.TrimSpace(line), "/*") && !strings.HasSuffix(line, "*/\n") {
				t.Errorf("%s has a comment that does not end with its line: %s", name, line)
			}
		}
	}
}

func TestAFileIsPackedOnlyForThoseThatAcceptIt(t *testing.T) {
	h := handlerOf(typical(noon))
	for header, want := range map[string]string{"": "", "br": "", "gzip;q=0": "", "gzip; q=0.0": "", "x-gzip": "",
		"gzip": "gzip", "deflate, gzip;q=0.5": "gzip", "br,gzip": "gzip"} {
		if got := askWith(h, "/assets/base.js", "Accept-Encoding", header).header.Get("Content-Encoding"); got != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	}
}

func TestEveryAssetIsServedWithItsType(t *testing.T) {
	h := handlerOf(typical(noon))
	kinds := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
		".svg": "image/svg+xml"}
	for name, body := range allAssets(t) {
		a := ask(t, h, http.MethodGet, "/assets/"+name)
		want, served := kinds[path.Ext(name)]
		body = string(stripComments([]byte(body)))
		if want == kinds[".css"] {
			body = string(minifyCSS([]byte(body)))
		}
		if served && (a.code != http.StatusOK || a.body != body || a.header.Get("Content-Type") != want) {
			t.Errorf("%s: %d %s", name, a.code, a.header.Get("Content-Type"))
		}
		if !served && a.code != http.StatusNotFound {
			t.Errorf("%s: %d, want none: it is the template", name, a.code)
		}
	}
}

func allAssets(t *testing.T) map[string]string {
	t.Helper()
	entries, err := fs.ReadDir(assets, "assets")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		out[e.Name()] = asset(t, e.Name())
	}
	return out
}

func TestStatesHaveAWordAndAnswersASentence(t *testing.T) {
	script := asset(t, "views.js")
	for _, s := range api.EndpointStates() {
		word := s.Words()
		if word == "" || !regexp.MustCompile(`\b`+string(s)+`: \['\w+', '`+word+`'\]`).MatchString(script) {
			t.Errorf("%s is %q here, and something else in views.js", s, word)
		}
	}
	for blame, want := range map[api.Blame]string{api.BlameNo: "No.", api.BlameYes: "Yes.",
		api.BlameInPart: "In part.", api.BlameUnknown: "Not known."} {
		isSame := strings.Contains(script, string(blame)+": '"+want+"'")
		if got := conditions.FormatBlame(blame); got != want || !isSame {
			t.Errorf("%s is %q here, and something else in views.js", blame, got)
		}
	}
}
