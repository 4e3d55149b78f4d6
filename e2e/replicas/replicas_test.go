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

// replicas are control planes for the same servers that know each other, each with an Envoy.
type replicas struct {
	all   []*fleet
	own   []string              // their xDS addresses
	links map[[2]int]*link.Link // from one to another
	doors []*link.Link          // from the Envoys
}

const replicated = 8 // servers

// startReplicas starts n replicas with room for more.
func startReplicas(t *testing.T, n, room int) *replicas {
	t.Helper()
	r := &replicas{links: make(map[[2]int]*link.Link)}
	var err error
	if r.own, err = proc.FreeAddresses(room); err != nil {
		t.Fatal(err)
	}
	pool := testbed.Pool(t, replicated)
	for i := range n {
		r.add(t, i, n, pool)
	}
	for _, f := range r.all {
		f.StartEnvoy(0)
	}
	r.together(t)
	return r
}

// add starts one that knows the first ones.
func (r *replicas) add(t *testing.T, i, known int, pool []*modelsim.Server) *fleet {
	t.Helper()
	f := withoutEnvoys(t, testbed.Plan{Servers: pool, Own: r.own[i], Top: r.section(t, i, known),
		Edits: []testbed.Edit{{"envoy-0", fmt.Sprint("envoy-replica-", i)}}})
	door := newLink(t, f.XDS)
	f.Plan.XDS = door.Address()
	r.all, r.doors = append(r.all, f), append(r.doors, door)
	return f
}

// section has the first n replicas as its peers, behind links, and itself.
func (r *replicas) section(t *testing.T, i, n int) string {
	t.Helper()
	var peers []string
	for to := range n {
		address := r.own[to]
		if to != i {
			pair := [2]int{i, to}
			if r.links[pair] == nil {
				r.links[pair] = newLink(t, address)
			}
			address = r.links[pair].Address()
		}
		peers = append(peers, address)
	}
	return fmt.Sprintf("replicas: {name: replica-%d, peers: [%s]}", i, strings.Join(peers, ", "))
}

// together waits until all replicas know each other.
func (r *replicas) together(t *testing.T) {
	t.Helper()
	for _, f := range r.all {
		f.Eventually("it has the counts of all others", func() error {
			s, err := f.Status()
			live := 0
			for _, o := range s.Replicas.Others {
				if o.State == api.ReplicaLive && o.Follows {
					live++
				}
			}
			if err == nil && (!s.Replicas.Connected || live != len(r.all)-1) {
				err = fmt.Errorf("%+v", s.Replicas)
			}
			return err
		})
	}
}

