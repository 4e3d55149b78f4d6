package customrouter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"

	"steelyard/picking"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBothFormsOfABackendAreRead(t *testing.T) {
	got, err := parseBackends(strings.NewReader(
		`{"backends": ["http://10.0.0.1:8000", "10.0.0.2:80", "http://[::1]:90/", "http://pod", "10.0.0.2:80"]}`))
	if want := "10.0.0.1:8000 10.0.0.2:80 [::1]:90 pod:80"; err != nil || strings.Join(got, " ") != want {
		t.Errorf("got %v, %v; want %s", got, err, want)
	}
}

// TestABackendHasOneSpelling, which also holds nothing that a metric's label would have to escape.
func TestABackendHasOneSpelling(t *testing.T) {
	for text, want := range map[string]string{
		"LOCALHOST:03911": "localhost:3911", "[0:0:0:0:0:0:0:1]:80": "[::1]:80", "[::ffff:10.0.0.1]:80": "10.0.0.1:80",
		"http://My_Pod-0.svc.:8000": "my_pod-0.svc.:8000",
	} {
		if got, err := parseBackend(text); err != nil || got != want {
			t.Errorf("%s reads as %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"0.0.0.0:80", "[::]:80", "255.255.255.255:1", "224.0.0.1:80", "[ff02::1]:80",
		"[fe80::1%eth0]:80", "[fe80::1%\x01\n]:80", "a\nb:80", `a"b:80`, "-a:80", "ä:80", "a b:80",
		strings.Repeat("a", 254) + ":80"} {
		if got, err := parseBackend(text); err == nil {
			t.Errorf("%q reads as %q, want an error", text, got)
		}
	}
}

func TestAServerIsOneBackendUnderAllItsNames(t *testing.T) {
	r := New(Options{Log: slog.New(slog.DiscardHandler)})
	set := func(backends string) int {
		w := httptest.NewRecorder()
		r.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, APIPath+"set-backends",
			strings.NewReader(`{"backends": [`+backends+`]}`)))
		return w.Code
	}
	if code := set(`"127.0.0.1:3911", "localhost:3911", "LOCALHOST:3911", "127.0.0.1:03911", "localhost:3912"`); code !=
		http.StatusOK {
		t.Fatalf("the answer is %d", code)
	}
	got := r.state().backends
	if len(got) != 2 || got[0].Address != "127.0.0.1:3911" || got[1].Address != "localhost:3912" {
		t.Errorf("the backends are %+v, want two", got)
	}
	if code := set(`"0.0.0.0:1"`); code != http.StatusBadRequest || len(r.state().backends) != 2 {
		t.Errorf("an address of no server: %d, and %d backends", code, len(r.state().backends))
	}
}

// TestManyNamesAreLookedUpInTime, also where each takes a while.
func TestManyNamesAreLookedUpInTime(t *testing.T) {
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	server := &dns.Server{PacketConn: packets, NotifyStartedFunc: func() { close(started) },
		Handler: dns.HandlerFunc(func(w dns.ResponseWriter, asked *dns.Msg) {
			time.Sleep(50 * time.Millisecond)
			answer := new(dns.Msg).SetReply(asked)
			if q := asked.Question[0]; q.Qtype == dns.TypeA {
				var n byte
				_, _ = fmt.Sscanf(q.Name, "pod-%d.", &n)
				answer.Answer = []dns.RR{&dns.A{A: net.IPv4(10, 0, 0, n),
					Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET}}}
			}
			_ = w.WriteMsg(answer)
		})}
	done := make(chan error, 1)
	go func() { done <- server.ActivateAndServe() }()
	<-started
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", packets.LocalAddr().String())
	}}
	defer func() {
		net.DefaultResolver = before
		if err := errors.Join(server.Shutdown(), <-done); err != nil {
			t.Error(err)
		}
	}()
	var names, want []string
	for n := range 100 {
		names = append(names, fmt.Sprintf("pod-%d.test.:80", n))
		want = append(want, fmt.Sprintf("10.0.0.%d:80", n))
	}
	got, address, err := New(Options{}).options.resolve(t.Context(), names)
	if err != nil || !slices.Equal(got, names) {
		t.Fatalf("%d of %d names are found: %v", len(got), len(names), err)
	}
	for i, name := range names {
		if address[name] != want[i] {
			t.Errorf("%s is %s, want %s", name, address[name], want[i])
		}
	}
}

