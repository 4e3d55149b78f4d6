package customrouter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"steelyard/internal/customrouter/leastlatency"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// known are backends that were looked up: pairs of a text and an IP:port.
func known(pairs ...string) (out []backend) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, backend{given: pairs[i], key: pairs[i], address: pairs[i+1]})
	}
	return out
}

// setBackends posts a body to a router, and returns status and answer.
func setBackends(r *Router, body string) (int, string) {
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, APIPath+"set-backends", strings.NewReader(body)))
	return w.Code, w.Body.String()
}

// ask returns the answer of an API path.
func ask(r *Router, path string) string {
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, APIPath+path, nil))
	return w.Body.String()
}

func TestBothFormsOfABackendAreRead(t *testing.T) {
	got, err := parseBackends(strings.NewReader(
		`{"backends": ["http://10.0.0.1:8000", "10.0.0.2:80", "http://[::1]:90/", "http://pod", "10.0.0.2:80"]}`))
	want := []backend{{given: "http://10.0.0.1:8000", key: "10.0.0.1:8000"}, {given: "10.0.0.2:80", key: "10.0.0.2:80"},
		{given: "http://[::1]:90/", key: "[::1]:90"}, {given: "http://pod", key: "pod:80"}}
	if err != nil || len(got.leftOut) > 0 || !slices.Equal(got.backends, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

// TestABackendIsKnownByOneSpelling, however it is given.
func TestABackendIsKnownByOneSpelling(t *testing.T) {
	for text, want := range map[string]string{
		"LOCALHOST:03911": "localhost:3911", "[0:0:0:0:0:0:0:1]:80": "[::1]:80", "[::ffff:10.0.0.1]:80": "10.0.0.1:80",
		"http://My_Pod-0.svc.:8000": "my_pod-0.svc.:8000",
	} {
		if got, err := parseBackend(text); err != nil || got.key != want || got.given != text {
			t.Errorf("%s reads as %+v, %v, want %q", text, got, err, want)
		}
	}
}

// TestABackendIsShownAsItWasGiven, in the newest spelling, and keeps its average.
func TestABackendIsShownAsItWasGiven(t *testing.T) {
	r := New(Options{Queue: leastlatency.Options{QueueMax: 9, Alpha: 0.3}, Log: slog.New(slog.DiscardHandler)})
	for _, given := range []string{"http://10.0.0.1:80", "10.0.0.1:80", "http://10.0.0.1/"} {
		if code, text := setBackends(r, fmt.Sprintf(`{"backends": [%q]}`, given)); code != http.StatusOK {
			t.Fatalf("%s is answered %d: %s", given, code, text)
		}
		if len(r.state().backends) != 1 || r.state().backends[0].Answers == 0 {
			now := time.Now()
			r.End(now.Add(time.Second), r.Arrive(now, func(Verdict) {}), leastlatency.Answered)
		}
		for path, want := range map[string]string{
			"health":  fmt.Sprintf(`"backends":[{"addr":%q,"in_flight":0,"ewma_latency":1`, given),
			"metrics": fmt.Sprintf("custom_router_backend_inflight_requests{addr=%q} 0\n", given),
		} {
			if text := ask(r, path); !strings.Contains(text, want) {
				t.Errorf("/%s lacks %s:\n%s", path, want, text)
			}
		}
	}
}

func TestAServerIsOneBackendUnderAllItsNames(t *testing.T) {
	r := New(Options{Log: slog.New(slog.DiscardHandler)})
	code, text := setBackends(r, `{"backends": ["127.0.0.1:3911", "localhost:3911", "LOCALHOST:3911", "127.0.0.1:03911",
		"localhost:3912"]}`)
	if code != http.StatusOK || text != `{"backends":2,"ok":true}`+"\n" {
		t.Fatalf("the answer is %d: %s", code, text)
	}
	got := r.state().backends
	if len(got) != 2 || got[0].Address != "127.0.0.1:3911" || got[1].Address != "localhost:3912" {
		t.Errorf("the backends are %+v, want two", got)
	}
}

// unusable are backends that no look-up makes usable, and why.
var unusable = map[string]string{
	`"0.0.0.0:80"`:                          "not the address of one server",
	`"[::]:80"`:                             "not the address of one server",
	`"255.255.255.255:1"`:                   "not the address of one server",
	`"224.0.0.1:80"`:                        "not the address of one server",
	`"[ff02::1]:80"`:                        "not the address of one server",
	`"[fe80::1%eth0]:80"`:                   "not the address of one server",
	`"[fe80::1%\u0001\n]:80"`:               "not the address of one server",
	`"a\nb:80"`:                             "neither an IP nor a host name",
	`"a\"b:80"`:                             "neither an IP nor a host name",
	`"-a:80"`:                               "neither an IP nor a host name",
	`"ä:80"`:                                "neither an IP nor a host name",
	`"x y:80"`:                              "neither an IP nor a host name",
	`"` + strings.Repeat("a", 254) + `:80"`: "neither an IP nor a host name",
	`"http://a:80` + strings.Repeat("/", 300) + `"`: "it has 311 bytes, want at most 300",
	`"10.0.0.1:` + strings.Repeat("0", 300) + `80"`: "it has 311 bytes, want at most 300",
	`"10.0.0.1"`:                    "want http://HOST:PORT or HOST:PORT",
	`""`:                            "want http://HOST:PORT or HOST:PORT",
	`"10.0.0.1:0"`:                  `the port is "0", want 1 to 65535`,
	`"http://10.0.0.1:99999"`:       `the port is "99999", want 1 to 65535`,
	`"http://10.0.0.1:x"`:           `invalid port ":x" after host`,
	`"https://10.0.0.1:443"`:        `the scheme is "https", want http`,
	`"ftp://10.0.0.1:21"`:           `the scheme is "ftp", want http`,
	`"http://10.0.0.1:80/v1"`:       "want http://HOST:PORT and nothing else",
	`"http://u:secret@10.0.0.1:80"`: "want http://HOST:PORT without a user",
	`"http://u:secret@10.0.0.1:x"`:  "want http://HOST:PORT without a user",
	`7`:                             `want a text such as "http://10.0.0.1:80"`,
	`null`:                          `want a text such as "http://10.0.0.1:80"`,
	`["10.0.0.1:80"]`:               `want a text such as "http://10.0.0.1:80"`,
}

// TestOneBackendThatCannotBeUsedIsLeftOutAndNamed, and the others are set, whatever the mixture.
func TestOneBackendThatCannotBeUsedIsLeftOutAndNamed(t *testing.T) {
	for bad, why := range unusable {
		r := New(Options{Log: slog.New(slog.DiscardHandler)})
		code, text := setBackends(r, `{"backends": ["10.0.0.1:80", `+bad+`, "http://10.0.0.2:80"]}`)
		var got struct {
			OK       bool
			Backends int
			LeftOut  []LeftOut `json:"left_out"`
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		if code != http.StatusOK || !got.OK || got.Backends != 2 || len(got.LeftOut) != 1 ||
			!strings.Contains(got.LeftOut[0].Error, why) || strings.Contains(text, "secret") {
			t.Errorf("with %s the answer is %d: %s; want it named, with %q", bad, code, text, why)
		}
		if health := ask(r, "health"); !strings.Contains(health, `"left_out":[{`) || len(r.state().backends) != 2 {
			t.Errorf("with %s health is %s", bad, health)
		}
	}
}

func TestAnyMixtureOfBackendsIsSplitInThoseThatCanBeUsedAndTheOthers(t *testing.T) {
	bads := slices.Sorted(maps.Keys(unusable))
	rapid.Check(t, func(t *rapid.T) {
		r := New(Options{Log: slog.New(slog.DiscardHandler)})
		r.set(time.Now(), known("before", "10.0.0.9:9"))
		var items, want []string
		bad := 0
		for range rapid.IntRange(0, 12).Draw(t, "items") {
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				items = append(items, rapid.SampledFrom(bads).Draw(t, "bad"))
				bad++
			default:
				form := rapid.SampledFrom([]string{"http://10.0.0.%d:80", "10.0.0.%d:80", "http://10.0.0.%d"}).Draw(t,
					"form")
				n := rapid.IntRange(1, 4).Draw(t, "n")
				text := fmt.Sprintf(form, n)
				items = append(items, strconv.Quote(text))
				same := func(w string) bool { return strings.Contains(w+":", fmt.Sprintf("10.0.0.%d:", n)) }
				if !slices.ContainsFunc(want, same) {
					want = append(want, text)
				}
			}
		}
		code, text := setBackends(r, `{"backends": [`+strings.Join(items, ",")+`]}`)
		wantCode, refused := http.StatusOK, len(want) == 0 && bad > 0
		if refused {
			wantCode, want = http.StatusBadRequest, []string{"before"}
		}
		var got []string
		for _, b := range r.state().backends {
			got = append(got, b.Address)
		}
		slices.Sort(got)
		slices.Sort(want)
		if code != wantCode || !slices.Equal(got, want) || len(r.state().leftOut) != bad ||
			strings.Contains(text, `"error":"none`) != refused {
			t.Fatalf("%v is answered %d: %s\nset %v, want %v; %d left out, want %d", items, code, text, got, want,
				len(r.state().leftOut), bad)
		}
	})
}

// resolvesBy has names looked up at a server that answers with what address returns; nothing: there is no such name.
func resolvesBy(t *testing.T, address func(name string) net.IP) {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	server := &dns.Server{PacketConn: packets, NotifyStartedFunc: func() { close(started) },
		Handler: dns.HandlerFunc(func(w dns.ResponseWriter, asked *dns.Msg) {
			answer := new(dns.Msg).SetReply(asked)
			q := asked.Question[0]
			switch ip := address(q.Name); {
			case ip == nil:
				answer.Rcode = dns.RcodeNameError
			case q.Qtype == dns.TypeA:
				answer.Answer = []dns.RR{&dns.A{A: ip,
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
	t.Cleanup(func() {
		net.DefaultResolver = before
		if err := errors.Join(server.Shutdown(), <-done); err != nil {
			t.Error(err)
		}
	})
}

// TestManyNamesAreLookedUpInTime, also where each takes a while.
func TestManyNamesAreLookedUpInTime(t *testing.T) {
	resolvesBy(t, func(name string) net.IP {
		time.Sleep(50 * time.Millisecond)
		var n byte
		_, _ = fmt.Sscanf(name, "pod-%d.", &n)
		return net.IPv4(10, 0, 0, n)
	})
	var names asked
	var want []backend
	for n := range 100 {
		b := backend{key: fmt.Sprintf("pod-%d.test.:80", n)}
		names.backends = append(names.backends, b)
		b.address = fmt.Sprintf("10.0.0.%d:80", n)
		want = append(want, b)
	}
	if got, leftOut, later := New(Options{}).resolve(names); !slices.Equal(got, want) || len(leftOut) > 0 || later {
		t.Errorf("%v are found, %v are left out", got, leftOut)
	}
}

// TestANameThatIsNotFoundIsLookedUpAgain: its replica may be set before its name is known. One that was found before
// keeps its address.
func TestANameThatIsNotFoundIsLookedUpAgain(t *testing.T) {
	var mu sync.Mutex
	names := map[string]net.IP{"a.test.": net.IPv4(10, 0, 0, 1)}
	know := func(name string, ip net.IP) {
		mu.Lock()
		defer mu.Unlock()
		names[name] = ip
	}
	resolvesBy(t, func(name string) net.IP {
		mu.Lock()
		defer mu.Unlock()
		return names[name]
	})
	r := New(Options{Queue: leastlatency.Options{QueueMax: 9, Alpha: 0.3}, Log: slog.New(slog.DiscardHandler)})
	expect := func(when, want string) {
		t.Helper()
		var got []string
		for _, b := range r.state().backends {
			got = append(got, b.Address+"="+r.addressOf(strings.TrimPrefix(b.Address, "http://")))
		}
		for _, l := range r.state().leftOut {
			got = append(got, "without "+l.Backend)
			if !strings.Contains(l.Error, "no such host") {
				t.Errorf("%s: %s is left out: %s", when, l.Backend, l.Error)
			}
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s: %s, want %s", when, text, want)
		}
	}
	const list = `{"backends": ["http://a.test.:80", "http://b.test.:80"]}`
	if code, text := setBackends(r, list); code != http.StatusOK {
		t.Fatalf("the answer is %d: %s", code, text)
	}
	expect("at first", "http://a.test.:80=10.0.0.1:80 without http://b.test.:80")
	know("b.test.", net.IPv4(10, 0, 0, 2))
	r.tick(time.Now().Add(lookAgain - time.Second))
	r.checks.Wait()
	expect("too early", "http://a.test.:80=10.0.0.1:80 without http://b.test.:80")
	know("a.test.", nil)
	r.tick(time.Now().Add(lookAgain))
	r.checks.Wait()
	expect("later", "http://a.test.:80=10.0.0.1:80 http://b.test.:80=10.0.0.2:80")
	know("b.test.", nil)
	r.tick(time.Now().Add(2 * lookAgain))
	r.checks.Wait()
	expect("once all were found", "http://a.test.:80=10.0.0.1:80 http://b.test.:80=10.0.0.2:80")
	if code, text := setBackends(r, `{"backends": ["http://c.test.:80"]}`); code != http.StatusBadRequest {
		t.Errorf("the answer is %d: %s", code, text)
	}
	expect("where none is found",
		"http://a.test.:80=10.0.0.1:80 http://b.test.:80=10.0.0.2:80 without http://c.test.:80")
	know("c.test.", net.IPv4(10, 0, 0, 3))
	r.tick(time.Now().Add(lookAgain))
	r.checks.Wait()
	expect("when it is", "http://c.test.:80=10.0.0.3:80")
}

// TestNoRequestGoesToABackendThatIsDead: all go to the one that can be connected to, in their order.
func TestNoRequestGoesToABackendThatIsDead(t *testing.T) {
	live, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	const dead = "127.0.0.1:1"
	r := New(Options{Queue: leastlatency.Options{QueueMax: 9, Alpha: 0.3}, Connect: Connect})
	ok := live.Addr().String()
	verdicts := make(chan Verdict, 3)
	for range 3 {
		r.Arrive(time.Now(), func(v Verdict) { verdicts <- v })
	}
	r.set(time.Now(), known(dead, dead, ok, ok))
	for i := range 3 {
		if got := <-verdicts; got != (Verdict{Address: ok}) {
			t.Errorf("request %d has the verdict %+v", i, got)
		}
		r.checks.Wait() // the dead one is known to be dead
		s := r.state()
		if s.depth != 2-i || s.dispatched != uint64(i+1) || s.backends[0].State != leastlatency.BackendPaused {
			t.Errorf("the state is %+v, want %d waiting, %d sent and the first backend paused", s, 2-i, i+1)
		}
		r.End(time.Now(), uint64(i+1), leastlatency.Answered)
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
	r := New(Options{Queue: leastlatency.Options{QueueMax: 9, QueueTimeout: time.Hour, Alpha: 0.3},
		Connect: h.connect})
	r.set(time.Now(), known("a:1", "a:1", "b:1", "b:1", "c:1", "c:1", "d:1", "d:1"))
	verdicts := make(chan Verdict, 1)
	for range 5 {
		n := r.Arrive(time.Now(), func(v Verdict) { verdicts <- v })
		if v := <-verdicts; v.Address != "d:1" {
			t.Errorf("the verdict is %+v", v)
		}
		r.End(time.Now(), n, leastlatency.Answered)
	}
	if s := r.state(); s.backends[0].State != leastlatency.BackendConnecting {
		t.Errorf("the first backend is %s, want %s", s.backends[0].State, leastlatency.BackendConnecting)
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
	r := New(Options{Queue: leastlatency.Options{QueueMax: 9, Alpha: 0.3, Threshold: time.Minute},
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
	r.set(now, known("a", "a", "b", "b", "c", "c"))
	r.checks.Wait()
	took := map[string]time.Duration{"a": time.Second, "b": 2 * time.Second, "c": 3 * time.Second}
	for range took { // each answers once
		n := r.Arrive(now, settle)
		v := <-verdicts
		r.End(time.Now().Add(took[v.Address]), n, leastlatency.Answered)
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
	r.End(time.Now(), n, leastlatency.Answered)
	r.End(time.Now(), n, leastlatency.Failed) // of its first stream
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
		r := New(Options{Queue: leastlatency.Options{QueueMax: 9, QueueTimeout: time.Hour, Alpha: 0.3},
			Connect: func(_ context.Context, address string) error {
				if gone.Load() || address == "b" {
					return errors.New("refused")
				}
				return nil
			}})
		verdicts := make(chan Verdict, 1)
		settle := func(v Verdict) { verdicts <- v }
		n := r.Arrive(time.Now(), settle)
		r.set(time.Now(), known("a", "a", "b", "b"))
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
		`7`:                                "the body is not a JSON object: want",
		``:                                 "the body ends within its JSON",
		`{"backends": ["10.0.0.1:80"`:      "the body ends within its JSON",
		`{"backends": [}`:                  "the body is not read as JSON: invalid character",
		`{"backends": []} {}`:              "want one JSON object, and nothing after it",
		`{"Backends": ["10.0.0.1:80"]}`:    `the key "backends" is missing`,
		`{"backends": null}`:               "the backends are null, which is not a list",
		`{"backends": "10.0.0.1:80"}`:      `the backends are "10.0.0.1:80", which is not a list`,
		`{"backends": [], "backends": []}`: `the key "backends" is there twice`,
	} {
		got, err := parseBackends(strings.NewReader(body))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "Go") {
			t.Errorf("%s is read as %v, %v, want an error with %q", body, got, err, want)
		}
	}
	got, err := parseBackends(strings.NewReader(`{"version": {"n": [1]}, "backends": []}`))
	if err != nil || len(got.backends)+len(got.leftOut) > 0 {
		t.Errorf("a body with another key is read as %v, %v", got, err)
	}
}

// TestWhatIsLeftOutIsNamedInShort: a body may have a megabyte.
func TestWhatIsLeftOutIsNamedInShort(t *testing.T) {
	for name, c := range map[string]struct{ items, want string }{
		"many":        {strings.Repeat(`"x y", `, 8999) + `"x y"`, "and 8900 more"},
		"a long name": {`"` + strings.Repeat("a", 900_000) + `:x"`, "aaa…"},
		"a long item": {"[" + strings.Repeat("1,", 400_000) + "1]", "1,1…"},
		"a password":  {`"http://user:secret@10.0.0.1:80"`, `…@10.0.0.1:80`},
	} {
		r := New(Options{Log: slog.New(slog.DiscardHandler)})
		code, text := setBackends(r, `{"backends": [`+c.items+`]}`)
		if code != http.StatusBadRequest || len(text) > 20_000 || strings.Contains(text, "secret") ||
			!strings.Contains(text, c.want) {
			t.Errorf("%s: %d, %.300s, want %q", name, code, text, c.want)
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
		host, _, _ := net.SplitHostPort(c.backend)
		got, leftOut, later := New(Options{Own: c.own}).resolve(asked{backends: []backend{{key: c.backend}}})
		refused := len(leftOut) == 1 && strings.Contains(leftOut[0].Error, "this router itself")
		if refused != c.itself ||
			len(got)+len(leftOut) != 1 || later != (refused && host == "localhost") {
			t.Errorf("%s at %s: %v, %v, %v", c.backend, c.own, got, leftOut, later)
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
	r := New(Options{Queue: leastlatency.Options{QueueMax: 10, QueueTimeout: time.Hour, Alpha: 0.3},
		Connect: func(context.Context, string) error {
			if panics {
				panics = false
				panic("a defect")
			}
			return nil
		}, Guard: func() { recovered <- recover() }})
	verdicts := make(chan Verdict, 1)
	r.Arrive(time.Now(), func(v Verdict) { verdicts <- v })
	r.set(time.Now(), known("a:1", "10.0.0.1:1"))
	if got := <-recovered; got != "a defect" {
		t.Errorf("recovered %v", got)
	}
	time.Sleep(time.Minute) // its pause
	r.tick(time.Now())
	if v := <-verdicts; v.Address != "10.0.0.1:1" {
		t.Errorf("the verdict is %+v", v)
	}
	if s := r.state().backends[0]; s.State != leastlatency.BackendProbed {
		t.Errorf("the backend is %s, want %s", s.State, leastlatency.BackendProbed)
	}
}

func FuzzBackends(f *testing.F) {
	f.Add(`{"backends": ["http://10.0.0.1:8000"]}`)
	f.Add(`{"backends": ["[::1]:1", "x:0", "http://a:1/b?c#d"]}`)
	f.Add(`{"backends": ["http://a:1/", 7, "HTTP://A:01", "http://\u0022:1", "http://%61:1#"]}`)
	f.Fuzz(func(t *testing.T, body string) {
		got, err := parseBackends(strings.NewReader(body))
		if err != nil && len(got.backends)+len(got.leftOut) > 0 {
			t.Errorf("%q reads as %v, and as the error %v", body, got, err)
		}
		for _, b := range got.backends {
			if again, failed := parseBackend(b.given); failed != nil || again != b {
				t.Errorf("%+v reads as %+v, %v", b, again, failed)
			}
		}
		r := New(Options{})
		r.set(time.Now(), got.backends)
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(ask(r, "metrics")))
		if err != nil {
			t.Fatal(err)
		}
		shown := families["custom_router_backend_inflight_requests"].GetMetric()
		for i, b := range got.backends {
			if label := shown[i].GetLabel()[0]; label.GetName() != "addr" || label.GetValue() != b.given {
				t.Errorf("%+v has the label %v", b, label)
			}
		}
	})
}

func TestAnEndIsAnAnswerAFailureOrAbandoned(t *testing.T) {
	for _, c := range []struct {
		name    string
		status  int
		details string
		want    leastlatency.Outcome
	}{
		{"200", 200, "via_upstream", leastlatency.Answered},
		{"a client's own error, or of a backend without the model", 404, "via_upstream", leastlatency.Rejected},
		{"a broken body, which Envoy answers", 400, "http1.codec_error", leastlatency.Abandoned},
		{"a body that Envoy refuses", 413, "request_payload_too_large", leastlatency.Abandoned},
		{"a redirect", 302, "via_upstream", leastlatency.Answered},
		{"nowhere to connect to", 503, "no_healthy_upstream", leastlatency.Failed},
		{"too many requests", 429, "via_upstream", leastlatency.Failed},
		{"503 of the backend", 503, "via_upstream", leastlatency.Failed},
		{"no connection", 503, "upstream_reset_before_response_started{connection_termination}", leastlatency.Failed},
		{"no connection, and a body too long to wait once more", 507, "request_payload_exceeded_retry_buffer_limit",
			leastlatency.Failed},
		{"no answer", 0, "via_upstream", leastlatency.Failed},
		{"Envoy ends", 0, "", leastlatency.Abandoned},
		{"cut off", 200, "upstream_reset_after_response_started{connection_termination}", leastlatency.Failed},
		{"the client left", 0, "downstream_remote_disconnect", leastlatency.Abandoned},
		{"the client left while the answer came", 200, "downstream_remote_disconnect", leastlatency.Abandoned},
		{"the client left an HTTP/2 stream", 200, "http2.remote_reset", leastlatency.Abandoned},
	} {
		if got := OutcomeOf(c.status, c.details); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestTheAPIRefusesOtherMethodsAndLargeBodies(t *testing.T) {
	r := New(Options{Queue: leastlatency.Options{QueueMax: 1}, Log: slog.New(slog.DiscardHandler)})
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
		{http.MethodPost, "set-backends", `{"backends": ["x"]}`, http.StatusBadRequest},
		{http.MethodPost, "set-backends", `{"backends": ["x", "10.0.0.1:1"]}`, http.StatusOK},
		{http.MethodGet, "", "", http.StatusNotFound},
		{http.MethodGet, "nothing", "", http.StatusNotFound},
	} {
		w := httptest.NewRecorder()
		r.Handler().ServeHTTP(w, httptest.NewRequest(c.method, APIPath+c.path, strings.NewReader(c.body)))
		if w.Code != c.want {
			t.Errorf("%s %s: %d, want %d: %s", c.method, c.path, w.Code, c.want, w.Body)
		}
	}
}

func TestHealthShowsTheQueueAndWhatEachBackendTakes(t *testing.T) {
	r := New(Options{Queue: leastlatency.Options{Threshold: time.Second / 20, QueueMax: 7, Alpha: 0.3,
		QueueTimeout: 20 * time.Minute}})
	if text := ask(r, "health"); text != `{"ok":true,"queue_depth":0,"backends":[]}`+"\n" {
		t.Errorf("without backends health is %s", text)
	}
	now := time.Now()
	r.set(now, known("http://a:1", "10.0.0.1:1", "b:1", "10.0.0.2:1"))
	var verdicts []Verdict
	for range 3 {
		r.Arrive(now, func(v Verdict) { verdicts = append(verdicts, v) })
	}
	r.End(now.Add(2*time.Second), 1, leastlatency.Answered)
	want := []Verdict{{Address: "10.0.0.1:1"}, {Address: "10.0.0.2:1"}, {Address: "10.0.0.1:1"}}
	if !slices.Equal(verdicts, want) {
		t.Errorf("the verdicts are %v, want %v", verdicts, want)
	}
	r.Arrive(now, func(Verdict) {})
	const health = `{"ok":true,"queue_depth":1,"backends":[` +
		`{"addr":"http://a:1","in_flight":1,"ewma_latency":2,"state":"slow"},` +
		`{"addr":"b:1","in_flight":1,"ewma_latency":null,"state":"probed"}]}` + "\n"
	if text := ask(r, "health"); text != health {
		t.Errorf("health is\n%s, want\n%s", text, health)
	}
}

// TestARequestThatAStopEndsIsNotEvicted: the counters of the contract are for a full queue and for a long wait.
func TestARequestThatAStopEndsIsNotEvicted(t *testing.T) {
	r := New(Options{Queue: leastlatency.Options{QueueMax: 2, QueueTimeout: time.Hour}})
	var refused []leastlatency.Refusal
	arrive := func() { r.Arrive(time.Now(), func(v Verdict) { refused = append(refused, v.Refused) }) }
	for range 3 {
		arrive()
	}
	r.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, StopPath, http.NoBody))
	arrive()
	const stopped = leastlatency.RefusedStopped
	want := []leastlatency.Refusal{leastlatency.RefusedEvicted, stopped, stopped, stopped}
	if s := r.state(); !slices.Equal(refused, want) || s.evicted != 1 || s.timedOut != 0 || s.dispatched != 0 ||
		s.depth != 0 {
		t.Errorf("refused %v, want %v; counted %+v", refused, want, s)
	}
}

// TestARemovedBackendIsShownUntilItsRequestsEnd: it may never answer, and a router that stops waits for its requests.
func TestARemovedBackendIsShownUntilItsRequestsEnd(t *testing.T) {
	r := New(Options{Queue: leastlatency.Options{Threshold: time.Second, QueueMax: 7, Alpha: 0.3}})
	idle := func() bool {
		var h Health
		if err := json.Unmarshal([]byte(ask(r, "health")), &h); err != nil {
			t.Fatal(err)
		}
		return h.Idle()
	}
	now := time.Now()
	r.set(now, known("a:1", "10.0.0.1:1"))
	number := r.Arrive(now, func(Verdict) {})
	r.set(now, known("b:1", "10.0.0.2:1"))
	for path, want := range map[string]string{
		"health": `"backends":[{"addr":"b:1","in_flight":0,"ewma_latency":null,"state":"idle"}],` +
			`"removed":[{"addr":"a:1","in_flight":1,"ewma_latency":null,"state":"removed"}]`,
		"metrics": `custom_router_backend_inflight_requests{addr="a:1"} 1`,
	} {
		if text := ask(r, path); !strings.Contains(text, want) {
			t.Errorf("/%s lacks %s:\n%s", path, want, text)
		}
	}
	if idle() {
		t.Error("the router counts as idle while a removed backend has a request")
	}
	r.End(now.Add(time.Second), number, leastlatency.Answered)
	if text := ask(r, "health"); strings.Contains(text, "a:1") || !idle() {
		t.Errorf("after the last request of a removed backend, health is %s", text)
	}
}

func TestTheRouterHasNoTraceOfRequestsThatEnded(t *testing.T) {
	r := New(Options{Queue: leastlatency.Options{QueueMax: 2, Alpha: 0.3, QueueTimeout: time.Hour}})
	now := time.Now()
	var refused []leastlatency.Refusal
	for range 3 {
		r.Arrive(now, func(v Verdict) { refused = append(refused, v.Refused) })
	}
	if !slices.Equal(refused, []leastlatency.Refusal{leastlatency.RefusedEvicted}) {
		t.Errorf("refused %v, want the oldest", refused)
	}
	r.End(now, 2, leastlatency.Abandoned)
	r.set(now, known("a:1", "10.0.0.1:1"))
	r.set(now, nil)
	for number := range uint64(4) {
		r.End(now, number, leastlatency.Answered)
	}
	if s := r.state(); s.depth != 0 || len(s.backends) != 0 || len(r.requests) != 0 || s.dispatched != 1 {
		t.Errorf("the state is %+v, with %d requests", s, len(r.requests))
	}
}

func TestRequestsThatWaitForTooLongAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{Queue: leastlatency.Options{QueueMax: 2, QueueTimeout: 3 * time.Second}, Log: slog.Default()})
		began := time.Now()
		refused := make(chan Verdict, 1)
		r.Arrive(began, func(v Verdict) { refused <- v })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		v := <-refused
		took := time.Since(began)
		if v.Refused != leastlatency.RefusedTimeout || took < 3*time.Second || took > 3*time.Second+period {
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
			r := New(Options{Queue: leastlatency.Options{QueueMax: 1}, LogInterval: interval,
				Log: slog.New(slog.NewTextHandler(&log, nil))})
			r.set(time.Now(), known("a:1", "10.0.0.1:1", "b:1", "10.0.0.2:1"))
			n := r.Arrive(time.Now(), func(Verdict) {})
			time.Sleep(2 * time.Second)
			r.End(time.Now(), n, leastlatency.Answered)
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
