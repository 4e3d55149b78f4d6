package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/internal/customrouter"
	"steelyard/picking"
)

// routed has a router with its API, which is asked by the client.
func routed(t *testing.T, o picking.QueuedOptions) (*routing, *http.Client) {
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
	return s.(*routing), &http.Client{Transport: transport}
}

func TestARouterThatCannotWorkIsRefused(t *testing.T) {
	for _, text := range []string{"{", `{"Socket": "/does/not/exist/api"}`, `{"sockets": "x"}`} {
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
	q, client := routed(t, picking.QueuedOptions{QueueMax: 10, QueueTimeout: time.Hour, Alpha: 0.3})
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
	resp, err := client.Post("http://router"+customrouter.APIPath+"set-backends", "",
		strings.NewReader(`{"backends": ["http://`+address+`"]}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the backends are answered %d", resp.StatusCode)
	}
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