// TestNoRequestGoesToABackendThatIsDead: all go to the one that can be connected to, in their order.
func TestNoRequestGoesToABackendThatIsDead(t *testing.T) {
	live, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	const dead = "127.0.0.1:1"
	r := New(Options{Queue: picking.QueuedOptions{QueueMax: 9, Alpha: 0.3}, Connect: Connect})
	ok := live.Addr().String()
	verdicts := make(chan Verdict, 3)
	for range 3 {
		r.Arrive(time.Now(), func(v Verdict) { verdicts <- v })
	}
	r.set(time.Now(), []string{dead, ok}, map[string]string{dead: dead, ok: ok})
	for i := range 3 {
		if got := <-verdicts; got != (Verdict{Address: ok}) {
			t.Errorf("request %d has the verdict %+v", i, got)
		}
		r.checks.Wait() // the dead one is known to be dead
		s := r.state()
		if s.depth != 2-i || s.dispatched != uint64(i+1) || s.backends[0].State != picking.BackendPaused {
			t.Errorf("the state is %+v, want %d waiting, %d sent and the first backend paused", s, 2-i, i+1)
		}
		r.End(time.Now(), uint64(i+1), picking.Answered)
	}
}

// hanging is a Connect to which addresses do not answer. It returns what has been asked for.
type hanging struct {
	gone map[string]bool
	mu   sync.Mutex
	left int // attempts that a context ended
}

func (h *hanging) connect(ctx context.Context, address string) error {
	if !h.gone[address] {
		return nil
	}
	<-ctx.Done()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left++
	return ctx.Err()
}

// TestNoRequestWaitsForABackendThatDoesNotAnswer: a connection to it would take seconds. A router that stops does not
// wait for it either.
func TestNoRequestWaitsForABackendThatDoesNotAnswer(t *testing.T) {
	h := &hanging{gone: map[string]bool{"a:1": true, "b:1": true, "c:1": true}}
	r := New(Options{Queue: picking.QueuedOptions{QueueMax: 9, QueueTimeout: time.Hour, Alpha: 0.3},
		Connect: h.connect})
	all := []string{"a:1", "b:1", "c:1", "d:1"}
	address := map[string]string{}
	for _, b := range all {
		address[b] = b
	}
	r.set(time.Now(), all, address)
	verdicts := make(chan Verdict, 1)
	for range 5 {
		n := r.Arrive(time.Now(), func(v Verdict) { verdicts <- v })
		if v := <-verdicts; v.Address != "d:1" {
			t.Errorf("the verdict is %+v", v)
		}
		r.End(time.Now(), n, picking.Answered)
	}
	if s := r.state(); s.backends[0].State != picking.BackendConnecting {
		t.Errorf("the first backend is %s, want %s", s.backends[0].State, picking.BackendConnecting)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); err != nil || h.left != 3 {
		t.Errorf("Run returned %v after it ended %d attempts, want 3", err, h.left)
	}
}

// TestARequestThatComesAgainGoesWhereItCanBeConnectedTo, also past backends that answered before, and ends once.
func TestARequestThatComesAgainGoesWhereItCanBeConnectedTo(t *testing.T) {
	var mu sync.Mutex
	gone := map[string]bool{}
	r := New(Options{Queue: picking.QueuedOptions{QueueMax: 9, Alpha: 0.3, Threshold: time.Minute},
		Connect: func(_ context.Context, address string) error {
			mu.Lock()
			defer mu.Unlock()
			if gone[address] {
				return errors.New("refused")
			}
			return nil
		}})
	now := time.Now()
	verdicts := make(chan Verdict, 1)
	settle := func(v Verdict) { verdicts <- v }
	all := map[string]string{"a": "a", "b": "b", "c": "c"}
	r.set(now, []string{"a", "b", "c"}, all)
	r.checks.Wait()
	took := map[string]time.Duration{"a": time.Second, "b": 2 * time.Second, "c": 3 * time.Second}
	for range all { // each answers once
		n := r.Arrive(now, settle)
		v := <-verdicts
		r.End(time.Now().Add(took[v.Address]), n, picking.Answered)
	}
	mu.Lock()
	gone["a"], gone["b"] = true, true
	mu.Unlock()
	n := r.Arrive(now, settle)
	if v := <-verdicts; v.Address != "a" {
		t.Fatalf("the first verdict is %+v, want the fastest", v)
	}
	if !r.Again(time.Now().Add(time.Hour), n, settle) {
		t.Fatal("the request has ended")
	}
	if v := <-verdicts; v.Address != "c" {
		t.Errorf("the second verdict is %+v, want the one that is there", v)
	}
	r.checks.Wait()
	for _, b := range r.state().backends[:2] {
		if b.InFlight != 0 || b.Failures == 0 {
			t.Errorf("%+v, want a failure, and nothing in flight", b)
		}
	}
	r.End(time.Now(), n, picking.Answered)
	r.End(time.Now(), n, picking.Failed) // of its first stream
	if c := r.state().backends[2]; c.InFlight != 0 || c.Failures != 0 || c.Answers != 2 {
		t.Errorf("afterwards %+v, want two answers and nothing in flight", c)
	}
	if r.Again(now, n, settle) {
		t.Error("a request that has ended comes again")
	}
}

