package queue

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/testbed"
	"steelyard/picking"
	"steelyard/picking/queue"
)

// An answer is how a request ended.
type answer struct {
	number int // of the request
	code   int // 0: no answer
	header http.Header
	err    error
}

// callers send requests whose answers arrive on a channel.
type callers struct {
	t       *testing.T
	f       *testbed.Fleet
	answers chan answer
	sending sync.WaitGroup
}

func newCallers(t *testing.T, f *testbed.Fleet) *callers {
	c := &callers{t: t, f: f, answers: make(chan answer, 10_000)}
	t.Cleanup(c.sending.Wait)
	return c
}

// send sends one request to an Envoy.
func (c *callers) send(ctx context.Context, number, envoy int, class, tenant string, service time.Duration) {
	c.sending.Go(func() { c.answers <- c.call(ctx, number, envoy, class, tenant, service) })
}

func (c *callers) call(ctx context.Context, number, envoy int, class, tenant string, service time.Duration) answer {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.f.URLs[envoy], nil)
	if err != nil {
		return answer{number: number, err: err}
	}
	r.Header.Set(modelsim.HeaderService, strconv.FormatFloat(service.Seconds(), 'f', -1, 64))
	r.Header.Set("X-Steelyard-Class", class)
	r.Header.Set("X-Steelyard-Tenant", tenant)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{number: number, err: err}
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return answer{number: number, code: resp.StatusCode, header: resp.Header, err: err}
}

// next returns the next answer, which must be in time.
func (c *callers) next() answer {
	c.t.Helper()
	select {
	case a := <-c.answers:
		return a
	case <-time.After(testbed.Limit):
		c.t.Fatalf("no answer within %v", testbed.Limit)
	}
	return answer{}
}

// queueing returns a fleet with a queue.
func queueing(t *testing.T, c testbed.Carrier, pool []*modelsim.Server, envoys int, queue string) *testbed.Fleet {
	t.Helper()
	return c.Start(t, testbed.Plan{Servers: pool, Envoys: envoys, Cluster: "queue: " + queue})
}

// A turn is a request that waits, with its number among those that are sent.
type turn struct {
	class, tenant string
	number        int
}

// orderKept is by how much a request may overtake an older one of another Envoy (docs/queue.md).
const orderKept = 50 * time.Millisecond

// waitBehind sends a request that holds the only place until it is released, and others that wait behind it, one after
// the other at two Envoys in turn.
func waitBehind(t *testing.T, by testbed.Carrier, queue string, turns ...turn) (
	f *testbed.Fleet, c *callers, release func()) {
	t.Helper()
	f = queueing(t, by, testbed.Servers(t, modelsim.Options{Slots: 8}), 2, queue)
	c = newCallers(t, f)
	first, release := context.WithCancel(t.Context())
	c.send(first, 0, 0, "", "", time.Minute)
	f.Eventually("the place is taken", func() error { return f.Waits(0, 1) })
	for i, r := range turns {
		c.send(t.Context(), r.number, (i+1)%2, r.class, r.tenant, 20*time.Millisecond)
		f.Eventually("the request waits", func() error { return f.Waits(i+1, 1) })
		seen := time.Now()
		f.Eventually("the next one is younger by more than the order is kept to", func() error {
			if age := time.Since(seen); age < orderKept {
				return fmt.Errorf("its age is %v", age)
			}
			return nil
		})
	}
	return f, c, release
}

// waitBehindOne is waitBehind for requests of one class and tenant, which are numbered from 1.
func waitBehindOne(t *testing.T, by testbed.Carrier, requests int) (f *testbed.Fleet, c *callers, release func()) {
	t.Helper()
	turns := make([]turn, requests)
	for i := range turns {
		turns[i].number = i + 1
	}
	return waitBehind(t, by, "{max_in_flight: 1}", turns...)
}

