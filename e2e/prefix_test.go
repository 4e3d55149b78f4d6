package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"steelyard/e2e/rig/grpctest"
	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/picking"
	"steelyard/xds/loads"
	"steelyard/xds/loads/loadsv1"
)

// idle has endpoints without load, where requests cost by their size. What pickers learn is shared as by Steelyard.
type idle struct {
	*loads.Server
	addresses []string
	updates   atomic.Int64 // that were sent
	change    atomic.Pointer[func(*loadsv1.Update)]
}

func (a *idle) Follow(_ *loadsv1.FollowRequest, stream grpc.ServerStreamingServer[loadsv1.Update]) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		u := &loadsv1.Update{Cluster: cluster, Cost: &loadsv1.Cost{Base: 0.1, PerByte: 0.0002, Mean: 1}}
		for _, address := range a.addresses {
			u.Endpoints = append(u.Endpoints, &loadsv1.Endpoint{Address: address, Slots: 1, Speed: 1})
		}
		if change := a.change.Load(); change != nil {
			(*change)(u)
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
	var addresses []string
	for _, s := range pool {
		addresses = append(addresses, s.Address())
	}
	return startIdleAt(t, addresses...)
}

// startIdleAt does so for endpoints that need not exist.
func startIdleAt(t *testing.T, addresses ...string) (a *idle, address string) {
	t.Helper()
	a = &idle{Server: loads.New(slog.New(slog.DiscardHandler)), addresses: addresses}
	address, _ = grpctest.Serve(t, func(s *grpc.Server) { loadsv1.RegisterLoadsServer(s, a) })
	return a, address
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

// talk returns a chat whose messages are named.
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

// patient are the edits by which an Envoy waits for a picker that is short of CPU, instead of going by the weights.
var patient = []edit{{"message_timeout: 0.1s", "message_timeout: 10s"}, {"unhealthy_threshold: 2",
	"unhealthy_threshold: 1000"}}

// withPicker returns an Envoy that asks a picker, which follows idle endpoints.
func withPicker(t *testing.T, pool []*modelsim.Server, edits ...edit) (*fleet, *pickerProcess) {
	t.Helper()
	f := withoutEnvoys(t, plan{servers: pool, edits: slices.Concat(patient, edits)})
	p := startPicker(t, f.dir, serveIdle(t, pool), "", "--prefix")
	f.eventually("the picker has loads", p.ready)
	f.plan.bootstrap = []string{"--picker", p.address, "--prefix"}
	f.startEnvoy(0)
	return f, p
}

// seen waits until a picker has loads that contain its latest choice.
func (f *fleet) seen(t *testing.T, p *pickerProcess) {
	t.Helper()
	chosen := time.Now()
	f.eventually("the picker has loads that contain its choice", func() error {
		if updated := time.Now().Add(-p.age(t)); updated.Before(chosen.Add(picking.Settle)) {
			return fmt.Errorf("they are of %v after it", updated.Sub(chosen))
		}
		return nil
	})
}

// TestThePickerLearnsWhereAPromptWasAnswered: a conversation goes on where it began, others go elsewhere.
func TestThePickerLearnsWhereAPromptWasAnswered(t *testing.T) {
	f, p := withPicker(t, servers(t, same(4, wide)...))
	if moved := f.converse(t, func() { f.seen(t, p) }); moved > 0 {
		t.Errorf("%d of 36 turns went elsewhere", moved)
	}
	if got := p.choices(t, "prefix"); got != 36 {
		t.Errorf("%v choices by a prefix, want 36", got)
	}
}

// TestALongBodyHasItsEndThroughThePicker: Envoy 1.40 loses the end of some that the picker has a part of, and the
// request then hangs.
func TestALongBodyHasItsEndThroughThePicker(t *testing.T) {
	f, p := withPicker(t, servers(t, same(2, wide)...))
	const size = 1<<20 + 400 // of it the end comes soon after the picker has the first part
	for range 5 {
		for _, length := range []int64{size, -1} {
			if code := f.postInPieces(t, size, length); code != http.StatusOK {
				t.Fatalf("content-length %d: status %d", length, code)
			}
		}
	}
	if got := p.choices(t, "fill"); got != 10 {
		t.Errorf("%v choices, want 10", got)
	}
}

// postInPieces sends the second half of a body when the picker has answered to the headers, and returns the status.
func (f *fleet) postInPieces(t *testing.T, size int, contentLength int64) (code int) {
	t.Helper()
	const answers = "http.ingress.ext_proc.stream_msgs_received"
	before := f.envoyStat(answers)
	from, to := io.Pipe()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.urls[0], from)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = contentLength
	req.Header.Set("X-Service-Seconds", "0.001")
	done := make(chan struct{})
	go func() {
		defer close(done)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		resp.Body.Close()
		code = resp.StatusCode
	}()
	half := bytes.Repeat([]byte("x"), size/2)
	if _, err := to.Write(half); err != nil {
		t.Fatal(err)
	}
	f.eventually("the picker has answered to the headers", func() error {
		if f.envoyStat(answers) == before {
			return errors.New("it has not")
		}
		return nil
	})
	if _, err := to.Write(half); err != nil {
		t.Fatal(err)
	}
	to.Close()
	<-done
	return code
}

// TestAChoiceByABodyInPiecesIsFollowed, also where the body is longer than Envoy's buffer.
func TestAChoiceByABodyInPiecesIsFollowed(t *testing.T) {
	pool := servers(t, same(3, wide)...)
	f := withoutEnvoys(t, plan{servers: pool, edits: patient})
	loads := serveLoads(t, &one{addresses: []string{pool[1].Address(), pool[0].Address(), pool[2].Address()}})
	p := startPicker(t, f.dir, loads, "", "--prefix")
	f.eventually("the picker has loads", p.ready)
	f.plan.bootstrap = []string{"--picker", p.address, "--prefix"}
	f.startEnvoy(0)
	sent := uint64(0)
	for _, size := range []int{20_000, 3 << 20} {
		for _, length := range []int64{int64(size), -1} {
			code := f.postInPieces(t, size, length)
			sent++
			if code != http.StatusOK || pool[1].Served() != sent {
				t.Errorf("%d bytes, content-length %d: status %d, %d of %d requests went where the picker chose",
					size, length, code, pool[1].Served(), sent)
			}
		}
	}
	if got := p.choices(t, "fill"); got != float64(sent) {
		t.Errorf("%v choices, want %d", got, sent)
	}
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