// TestARequestThatComesAgainWaitsWhileNoBackendCanBeConnectedTo, and goes to the first that can.
func TestARequestThatComesAgainWaitsWhileNoBackendCanBeConnectedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gone atomic.Bool
		r := New(Options{Queue: picking.QueuedOptions{QueueMax: 9, QueueTimeout: time.Hour, Alpha: 0.3},
			Connect: func(_ context.Context, address string) error {
				if gone.Load() || address == "b" {
					return errors.New("refused")
				}
				return nil
			}})
		verdicts := make(chan Verdict, 1)
		settle := func(v Verdict) { verdicts <- v }
		n := r.Arrive(time.Now(), settle)
		r.set(time.Now(), []string{"a", "b"}, map[string]string{"a": "a", "b": "b"})
		if v := <-verdicts; v.Address != "a" {
			t.Fatalf("the first verdict is %+v", v)
		}
		gone.Store(true)
		if !r.Again(time.Now(), n, settle) {
			t.Fatal("the request has ended")
		}
		for range 20 {
			time.Sleep(time.Second)
			r.tick(time.Now())
			r.checks.Wait()
		}
		if s := r.state(); s.depth != 1 || s.dispatched != 1 {
			t.Errorf("after 20 s without a backend: %+v, want one that waits", s)
		}
		gone.Store(false)
		time.Sleep(10 * time.Second)
		r.tick(time.Now())
		if v := <-verdicts; v.Address != "a" {
			t.Errorf("the second verdict is %+v", v)
		}
	})
}

func TestABadListOfBackendsIsRefusedInWordsOfItsAuthor(t *testing.T) {
	for body, want := range map[string]string{
		`7`:                                  "the body is not a JSON object: want",
		``:                                   "the body ends within its JSON",
		`{"backends": ["10.0.0.1:80"`:        "the body ends within its JSON",
		`{"backends": [}`:                    "the body is not read as JSON: invalid character",
		`{"backends": []} {}`:                "want one JSON object, and nothing after it",
		`{"Backends": ["10.0.0.1:80"]}`:      `the key "backends" is missing`,
		`{"backends": null}`:                 "the backends are null, which is not a list",
		`{"backends": "10.0.0.1:80"}`:        `the backends are "10.0.0.1:80", which is not a list`,
		`{"backends": ["10.0.0.1:80", 7]}`:   "item 2 of the backends is 7, want a text",
		`{"backends": [null]}`:               "item 1 of the backends is null, want a text",
		`{"backends": [], "backends": []}`:   `the key "backends" is there twice`,
		`{"backends": ["10.0.0.1"], "n": 1}`: `backend "10.0.0.1": want http://HOST:PORT or HOST:PORT`,
	} {
		got, err := parseBackends(strings.NewReader(body))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "Go") {
			t.Errorf("%s is read as %v, %v, want an error with %q", body, got, err, want)
		}
	}
	got, err := parseBackends(strings.NewReader(`{"version": {"n": [1]}, "backends": []}`))
	if err != nil || len(got) > 0 {
		t.Errorf("a body with another key is read as %v, %v", got, err)
	}
}