// inOrder wants the end of the first request, and the answers to the others in the order of their numbers.
func (c *callers) inOrder(requests int) {
	c.t.Helper()
	var order []int
	for range requests + 1 {
		a := c.next()
		if a.number > 0 && a.code != http.StatusOK {
			c.t.Fatalf("request %d: %+v", a.number, a)
		}
		order = append(order, a.number)
	}
	if !slices.IsSorted(order) {
		c.t.Errorf("the order of the answers is %v", order)
	}
}

func TestTheQueueKeepsTheOrderOfArrivalAcrossEnvoys(t *testing.T) {
	testbed.EachCarrier(t, theQueueKeepsTheOrderOfArrivalAcrossEnvoys)
}

func theQueueKeepsTheOrderOfArrivalAcrossEnvoys(t *testing.T, by testbed.Carrier) {
	const requests = 12
	f, c, release := waitBehindOne(t, by, requests)
	release()
	c.inOrder(requests)
	f.Eventually("no place is held", func() error { return f.Waits(0, 0) })
}

// stamped has an Envoy add to answers when the request came, in seconds, and how long after that a connection for it
// was opened, if it got none that was there, and its first byte was sent, in microseconds.
var stamped = testbed.Edit{"            virtual_hosts:", `
            response_headers_to_add:
            - {header: {key: x-arrived, value: "%START_TIME(%s.%6f)%"}}
            - {header: {key: x-connected, value: "%COMMON_DURATION(DS_RX_BEG:US_CX_BEG:us)%"}}
            - {header: {key: x-held, value: "%COMMON_DURATION(DS_RX_BEG:US_TX_BEG:us)%"}}
            virtual_hosts:`}

// at returns the time of the event that a header of an answer has, in seconds.
func (a answer) at(t *testing.T, header string) (arrived, event float64) {
	t.Helper()
	arrived, failed := strconv.ParseFloat(a.header.Get("X-Arrived"), 64)
	after, failedToo := strconv.ParseFloat(a.header.Get(header), 64)
	if a.code != http.StatusOK || failed != nil || failedToo != nil {
		t.Fatalf("request %d: %+v", a.number, a)
	}
	return arrived, arrived + after/1e6
}

// TestNoRequestOvertakesAnOlderOneByFiftyMilliseconds by the clocks of three Envoys, at twice the load.
func TestNoRequestOvertakesAnOlderOneByFiftyMilliseconds(t *testing.T) {
	testbed.EachCarrier(t, noRequestOvertakesAnOlderOneByFiftyMilliseconds)
}

func noRequestOvertakesAnOlderOneByFiftyMilliseconds(t *testing.T, by testbed.Carrier) {
	const requests, service, allowed = 400, 10 * time.Millisecond, orderKept
	f := by.Start(t, testbed.Plan{Servers: testbed.Servers(t, modelsim.Options{Slots: 8}), Envoys: 3,
		Cluster: "queue: {max_in_flight: 1}", Edits: []testbed.Edit{stamped}})
	c := newCallers(t, f)
	random := rand.New(rand.NewPCG(1, 2))
	late := lateness(t)
	for i := range requests {
		c.send(t.Context(), i, random.IntN(3), "", "", service)
		time.Sleep(time.Duration(random.Int64N(int64(service)))) // the load: twice what the server can do
	}
	type trip struct{ arrived, sent float64 } // seconds
	var trips []trip
	for range requests {
		arrived, sent := c.next().at(t, "X-Held")
		trips = append(trips, trip{arrived, sent})
	}
	slices.SortFunc(trips, func(a, b trip) int { return cmp.Compare(a.sent, b.sent) })
	worst, newest, overtaken, waited := 0.0, 0.0, 0, 0.0
	for _, r := range trips {
		if by := newest - r.arrived; by > 0 {
			overtaken++
			worst = max(worst, by)
		}
		newest, waited = max(newest, r.arrived), max(waited, r.sent-r.arrived)
	}
	slack := late()
	t.Logf("%d of %d requests were overtaken, by %.1f ms at most; the longest wait was %.1f s; timers were %v late",
		overtaken, requests, 1000*worst, waited, slack)
	if worst > (allowed + slack).Seconds() {
		t.Errorf("a request was overtaken by one that came %.1f ms later, want at most %v (and %v, for the machine)",
			1000*worst, allowed, slack)
	}
	if waited < 0.5 {
		t.Errorf("the longest wait was %.3f s: there was no queue", waited)
	}
}

