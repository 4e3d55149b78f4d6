package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
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
	q, client := routed(t, picking.QueuedOptions{QueueMax: 10, QueueTimeout: time.Hour, Alpha: 0.3})
	woken, freed := 0, 0
	visits := make([]*visit, 3)
	for i := range visits {
		visits[i] = &visit{router: q.router, wake: func() { woken++ }, free: func() { freed++ }}
		if v, ok := visits[i].arrive(); ok {
			t.Fatalf("visit %d has the verdict %+v without a backend", i, v)
		}
	}
	visits[0].end() // the client gave up
	resp, err := client.Post("http://router"+customrouter.APIPath+"set-backends", "",
		strings.NewReader(`{"backends": ["http://10.0.0.1:80"]}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if v := visits[1].result(); resp.StatusCode != http.StatusOK || v.Address != "10.0.0.1:80" || woken != 1 {
		t.Errorf("status %d, verdict %+v, %d woken", resp.StatusCode, v, woken)
	}
	visits[1].complete(time.Now(), http.StatusOK, "via_upstream")
	visits[1].end()
	if v := visits[2].result(); v.Address != "10.0.0.1:80" || woken != 2 {
		t.Errorf("verdict %+v, %d woken", v, woken)
	}
	visits[2].end()
	late := &visit{router: q.router, wake: func() { woken++ }, free: func() { freed++ }}
	if v, ok := late.arrive(); !ok || v.Address != "10.0.0.1:80" || woken != 2 {
		t.Errorf("at once: %+v %v, %d woken", v, ok, woken)
	}
	late.end()
	if freed != 4 {
		t.Errorf("%d were freed, want 4", freed)
	}
}
