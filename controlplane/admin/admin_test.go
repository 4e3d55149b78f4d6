package admin

import (
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"steelyard/controlplane/admin/history"
	"steelyard/internal/api"
)

// routes are all paths that answer.
var routes = []string{
	"/", "/healthz", "/readyz", "/metrics", "/api/v1/status", "/api/v1/clusters",
	"/api/v1/clusters/llama",
	"/api/v1/clusters/llama/history", "/api/v1/clients", "/assets/page.css", "/assets/page.js", "/assets/icon.svg",
}

func readyOnly(f fixed) fixed {
	f.clusters = f.clusters[:1]
	return f
}

func TestEveryRouteAnswersGetAndHeadWithItsHeaders(t *testing.T) {
	h := handlerOf(readyOnly(typical(noon)))
	for _, route := range routes {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			a := ask(t, h, method, route)
			if a.code != http.StatusOK {
				t.Errorf("%s %s: %d %s", method, route, a.code, a.body)
			}
			for name, want := range map[string]string{
				"Content-Security-Policy": contentSecurity, "X-Content-Type-Options": "nosniff",
				"X-Frame-Options": "DENY", "Cache-Control": "no-store",
			} {
				if got := a.header.Get(name); got != want {
					t.Errorf("%s %s: %s is %q, want %q", method, route, name, got, want)
				}
			}
		}
	}
}

func TestNoRouteTakesAnotherMethod(t *testing.T) {
	h := handlerOf(typical(noon))
	for _, route := range append(routes, "/nowhere", "/debug/pprof/") {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"} {
			a := ask(t, h, method, route)
			if a.code != http.StatusMethodNotAllowed || a.header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %d, Allow %q", method, route, a.code, a.header.Get("Allow"))
			}
		}
	}
}

func TestAnUnknownPathIsNotFoundAndListsTheKnownOnes(t *testing.T) {
	h := handlerOf(typical(noon))
	for route, want := range map[string]string{
		"/nowhere":                         "/api/v1/clusters",
		"/debug/pprof/":                    "/api/v1/clusters",
		"/assets/":                         "/api/v1/clusters",
		"/assets/page.html":                "/api/v1/clusters",
		"/api/v1/clusters/lama":            "llama, mixtral",
		"/api/v1/clusters/lama/history":    "llama, mixtral",
		"/api/v1/clusters/%3Cscript%3E%2F": "llama, mixtral",
	} {
		a := ask(t, h, http.MethodGet, route)
		if a.code != http.StatusNotFound || !strings.Contains(decode[api.Error](t, a).Error, want) {
			t.Errorf("%s: %d %s, want 404 with %q", route, a.code, a.body, want)
		}
	}
}

func TestWrongParametersAreRefusedWithWhatToWrite(t *testing.T) {
	h := handlerOf(typical(noon))
	for route, want := range map[string]string{
		"/api/v1/clusters/llama?sort=best":              "name or worst",
		"/api/v1/clusters/llama?limit=-1":               "at least 0",
		"/api/v1/clusters/llama?limit=many":             "at least 0",
		"/api/v1/clients?sort=best":                     "name or worst",
		"/api/v1/clients?limit=1.5":                     "at least 0",
		"/api/v1/clusters/llama/history?window=5":       "5m",
		"/api/v1/clusters/llama/history?window=0s":      "5m",
		"/api/v1/clusters/llama/history?window=61m":     "up to 1h",
		"/api/v1/clusters/llama/history?points=several": "at least 0",
	} {
		a := ask(t, h, http.MethodGet, route)
		if a.code != http.StatusBadRequest || !strings.Contains(decode[api.Error](t, a).Error, want) {
			t.Errorf("%s: %d %s, want 400 with %q", route, a.code, a.body, want)
		}
	}
}