// lateness measures how late timers of this machine are, until the function that it returns is called, which returns
// the longest time.
func lateness(t *testing.T) (worst func() time.Duration) {
	end, result := make(chan struct{}), make(chan time.Duration, 1)
	go func() {
		const every = 5 * time.Millisecond
		var most time.Duration
		for last := time.Now(); ; {
			select {
			case <-end:
				result <- most
				return
			case <-time.After(every):
				now := time.Now()
				most, last = max(most, now.Sub(last)-every), now
			}
		}
	}()
	stop := sync.OnceFunc(func() { close(end) })
	t.Cleanup(stop)
	return func() time.Duration { stop(); return <-result }
}

func TestSharesAreTheWeightsWhileAllClassesWait(t *testing.T) {
	t.Parallel()
	testbed.EachCarrier(t, sharesAreTheWeightsWhileAllClassesWait)
}

func sharesAreTheWeightsWhileAllClassesWait(t *testing.T, by testbed.Carrier) {
	f := queueing(t, by, testbed.Servers(t, testbed.Same(4, modelsim.Options{Slots: 8})...), 2,
		"{max_in_flight: 1, classes: [{name: gold, weight: 3}, {name: base, weight: 1}]}")
	c := newCallers(t, f)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for i, class := range []string{"gold", "base"} {
		for tenant := range 16 { // four times as many as there are places, in each class
			c.sending.Go(func() {
				for ctx.Err() == nil {
					a := c.call(ctx, i, tenant%2, class, fmt.Sprint(tenant), 25*time.Millisecond)
					if ctx.Err() == nil && a.code != http.StatusOK {
						c.answers <- a
					}
				}
			})
		}
	}
	f.Eventually("both classes wait", func() error {
		q, err := f.Queue()
		if err == nil && (q.Classes[0].Waiting == 0 || q.Classes[1].Waiting == 0) {
			err = fmt.Errorf("classes %+v", q.Classes)
		}
		return err
	})
	before, err := f.Queue()
	if err != nil {
		t.Fatal(err)
	}
	const enough = 600
	var gold, base float64
	f.Eventually("enough requests were sent", func() error {
		q, err := f.Queue()
		if err != nil {
			return err
		}
		gold = float64(q.Classes[0].Granted - before.Classes[0].Granted)
		base = float64(q.Classes[1].Granted - before.Classes[1].Granted)
		if gold+base < enough {
			return fmt.Errorf("%v and %v were sent", gold, base)
		}
		return nil
	})
	if share := base / (gold + base); share < 0.25*0.95 || share > 0.25*1.05 {
		t.Errorf("the share of the class with weight 1 of 4 is %.3f (%v of %v)", share, base, gold+base)
	}
	stop()
	c.sending.Wait()
	if n := len(c.answers); n > 0 {
		t.Errorf("%d requests failed, the first: %+v", n, <-c.answers)
	}
}

// takeTurns has requests wait behind one, and wants them to be sent by their numbers.
func takeTurns(t *testing.T, by testbed.Carrier, queue string, turns ...turn) {
	t.Helper()
	f, c, release := waitBehind(t, by, queue, turns...)
	release()
	c.inOrder(len(turns))
	f.Eventually("no place is held", func() error { return f.Waits(0, 0) })
}

func TestAStrictClassIsSentFirstHoweverLongOthersHaveWaited(t *testing.T) {
	testbed.EachCarrier(t, func(t *testing.T, by testbed.Carrier) {
		takeTurns(t, by, "{max_in_flight: 1, classes: [{name: base, weight: 100}, {name: urgent, strict: true}]}",
			turn{"base", "", 4}, turn{"base", "", 5}, turn{"base", "", 6},
			turn{"urgent", "", 1}, turn{"urgent", "", 2}, turn{"urgent", "", 3})
	})
}