// sees wants another replica to be in a state, and counts to be missing or not.
func (f *fleet) sees(name string, state api.ReplicaState, connected bool) error {
	s, err := f.Status()
	if err != nil {
		return err
	}
	for _, o := range s.Replicas.Others {
		if o.Name == name && o.State == state && s.Replicas.Connected == connected {
			return nil
		}
	}
	return fmt.Errorf("connected is %t (%s), others are %+v, want %s %s", s.Replicas.Connected, s.Replicas.Error,
		s.Replicas.Others, name, state)
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

// A replica that hangs is shown within a second, and one that is killed costs no request; what its Envoys had in flight
// is counted once, before and after they have connected elsewhere.
func TestAReplicaThatHangsOrDiesIsReplacedWithinASecond(t *testing.T) {
	r := startReplicas(t, 2, 2)
	a, b := r.all[0], r.all[1]
	const held = 12
	hold(t, a, held)
	for _, f := range r.all {
		f.Eventually("requests of a's Envoy count", func() error { return f.InFlightBetween(held, held) })
	}
	if err := a.Control.Pause(); err != nil {
		t.Fatal(err)
	}
	promised(t, "the one that hangs is unreachable", time.Second, func() {
		b.Eventually("it is unreachable", func() error { return b.sees("replica-0", api.ReplicaUnreachable, false) })
	})
	if err := a.Control.Resume(); err != nil {
		t.Fatal(err)
	}
	r.together(t)
	b.Eventually("all requests count once", func() error { return b.InFlightBetween(held, held) })

	steadily := []*testbed.Traffic{a.Send(testbed.Steady(3 * time.Second)), b.Send(testbed.Steady(3 * time.Second))}
	if err := a.Control.Kill(); err != nil {
		t.Fatal(err)
	}
	r.links[[2]int{1, 0}].Close() // nothing listens at the address of a process that died
	r.doors[0].Point(b.XDS)
	promised(t, "the one that is killed is gone", time.Second, func() {
		b.Eventually("it is gone", func() error { return b.sees("replica-0", api.ReplicaGone, true) })
	})
	looks, wrong := 0, []float64{}
	for until := time.Now().Add(4 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		const most = held + 10 // and those of the traffic
		if n, err := b.InFlight(); err == nil {
			if looks++; n < held/2 || n > most {
				wrong = append(wrong, n)
			}
		}
	}
	if t.Logf("%d looks while an Envoy moved", looks); looks == 0 || 4*len(wrong) > looks { // a scrape may fail
		t.Errorf("requests in flight while an Envoy moved were %v in %d of %d looks, want %v", wrong, len(wrong), looks,
			held)
	}
	noneFailed(t, steadily)
	b.Eventually("the other has both Envoys", func() error {
		clients, err := b.Clients()
		if err == nil && len(clients) != 2 {
			err = fmt.Errorf("%d Envoys", len(clients))
		}
		return err
	})
	b.Eventually("and their requests", func() error { return b.InFlightBetween(held, held) })
}

func noneFailed(t *testing.T, all []*testbed.Traffic) {
	t.Helper()
	for _, tr := range all {
		if result := tr.Wait(t); result.Errors != 0 {
			t.Errorf("%d of %d requests failed: %v", result.Errors, result.Requests, result.Codes)
		}
	}
}

// While two of three cannot reach each other, each of them shows that counts are missing, and the third has all. They
// are together within two seconds of the repair.
func TestAPairThatIsCutShowsItAndTheThirdHasAllCounts(t *testing.T) {
	r := startReplicas(t, 3, 3)
	a, b, c := r.all[0], r.all[1], r.all[2]
	hold(t, a, 6)
	hold(t, b, 2)
	hold(t, c, 1)
	for _, f := range r.all {
		f.Eventually("requests of all Envoys count", func() error { return f.InFlightBetween(9, 9) })
	}
	var steadily []*testbed.Traffic
	for _, f := range r.all {
		steadily = append(steadily, f.Send(testbed.Steady(3*time.Second)))
	}
	cut := func(hang bool) { r.links[[2]int{0, 1}].Hang(hang); r.links[[2]int{1, 0}].Hang(hang) }
	cut(true)
	for i, f := range []*fleet{a, b} {
		f.Eventually("it shows that it is cut off", func() error {
			return errors.Join(f.sees(fmt.Sprintf("replica-%d", 1-i), api.ReplicaUnreachable, false),
				f.sees("replica-2", api.ReplicaLive, false), f.SourceIs(api.SourceReplicas, api.SourceDown),
				f.HasProblem(api.SeverityError, "counts of other replicas are missing",
					r.links[[2]int{i, 1 - i}].Address()))
		})
		if n := f.Metric("steelyard_replicas_connected"); n != 0 {
			t.Errorf("steelyard_replicas_connected is %v, want 0", n)
		}
	}
	err := errors.Join(c.sees("replica-0", api.ReplicaLive, true), c.sees("replica-1", api.ReplicaLive, true))
	if err != nil {
		t.Errorf("the third: %v", err)
	}
	noneFailed(t, steadily)
	b.Eventually("the requests of a's Envoy fade", func() error { return b.InFlightBetween(3, 8) })
	c.Eventually("the third counts all", func() error { return c.InFlightBetween(9, 9) })

	cut(false)
	promised(t, "together again", 2*time.Second, func() {
		r.together(t)
		b.Eventually("requests of all Envoys count again", func() error { return b.InFlightBetween(9, 9) })
	})
}

// A new replica has all counts as soon as it serves, before the others know of it; they say so, and follow it when
// their configuration names it.
func TestANewReplicaHasAllCountsAtOnce(t *testing.T) {
	r := startReplicas(t, 2, 3)
	hold(t, r.all[0], 5)
	r.all[1].Eventually("requests count", func() error { return r.all[1].InFlightBetween(5, 5) })
	next := r.add(t, 2, 2, r.all[0].Plan.Servers)
	next.StartEnvoy(0)
	next.Eventually("it has the counts of the others", func() error {
		return errors.Join(next.InFlightBetween(5, 5), next.sees("replica-0", api.ReplicaLive, true))
	})
	for i, f := range r.all[:2] {
		f.Eventually("it says that it does not know the new one", func() error {
			return errors.Join(f.sees("replica-2", api.ReplicaUnreachable, false),
				f.HasProblem(api.SeverityError, "replica-2: it follows this replica"))
		})
		f.Plan.Top = r.section(t, i, 3)
		f.WriteConfig(f.Plan.Cluster)
	}
	r.together(t)
	hold(t, next, 3)
	for _, f := range r.all {
		f.Eventually("requests of all Envoys count", func() error { return f.InFlightBetween(8, 8) })
	}
}
