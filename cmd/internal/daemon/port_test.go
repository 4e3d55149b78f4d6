package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"steelyard/controlplane/config"
	"steelyard/e2e/rig/output"
	"steelyard/e2e/rig/xdstest"
	"steelyard/internal/api"
)

func TestFileDescriptorsAreKeptForScrapesTheAdminListenerAndMore(t *testing.T) {
	for _, tt := range []struct{ files, targets, want int }{
		{1024, 0, 768},
		{1024, 100, 668},
		{1_048_576, 10_000, 1_038_320},
		{1024, 2000, 256}, // too few for the scrapes, too: a part for each
		{256, 0, 64},
	} {
		if got := roomFor(tt.files, tt.targets); got != tt.want {
			t.Errorf("%d open files and %d targets: room for %d connections, want %d", tt.files, tt.targets, got,
				tt.want)
		}
	}
}

func TestTheLimitsOfThePortAreThoseOfTheConfigurationAndAreShown(t *testing.T) {
	cfg := parse(t, fmt.Sprintf(counted, "127.0.0.1:1"))
	cfg.XDS.Limits = config.XDSLimits{Connections: 20, ConnectionsPerAddress: 1, Streams: 3000, Subscriptions: 2000}
	d, base := serve(t, cfg)
	for range 2 {
		conn, err := net.Dial("tcp", d.XDSAddress())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	var s api.Status
	eventually(t, "the second took the place of the first", func() error {
		err := get(base, "/api/v1/status", &s)
		if err == nil && s.XDSPort.ConnectionsPerAddress.Displaced != 1 {
			err = fmt.Errorf("%+v", s.XDSPort)
		}
		return err
	})
	p := s.XDSPort
	for name, got := range map[string]api.Bound{
		"connections": p.Connections, "connections per address": p.ConnectionsPerAddress, "streams": p.Streams,
		"subscriptions": p.Subscriptions,
	} {
		want := map[string]api.Bound{
			"connections": {Used: 1, Limit: 20}, "connections per address": {Used: 1, Limit: 1, Displaced: 1},
			"streams": {Limit: 3000}, "subscriptions": {Limit: 2000},
		}[name]
		if got.LastDisplaced.IsZero() != (want.Displaced == 0) {
			t.Errorf("%s: displaced %v", name, got.LastDisplaced)
		}
		got.LastDisplaced = api.Time{}
		if got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	if files := p.OpenFilesLimit.Or(0); files != float64(openFilesLimit()) || files == 0 {
		t.Errorf("%v open files are allowed, want %d", files, openFilesLimit())
	}
}

// TestClientsThatDoNotReadKeepNoProbeOut: each of them asks for a file of the page until the connection's buffers are
// full, and connects again five seconds after it is closed: so the listener closes about nine connections a second, and
// a new one has ten seconds. A probe that finds no place would wait for ever. Most are answered within a kubelet's
// second, also on a machine that has no CPU time for some of them; a kubelet restarts after three in a row.
func TestClientsThatDoNotReadKeepNoProbeOut(t *testing.T) {
	d, base := serve(t, parse(t, two))
	requests := []byte(strings.Repeat("GET /assets/page.js HTTP/1.1\r\nHost: localhost\r\n\r\n", 400))
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	for range adminConnections + 12 {
		clients.Go(func() {
			for ctx.Err() == nil {
				askWithoutReading(ctx, d.AdminAddress(), requests)
				select {
				case <-ctx.Done():
				case <-time.After(5 * time.Second):
				}
			}
		})
	}
	var s api.Status
	eventually(t, "the clients take all connections that one address may have", func() error {
		err := get(base, "/api/v1/status", &s)
		if p := s.AdminPort.ConnectionsPerAddress; err == nil && (p.Used != adminPerAddress || p.Displaced == 0) {
			err = fmt.Errorf("%+v", s.AdminPort)
		}
		return err
	})
	const probes = 32
	probe := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	slow, lost := 0, 0 // lost in a row
	for i := range probes {
		began := time.Now()
		resp, err := probe.Get(base + "/healthz")
		if time.Since(began) > time.Second {
			slow++
		}
		if err != nil {
			if lost++; lost == 3 {
				t.Fatalf("three probes in a row, until the one with number %d: %v", i+1, err)
			}
			continue
		}
		lost = 0
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("probe %d of %d: %s", i+1, probes, resp.Status)
		}
	}
	if slow > probes/2 {
		t.Errorf("%d of %d probes took longer than a second", slow, probes)
	}
	if !strings.Contains(fmt.Sprint(s.Problems), "it closes connections to make room for new ones") {
		t.Errorf("the problems are %v", s.Problems)
	}
}

func askWithoutReading(ctx context.Context, address string, requests []byte) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	_ = conn.(*net.TCPConn).SetReadBuffer(4096)
	for err == nil { // until the server closes the connection: the write blocks when it does not read any more
		_, err = conn.Write(requests)
	}
}

// TestNothingHoldsTheEndUp: not a reader of the admin API, not a hung disk, and nothing that nobody thought of. The
// Envoys whose connections Steelyard then closes itself have not vanished.
func TestNothingHoldsTheEndUp(t *testing.T) {
	var log output.Buffer
	d, err := New(parse(t, fmt.Sprintf(counted, "127.0.0.1:1")), Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	hung, envoys := make(chan struct{}), make(chan error)
	go func() {
		defer close(envoys)
		_ = d.serveEnvoys()
	}()
	client, err := xdstest.Dial(xdstest.Config{Address: d.XDSAddress(), NodeID: "edge-1", Clusters: []string{"llama"}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	eventually(t, "the Envoy has a stream", func() error {
		if clients := d.streams.Clients(); len(clients) != 1 || clients[0].NodeID != "edge-1" {
			return fmt.Errorf("clients %+v", clients)
		}
		return nil
	})
	began := time.Now()
	err = d.stop(func() error { <-hung; return nil }, envoys)
	if took := time.Since(began); err != nil || took < stopLimit || took > stopLimit+500*time.Millisecond {
		t.Errorf("%v after %v, want the end after %v", err, took, stopLimit)
	}
	if !strings.Contains(log.String(), `for="the collectors and the admin listener"`) {
		t.Errorf("the log does not say what was waited for:\n%s", log.String())
	}
	eventually(t, "the Envoy's stream has ended", func() error {
		if clients := d.streams.Clients(); len(clients) != 0 {
			return fmt.Errorf("clients %+v", clients)
		}
		return nil
	})
	if gone := d.streams.Gone(); len(gone) != 0 || strings.Contains(log.String(), "vanished") {
		t.Errorf("%v vanished, though Steelyard closed the connections itself:\n%s", gone, log.String())
	}
	close(hung)
}