func TestTenantsOfAClassTakeTurns(t *testing.T) {
	testbed.EachCarrier(t, func(t *testing.T, by testbed.Carrier) {
		takeTurns(t, by, "{max_in_flight: 1}",
			turn{"", "many", 1}, turn{"", "many", 3}, turn{"", "many", 5}, turn{"", "many", 6},
			turn{"", "few", 2}, turn{"", "few", 4})
	})
}

func TestAClientThatGivesUpLeavesTheQueue(t *testing.T) {
	testbed.EachCarrier(t, aClientThatGivesUpLeavesTheQueue)
}

func aClientThatGivesUpLeavesTheQueue(t *testing.T, by testbed.Carrier) {
	f := queueing(t, by, testbed.Servers(t, modelsim.Options{Slots: 8}), 2, "{max_in_flight: 1}")
	c := newCallers(t, f)
	first, release := context.WithCancel(t.Context())
	defer release()
	c.send(first, 0, 0, "", "", time.Minute)
	f.Eventually("the place is taken", func() error { return f.Waits(0, 1) })
	impatient, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	c.send(impatient, 1, 1, "", "", time.Millisecond)
	f.Eventually("it waits", func() error { return f.Waits(1, 1) })
	giveUp()
	f.Eventually("it has left", func() error { return f.Waits(0, 1) })
	if q, err := f.Queue(); err != nil || q.Classes[0].Left != 1 {
		t.Errorf("the queue is %+v (%v), want one that left", q, err)
	}
	release() // of the place, by a client that aborts
	f.Eventually("the place is free", func() error { return f.Waits(0, 0) })
	if served := f.Served(); served > 1 {
		t.Errorf("%d requests were served, want none that left", served)
	}
}

func TestARequestThatMayNotWaitIsRefused(t *testing.T) {
	testbed.EachCarrier(t, aRequestThatMayNotWaitIsRefused)
}

func aRequestThatMayNotWaitIsRefused(t *testing.T, by testbed.Carrier) {
	f := queueing(t, by, testbed.Servers(t, modelsim.Options{Slots: 8}), 1,
		"{max_in_flight: 1, classes: [{name: short, max_wait: 200ms}, {name: none, max_waiting: 0}]}")
	c := newCallers(t, f)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	c.send(ctx, 0, 0, "none", "", time.Minute)
	f.Eventually("the place is taken", func() error { return f.Waits(0, 1) })
	for class, want := range map[string][2]string{
		"short": {"timeout", "rejected-ttl-expired"}, "none": {"full", "rejected-saturated"},
	} {
		a := c.call(t.Context(), 1, 0, class, "", time.Millisecond)
		if a.code != http.StatusTooManyRequests || a.header.Get("Retry-After") != "1" ||
			a.header.Get("X-Steelyard-Refused") != want[0] ||
			a.header.Get("X-Llm-D-Request-Dropped-Reason") != want[1] {
			t.Errorf("class %s: %+v, want a 429 for the reasons %v", class, a, want)
		}
	}
}

func TestAQueueFollowsTheConfiguration(t *testing.T) {
	testbed.EachCarrier(t, aQueueFollowsTheConfiguration)
}

