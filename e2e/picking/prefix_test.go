package picking

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/testbed"
	"steelyard/picking"
)

// startIdle serves the loads of idle endpoints until the test ends, at an address.
func startIdle(t *testing.T, pool []*modelsim.Server) (a *testbed.Idle, address string) {
	t.Helper()
	var addresses []string
	for _, s := range pool {
		addresses = append(addresses, s.Address())
	}
	return testbed.StartIdleAt(t, addresses...)
}

// serveIdle is startIdle for its address only.
func serveIdle(t *testing.T, pool []*modelsim.Server) string {
	t.Helper()
	_, address := startIdle(t, pool)
	return address
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
		places[name] = f.Post(t, testbed.Talk(name))
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
			if got := f.Post(t, testbed.Talk(messages...)); got != places[name] {
				moved++
				t.Logf("turn %d of %s went to server %d, after %d", turn, name, got, places[name])
			}
			settled()
		}
	}
	return moved
}

// withPicker returns an Envoy that asks a picker, which follows idle endpoints.
func withPicker(t *testing.T, pool []*modelsim.Server, edits ...testbed.Edit) (*fleet, *testbed.PickerProcess) {
	t.Helper()
	f := withoutEnvoys(t, testbed.Plan{Servers: pool, Edits: slices.Concat(testbed.Patient, edits)})
	p := testbed.StartPicker(t, f.Dir, serveIdle(t, pool), "", "--prefix")
	f.Eventually("the picker has loads", p.Ready)
	f.Plan.Bootstrap = []string{"--picker", p.Address, "--prefix"}
	f.StartEnvoy(0)
	return f, p
}

// seen waits until a picker has loads that contain its latest choice.
func (f *fleet) seen(t *testing.T, p *testbed.PickerProcess) {
	t.Helper()
	chosen := time.Now()
	f.Eventually("the picker has loads that contain its choice", func() error {
		if updated := time.Now().Add(-p.Age(t)); updated.Before(chosen.Add(picking.Settle)) {
			return fmt.Errorf("they are of %v after it", updated.Sub(chosen))
		}
		return nil
	})
}

// TestThePickerLearnsWhereAPromptWasAnswered: a conversation goes on where it began, others go elsewhere.
func TestThePickerLearnsWhereAPromptWasAnswered(t *testing.T) {
	f, p := withPicker(t, testbed.Pool(t, 4))
	if moved := f.converse(t, func() { f.seen(t, p) }); moved > 0 {
		t.Errorf("%d of 36 turns went elsewhere", moved)
	}
	if got := p.Choices(t, "prefix"); got != 36 {
		t.Errorf("%v choices by a prefix, want 36", got)
	}
}

// TestALongBodyHasItsEndThroughThePicker: Envoy 1.40 loses the end of some that the picker has a part of, and the
// request then hangs.
func TestALongBodyHasItsEndThroughThePicker(t *testing.T) {
	f, p := withPicker(t, testbed.Pool(t, 2))
	const size = 1<<20 + 400 // of it the end comes soon after the picker has the first part
	for range 5 {
		for _, length := range []int64{size, -1} {
			if code := f.postInPieces(t, size, length); code != http.StatusOK {
				t.Fatalf("content-length %d: status %d", length, code)
			}
		}
	}
	if got := p.Choices(t, "fill"); got != 10 {
		t.Errorf("%v choices, want 10", got)
	}
}

// postInPieces sends the second half of a body when the picker has answered to the headers, and returns the status.
func (f *fleet) postInPieces(t *testing.T, size int, contentLength int64) (code int) {
	t.Helper()
	const answers = "http.ingress.ext_proc.stream_msgs_received"
	before := f.EnvoyStat(answers)
	from, to := io.Pipe()
	ctx, cancel := context.WithTimeout(t.Context(), testbed.Limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.URLs[0], from)
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
	f.Eventually("the picker has answered to the headers", func() error {
		if f.EnvoyStat(answers) == before {
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
	pool := testbed.Pool(t, 3)
	f := withoutEnvoys(t, testbed.Plan{Servers: pool, Edits: testbed.Patient})
	loads := serveLoads(t, &one{addresses: []string{pool[1].Address(), pool[0].Address(), pool[2].Address()}})
	p := testbed.StartPicker(t, f.Dir, loads, "", "--prefix")
	f.Eventually("the picker has loads", p.Ready)
	f.Plan.Bootstrap = []string{"--picker", p.Address, "--prefix"}
	f.StartEnvoy(0)
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
	if got := p.Choices(t, "fill"); got != float64(sent) {
		t.Errorf("%v choices, want %d", got, sent)
	}
}

// TestNoRequestWithABodyFailsWhenThePickerDies while it has bodies, hangs, or is away.
func TestNoRequestWithABodyFailsWhenThePickerDies(t *testing.T) {
	pool := testbed.Servers(t, testbed.Same(4, modelsim.Options{Slots: 8})...)
	f := withoutEnvoys(t, testbed.Plan{Servers: pool})
	p := testbed.StartPicker(t, f.Dir, serveIdle(t, pool), "", "--prefix")
	f.Eventually("the picker has loads", p.Ready)
	f.Plan.Bootstrap = []string{"--picker", p.Address, "--prefix"}
	f.StartEnvoy(0)
	traffic := f.Send(load.Plan{Rate: 100, Seed: 7, Work: load.Work{Mean: 20 * time.Millisecond}})
	served := func(what string) {
		t.Helper()
		before := f.Served()
		f.Eventually(what, func() error {
			if got := f.Served() - before; got < 60 {
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
	if sent, failed := traffic.Stop(t); failed != 0 {
		t.Errorf("%d of %d requests failed", failed, sent)
	}
}
