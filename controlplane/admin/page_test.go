package admin

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"steelyard/controlplane/view"

	"golang.org/x/net/html"
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

// keyed returns the element of the document with that data-key, outside of the
// templates.
func keyed(t *testing.T, doc *html.Node, key string) *html.Node {
	t.Helper()
	for _, n := range nodes(doc, func(n *html.Node) bool { k, ok := attr(n, "data-key"); return ok && k == key }) {
		return n
	}
	t.Fatalf("the page has no element for %q", key)
	return nil
}

func TestPageShowsEverythingWithoutScript(t *testing.T) {
	doc, _ := parsePage(t, handlerOf(typical(noon)), "/")
	for key, want := range map[string][]string{
		"status": {"not ready", "1.2.3", "3 h", "40 min ago"},
		"llama":  {"vllm", "ready", "41.7", "completions", "310 ms", "a81f-1842", "30991"},
		"redis":  {"down", "42.0 s ago", "connection refused"},
		"10.0.0.2:8000": {"overloaded: queue 5.2 per slot >= 4", "12000", "floor", "1.20", "50.0",
			"6.25", "42", "170 ms"},
		"10.0.0.3:8000":                {"neutral", "14.0 s", "no answer within 200ms"},
		"10.0.0.5:8000":                {"blackout", "–", "never"},
		"mixtral":                      {"triton", "not ready", "never"},
		"edge-2 127.0.0.1:50002 llama": {"1.40.0", "no", "a81f-1790", "52", "value must be greater than or equal to 1"},
		"edge-3 127.0.0.1:50003 lama":  {"lama", "no"},
		"access_log":                   {"partial", "1 of 3, without edge-2, edge-3"},
		"load_reports":                 {"ok", "3 of 3"},
		"10.0.0.1:8000":                {"810 ms"},

		"signals of edge-1 127.0.0.1:50001": {"ok", "events", "yes", "41.3", "33", "182900", "< 1 s ago", "1.0 s"},
		"signals of edge-2 127.0.0.1:50002": {"silent", "reports", "refuses", "304", "never", "8.0 s ago"},
		"signals of edge-3 127.0.0.1:50003": {"unknown", "–", "never"},

		"steelyard": nil,
	} {
		if want == nil {
			continue
		}
		text := words(keyed(t, doc, key))
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s does not show %q:\n%s", key, w, text)
			}
		}
	}
}

func TestPageListsWhatIsWrongErrorsFirst(t *testing.T) {
	doc, _ := parsePage(t, handlerOf(typical(noon)), "/")
	list := nodes(doc, func(n *html.Node) bool { id, _ := attr(n, "id"); return id == "wrong" })[0]
	var order []string
	for _, n := range nodes(list, func(n *html.Node) bool { return n.Data == "li" }) {
		severity, _ := attr(n, "data-v")
		order = append(order, severity)
	}
	want := "error error error error error error" + strings.Repeat(" warning", 11)
	if got := strings.Join(order, " "); got != want {
		t.Errorf("severities %s, want %s:\n%s", got, want, words(list))
	}
	if nack := keyed(t, doc, "edge-2 127.0.0.1:50002 llama"); !strings.Contains(rendered(t, nack),
		`class="words nack" data-v="true"`) {
		t.Error("the current NACK is not marked red")
	}
}

