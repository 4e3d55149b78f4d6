package replicas

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/link"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/e2e/rig/testbed"
	"steelyard/internal/api"
)

// newLink opens a link for the time of the test.
func newLink(t *testing.T, target string) *link.Link {
	t.Helper()
	l, err := link.Open("127.0.0.1:0", target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// replicas are two control planes for the same servers, each with an Envoy and a Redis that can be cut off.
type replicas struct {
	a, b           *fleet
	toA            *link.Link // from a's Envoy
	storeA, storeB *link.Link
}

const replicated = 8 // servers

func startReplicas(t *testing.T) (*replicas, *proc.Redis) {
	t.Helper()
	pool := testbed.Pool(t, replicated)
	store := proctest.Redis(t, proc.RedisConfig{})
	r := &replicas{storeA: newLink(t, store.Address()), storeB: newLink(t, store.Address())}
	of := func(name string, store *link.Link) *fleet {
		return withoutEnvoys(t, testbed.Plan{Servers: pool,
			Top:     fmt.Sprintf("redis: {addresses: [%q]}\nreplicas: {name: %s}", store.Address(), name),
			Cluster: "inflight: {redis_key: \"inflight:{cluster}\", sync_members: true}"})
	}
	r.a, r.b = of("a", r.storeA), of("b", r.storeB)
	r.toA = newLink(t, r.a.XDS)
	r.a.Plan.XDS = r.toA.Address()
	r.a.StartEnvoy(0)
	r.b.StartEnvoy(0)
	r.together(t)
	return r, store
}

// together waits until both replicas know each other.
func (r *replicas) together(t *testing.T) {
	t.Helper()
	r.b.Eventually("both replicas know each other", func() error {
		return errors.Join(r.a.others("live"), r.b.others("live"))
	})
}

// others wants the replica to be connected, and the latest of the others to be in a state.
func (f *fleet) others(state api.ReplicaState) error {
	s, err := f.Status()
	if err != nil {
		return err
	}
	if !s.Replicas.Connected {
		return fmt.Errorf("not connected: %s", s.Replicas.Error)
	}
	for _, o := range s.Replicas.Others {
		if o.State == state {
			return nil
		}
	}
	return fmt.Errorf("others are %+v, want one that is %s", s.Replicas.Others, state)
}

// hold sends requests through the Envoy that stay at the servers until the test ends.
func hold(t *testing.T, f *fleet, n int) {
	t.Helper()
	holdUntil(t.Context(), t, f, n)
}

// holdUntil sends requests through the Envoy that stay at the servers until ctx ends.
func holdUntil(ctx context.Context, t *testing.T, f *fleet, n int) {
	t.Helper()
	for range n {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.URLs[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(modelsim.HeaderService, "60")
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}()
		t.Cleanup(func() { <-done }) // the test's context has ended by then
	}
}

// promised checks a time that is promised of processes which get a core when they need one. While the machine has
// others to serve, timers of this process are late, too: five times that is allowed.
func promised(t *testing.T, what string, promise time.Duration, wait func()) {
	t.Helper()
	var late time.Duration
	waited, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		const nap = 10 * time.Millisecond
		for {
			began := time.Now()
			select {
			case <-waited:
				return
			case <-time.After(nap):
				late = max(late, time.Since(began)-nap)
			}
		}
	}()
	began := time.Now()
	wait()
	took := time.Since(began)
	close(waited)
	<-done
	t.Logf("%s after %v; timers were late by up to %v", what, took, late)
	if allowed := promise + 5*late; took > allowed {
		t.Errorf("%s after %v, want %v", what, took, allowed)
	}
}

// A replica that hangs is gone within a second, and one that is killed costs no request; what its Envoys had in flight
// is counted once, before and after they have connected elsewhere.
func TestAReplicaThatHangsOrDiesIsReplacedWithinASecond(t *testing.T) {
	r, store := startReplicas(t)
	const held = 12
	hold(t, r.a, held)
	for _, f := range []*fleet{r.a, r.b} {
		f.Eventually("requests of a's Envoy count", func() error { return f.InFlightBetween(held, held) })
	}
	r.b.Eventually("the members of the set are the endpoints", func() error {
		n, err := redisDo(t, store.Address(), "ZCARD", testbed.CountsKey)
		if err == nil && n != int64(replicated) {
			err = fmt.Errorf("%v members", n)
		}
		return err
	})

	if err := r.a.Control.Pause(); err != nil {
		t.Fatal(err)
	}
	promised(t, "the one that hangs is gone", time.Second, func() {
		r.b.Eventually("it is gone", func() error { return r.b.others("gone") })
	})
	if err := r.a.Control.Resume(); err != nil {
		t.Fatal(err)
	}
	r.together(t)
	r.b.Eventually("all requests count once", func() error { return r.b.InFlightBetween(held, held) })

	steadily := []*testbed.Traffic{r.a.Send(testbed.Steady(3 * time.Second)), r.b.Send(testbed.Steady(3 * time.Second))}
	if err := r.a.Control.Kill(); err != nil {
		t.Fatal(err)
	}
	r.toA.Point(r.b.XDS)
	looks, wrong := 0, []float64{}
	for until := time.Now().Add(4 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		const most = held + 10 // and those of the traffic
		if n, err := r.b.InFlight(); err == nil {
			if looks++; n < held/2 || n > most {
				wrong = append(wrong, n)
			}
		}
	}
	if t.Logf("%d looks while an Envoy moved", looks); looks == 0 || 4*len(wrong) > looks { // a scrape may fail
		t.Errorf("requests in flight while an Envoy moved were %v in %d of %d looks, want %v", wrong, len(wrong), looks,
			held)
	}
	for _, tr := range steadily {
		if result := tr.Wait(t); result.Errors != 0 {
			t.Errorf("%d of %d requests failed: %v", result.Errors, result.Requests, result.Codes)
		}
	}
	r.b.Eventually("the other has both Envoys", func() error {
		clients, err := r.b.Clients()
		if err == nil && len(clients) != 2 {
			err = fmt.Errorf("%d Envoys", len(clients))
		}
		return err
	})
	r.b.Eventually("and their requests", func() error { return r.b.InFlightBetween(held, held) })
}

// While Redis is unreachable, each replica uses only its own counts, and shows it; afterwards they are together within
// two seconds.
func TestReplicasGoOnByThemselvesWhileRedisIsCut(t *testing.T) {
	r, _ := startReplicas(t)
	hold(t, r.a, 6)
	hold(t, r.b, 2)
	r.b.Eventually("requests of both Envoys count", func() error { return r.b.InFlightBetween(8, 8) })
	steadily := []*testbed.Traffic{r.a.Send(testbed.Steady(3 * time.Second)), r.b.Send(testbed.Steady(3 * time.Second))}
	r.storeA.Hang(true)
	r.storeB.Hang(true)
	cut := time.Now()
	for _, f := range []*fleet{r.a, r.b} {
		f.Eventually("it shows that it is cut off", func() error {
			s, err := f.Status()
			problems := fmt.Sprint(s.Problems)
			if err == nil && (s.Replicas.Connected || s.Replicas.Error == "" ||
				!strings.Contains(problems, "cut off")) {
				err = fmt.Errorf("%+v, problems %v", s.Replicas, problems)
			}
			return errors.Join(err, f.SourceIs(api.SourceReplicas, api.SourceDown))
		})
		if n := f.Metric("steelyard_replicas_connected"); n != 0 {
			t.Errorf("steelyard_replicas_connected is %v, want 0", n)
		}
	}
	t.Logf("both went by themselves %v after the cut", time.Since(cut))
	for _, tr := range steadily {
		if result := tr.Wait(t); result.Errors != 0 {
			t.Errorf("%d of %d requests failed: %v", result.Errors, result.Requests, result.Codes)
		}
	}
	r.b.Eventually("the requests of the other's Envoy fade", func() error { return r.b.InFlightBetween(2, 7) })

	r.storeA.Hang(false)
	r.storeB.Hang(false)
	promised(t, "together again", 2*time.Second, func() {
		r.together(t)
		r.b.Eventually("requests of both Envoys count again", func() error { return r.b.InFlightBetween(8, 8) })
	})
}
