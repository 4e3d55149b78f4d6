package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"steelyard/e2e/rig/link"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/e2e/rig/testbed"
	"steelyard/internal/api"
)

// replicas are several control planes for the same servers, each with an Envoy that has the module, and with a Redis
// that can be cut off.
type replicas struct {
	t      *testing.T
	all    []*testbed.Fleet
	doors  []*link.Link // of the Envoys, to their replica
	behind []int        // which that is
	store  []*link.Link // of the replicas, to Redis

	away   *testbed.Fleet // is killed, stopped or cut off
	starts int            // of killed ones
}

// A keeping is where replicas keep the lease: its address, and their configuration for it behind a link.
type keeping struct {
	address string
	top     func(link string, i int, replicas string) string

	listen    string   // more of the xds section
	bootstrap []string // more arguments for the Envoys
}

// inRedis keeps the lease in a Redis.
func inRedis(t *testing.T) keeping {
	top := func(link string, _ int, replicas string) string {
		return fmt.Sprintf("redis: {addresses: [%q]}\nreplicas: {%s}", link, replicas)
	}
	return keeping{address: proctest.Redis(t, proc.RedisConfig{}).Address(), top: top}
}

// startReplicas starts n replicas and their Envoys; $I in the cluster is the number of the replica, from 0.
func startReplicas(t *testing.T, n int, by keeping, pool []*modelsim.Server, cluster string) *replicas {
	t.Helper()
	r := &replicas{t: t}
	own, err := proc.FreeAddresses(n)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		store := newLink(t, by.address)
		cluster := strings.ReplaceAll(cluster, "$I", fmt.Sprint(i))
		known := fmt.Sprintf("name: replica-%d, address: %s, peers: [%s]", i, own[i], strings.Join(own, ", "))
		f := testbed.WithoutEnvoys(t, testbed.Plan{Servers: pool, Cluster: cluster, Edits: []testbed.Edit{stamped},
			Own: own[i], Top: by.top(store.Address(), i, known), Listen: by.listen})
		door := newLink(t, f.XDS)
		f.Plan.XDS = door.Address()
		r.all, r.doors, r.store = append(r.all, f), append(r.doors, door), append(r.store, store)
		r.behind = append(r.behind, i)
	}
	for _, f := range r.all {
		testbed.ByModule.StartEnvoy(t, f, by.bootstrap...)
	}
	r.joined(0, 0)
	return r
}

// owner is the replica that grants places; nil while that is not exactly one of those that can be asked.
func (r *replicas) owner() (owner *testbed.Fleet) {
	for _, f := range r.all {
		if f == r.away {
			continue
		}
		q, err := f.Queue()
		switch {
		case err != nil || q.Owner.State != api.QueueGrants:
		case owner != nil:
			return nil
		default:
			owner = f
		}
	}
	return owner
}

// joined waits until the requests of all Envoys wait in one queue, in which some wait and some are in flight.
func (r *replicas) joined(waiting, inFlight int) {
	r.t.Helper()
	r.all[0].Eventually("all Envoys have joined one queue", func() error {
		o := r.owner()
		if o == nil {
			return errors.New("not exactly one replica grants places")
		}
		q, err := o.Queue()
		if err == nil && (q.Envoys != len(r.all) || q.InFlight.Or(-1) != float64(inFlight) ||
			q.Classes[0].Waiting != waiting) {
			err = fmt.Errorf("the queue is %+v", q)
		}
		return err
	})
}

// queued waits until the requests of each Envoy go by the queue: the owner counts an Envoy a moment before that one
// knows.
func (r *replicas) queued() {
	r.t.Helper()
	for _, f := range r.all {
		c := &callers{t: r.t, f: f}
		f.Eventually("its requests go by the queue", func() error {
			before := f.Choices(r.t, 0, "queue")
			if a := c.call(r.t.Context(), 0, 0, "", "", time.Millisecond); a.code != http.StatusOK || a.err != nil {
				return fmt.Errorf("%+v", a)
			}
			if f.Choices(r.t, 0, "queue") == before {
				return errors.New("it followed the weights")
			}
			return nil
		})
	}
}

