package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"steelyard/internal/customrouter"
	"steelyard/internal/customrouter/leastlatency"
)

// testRouting is a routing, with the socket of its API.
type testRouting struct {
	*routing
	socket string
}

// routed has a router with its API, which is asked by the client.
func routed(t *testing.T, o leastlatency.Options) (testRouting, *http.Client) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "api")
	text, err := json.Marshal(customrouter.Settings{Socket: socket, Options: customrouter.Options{Queue: o}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := configured(customrouter.FilterName, string(text), quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return testRouting{s.(*routing), socket}, &http.Client{Transport: transport}
}

func TestARouterThatCannotWorkIsRefused(t *testing.T) {
	for _, text := range []string{"{", `{"Socket": "/does/not/exist/api"}`, `{"sockets": "x"}`,
		`{"Socket": "/does/not/exist/api", "Again": true}`} {
		if _, err := configured(customrouter.FilterName, text, quiet); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}

func TestAVisitGetsItsBackendAtOnceOrIsWoken(t *testing.T) {
	backend, err := net.Listen("tcp", "127.0.0.1:0") // a new backend is connected to before it gets a request
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	address := backend.Addr().String()
	q, client := routed(t, leastlatency.Options{QueueMax: 10, QueueTimeout: time.Hour, Alpha: 0.3})
	freed := 0
	woken := make(chan *visit, 4)
	newVisit := func() *visit {
		v := &visit{router: q.router, free: func() { freed++ }}
		v.wake = func() { woken <- v }
		return v
	}
	visits := []*visit{newVisit(), newVisit(), newVisit()}
	for i := range visits {
		if v, ok := visits[i].arrive(); ok {
			t.Fatalf("visit %d has the verdict %+v without a backend", i, v)
		}
	}
	visits[0].end() // the client gave up
	post(t, client, address)
	for _, next := range visits[1:] {
		if got := <-woken; got != next || got.result().Address != address {
			t.Fatalf("visit %d is woken with %+v", slices.Index(visits, got), got.result())
		}
		next.complete(time.Now(), http.StatusOK, "via_upstream")
		next.end()
	}
	late := newVisit()
	if v, ok := late.arrive(); !ok || v.Address != address || len(woken) > 0 {
		t.Errorf("at once: %+v %v, %d woken", v, ok, len(woken))
	}
	late.end()
	if freed != 4 {
		t.Errorf("%d were freed, want 4", freed)
	}
}

// TestAVisitThatComesAgainIsTheSameRequest: it is counted once, at the backend that it went to last.
func TestAVisitThatComesAgainIsTheSameRequest(t *testing.T) {
	q, client := routed(t, leastlatency.Options{QueueMax: 10, QueueTimeout: time.Hour, Alpha: 0.3})
	second, err := configured(customrouter.FilterName, fmt.Sprintf(`{"Socket": %q, "Again": true}`, q.socket), quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer second.stop()
	woken := make(chan *visit, 2)
	newVisit := func(of *routing, first uint64) *visit {
		v := &visit{router: of.router, first: first, free: func() {}}
		v.wake = func() { woken <- v }
		return v
	}
	unknown := newVisit(second.(*routing), 99)
	if v, ok := unknown.arrive(); !ok || v.Refused != refusedEnded {
		t.Errorf("a request that never came has the verdict %+v, %v", v, ok)
	}
	unknown.end()
	backend, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	post(t, client, backend.Addr().String())
	v := newVisit(q.routing, 0)
	if _, ok := v.arrive(); !ok { // the backend may have been connected to already
		<-woken
	}
	again := newVisit(second.(*routing), v.number)
	if _, ok := again.arrive(); !ok {
		<-woken
	}
	for _, each := range []*visit{again, v} {
		each.complete(time.Now(), http.StatusOK, "via_upstream")
		each.end()
	}
	resp, err := client.Get("http://router" + customrouter.APIPath + "health")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var h customrouter.Health
	if err := json.NewDecoder(resp.Body).Decode(&h); err != nil || len(h.Backends) != 1 || h.QueueDepth != 0 ||
		h.Backends[0].InFlight != 0 || h.Backends[0].EWMALatency == nil {
		t.Errorf("health is %+v, %v: want one answer, and nothing in flight", h, err)
	}
}

// fragile is a log whose first line panics.
type fragile struct {
	slog.Handler
	panicked atomic.Bool
}

func (*fragile) Enabled(context.Context, slog.Level) bool { return true }

func (f *fragile) Handle(ctx context.Context, r slog.Record) error {
	if f.panicked.CompareAndSwap(false, true) {
		panic("a defect")
	}
	return f.Handler.Handle(ctx, r)
}

// TestARoutersLoopRunsAgainAfterAPanic: a request is refused after its time.
func TestARoutersLoopRunsAgainAfterAPanic(t *testing.T) {
	defer panics.Store(0)
	defer uncounted.Store(0)
	text, err := json.Marshal(customrouter.Settings{Socket: filepath.Join(t.TempDir(), "api"),
		Options: customrouter.Options{LogInterval: time.Nanosecond,
			Queue: leastlatency.Options{QueueMax: 10, QueueTimeout: 500 * time.Millisecond, Alpha: 0.3}}})
	if err != nil {
		t.Fatal(err)
	}
	log := &fragile{Handler: slog.DiscardHandler}
	q, err := newRouting(string(text), slog.New(log))
	if err != nil {
		t.Fatal(err)
	}
	defer q.stop()
	for end := time.Now().Add(10 * time.Second); panics.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the loop has not panicked")
		}
	}
	woken := make(chan struct{})
	v := &visit{router: q.router, wake: func() { close(woken) }, free: func() {}}
	if verdict, ok := v.arrive(); ok {
		t.Fatalf("the verdict is %+v without a backend", verdict)
	}
	<-woken
	if got := v.result(); got.Refused != leastlatency.RefusedTimeout {
		t.Errorf("the verdict is %+v, want a refusal after the time", got)
	}
	v.end()
}

// post sets one backend.
func post(t *testing.T, client *http.Client, address string) {
	t.Helper()
	resp, err := client.Post("http://router"+customrouter.APIPath+"set-backends", "",
		strings.NewReader(`{"backends": ["http://`+address+`"]}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the backends are answered %d", resp.StatusCode)
	}
}
