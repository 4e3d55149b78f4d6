package faults

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/sys/unix"

	"steelyard/e2e/rig/testbed"
	"steelyard/internal/api"
)

// restartEnvoy stops the last Envoy and runs another in its place. It has endpoints when this returns.
func (f *fleet) restartEnvoy() (took time.Duration) {
	f.T.Helper()
	last := len(f.Envoys) - 1
	if err := f.Envoys[last].Stop(); err != nil {
		f.T.Fatal(err)
	}
	f.Envoys, f.URLs = f.Envoys[:last], f.URLs[:last]
	began := time.Now()
	f.StartEnvoy(last)
	return time.Since(began)
}

// answers fails the test unless the admin listener answers soon.
func (f *fleet) answers(path string) {
	f.T.Helper()
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + f.Admin + path)
	if err != nil {
		f.T.Errorf("%s does not answer: %v", path, err)
		return
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		f.T.Errorf("%s answers %s", path, resp.Status)
	}
}

// complains waits until the status has a problem with this text.
func (f *fleet) complains(words string) {
	f.T.Helper()
	f.Eventually("the problem is shown: "+words, func() error {
		var s api.Status
		if err := f.Get("/api/v1/status", &s); err != nil {
			return err
		}
		for _, p := range s.Problems {
			if strings.Contains(p.Message, words) {
				return nil
			}
		}
		return fmt.Errorf("problems %v", s.Problems)
	})
}

// logged counts the lines of Steelyard's log with this text.
func (f *fleet) logged(words string) int {
	f.T.Helper()
	text, err := os.ReadFile(f.Control.LogFile())
	if err != nil {
		f.T.Fatal(err)
	}
	return strings.Count(string(text), words)
}

// pushed waits until Envoy i has a newer assignment than now.
func (f *fleet) pushed(i int) {
	f.T.Helper()
	const updates = "cluster.llama.update_success"
	count := func() (float64, error) {
		stats, err := f.Envoys[i].Stats(f.T.Context(), "^"+updates+"$")
		return stats[updates], err
	}
	before, err := count()
	if err != nil {
		f.T.Fatal(err)
	}
	f.Eventually("Envoy gets the next push", func() error {
		n, err := count()
		if err == nil && n <= before {
			err = fmt.Errorf("%v updates, as before", n)
		}
		return err
	})
}

func TestIdleConnectionsKeepNoEnvoyOut(t *testing.T) {
	pool := testbed.Pool(t, 2)
	f := start(t, testbed.Plan{Servers: pool, OpenFiles: "-n 1024"})
	for range 1100 {
		intrude(t, loopback, f.XDS)
	}
	f.answers("/healthz")
	f.answers("/metrics")
	if took := f.restartEnvoy(); took > 8*time.Second { // 10 s is when Envoy starts without endpoints
		t.Errorf("a restarted Envoy has its endpoints after %v", took)
	}
	if result := f.Send(testbed.Quick(300)).Wait(t); result.Errors != 0 {
		t.Errorf("%d of %d requests failed: %v", result.Errors, result.Requests, result.Codes)
	}
	f.Eventually("nothing that the Envoys sent is unread", func() error {
		p, err := f.port()
		if err == nil && p.UnreadBytes.Used != 0 {
			err = fmt.Errorf("%+v", p.UnreadBytes)
		}
		return err
	})
	f.answers("/healthz")
	p, err := f.port()
	if err != nil {
		t.Fatal(err)
	}
	if p.OpenFilesLimit.Or(0) != 1024 || p.Connections.Limit != 1024-2-256 || p.Connections.Used > p.Connections.Limit {
		t.Errorf("%+v, want at most 766 connections with 1024 open files and two servers", p)
	}
	if n := f.Metric("steelyard_xds_port_refused_total"); n < 300 {
		t.Errorf("%v connections were turned away, want more than 300", n)
	}
	f.complains("the xDS port has reached its limit of connections from one address: it closes idle connections")
	if n := f.logged("idle connections closed"); n < 1 || n > 3 {
		t.Errorf("%d lines in the log about more than 300 connections", n)
	}
}

// TestOneAddressMayNotTakeAllConnections: clients at one address, with a stream each, leave room for other addresses,
// and a connected Envoy at the same address keeps its service.
func TestOneAddressMayNotTakeAllConnections(t *testing.T) {
	pool := testbed.Pool(t, 2)
	f := start(t, testbed.Plan{Servers: pool, Listen: ", limits: {connections: 60, connections_per_address: 40}"})
	f.Eventually("the Envoy is in sync", f.allInSync)
	request := &discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "stranger"}, ResourceNames: []string{"nothing"}}
	subscribe := func(from string) *stranger {
		s := intrude(t, from, f.XDS)
		_ = s.call(streamEndpoints, request) // fails if it was closed at once
		return s
	}
	before, err := f.port()
	if err != nil {
		t.Fatal(err)
	}
	var strangers []*stranger
	for range 50 {
		strangers = append(strangers, subscribe(loopback))
	}
	var p api.Port
	f.Eventually("each of the 50 is served or refused", func() error {
		p, err = f.port()
		served, refused := p.Streams.Used-before.Streams.Used, p.ConnectionsPerAddress.Refused
		if n := served + int(refused+p.ConnectionsPerAddress.Displaced); err == nil && n < 50 {
			err = fmt.Errorf("%+v", p)
		}
		return err
	})
	open := 0
	for _, s := range strangers {
		if isOpen(s) {
			open++
		}
	}
	if open > 39 || open < 30 || p.ConnectionsPerAddress.Used != 40 ||
		p.ConnectionsPerAddress.Refused+p.ConnectionsPerAddress.Displaced != uint64(50-open) ||
		p.Connections.Refused != 0 {
		t.Errorf("%d of 50 strangers are connected; %+v", open, p)
	}
	if other := subscribe("127.0.0.2"); !isOpen(other) {
		t.Error("another address was refused, too")
	}
	f.pushed(0)
	if result := f.Send(testbed.Quick(100)).Wait(t); result.Errors != 0 {
		t.Errorf("%d of %d requests failed: %v", result.Errors, result.Requests, result.Codes)
	}
	f.complains("limit of connections from one address")
	if n := f.logged("connections refused"); n < 1 || n > 3 {
		t.Errorf("%d lines in the log about %d refused connections", n, p.ConnectionsPerAddress.Refused)
	}
}