// showsOwner wants all replicas to show the same owner, in the API and in the metrics.
func (r *replicas) showsOwner() {
	r.t.Helper()
	names := make(map[string]bool)
	for _, f := range r.all {
		f.Eventually("it shows who grants places", func() error {
			q, err := f.Queue()
			series := fmt.Sprintf("steelyard_queue_owner{envoy_cluster_name=%q,owner=%q} 1\n", testbed.Cluster,
				q.Owner.Name)
			if text, failed := f.Answer("/metrics"); err == nil && !strings.Contains(text, series) {
				err = errors.Join(failed, fmt.Errorf("%+v, and no series %s", q.Owner, series))
			}
			names[q.Owner.Name] = true
			return err
		})
	}
	if len(names) != 1 || names[""] {
		r.t.Errorf("the owner is %v, want one", names)
	}
}

func newLink(t *testing.T, target string) *link.Link {
	t.Helper()
	l, err := link.Open("127.0.0.1:0", target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// doubles notes the requests that begin at a server where another one is, by the servers' own count.
type doubles struct {
	mu     sync.Mutex
	at     map[string]int
	begins []time.Time
	all    int
}

func (b *doubles) Begin(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begins = append(b.begins, time.Now())
	if b.at[address]++; b.at[address] > 1 {
		b.all++
	}
}

func (b *doubles) End(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at[address]--
}

// count is how many there were.
func (b *doubles) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all
}

// began is how many requests began in an interval.
func (b *doubles) began(from, to time.Time) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, at := range b.begins {
		if at.After(from) && !at.After(to) {
			n++
		}
	}
	return n
}

// pause is the longest time without a beginning from a time on, until now.
func (b *doubles) pause(from time.Time) (longest time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, at := range append(slices.Clone(b.begins), time.Now()) {
		if at.After(from) {
			longest, from = max(longest, at.Sub(from)), at
		}
	}
	return longest
}

// answer sends requests through the Envoys in turn, many at a time, and wants an answer to each.
func (r *replicas) answer(requests, atOnce int, service time.Duration) {
	r.t.Helper()
	var next atomic.Int64
	var sending sync.WaitGroup
	answers := make(chan answer, requests)
	for range atOnce {
		sending.Go(func() {
			for i := int(next.Add(1)); i <= requests; i = int(next.Add(1)) {
				c := &callers{t: r.t, f: r.all[i%len(r.all)]}
				answers <- c.call(r.t.Context(), i, 0, "", "", service)
			}
		})
	}
	sending.Wait()
	close(answers)
	for a := range answers {
		if a.code != http.StatusOK || a.err != nil {
			r.t.Errorf("request %d: %+v", a.number, a)
		}
	}
}

// TestMaxInFlightHoldsOverAllReplicas: a place is granted once, whichever replica an Envoy follows.
func TestMaxInFlightHoldsOverAllReplicas(t *testing.T) {
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			const requests = 300
			seen := &doubles{at: make(map[string]int)}
			pool := testbed.Servers(t, testbed.Same(4, modelsim.Options{Slots: 8, Observer: seen})...)
			r := startReplicas(t, n, inRedis(t), pool, "queue: {max_in_flight: 1}")
			r.showsOwner()
			r.answer(requests, 32, 50*time.Millisecond)
			if n := seen.count(); n > 0 {
				t.Errorf("%d of %d requests began next to another one", n, requests)
			}
		})
	}
}

// A steady load keeps sending requests through all Envoys until it is stopped.
type steady struct {
	r       *replicas
	next    atomic.Int64
	stop    chan struct{}
	sending sync.WaitGroup

	mu      sync.Mutex
	answers []answer
}

func (r *replicas) steady(size int, service time.Duration) *steady {
	c := &steady{r: r, stop: make(chan struct{})}
	for range size {
		c.sending.Go(func() {
			for {
				select {
				case <-c.stop:
					return
				default:
				}
				i := int(c.next.Add(1))
				by := &callers{t: r.t, f: r.all[i%len(r.all)]}
				a := by.call(context.Background(), i, 0, "", "", service)
				c.mu.Lock()
				c.answers = append(c.answers, a)
				c.mu.Unlock()
			}
		})
	}
	return c
}