func TestTheErrorOfAListOfBackendsIsShortAndHasNoPassword(t *testing.T) {
	many := `{"backends": [` + strings.Repeat(`"x y", `, 8999) + `"x y"]}`
	for name, c := range map[string]struct{ body, want string }{
		"many errors": {many, "HOST:PORT\nand 8995 more"},
		"a long name": {`{"backends": ["` + strings.Repeat("a", 900_000) + `:x"]}`, "aaa…"},
		"a long zone": {`{"backends": ["[fe80::1%` + strings.Repeat("a", 900_000) + `]:80"]}`, "aaa…"},
		"a password":  {`{"backends": ["http://user:secret@10.0.0.1:80"]}`, `backend …"@10.0.0.1:80": want`},
		"no URL":      {`{"backends": ["http://user:secret@10.0.0.1:x"]}`, `backend …"@10.0.0.1:x": want`},
	} {
		_, err := parseBackends(strings.NewReader(c.body))
		if err == nil || len(err.Error()) > 2000 || strings.Contains(err.Error(), "secret") ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.300v, want an error with %q", name, err, c.want)
		}
	}
}

func TestTheRouterItselfIsNoBackend(t *testing.T) {
	for _, c := range []struct {
		own, backend string
		itself       bool
	}{
		{"127.0.0.1:3000", "127.0.0.1:3000", true},
		{"127.0.0.1:3000", "localhost:3000", true},
		{"0.0.0.0:3000", "127.0.0.1:3000", true},
		{"0.0.0.0:3000", "127.0.0.9:3000", true},
		{"[::]:3000", "127.0.0.1:3000", true},
		{"127.0.0.1:3000", "127.0.0.1:3001", false},
		{"127.0.0.1:3000", "127.0.0.2:3000", false},
		{"0.0.0.0:3000", "192.0.2.1:3000", false},
		{"", "127.0.0.1:3000", false},
	} {
		got, _, err := New(Options{Own: c.own}).options.resolve(t.Context(), []string{c.backend})
		if refused := err != nil && strings.Contains(err.Error(), "this router itself"); refused != c.itself ||
			!refused && len(got) != 1 {
			t.Errorf("%s at %s: %v, %v", c.backend, c.own, got, err)
		}
	}
}

// TestAPanicWhileConnectingEndsNeitherTheProcessNorTheRouter: the other request has its backend.
func TestAPanicWhileConnectingEndsNeitherTheProcessNorTheRouter(t *testing.T) {
	synctest.Test(t, panicWhileConnecting)
}

func panicWhileConnecting(t *testing.T) {
	recovered := make(chan any, 1)
	panics := true
	r := New(Options{Queue: picking.QueuedOptions{QueueMax: 10, QueueTimeout: time.Hour, Alpha: 0.3},
		Connect: func(context.Context, string) error {
			if panics {
				panics = false
				panic("a defect")
			}
			return nil
		}, Guard: func() { recovered <- recover() }})
	verdicts := make(chan Verdict, 1)
	r.Arrive(time.Now(), func(v Verdict) { verdicts <- v })
	r.set(time.Now(), []string{"a:1"}, map[string]string{"a:1": "10.0.0.1:1"})
	if got := <-recovered; got != "a defect" {
		t.Errorf("recovered %v", got)
	}
	time.Sleep(time.Minute) // its pause
	r.tick(time.Now())
	if v := <-verdicts; v.Address != "10.0.0.1:1" {
		t.Errorf("the verdict is %+v", v)
	}
	if s := r.state().backends[0]; s.State != picking.BackendProbed {
		t.Errorf("the backend is %s, want %s", s.State, picking.BackendProbed)
	}
}

func FuzzBackends(f *testing.F) {
	f.Add(`{"backends": ["http://10.0.0.1:8000"]}`)
	f.Add(`{"backends": ["[::1]:1", "x:0", "http://a:1/b?c#d"]}`)
	f.Fuzz(func(t *testing.T, body string) {
		got, err := parseBackends(strings.NewReader(body))
		for _, b := range got {
			if again, failed := parseBackend(b); err == nil && (failed != nil || again != b) {
				t.Errorf("%q reads as %q, %v", b, again, failed)
			}
		}
	})
}