func TestReadyzExplainsItself(t *testing.T) {
	ready := readyOnly(typical(noon))
	draining := readyOnly(typical(noon))
	draining.status.Draining = true
	added := typical(noon)
	added.status.BeenReady = true
	blind := fixed{status: added.status}
	blind.status.Pools = api.Pools{Enabled: true, Error: "connection refused\nmay not list"}
	stopping := added
	stopping.status.Draining = true
	for name, tc := range map[string]struct {
		source fixed
		code   int
		body   string
	}{
		"ready": {ready, 200, "ready\ncluster llama: ready\n"},
		"one not": {typical(noon), 503, "not ready\ncluster llama: ready\ncluster mixtral: " +
			"not ready: first reports are missing from 2 of 2 endpoints\n"},
		"one that was added later is not": {added, 200, "ready\ncluster llama: ready\ncluster mixtral: not ready: " +
			"first reports are missing from 2 of 2 endpoints\n"},
		"that, and draining": {stopping, 503, "not ready: draining\ncluster llama: ready\ncluster mixtral: not " +
			"ready: first reports are missing from 2 of 2 endpoints\n"},
		"draining":      {draining, 503, "not ready: draining\ncluster llama: ready\n"},
		"without pools": {blind, 503, "not ready\nInferencePools cannot be read: connection refused; may not list\n"},
		"starting":      {fixed{}, 503, "not ready: no config has been applied yet\n"},
	} {
		t.Run(name, func(t *testing.T) {
			a := ask(t, handlerOf(tc.source), http.MethodGet, "/readyz")
			if a.code != tc.code || a.body != tc.body {
				t.Errorf("got %d\n%swant %d\n%s", a.code, a.body, tc.code, tc.body)
			}
			status := decode[api.Status](t, ask(t, handlerOf(tc.source), http.MethodGet, "/api/v1/status"))
			if status.Ready != (tc.code == 200) {
				t.Errorf("the status says ready: %t", status.Ready)
			}
		})
	}
}

func TestHealthzAnswersWhateverTheStateOfTheClusters(t *testing.T) {
	for name, source := range map[string]fixed{"nothing yet": {}, "not ready": typical(noon)} {
		if a := ask(t, handlerOf(source), http.MethodGet, "/healthz"); a.code != 200 || a.body != "ok\n" {
			t.Errorf("%s: %d %q", name, a.code, a.body)
		}
	}
}

func TestWhatIsStuckIsAProblemOfTheProcess(t *testing.T) {
	h := New(Options{Source: typical(noon),
		Stuck: func() []string { return []string{"scrape targets: no progress for 31s"} }})
	s := decode[api.Status](t, ask(t, h, http.MethodGet, "/api/v1/status"))
	if !has(s.Problems, api.SeverityError, "Steelyard is stuck: scrape targets: no progress for 31s") {
		t.Errorf("problems %+v", s.Problems)
	}
}

func TestHealthzNamesWhatIsStuckWithoutAskingTheSource(t *testing.T) {
	var stuck []string
	for i := range 21 {
		stuck = append(stuck, fmt.Sprintf("cluster %d: no progress for 31s", i))
	}
	for name, tc := range map[string]struct {
		stuck []string
		code  int
		body  string
	}{
		"nothing": {nil, 200, "ok\n"},
		"one":     {stuck[:1], 503, "stuck, restart it\ncluster 0: no progress for 31s\n"},
		"many":    {stuck, 503, "stuck, restart it\n" + strings.Join(stuck[:20], "\n") + "\nand 1 more\n"},
	} {
		h := New(Options{Source: unused{}, Stuck: func() []string { return tc.stuck }})
		if a := ask(t, h, http.MethodGet, "/healthz"); a.code != tc.code || a.body != tc.body {
			t.Errorf("%s: %d %q, want %d %q", name, a.code, a.body, tc.code, tc.body)
		}
	}
}

// unused is a Source that must not be called: each of its methods panics.
type unused struct{ history.Source }

// broken is a Source with a fault in it.
type broken struct{ fixed }

func (broken) Clients() []api.Client { panic("index out of range") }

func TestAPanicIsOneFailedRequestAndALineInTheLog(t *testing.T) {
	var log strings.Builder
	h := New(Options{Source: broken{typical(noon)}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if a := ask(t, h, http.MethodGet, "/api/v1/clients"); a.code != 500 || decode[api.Error](t, a).Error == "" {
		t.Errorf("got %d %s", a.code, a.body)
	}
	if !strings.Contains(log.String(), "index out of range") || !strings.Contains(log.String(), "/api/v1/clients") {
		t.Errorf("log: %s", log.String())
	}
	if a := ask(t, h, http.MethodGet, "/api/v1/incidents"); a.code != 200 {
		t.Errorf("the next request got %d", a.code)
	}
}

func TestWhatTheSourceReturnsIsNotWrittenTo(t *testing.T) {
	source, untouched := typical(noon), typical(noon)
	h := handlerOf(source)
	for _, route := range append(routes, "/api/v1/clusters/llama?sort=worst", "/api/v1/clients?sort=worst") {
		ask(t, h, http.MethodGet, route)
	}
	if diff := cmp.Diff(untouched.clusters, source.clusters, nearly, sameWorking); diff != "" {
		t.Errorf("clusters (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(untouched.clients, source.clients, nearly); diff != "" {
		t.Errorf("clients (-want +got):\n%s", diff)
	}
}

// nearly compares numbers as well as a history keeps them.
var nearly = cmp.Comparer(func(a, b api.Number) bool {
	x, known := a.Value()
	y, alsoKnown := b.Value()
	return known == alsoKnown && math.Abs(x-y) <= 0.0004*math.Abs(x)
})