func (c *steady) answered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.answers)
}

// answeredBy is how many requests are answered to the Envoy of a replica.
func (c *steady) answeredBy(i int) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.answers {
		if a.number%len(c.r.all) == i {
			n++
		}
	}
	return n
}

// more waits for so many more answers.
func (c *steady) more(n int) {
	c.r.t.Helper()
	want := c.answered() + n
	c.r.all[0].Eventually("requests are answered", func() error {
		if got := c.answered(); got < want {
			return fmt.Errorf("%d are, want %d", got, want)
		}
		return nil
	})
}

// A trip has the times at which a request came to its Envoy and left it, in seconds.
type trip struct{ arrived, sent float64 }

// kept is to which time the order was kept: no request was sent later, by more than that, than one that came later by
// more than that. Where grants have paused, neighbours in the queue have come at very different times.
func kept(trips []trip) (worst time.Duration) {
	slices.SortFunc(trips, func(a, b trip) int { return cmp.Compare(a.sent, b.sent) })
	for worst = 0; ; worst += time.Millisecond {
		by, newest, before, holds := worst.Seconds(), 0.0, 0, true
		for _, r := range trips {
			for ; trips[before].sent < r.sent-by; before++ {
				newest = max(newest, trips[before].arrived)
			}
			holds = holds && newest-r.arrived <= by
		}
		if holds {
			return worst
		}
	}
}

// finish stops the load, and wants all requests to have been answered.
func (c *steady) finish() {
	c.r.t.Helper()
	close(c.stop)
	c.sending.Wait()
	for _, a := range c.answers {
		if a.code != http.StatusOK || a.err != nil {
			c.r.t.Fatalf("request %d: %+v", a.number, a)
		}
	}
}

// end wants all requests to have been answered, in order but for 50 ms and what the machine takes longer.
func (c *steady) end(slack time.Duration) {
	c.r.t.Helper()
	c.finish()
	var trips []trip
	for _, a := range c.answers {
		arrived, sent := a.at(c.r.t, "X-Held")
		trips = append(trips, trip{arrived, sent})
	}
	worst := kept(trips)
	c.r.t.Logf("%d requests, in order but for %v; timers were %v late", len(trips), worst, slack)
	if worst > orderKept+slack {
		c.r.t.Errorf("requests were sent in order but for %v, want %v (and %v, for the machine)", worst, orderKept,
			slack)
	}
}

// A blow is what happens to the replica that grants places.
type blow struct {
	name string
	dead bool // it serves no Envoy any more
	hit  func(r *replicas, i int)
	heal func(r *replicas, i int)
}

var blows = []blow{
	{"killed", true, func(r *replicas, i int) {
		if err := r.all[i].Control.Kill(); err != nil {
			r.t.Fatal(err)
		}
	}, func(r *replicas, i int) {
		r.starts++
		r.all[i].Control = r.all[i].StartControl(fmt.Sprint("again-", r.starts))
	}},
	{"stopped", true, func(r *replicas, i int) {
		if err := r.all[i].Control.Pause(); err != nil {
			r.t.Fatal(err)
		}
	}, func(r *replicas, i int) {
		if err := r.all[i].Control.Resume(); err != nil {
			r.t.Fatal(err)
		}
	}},
	{"cut off from the lease", false, func(r *replicas, i int) { r.store[i].Hang(true) },
		func(r *replicas, i int) { r.store[i].Hang(false) }},
}

// lead has the Envoys of a replica connect to another one from now on, as a load balancer does.
func (r *replicas) lead(from, to int) {
	for j, at := range r.behind {
		if at == from {
			r.behind[j] = to
			r.doors[j].Lead(r.all[to].XDS)
		}
	}
}