func aQueueFollowsTheConfiguration(t *testing.T, by testbed.Carrier) {
	f := queueing(t, by, testbed.Servers(t, modelsim.Options{Slots: 8}), 1, "{max_in_flight: 1}")
	c := newCallers(t, f)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	c.send(ctx, 0, 0, "", "", time.Minute)
	f.Eventually("the place is taken", func() error { return f.Waits(0, 1) })
	c.send(ctx, 1, 0, "", "", time.Minute)
	f.Eventually("one waits", func() error { return f.Waits(1, 1) })
	c.send(t.Context(), 2, 0, "", "", time.Millisecond)
	f.Eventually("two wait", func() error { return f.Waits(2, 1) })
	f.WriteConfig("queue: {max_in_flight: 2}")
	f.Eventually("another place", func() error { return f.Waits(1, 2) })
	f.WriteConfig("")
	if a := c.next(); a.number != 2 || a.code != http.StatusOK {
		t.Errorf("the request that waited when the queue was switched off: %+v", a)
	}
	if q, err := f.Queue(); err == nil {
		t.Errorf("the queue is %+v, want none", q)
	}
}

func TestARestartedControlPlaneKeepsPlacesAndOrder(t *testing.T) {
	t.Parallel()
	testbed.EachCarrier(t, aRestartedControlPlaneKeepsPlacesAndOrder)
}

func aRestartedControlPlaneKeepsPlacesAndOrder(t *testing.T, by testbed.Carrier) {
	const requests = 8
	f, c, release := waitBehindOne(t, by, requests)
	if err := f.Control.Kill(); err != nil {
		t.Fatal(err)
	}
	f.Control = f.StartControl("steelyard-2")
	f.Eventually("all wait again", func() error { return f.Waits(requests, 1) })
	release()
	c.inOrder(requests)
	if q, err := f.Queue(); err != nil || q.Classes[0].Granted != requests {
		t.Errorf("the queue is %+v (%v), want all requests sent by the new one", q, err)
	}
}

// TestNoWaitingRequestFailsWhenTheControlPlaneDies: they are released in their order.
func TestNoWaitingRequestFailsWhenTheControlPlaneDies(t *testing.T) {
	t.Parallel()
	testbed.EachCarrier(t, noWaitingRequestFailsWhenTheControlPlaneDies)
}

func noWaitingRequestFailsWhenTheControlPlaneDies(t *testing.T, by testbed.Carrier) {
	pool := testbed.Servers(t, testbed.Same(2, modelsim.Options{Slots: 8})...)
	f := by.Start(t, testbed.Plan{Servers: pool, Envoys: 2,
		Edits: []testbed.Edit{stamped}, Cluster: "queue: {max_in_flight: 1}"})
	c := newCallers(t, f)
	const requests, places = 16, 2
	for i := range requests {
		c.send(t.Context(), i, i%2, "", "", 5*time.Second)
		f.Eventually("the request waits", func() error { return f.Waits(max(0, i+1-places), min(i+1, places)) })
	}
	if err := f.Control.Kill(); err != nil {
		t.Fatal(err)
	}
	var connected [requests]float64
	for range requests {
		a := c.next()
		_, connected[a.number] = a.at(t, "X-Connected")
	}
	// A picker answers each request on a stream of its own, so their order is as exact as that of a choice.
	slack := map[testbed.Carrier]float64{testbed.ByModule: 0, testbed.ByPicker: 0.05}[by] // seconds
	for i := places; i < requests-2; i++ {
		if connected[i+2] < connected[i]-slack { // of the same Envoy
			t.Errorf("request %d was released %.6f s before %d", i+2, connected[i]-connected[i+2], i)
		}
	}
	if a := c.call(t.Context(), requests, 0, "", "", time.Millisecond); a.code != http.StatusOK {
		t.Errorf("without a control plane: %+v", a)
	}
	f.Control = f.StartControl("steelyard-2")
	f.Eventually("the Envoys have joined the queue again", func() error { return f.Waits(0, 0) })
	if a := c.call(t.Context(), requests+1, 1, "", "", time.Millisecond); a.code != http.StatusOK {
		t.Errorf("with a new control plane: %+v", a)
	}
	if q, err := f.Queue(); err != nil || q.Classes[0].Granted == 0 {
		t.Errorf("the queue is %+v (%v), want a request that it sent", q, err)
	}
}

// hungFor is how long an Envoy that hangs may keep its places: three seconds of silence and one of grace; and what a
// busy machine needs on top.
const hungFor = picking.Stale + queue.Grace + 2*time.Second