func TestAnEndIsAnAnswerAFailureOrAbandoned(t *testing.T) {
	for _, c := range []struct {
		name    string
		status  int
		details string
		want    picking.Outcome
	}{
		{"200", 200, "via_upstream", picking.Answered},
		{"a client's own error, or of a backend without the model", 404, "via_upstream", picking.Rejected},
		{"a broken body, which Envoy answers", 400, "http1.codec_error", picking.Abandoned},
		{"a body that Envoy refuses", 413, "request_payload_too_large", picking.Abandoned},
		{"a redirect", 302, "via_upstream", picking.Answered},
		{"nowhere to connect to", 503, "no_healthy_upstream", picking.Failed},
		{"too many requests", 429, "via_upstream", picking.Failed},
		{"503 of the backend", 503, "via_upstream", picking.Failed},
		{"no connection", 503, "upstream_reset_before_response_started{connection_termination}", picking.Failed},
		{"no connection, and a body too long to wait once more", 507, "request_payload_exceeded_retry_buffer_limit",
			picking.Failed},
		{"no answer", 0, "via_upstream", picking.Failed},
		{"Envoy ends", 0, "", picking.Abandoned},
		{"cut off", 200, "upstream_reset_after_response_started{connection_termination}", picking.Failed},
		{"the client left", 0, "downstream_remote_disconnect", picking.Abandoned},
		{"the client left while the answer came", 200, "downstream_remote_disconnect", picking.Abandoned},
		{"the client left an HTTP/2 stream", 200, "http2.remote_reset", picking.Abandoned},
	} {
		if got := OutcomeOf(c.status, c.details); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestTheAPIRefusesOtherMethodsAndLargeBodies(t *testing.T) {
	r := New(Options{Queue: picking.QueuedOptions{QueueMax: 1}, Log: slog.New(slog.DiscardHandler)})
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{http.MethodGet, "set-backends", "", http.StatusMethodNotAllowed},
		{http.MethodPost, "health", "", http.StatusMethodNotAllowed},
		{http.MethodPost, "set-backends", `{"backends": ["` + strings.Repeat("x", maxBody) + `"]}`,
			http.StatusBadRequest},
		{http.MethodPost, "set-backends", `{"backends": []} trailing`, http.StatusBadRequest},
		{http.MethodPost, "set-backends", `{"backends": []}`, http.StatusOK},
		{http.MethodGet, "", "", http.StatusOK},
		{http.MethodGet, "nothing", "", http.StatusNotFound},
	} {
		w := httptest.NewRecorder()
		r.Handler().ServeHTTP(w, httptest.NewRequest(c.method, APIPath+c.path, strings.NewReader(c.body)))
		if w.Code != c.want {
			t.Errorf("%s %s: %d, want %d: %s", c.method, c.path, w.Code, c.want, w.Body)
		}
	}
}

func TestThePageShowsTheQueueAndWhatEachBackendTakes(t *testing.T) {
	r := New(Options{Queue: picking.QueuedOptions{Threshold: time.Second / 20, QueueMax: 7, Alpha: 0.3,
		QueueTimeout: 20 * time.Minute}})
	show := func() string {
		w := httptest.NewRecorder()
		r.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, APIPath, nil))
		return w.Body.String()
	}
	if text := show(); !strings.Contains(text, "No backend is set") {
		t.Errorf("without backends the page is\n%s", text)
	}
	now := time.Now()
	r.set(now, []string{"a:1", "b:1"}, map[string]string{"a:1": "10.0.0.1:1", "b:1": "10.0.0.2:1"})
	var verdicts []Verdict
	for range 3 {
		r.Arrive(now, func(v Verdict) { verdicts = append(verdicts, v) })
	}
	r.End(now.Add(2*time.Second), 1, picking.Answered)
	want := []Verdict{{Address: "10.0.0.1:1"}, {Address: "10.0.0.2:1"}, {Address: "10.0.0.1:1"}}
	if !slices.Equal(verdicts, want) {
		t.Errorf("the verdicts are %v, want %v", verdicts, want)
	}
	r.Arrive(now, func(Verdict) {})
	for _, part := range []string{"<td>1</td><td>7</td><td>3</td><td>0</td><td>0</td>", "<td>2s</td>",
		meanings[picking.BackendSlow], meanings[picking.BackendProbed], "none yet",
		"waited for 1200 s<", "threshold 0.05 s<"} {
		if text := show(); !strings.Contains(text, part) {
			t.Errorf("the page lacks %q:\n%s", part, text)
		}
	}
}