func rendered(t *testing.T, n *html.Node) string {
	t.Helper()
	var b strings.Builder
	if err := html.Render(&b, n); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPageDrawsTheRecentShares(t *testing.T) {
	doc, _ := parsePage(t, handlerOf(typical(noon)), "/")
	row := keyed(t, doc, "10.0.0.7:8000")
	path := nodes(row, func(n *html.Node) bool { return n.Data == "path" })[0]
	d, _ := attr(path, "d")
	if !strings.HasPrefix(d, "M0.0 ") || strings.Count(d, "L") != pagePoints-1 || !strings.Contains(d, "L120.0 ") {
		t.Errorf("path %q", d)
	}
}

func TestSparkBreaksWhereTheShareIsUnknown(t *testing.T) {
	for name, tc := range map[string]struct {
		shares []view.Number
		top    float64
		want   string
	}{
		"nothing":     {nil, 1, ""},
		"one":         {[]view.Number{view.Num(1)}, 1, "M120.0 1.0"},
		"line":        {[]view.Number{view.Num(0), view.Num(1)}, 1, "M0.0 19.0L120.0 1.0"},
		"gap":         {[]view.Number{view.Num(0.5), {}, view.Num(0.5)}, 1, "M0.0 10.0M120.0 10.0"},
		"no scale":    {[]view.Number{view.Num(0), view.Num(0)}, 0, "M0.0 19.0L120.0 19.0"},
		"above scale": {[]view.Number{view.Num(5), view.Num(5)}, 1, "M0.0 1.0L120.0 1.0"},
	} {
		if got := spark(tc.shares, tc.top); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
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
	c.Signals = Signals{State: hostile, Mode: hostile, Runtime: Runtime{Subscribed: true, Nack: hostile}}
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
		if n.Data == "img" || n.Data == "iframe" {
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

// formatsInGo are the formats of page.js by name, over decoded JSON.
func formatsInGo(now time.Time) map[string]func(any) string {
	number := func(f func(view.Number) string) func(any) string {
		return func(v any) string {
			n, known := v.(float64)
			if !known {
				return f(view.Number{})
			}
			return f(view.Num(n))
		}
	}
	yes := func(f func(bool) string) func(any) string {
		return func(v any) string { return f(v == true) }
	}
	return map[string]func(any) string{
		"int": number(formatInt), "num1": number(formatNum1), "num2": number(formatNum2), "pct": number(formatPercent),
		"pct2": number(formatPercent2), "secs": number(formatDuration), "yes": yes(formatYes),
		"ready": yes(formatReady),
		"flag":  yes(func(b bool) string { return strings.Repeat("overloaded", one(b)) }),
		"ago": func(v any) string {
			s, _ := v.(string)
			at, _ := time.Parse(time.RFC3339Nano, s)
			return formatAgo(view.At(at), now)
		},
		"reporting": func(v any) string { return formatReporting(again[view.Reporting](v)) },
		"follows":   func(v any) string { return formatFollows(again[Runtime](v)) },
		"plain":     func(v any) string { s, _ := v.(string); return s },
		"problems": func(v any) string {
			var messages []string
			for _, p := range v.([]any) {
				messages = append(messages, p.(map[string]any)["message"].(string))
			}
			return strings.Join(messages, "; ")
		},
		"": func(v any) string {
			if v == nil || v == "" {
				return unknown
			}
			return fmt.Sprint(v)
		},
	}
}

// again reads decoded JSON into a type.
func again[T any](v any) (out T) {
	body, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(body, &out)
	}
	if err != nil {
		panic(err)
	}
	return out
}

// follow is what get does in page.js.
func follow(v any, path string) any {
	for step := range strings.SplitSeq(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[step]
		case []any:
			v = nil
			for _, item := range at {
				if item.(map[string]any)["field"] == step {
					v = item
				}
			}
		default:
			return nil
		}
	}
	return v
}

// TestScriptWouldFillInWhatTheServerRendered does what page.js does with the
// JSON, and finds what the server has put there.
func TestScriptWouldFillInWhatTheServerRendered(t *testing.T) {
	h := handlerOf(typical(noon))
	doc, _ := parsePage(t, h, "/")
	items := map[string]any{"status": decode[any](t, ask(t, h, http.MethodGet, "/api/v1/status"))}
	for _, name := range []string{"llama", "mixtral"} {
		c := decode[map[string]any](t, ask(t, h, http.MethodGet, "/api/v1/clusters/"+name))
		items[name] = c
		for _, e := range c["endpoints"].([]any) {
			items[e.(map[string]any)["address"].(string)] = e
		}
		for _, s := range c["sources"].([]any) {
			items[name+" "+follow(s, "name").(string)] = s
		}
	}
	for _, c := range decode[map[string]any](t, ask(t, h, http.MethodGet, "/api/v1/clients"))["clients"].([]any) {
		items[fmt.Sprint("signals of ", follow(c, "node_id"), " ", follow(c, "address"))] = c
		for _, s := range follow(c, "subscriptions").([]any) {
			key := fmt.Sprint(follow(c, "node_id"), " ", follow(c, "address"), " ", follow(s, "cluster"))
			items[key] = map[string]any{"client": c, "sub": s}
		}
	}
	formats := formatsInGo(noon)
	compared := 0
	for key, item := range items {
		root := rootOf(t, doc, key)
		for _, n := range append(nodes(root, marked), root) {
			path, ok := attr(n, "data-f")
			if !ok || owner(n) != root {
				continue
			}
			format, _ := attr(n, "data-fmt")
			if got, want := words(n), formats[format](follow(item, path)); got != want {
				t.Errorf("%s: %s is rendered as %q, and the script would write %q", key, path, got, want)
			}
			compared++
		}
	}
	if compared < 380 {
		t.Errorf("only %d elements were compared", compared)
	}
}

// rootOf is the element of an item; that of a source is in its cluster's.
func rootOf(t *testing.T, doc *html.Node, key string) *html.Node {
	t.Helper()
	if cluster, source, ok := strings.Cut(key, " "); ok && (cluster == "llama" || cluster == "mixtral") {
		return keyed(t, keyed(t, doc, cluster), source)
	}
	return keyed(t, doc, key)
}

func marked(n *html.Node) bool { _, ok := attr(n, "data-f"); return ok }

// owner is the closest element with a key, itself included.
func owner(n *html.Node) *html.Node {
	for ; n != nil; n = n.Parent {
		if _, ok := attr(n, "data-key"); ok {
			return n
		}
	}
	return nil
}

func TestScriptHasEveryFormatOfThePage(t *testing.T) {
	script, page := asset(t, "page.js"), asset(t, "page.html")
	for _, m := range regexp.MustCompile(`data-fmt="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if !regexp.MustCompile(`(?m)^    ` + m[1] + `:`).MatchString(script) {
			t.Errorf("page.js has no format %q", m[1])
		}
	}
}

func TestAssetsAreSelfContained(t *testing.T) {
	for _, name := range []string{"page.js", "page.css", "page.html"} {
		body := asset(t, name)
		for _, banned := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(",
			"http://", "https://", "@import", "style=", "onclick"} {
			if strings.Contains(body, banned) {
				t.Errorf("%s contains %s", name, banned)
			}
		}
	}
}

func TestLargePoolIsCutAndCanBeShownWhole(t *testing.T) {
	f := fixed{clusters: []view.Cluster{large(noon, 1000)}, status: Status{ConfigGeneration: 1}}
	for i := range 80 {
		f.clients = append(f.clients, Client{NodeID: fmt.Sprint("edge-", i)})
	}
	h := handlerOf(f)
	for target, want := range map[string]struct {
		endpoints, clients int
		link               bool
		bytes              int
	}{
		"/":          {pageRows, pageRows, true, 250e3},
		"/?rows=all": {1000, 80, false, 5e6},
	} {
		doc, body := parsePage(t, h, target)
		count := func(table string) int {
			box := nodes(doc, func(n *html.Node) bool {
				id, _ := attr(n, "id")
				list, _ := attr(n, "data-list")
				return id == table || list == table
			})[0]
			return len(nodes(box, func(n *html.Node) bool { return n.Data == "tr" }))
		}
		if got := count("endpoints"); got != want.endpoints {
			t.Errorf("%s: %d endpoints, want %d", target, got, want.endpoints)
		}
		if got := count("clients"); got != want.clients {
			t.Errorf("%s: %d clients, want %d", target, got, want.clients)
		}
		links := nodes(doc, func(n *html.Node) bool {
			href, _ := attr(n, "href")
			return href == "?rows=all" &&
				!hidden(n.Parent)
		})
		if (len(links) > 0) != want.link {
			t.Errorf("%s: %d links to the rest", target, len(links))
		}
		if len(body) > want.bytes {
			t.Errorf("%s: %d bytes", target, len(body))
		}
	}
}

func hidden(n *html.Node) bool { _, ok := attr(n, "hidden"); return ok }

func TestPageCountsTheProblemsItDoesNotList(t *testing.T) {
	f := typical(noon)
	for i := range 40 {
		f.clients = append(f.clients, Client{NodeID: fmt.Sprint("e", i), Duplicates: 1})
	}
	doc, _ := parsePage(t, handlerOf(f), "/")
	list := nodes(doc, func(n *html.Node) bool { id, _ := attr(n, "id"); return id == "wrong" })[0]
	if n := len(nodes(list, func(n *html.Node) bool { return n.Data == "li" })); n != pageProblems {
		t.Errorf("%d problems listed", n)
	}
	more := nodes(doc, func(n *html.Node) bool { id, _ := attr(n, "id"); return id == "more-wrong" })[0]
	if hidden(more) || words(more) != "and 27 more" {
		t.Errorf("rest: hidden %t, %q", hidden(more), words(more))
	}
}

func TestReportingNamesTheMissingEnvoys(t *testing.T) {
	for want, r := range map[string]view.Reporting{
		"":               {},
		"0 of 0":         {Expected: view.Num(0), Reporting: view.Num(0)},
		"3 of 3":         {Expected: view.Num(3), Reporting: view.Num(3)},
		"1 of 3, 2 idle": {Expected: view.Num(3), Reporting: view.Num(1), Idle: view.Num(2)},
		"1 of 3, without a, b": {Expected: view.Num(3), Reporting: view.Num(1),
			Missing: []string{"a", "b"}},
		"7 of 20, without a, b and 11 more": {Expected: view.Num(20), Reporting: view.Num(7),
			Missing: []string{"a", "b"}},
	} {
		if got := formatReporting(r); got != want {
			t.Errorf("%+v: %q, want %q", r, got, want)
		}
	}
}

func TestFollowing(t *testing.T) {
	for want, r := range map[string]Runtime{
		"–":       {},
		"not yet": {Subscribed: true},
		"yes":     {Subscribed: true, InSync: true},
		"refuses": {Subscribed: true, Nack: "no"},
	} {
		if got := formatFollows(r); got != want {
			t.Errorf("%+v: %q, want %q", r, got, want)
		}
	}
}

func TestFormats(t *testing.T) {
	for in, want := range map[float64]string{
		0.0004: "0.4 ms", 0.0412: "41.2 ms", 0.25: "250 ms", 0.9996: "1.0 s", 14: "14.0 s", 90: "2 min",
		7100: "118 min", 7300: "2 h", 3 * 86400: "3 d",
	} {
		if got := formatSeconds(in); got != want {
			t.Errorf("%v s: %q, want %q", in, got, want)
		}
	}
}
