package e2e

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/xds/loads"
	"steelyard/xds/loads/loadsv1"
)

// idle has endpoints without load, where requests cost by their size. What pickers learn is shared as by Steelyard.
type idle struct {
	*loads.Server
	addresses []string
	updates   atomic.Int64 // that were sent
}

func (a *idle) Follow(_ *loadsv1.FollowRequest, stream grpc.ServerStreamingServer[loadsv1.Update]) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		u := &loadsv1.Update{Cluster: cluster, Cost: &loadsv1.Cost{Base: 0.1, PerByte: 0.0002, Mean: 1}}
		for _, address := range a.addresses {
			u.Endpoints = append(u.Endpoints, &loadsv1.Endpoint{Address: address, Slots: 1, Speed: 1})
		}
		if err := stream.Send(u); err != nil {
			return err
		}
		a.updates.Add(1)
		select {
		case <-stream.Context().Done():
			return nil
		case <-tick.C:
		}
	}
}

// startIdle serves the loads of idle endpoints until the test ends, at an address.
func startIdle(t *testing.T, pool []*modelsim.Server) (a *idle, address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a = &idle{Server: loads.New(slog.New(slog.DiscardHandler))}
	for _, s := range pool {
		a.addresses = append(a.addresses, s.Address())
	}
	server := grpc.NewServer()
	loadsv1.RegisterLoadsServer(server, a)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return a, listener.Addr().String()
}

// serveIdle is startIdle for its address only.
func serveIdle(t *testing.T, pool []*modelsim.Server) string {
	t.Helper()
	_, address := startIdle(t, pool)
	return address
}

// post sends a body to the first Envoy, and returns the number of the server that answered.
func (f *fleet) post(t *testing.T, body []byte) int {
	t.Helper()
	return f.postTo(t, 0, body)
}

// postTo sends it to an Envoy.
func (f *fleet) postTo(t *testing.T, envoy int, body []byte) int {
	t.Helper()
	before := make([]uint64, len(f.plan.servers))
	for i, s := range f.plan.servers {
		before[i] = s.Served()
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.urls[envoy], bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Service-Seconds", "0.001")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("a body of %d bytes: status %d, error %v", len(body), resp.StatusCode, err)
	}
	for i, s := range f.plan.servers {
		if s.Served() > before[i] {
			return i
		}
	}
	t.Fatal("no server has answered")
	return -1
}

// talk is a chat whose messages are named.
func talk(messages ...string) []byte {
	var b strings.Builder
	b.WriteString(`{"model": "llama", "messages": [`)
	for i, m := range messages {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, `{"role": "user", "content": %q}`, strings.Repeat(m+" ", 400))
	}
	b.WriteString("]}")
	return []byte(b.String())
}

// converse has twelve conversations of four turns through the first Envoy, and returns how many of the turns after the
// first went elsewhere than where their conversation began. settled waits until a choice is in the loads.
func (f *fleet) converse(t *testing.T, settled func()) (moved int) {
	t.Helper()
	conversations := map[string][]string{}
	places := map[string]int{}
	used := map[int]bool{}
	for n := range 12 {
		name := fmt.Sprint("conversation ", n)
		conversations[name] = []string{name}
		places[name] = f.post(t, talk(name))
		used[places[name]] = true
	}
	if len(used) < 3 {
		t.Errorf("12 conversations began at %d of 4 servers", len(used))
	}
	settled()
	for turn := range 3 {
		for name, messages := range conversations {
			messages = append(messages, fmt.Sprint(name, " turn ", turn))
			conversations[name] = messages
			if got := f.post(t, talk(messages...)); got != places[name] {
				moved++
				t.Logf("turn %d of %s went to server %d, after %d", turn, name, got, places[name])
			}
			settled()
		}
	}
	return moved
}

// TestThePickerLearnsWhereAPromptWasAnswered: a conversation goes on where it began, others go elsewhere; bodies longer
// than Envoy's buffer arrive whole.
func TestThePickerLearnsWhereAPromptWasAnswered(t *testing.T) {
	pool := servers(t, same(4, wide)...)
	f := withoutEnvoys(t, plan{servers: pool})
	loads, address := startIdle(t, pool)
	p := startPicker(t, f.dir, address, "", "--prefix")
	f.eventually("the picker has loads", p.ready)
	f.plan.bootstrap = []string{"--picker", p.address, "--prefix"}
	// Where the picker is late Envoy goes by the weights, which is no part of this test.
	f.plan.edits = []edit{{"message_timeout: 0.1s", "message_timeout: 10s"}}
	f.startEnvoy(0)
	// A picker that waits for a CPU counts its own choices for longer than that. By chance 27 of 36 would move.
	if moved := f.converse(t, func() { f.settled(loads) }); moved > 9 {
		t.Errorf("%d of 36 turns went elsewhere", moved)
	}
	if got := p.choices(t, "prefix"); got < 27 {
		t.Errorf("%v choices by a prefix, want 27 at least", got)
	}
	large := talk(strings.Repeat("a large one ", 600))
	if len(large) < 2<<20 {
		t.Fatalf("the large body has %d bytes", len(large))
	}
	f.post(t, large)
}

// TestNoRequestWithABodyFailsWhenThePickerDies while it has bodies, hangs, or is away.
func TestNoRequestWithABodyFailsWhenThePickerDies(t *testing.T) {
	pool := servers(t, same(4, modelsim.Options{Slots: 8})...)
	f := withoutEnvoys(t, plan{servers: pool})
	p := startPicker(t, f.dir, serveIdle(t, pool), "", "--prefix")
	f.eventually("the picker has loads", p.ready)
	f.plan.bootstrap = []string{"--picker", p.address, "--prefix"}
	f.startEnvoy(0)
	traffic := f.send(load.Plan{Rate: 100, Seed: 7, Work: load.Work{Mean: 20 * time.Millisecond}})
	served := func(what string) {
		t.Helper()
		before := f.served()
		f.eventually(what, func() error {
			if got := f.served() - before; got < 60 {
				return fmt.Errorf("%d served", got)
			}
			return nil
		})
	}
	served("the picker chooses")
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	served("the picker hangs")
	if err := p.Resume(); err != nil {
		t.Fatal(err)
	}
	served("the picker is back")
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	served("the picker is away")
	if sent, failed := traffic.stop(t); failed != 0 {
		t.Errorf("%d of %d requests failed", failed, sent)
	}
}