// TestARemovedBackendIsShownUntilItsRequestsEnd: it may never answer, and a router that stops waits for its requests.
func TestARemovedBackendIsShownUntilItsRequestsEnd(t *testing.T) {
	r := New(Options{Queue: picking.QueuedOptions{Threshold: time.Second, QueueMax: 7, Alpha: 0.3}})
	get := func(path string) string {
		w := httptest.NewRecorder()
		r.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, APIPath+path, nil))
		return w.Body.String()
	}
	idle := func() bool {
		var h Health
		if err := json.Unmarshal([]byte(get("health")), &h); err != nil {
			t.Fatal(err)
		}
		return h.Idle()
	}
	now := time.Now()
	r.set(now, []string{"a:1"}, map[string]string{"a:1": "10.0.0.1:1"})
	number := r.Arrive(now, func(Verdict) {})
	r.set(now, []string{"b:1"}, map[string]string{"b:1": "10.0.0.2:1"})
	for path, want := range map[string]string{
		"health": `"backends":[{"addr":"b:1","in_flight":0,"ewma_latency":null}],` +
			`"removed":[{"addr":"a:1","in_flight":1,"ewma_latency":null}]`,
		"metrics": `custom_router_backend_inflight_requests{addr="a:1"} 1`,
		"":        meanings[picking.BackendRemoved],
	} {
		if text := get(path); !strings.Contains(text, want) {
			t.Errorf("/%s lacks %s:\n%s", path, want, text)
		}
	}
	if idle() {
		t.Error("the router counts as idle while a removed backend has a request")
	}
	r.End(now.Add(time.Second), number, picking.Answered)
	if text := get("health"); strings.Contains(text, "a:1") || !idle() {
		t.Errorf("after the last request of a removed backend, health is %s", text)
	}
}

func TestTheRouterHasNoTraceOfRequestsThatEnded(t *testing.T) {
	r := New(Options{Queue: picking.QueuedOptions{QueueMax: 2, Alpha: 0.3, QueueTimeout: time.Hour}})
	now := time.Now()
	var refused []picking.Refusal
	for range 3 {
		r.Arrive(now, func(v Verdict) { refused = append(refused, v.Refused) })
	}
	if !slices.Equal(refused, []picking.Refusal{picking.RefusedEvicted}) {
		t.Errorf("refused %v, want the oldest", refused)
	}
	r.End(now, 2, picking.Abandoned)
	r.set(now, []string{"a:1"}, map[string]string{"a:1": "10.0.0.1:1"})
	r.set(now, nil, nil)
	for number := range uint64(4) {
		r.End(now, number, picking.Answered)
	}
	if s := r.state(); s.depth != 0 || len(s.backends) != 0 || len(r.requests) != 0 || s.dispatched != 1 {
		t.Errorf("the state is %+v, with %d requests", s, len(r.requests))
	}
}

func TestRequestsThatWaitForTooLongAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{Queue: picking.QueuedOptions{QueueMax: 2, QueueTimeout: 3 * time.Second}, Log: slog.Default()})
		began := time.Now()
		refused := make(chan Verdict, 1)
		r.Arrive(began, func(v Verdict) { refused <- v })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		v := <-refused
		took := time.Since(began)
		if v.Refused != picking.RefusedTimeout || took < 3*time.Second || took > 3*time.Second+period {
			t.Errorf("the verdict is %+v after %v", v, took)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestTheStateIsLoggedAtItsInterval, with the latency of a backend once it has one.
func TestTheStateIsLoggedAtItsInterval(t *testing.T) {
	for interval, want := range map[time.Duration]int{10 * time.Second: 2, 0: 0} {
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			r := New(Options{Queue: picking.QueuedOptions{QueueMax: 1}, LogInterval: interval,
				Log: slog.New(slog.NewTextHandler(&log, nil))})
			r.set(time.Now(), []string{"a:1", "b:1"}, map[string]string{"a:1": "10.0.0.1:1", "b:1": "10.0.0.2:1"})
			n := r.Arrive(time.Now(), func(Verdict) {})
			time.Sleep(2 * time.Second)
			r.End(time.Now(), n, picking.Answered)
			ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
			defer cancel()
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
			text := log.String()
			for line, n := range map[string]int{"msg=queue depth=0 dispatched=1": want, "msg=backend addr=": 2 * want,
				"answers=1 failures_in_a_row=0 ewma_latency_seconds=2\n": want, "ewma_latency_seconds": want} {
				if got := strings.Count(text, line); got != n {
					t.Errorf("each %v: %q is %d times in the log, want %d:\n%s", interval, line, got, n, text)
				}
			}
		})
	}
}