// strike hits the replica that grants places, and wants the next one to do so within two seconds.
func (r *replicas) strike(b blow, seen *doubles) {
	t := r.t
	t.Helper()
	owner := r.owner()
	i := slices.Index(r.all, owner)
	if i < 0 {
		t.Fatal("no replica grants places, or several do")
	}
	late := lateness(t)
	before, at := seen.count(), time.Now()
	inFlight := seen.began(at.Add(-100*time.Millisecond), at)
	r.away = owner
	if b.dead {
		r.lead(i, (i+1)%len(r.all))
	}
	b.hit(r, i)
	r.all[0].Eventually("another replica grants places", func() error {
		if o := r.owner(); o == nil {
			return errors.New("not yet")
		}
		if n := seen.began(at.Add(time.Second), time.Now()); n < 20 {
			return fmt.Errorf("%d requests have begun since", n)
		}
		return nil
	})
	pause, more, slack := seen.pause(at), seen.count()-before, late()
	t.Logf("%s: %v without a grant; %d requests began next to another one, and %d had begun in the 100 ms before; "+
		"timers were %v late", b.name, pause, more, inFlight, slack)
	if pause > 2*time.Second+5*slack {
		t.Errorf("%s: %v without a grant, want 2 s", b.name, pause)
	}
	if more > inFlight {
		t.Errorf("%s: %d requests began next to another one, want at most the %d of the last 100 ms", b.name, more,
			inFlight)
	}
	b.heal(r, i)
	r.away = nil
}

// TestAnotherReplicaGrantsPlacesAfterTheOwner is killed, stopped or cut off from where the lease is: within two
// seconds, in order, and no request fails.
func TestAnotherReplicaGrantsPlacesAfterTheOwner(t *testing.T) {
	for _, c := range []struct {
		name string
		by   func(*testing.T) keeping
		n    int
	}{{"two, Redis", inRedis, 2}, {"three, Redis", inRedis, 3}, {"two, Kubernetes", inKubernetes, 2}} {
		t.Run(c.name, func(t *testing.T) {
			blown(t, c.by(t), c.n, 600*(len(blows)+1), func(i int) (b blow, more bool) {
				if i < len(blows) {
					b = blows[i]
				}
				return b, i < len(blows)
			})
		})
	}
}

// blown sends at least so many requests while one owner after the other has a blow.
func blown(t *testing.T, by keeping, n, requests int, next func(i int) (b blow, more bool)) {
	seen := &doubles{at: make(map[string]int)}
	r := startReplicas(t, n, by, testbed.Servers(t, testbed.Same(4, modelsim.Options{Slots: 8, Observer: seen})...),
		"queue: {max_in_flight: 1}")
	r.answer(100, 24, 20*time.Millisecond)
	late := lateness(t)
	c := r.steady(24, 20*time.Millisecond)
	for i := 0; ; i++ {
		b, more := next(i)
		if !more {
			break
		}
		c.more(300)
		calm := seen.count()
		c.more(300)
		if n := seen.count() - calm; n > 0 {
			t.Errorf("before the owner is %s: %d requests began next to another one", b.name, n)
		}
		r.strike(b, seen)
	}
	c.more(600)
	for c.answered() < requests {
		c.more(600) // each with the patience of a test
	}
	c.end(late())
	r.joined(0, 0)
}

// TestReplicasKnowEachOtherByTheirCertificates: no rule of xds.clients names them, and no Envoy has their name.
func TestReplicasKnowEachOtherByTheirCertificates(t *testing.T) {
	a := testbed.NewAuthority(t)
	_, _, cert, key := a.Issue("steelyard.test", time.Now().Add(time.Hour))
	_, _, envoyCert, envoyKey := a.Issue("envoy.test", time.Now().Add(time.Hour))
	by := inRedis(t)
	by.listen = fmt.Sprintf(", tls: {cert_file: %s, key_file: %s, client_ca_file: %s}, "+
		"clients: [{san: envoy.test, clusters: [llama]}]", cert, key, a.File)
	by.bootstrap = []string{"--xds-ca-file", a.File, "--xds-cert-file", envoyCert, "--xds-key-file", envoyKey}
	r := startReplicas(t, 2, by, testbed.Pool(t, 2), "queue: {max_in_flight: 1}")
	r.answer(50, 8, 10*time.Millisecond)
	r.joined(0, 0)
}