// TestAStrangerThatUsesUpStreamsAndNamesCostsNoEnvoyItsOwn: neither an Envoy that is connected, nor one that starts
// later.
func TestAStrangerThatUsesUpStreamsAndNamesCostsNoEnvoyItsOwn(t *testing.T) {
	pool := testbed.Pool(t, 2)
	f := start(t, testbed.Plan{Servers: pool, Listen: ", limits: {streams: 1000, subscriptions: 2000}"})
	for i := range 10 {
		s := intrude(t, loopback, f.XDS)
		for range 200 {
			if err := s.call(streamEndpoints); err != nil {
				t.Fatal(err)
			}
		}
		names := make([]string, 150)
		for n := range names {
			names[n] = fmt.Sprintf("%d-%d", i, n)
		}
		request := &discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "stranger"}, ResourceNames: names}
		for range 5 {
			if err := intrude(t, loopback, f.XDS).call(streamEndpoints, request); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.Eventually("streams and names are refused", func() error {
		p, err := f.port()
		if err == nil && (p.Streams.Refused < 1000 || p.Subscriptions.Refused < 20) {
			err = fmt.Errorf("%+v", p)
		}
		return err
	})
	p, err := f.port()
	if err != nil {
		t.Fatal(err)
	}
	if p.Streams.Used > 1000 || p.Subscriptions.Used > 2000 {
		t.Errorf("%+v: more than there may be", p)
	}
	f.pushed(0)
	f.restartEnvoy()
	if result := f.Send(testbed.Quick(200)).Wait(t); result.Errors != 0 {
		t.Errorf("%d of %d requests failed: %v", result.Errors, result.Requests, result.Codes)
	}
	f.Eventually("the restarted Envoy reports its requests, too", func() error {
		clients, err := f.Clients()
		for _, c := range clients {
			if c.NodeID == "envoy-0" && c.Signals.Streams > 0 && c.Signals.ReportStreams > 0 &&
				c.Signals.Runtime.InSync {
				return nil
			}
		}
		if err == nil {
			err = fmt.Errorf("clients %+v", clients)
		}
		return err
	})
	f.complains("limit of streams")
	f.complains("limit of subscriptions")
	if n := f.logged("streams refused"); n < 1 || n > 3 {
		t.Errorf("%d lines in the log about more than 1000 refused streams", n)
	}
}

func TestTheLimitOfOpenFilesIsRaisedAndShown(t *testing.T) {
	pool := testbed.Pool(t, 1)
	f := start(t, testbed.Plan{Servers: pool, OpenFiles: "-Sn 300; ulimit -Hn 2000"})
	var limit unix.Rlimit
	if err := unix.Prlimit(f.Control.Pid(), unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		t.Fatal(err)
	}
	p, err := f.port()
	if err != nil {
		t.Fatal(err)
	}
	// The Go runtime raises it to one below the hard limit.
	const want = 2000 - 1
	shown, lines := f.Metric("process_max_fds"), f.logged(fmt.Sprintf("open_files_limit=%d", want))
	if limit.Cur != want || p.OpenFilesLimit.Or(0) != want || p.Connections.Limit != want-1-256 || shown != want ||
		lines != 1 {
		t.Errorf("the limit is %d, the API has %v open files and %d connections, process_max_fds is %v, and the "+
			"log has %d lines; want %d everywhere and one line",
			limit.Cur, p.OpenFilesLimit, p.Connections.Limit, shown, lines, want)
	}
}

// TestRunningOutOfFileDescriptorsEndsNothing: the limit is lowered while Steelyard runs, so that no descriptor is
// reserved.
func TestRunningOutOfFileDescriptorsEndsNothing(t *testing.T) {
	pool := testbed.Pool(t, 2)
	f := start(t, testbed.Plan{Servers: pool})
	var before unix.Rlimit
	if err := unix.Prlimit(f.Control.Pid(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 10, Max: 2000}, &before); err != nil {
		t.Fatal(err)
	}
	connect(t, loopback, f.XDS)
	f.pushed(0)
	if err := unix.Prlimit(f.Control.Pid(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 2000, Max: 2000}, nil); err != nil {
		t.Fatal(err)
	}
	f.Eventually("the errors are shown", func() error {
		p, err := f.port()
		if err == nil && (p.AcceptErrors == 0 || !strings.Contains(p.LastAcceptError, "too many open files")) {
			err = fmt.Errorf("%d errors: %s", p.AcceptErrors, p.LastAcceptError)
		}
		return err
	})
	f.complains("could not accept connections")
	f.restartEnvoy()
	if result := f.Send(testbed.Quick(100)).Wait(t); result.Errors != 0 {
		t.Errorf("%d of %d requests failed: %v", result.Errors, result.Requests, result.Codes)
	}
}