// TestAnEnvoyThatHangsStopsNoRequestOfAnother, though it holds all places and its connections stay open. When it goes
// on, it is a part of the queue again, and none of its own requests has failed.
func TestAnEnvoyThatHangsStopsNoRequestOfAnother(t *testing.T) {
	t.Parallel()
	const own, others = 4, 6
	pool := testbed.Servers(t, testbed.Same(2, modelsim.Options{Slots: 8})...)
	f := queueing(t, testbed.ByModule, pool, 2, "{max_in_flight: 1}")
	c := newCallers(t, f)
	const service = time.Second // ends while the Envoy hangs
	for i := range own {
		c.send(t.Context(), i, 0, "", "", service)
	}
	f.Eventually("the Envoy holds all places", func() error { return f.Waits(own-2, 2) })
	hung := f.Envoys[0]
	if err := hung.Pause(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	late := lateness(t)
	for i := range others {
		c.send(t.Context(), own+i, 1, "", "", 20*time.Millisecond)
	}
	for range others {
		if a := c.next(); a.code != http.StatusOK || a.number < own {
			t.Errorf("while the other Envoy hangs: %+v", a)
		}
	}
	if took, slack := time.Since(began), late(); took > hungFor+slack {
		t.Errorf("it stopped the requests of the other Envoy for %v, want at most %v (and %v, for the machine)", took,
			hungFor, slack)
	}
	if err := hung.Resume(); err != nil {
		t.Fatal(err)
	}
	for range own {
		if a := c.next(); a.code != http.StatusOK || a.number >= own {
			t.Errorf("of the Envoy that hung: %+v", a)
		}
	}
	f.Eventually("it has joined the queue again, and no place is held", func() error { return f.Waits(0, 0) })
	c.send(t.Context(), own+others, 0, "", "", time.Millisecond)
	if a := c.next(); a.code != http.StatusOK {
		t.Errorf("after it hung: %+v", a)
	}
	f.Eventually("its request was sent by the queue", func() error {
		q, err := f.Queue()
		if err == nil && q.Classes[0].Granted < others+3 {
			err = fmt.Errorf("the queue is %+v", q)
		}
		return err
	})
}

// TestARequestOfAnEnvoyThatHungHoldsItsPlaceAgain: the next stream names it, though Steelyard had given its place away.
func TestARequestOfAnEnvoyThatHungHoldsItsPlaceAgain(t *testing.T) {
	pool := testbed.Servers(t, modelsim.Options{Slots: 8})
	f := queueing(t, testbed.ByModule, pool, 2, "{max_in_flight: 1}")
	c := newCallers(t, f)
	first, release := context.WithCancel(t.Context())
	defer release()
	c.send(first, 0, 0, "", "", time.Minute)
	// An Envoy that hangs before its grant arrives has no place: its request still waits there.
	f.Eventually("the request is at the server", func() error {
		if n := pool[0].InFlight(); n != 1 {
			return fmt.Errorf("%d are in flight there", n)
		}
		return f.Waits(0, 1)
	})
	if err := f.Envoys[0].Pause(); err != nil {
		t.Fatal(err)
	}
	f.Eventually("its place is not held", func() error {
		q, err := f.Queue()
		if err == nil && (q.InFlight.Or(-1) != 0 || q.Envoys != 1) {
			err = fmt.Errorf("the queue is %+v", q)
		}
		return err
	})
	if err := f.Envoys[0].Resume(); err != nil {
		t.Fatal(err)
	}
	f.Eventually("its place is held again", func() error { return f.Waits(0, 1) })
	c.send(t.Context(), 1, 1, "", "", time.Millisecond)
	f.Eventually("another request waits for it", func() error { return f.Waits(1, 1) })
	release()
	for range 2 {
		if a := c.next(); a.number == 1 && a.code != http.StatusOK {
			t.Errorf("the request that waited: %+v", a)
		}
	}
}
