package admin

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"steelyard/internal/api"
)

// asHost asks for a path under a name.
func asHost(h http.Handler, host, path string) answer {
	w := httptest.NewRecorder()
	r := request(http.MethodGet, path)
	r.Host = host
	h.ServeHTTP(w, r)
	return answer{w.Code, w.Header(), w.Body.String()}
}

func TestAHostThatAStrangerCanRegisterIsRefused(t *testing.T) {
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	h := New(Options{Source: typical(noon), AllowedHosts: []string{"Steelyard.example.com", "*.ops.example.com"}})
	for host, want := range map[string]int{
		// port-forward too
		"127.0.0.1:19000": 200, "localhost:19000": 200, "127.0.0.1": 200, "app.localhost:19000": 200,
		"10.1.2.3:19000": 200, "[fd00::1]:19000": 200, "[::1]": 200, "192.0.2.7": 200, // a pod's or node's address
		"":  200, // HTTP/1.0
		own: 200, strings.ToUpper(own) + ":19000": 200, "steelyard-7d9f-x2x": 200,
		// a Service
		"steelyard:19000": 200, "steelyard.gpu.svc:19000": 200, "steelyard.gpu.svc.cluster.local.:19000": 200,
		"vm-1.c.project.internal:19000": 200,
		"steelyard.example.com":         200, "STEELYARD.EXAMPLE.COM.:443": 200, "a.ops.example.com": 200,
		"a.b.ops.example.com:80": 200,

		"evil.example": 421, "127.0.0.1.evil.example:19000": 421, "localhost.evil.example": 421, "ops.example.com": 421,
		"notops.example.com": 421, "steelyard.example.com.evil.example": 421, "cluster.local.evil.example": 421,
		"steelyard.gpu": 421,
		"127.0.0.1.":    200, "evil.example:19000:x": 421,
	} {
		for _, path := range []string{"/", "/metrics", "/readyz", "/api/v1/status", "/nowhere"} {
			got, wanted := asHost(h, host, path), want
			if want == 200 && path == "/readyz" {
				wanted = 503 // one of its clusters is not ready
			} else if want == 200 && path == "/nowhere" {
				wanted = 404
			}
			if got.code != wanted {
				t.Errorf("Host %q, %s: %d, want %d", host, path, got.code, wanted)
			}
		}
		if got := asHost(h, host, "/healthz"); got.code != 200 {
			t.Errorf("Host %q: a liveness probe is answered %d", host, got.code)
		}
	}
}

func TestARefusedHostGetsTheKeyToSetAndIsAProblem(t *testing.T) {
	now := noon
	var log bytes.Buffer
	h := New(Options{Source: fixed{}, Now: func() time.Time { return now },
		Log: slog.New(slog.NewTextHandler(&log, nil))})
	long := strings.Repeat("x", 300) + ".example"
	for range 50 {
		asHost(h, "steelyard.example.com:443", "/metrics")
	}
	a := asHost(h, long, "/")
	if e := decode[api.Error](t, a); !strings.Contains(e.Error, "admin.allowed_hosts") || len(e.Error) > 300 {
		t.Errorf("answered %q", e.Error)
	}
	asHost(h, "steelyard.example.com:443", "/metrics")

	s := decode[api.Status](t, ask(t, h, http.MethodGet, "/api/v1/status"))
	if r := s.RefusedRequests; r.Count != 52 || !r.LastAt.Equal(noon) || r.LastHost != "steelyard.example.com:443" {
		t.Errorf("refused %+v", r)
	}
	const problem = `admin requests for the host "steelyard.example.com:443" are refused: ` +
		`add it to admin.allowed_hosts if it is yours`
	if !has(s.Problems, api.SeverityWarning, problem) {
		t.Errorf("problems %+v", s.Problems)
	}
	if body := ask(t, h, http.MethodGet, "/metrics").body; !strings.Contains(body,
		"steelyard_admin_refused_requests_total 52\n") {
		t.Error("the refusals are not counted in /metrics")
	}
	if n := strings.Count(log.String(), "admin request refused"); n != 1 {
		t.Errorf("%d log lines for one minute", n)
	}
	now = now.Add(time.Minute)
	if s := decode[api.Status](t, ask(t, h, http.MethodGet, "/api/v1/status")); has(s.Problems, api.SeverityWarning,
		problem) {
		t.Error("still a problem after a minute without")
	}
	asHost(h, "steelyard.example.com", "/")
	if n := strings.Count(log.String(), "admin request refused"); n != 2 {
		t.Errorf("%d log lines after a minute", n)
	}
}

func has(problems []api.Problem, s api.Severity, message string) bool {
	for _, p := range problems {
		if p.Severity == s && p.Message == message {
			return true
		}
	}
	return false
}
