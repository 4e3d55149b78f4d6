package follow

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"steelyard/e2e/rig/grpctest"
	"steelyard/picking"
	"steelyard/picking/queue"
	"steelyard/xds/loads/loadsv1"
)

// desk is the other end of the streams: it passes on what it gets but heartbeats, and sends what a test gives it.
type desk struct {
	loadsv1.UnimplementedQueueServer
	asked   chan *loadsv1.WaitRequest
	answers chan *loadsv1.WaitResponse
	hang    chan struct{} // ends the stream
}

func (d *desk) Wait(g grpc.BidiStreamingServer[loadsv1.WaitRequest, loadsv1.WaitResponse]) error {
	if err := g.Send(&loadsv1.WaitResponse{}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(g.Context())
	defer cancel()
	messages := make(chan *loadsv1.WaitRequest)
	go func() { // ends with the stream
		for {
			m, err := g.Recv()
			if err != nil {
				return
			}
			select {
			case messages <- m:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.hang:
			return nil
		case m := <-messages:
			if proto.Size(m) > 0 {
				d.asked <- m
			}
		case a := <-d.answers:
			if err := g.Send(a); err != nil {
				return err
			}
		}
	}
}

// settlements are what became of requests, in the order in which they were settled.
type settlements struct {
	mu  sync.Mutex
	all []string
}

func (s *settlements) of(n int) func(Outcome) {
	return func(o Outcome) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all = append(s.all, fmt.Sprint(n, " ", o.Endpoint, o.Refused))
	}
}

func (s *settlements) are(want ...string) func() bool {
	return func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.Equal(s.all, want)
	}
}

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

// waiting is a waiter whose cluster has a queue; it is not connected, but Steelyard has just been heard.
func waiting(t *testing.T, conn *Conn) *Waiter {
	t.Helper()
	f := New(conn, "envoy-1", []string{"llama"}, slog.New(slog.DiscardHandler))
	f.Pool("llama").set(&loadsv1.Update{Queue: &loadsv1.QueueHeaders{Class: "x-class"}}, noon)
	w := f.NewWaiter("llama")
	w.heard, w.began = noon, noon.Add(-time.Hour)
	return w
}

func arrive(t *testing.T, w *Waiter, s *settlements, now time.Time, n int) uint64 {
	t.Helper()
	id, ok := w.Arrive(now, Arrival{Class: "gold", Tenant: "x", Size: 7}, s.of(n))
	if !ok {
		t.Fatal("it does not wait")
	}
	return id
}

func verdicts(v ...*loadsv1.Verdict) *loadsv1.WaitResponse { return &loadsv1.WaitResponse{Verdicts: v} }

func TestArrivalsAreReportedOnceAndVerdictsSettleThem(t *testing.T) {
	w, s := waiting(t, nil), &settlements{}
	w.open()
	a, b, c := arrive(t, w, s, noon, 1), arrive(t, w, s, noon, 2), arrive(t, w, s, noon, 3)
	m := w.news(noon.Add(time.Second))
	if len(m.GetArrivals()) != 3 || w.news(noon) != nil {
		t.Fatalf("reported %v, want three arrivals, once", m)
	}
	if got := m.GetSentMicroseconds(); got != 3601e6 {
		t.Errorf("it was sent after %d µs, want an hour and a second", got)
	}
	first := m.GetArrivals()[0]
	if first.GetId() != a || first.GetClass() != "gold" || first.GetTenant() != "x" || first.GetSize() != 7 ||
		first.GetWaitedMicroseconds() != 1e6 {
		t.Errorf("the arrival is %v", first)
	}
	w.settle(verdicts(&loadsv1.Verdict{Id: b, Endpoint: "10.0.0.1:80"}, &loadsv1.Verdict{Id: a, Refused: "full"},
		&loadsv1.Verdict{Id: c}, &loadsv1.Verdict{Id: 99, Endpoint: "?"}), noon)
	w.settle(verdicts(&loadsv1.Verdict{Id: b, Endpoint: "twice"}), noon)
	if !s.are("2 10.0.0.1:80", "1 full", "3 ")() {
		t.Errorf("settled %v", s.all)
	}
	w.End(b)
	w.End(a) // refused: Steelyard has forgotten it
	if m := w.news(noon); !slices.Equal(m.GetEnded(), []uint64{b}) {
		t.Errorf("reported %v, want the end of the one in flight", m)
	}
}

// TestAnArrivalSaysWhereItsPromptIsCached, on each stream, and when the request came; the outcome, whether it goes
// there.
func TestAnArrivalSaysWhereItsPromptIsCached(t *testing.T) {
	for endpoint, reason := range map[string]string{"10.0.0.1:80": "queue_prefix", "10.0.0.2:80": "queue"} {
		w := waiting(t, nil)
		w.open()
		var outcome Outcome
		a := Arrival{Since: noon.Add(-time.Second), Key: 7,
			Cached: []picking.Cached{{Address: "10.0.0.1:80", Share: 0.75}}}
		id, ok := w.Arrive(noon, a, func(o Outcome) { outcome = o })
		if !ok {
			t.Fatal("it does not wait")
		}
		for range 2 { // streams
			m := w.news(noon.Add(2 * time.Second))
			want := &loadsv1.WaitRequest{SentMicroseconds: 3602e6, Arrivals: []*loadsv1.Arrival{{Id: id, Key: 7,
				WaitedMicroseconds: 3e6, Cached: []*loadsv1.Cached{{Endpoint: "10.0.0.1:80", Share: 0.75}}}}}
			if !proto.Equal(m, want) {
				t.Errorf("it is reported as %v, want %v", m, want)
			}
			w.closed()
			w.open()
		}
		w.settle(verdicts(&loadsv1.Verdict{Id: id, Endpoint: endpoint}), noon)
		if got := outcome.Reason(); got != reason {
			t.Errorf("a place at %s has the reason %q, want %q", endpoint, got, reason)
		}
	}
}

func TestARequestThatLeavesBeforeItIsReportedIsNotReported(t *testing.T) {
	w, s := waiting(t, nil), &settlements{}
	w.open()
	w.End(arrive(t, w, s, noon, 1))
	if m := w.news(noon); m != nil {
		t.Errorf("reported %v", m)
	}
	id := arrive(t, w, s, noon, 2)
	w.news(noon)
	w.End(id)
	if m := w.news(noon); !slices.Equal(m.GetEnded(), []uint64{id}) {
		t.Errorf("reported %v, want the end", m)
	}
	if !s.are()() {
		t.Errorf("settled %v", s.all)
	}
}

func TestAHeaderThatIsNotUTF8DoesNotBreakTheStream(t *testing.T) {
	w, s := waiting(t, nil), &settlements{}
	w.open()
	if _, ok := w.Arrive(noon, Arrival{Class: "gold\xff", Tenant: "\xc3"}, s.of(1)); !ok {
		t.Fatal("it does not wait")
	}
	m := w.news(noon)
	if a := m.GetArrivals()[0]; a.GetClass() != "gold?" || a.GetTenant() != "?" {
		t.Errorf("reported %v", a)
	}
	if _, err := proto.Marshal(m); err != nil {
		t.Error(err)
	}
}

func TestANewStreamHasAllRequestsInTheirOrder(t *testing.T) {
	w, s := waiting(t, nil), &settlements{}
	w.open()
	a, b, c := arrive(t, w, s, noon, 1), arrive(t, w, s, noon.Add(time.Second), 2), arrive(t, w, s, noon, 3)
	want := []uint64{b}
	for range 30 {
		want = append(want, arrive(t, w, s, noon, 4))
	}
	w.news(noon)
	w.settle(verdicts(&loadsv1.Verdict{Id: a, Endpoint: "10.0.0.1:80"}), noon)
	w.closed()
	w.End(c) // while there is no stream
	m := w.open()
	if h := m.GetHeld(); m.GetCluster() != "llama" || m.GetPicker() != "envoy-1" || len(h) != 1 ||
		h[0].GetId() != a || h[0].GetEndpoint() != "10.0.0.1:80" {
		t.Errorf("the first message is %v", m)
	}
	m = w.news(noon.Add(3 * time.Second))
	var ids []uint64
	for _, r := range m.GetArrivals() {
		ids = append(ids, r.GetId())
	}
	if !slices.Equal(ids, want) || m.GetArrivals()[0].GetWaitedMicroseconds() != 2e6 || len(m.GetEnded()) != 0 {
		t.Errorf("the second message is %v, want what waits, the first for two seconds", m)
	}
}

// sent keeps what is sent on a stream.
type sent struct {
	grpc.BidiStreamingClient[loadsv1.WaitRequest, loadsv1.WaitResponse]
	all []*loadsv1.WaitRequest
}

func (s *sent) Send(m *loadsv1.WaitRequest) error {
	s.all = append(s.all, m)
	return nil
}

// TestAWaiterSendsHeartbeats, so that Steelyard sees that the Envoy runs.
func TestAWaiterSendsHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, stream := waiting(t, nil), &sent{}
		w.open()
		ctx, cancel := context.WithTimeout(t.Context(), 10*heartbeat+heartbeat/2)
		defer cancel()
		w.send(ctx, stream)
		if n := len(stream.all); n != 10 || proto.Size(stream.all[0]) != 0 {
			t.Errorf("in ten seconds without a request it sent %v, want ten empty messages", stream.all)
		}
	})
}

func TestMessagesAreBounded(t *testing.T) {
	w, s := waiting(t, nil), &settlements{}
	w.open()
	for n := range maxRequests {
		arrive(t, w, s, noon, n)
	}
	if _, ok := w.Arrive(noon, Arrival{}, s.of(0)); ok {
		t.Error("one request too many waits")
	}
	all := 0
	for m := w.news(noon); m != nil; m = w.news(noon) {
		if all += len(m.GetArrivals()); len(m.GetArrivals()) > maxArrivals {
			t.Fatalf("%d arrivals in a message", len(m.GetArrivals()))
		}
	}
	if all != maxRequests {
		t.Errorf("%d arrivals were reported", all)
	}
}

// TestTheLargestMessagesAreTaken: Steelyard's port takes 1 MiB. A stream with more could not be opened again.
func TestTheLargestMessagesAreTaken(t *testing.T) {
	const taken = 1 << 20
	w, s := waiting(t, nil), &settlements{}
	w.last = 1 << 40
	w.open()
	name := strings.Repeat("x", 256) // to which module and picker cut it
	for n := range maxRequests {
		const longest = "[2001:db8:1111:2222:3333:4444:5555:6666]:65535"
		id, _ := w.Arrive(noon, Arrival{Class: name, Tenant: name, Size: 1 << 40, Key: math.MaxUint64,
			Cached: slices.Repeat([]picking.Cached{{Address: longest, Share: 0.1}}, maxCached)}, s.of(n))
		if n == maxArrivals-1 {
			if size := proto.Size(w.news(noon.Add(time.Hour))); size > taken {
				t.Errorf("a message of arrivals has %d bytes", size)
			}
		}
		if n >= maxArrivals {
			w.settle(verdicts(&loadsv1.Verdict{Id: id, Endpoint: longest}), noon)
		}
	}
	if m := w.open(); len(m.GetHeld()) != maxRequests-maxArrivals || proto.Size(m) > taken {
		t.Errorf("the first message names %d requests in flight, in %d bytes", len(m.GetHeld()), proto.Size(m))
	}
}

// TestWhatIsReleasedGoesInTheOrderInWhichItCame: a request whose body was read first asked later than it came.
func TestWhatIsReleasedGoesInTheOrderInWhichItCame(t *testing.T) {
	w, s := waiting(t, nil), &settlements{}
	w.open()
	arrive(t, w, s, noon, 1)
	if _, ok := w.Arrive(noon, Arrival{Since: noon.Add(-time.Second)}, s.of(2)); !ok {
		t.Fatal("it does not wait")
	}
	w.release(func() bool { return true })
	if !s.are("2 ", "1 ")() {
		t.Errorf("settled %v", s.all)
	}
}

func TestAfterSilenceWhatWaitsIsReleasedInOrderAndNothingMoreWaits(t *testing.T) {
	const many = 30 // so that no chance has them in order
	w, s := waiting(t, nil), &settlements{}
	w.open()
	inFlight := arrive(t, w, s, noon, 0)
	released := []string{"0 e"}
	for n := range many {
		arrive(t, w, s, noon, 1+n)
		released = append(released, fmt.Sprint(1+n, " "))
	}
	w.news(noon)
	w.settle(verdicts(&loadsv1.Verdict{Id: inFlight, Endpoint: "e"}), noon)
	w.release(func() bool { return w.stale(noon.Add(picking.Stale)) })
	if !s.are("0 e")() {
		t.Fatalf("settled too early: %v", s.all)
	}
	w.release(func() bool { return w.stale(noon.Add(picking.Stale + 1)) })
	if !s.are(released...)() {
		t.Errorf("settled %v", s.all)
	}
	if _, ok := w.Arrive(noon.Add(picking.Stale+1), Arrival{}, s.of(many)); ok {
		t.Error("a request waits for nothing")
	}
	if m := w.news(noon); len(m.GetEnded()) != many {
		t.Errorf("reported %v, want that %d do not wait any more", m, many)
	}
}

// connected is a desk and a waiter that connects to it, which has not heard of Steelyard and does not run yet.
func connected(t *testing.T) (*desk, *Waiter) {
	t.Helper()
	d := &desk{asked: make(chan *loadsv1.WaitRequest, 100), answers: make(chan *loadsv1.WaitResponse),
		hang: make(chan struct{})}
	address, _ := grpctest.Serve(t, func(g *grpc.Server) { loadsv1.RegisterQueueServer(g, d) })
	conn, err := Dial(address, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	w := waiting(t, conn)
	w.heard = time.Time{}
	return d, w
}

// next is the next message that the desk gets.
func (d *desk) next(t *testing.T) *loadsv1.WaitRequest {
	t.Helper()
	select {
	case m := <-d.asked:
		return m
	case <-time.After(20 * time.Second):
		t.Fatal("no message")
	}
	return nil
}

// TestAQueueThatIsSwitchedOffIsNoFault: it is the configuration, so the log has no warning of it.
func TestAQueueThatIsSwitchedOffIsNoFault(t *testing.T) {
	d, w := connected(t)
	var log bytes.Buffer // written by Run, and read after it
	w.log = slog.New(slog.NewTextHandler(&log, nil))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	d.next(t)
	eventually(t, "the stream is heard", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return !w.heard.IsZero()
	})
	w.pool.set(&loadsv1.Update{}, time.Now())
	d.answers <- &loadsv1.WaitResponse{}
	eventually(t, "the stream ends", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return !w.streamed
	})
	w.pool.set(&loadsv1.Update{Queue: &loadsv1.QueueHeaders{}}, time.Now())
	d.next(t)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if text := log.String(); strings.Contains(text, "level=WARN") ||
		strings.Count(text, `reason="the queue was switched off"`) != 1 {
		t.Errorf("the log has\n%s", text)
	}
}

func TestAWaiterConnectsAgainAndReleasesWhatWaitsAtItsEnd(t *testing.T) {
	d, w := connected(t)
	s := &settlements{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer cancel()

	if m := d.next(t); m.GetCluster() != "llama" {
		t.Fatalf("the first message is %v", m)
	}
	eventually(t, "requests wait", func() bool {
		_, ok := w.Arrive(time.Now(), Arrival{}, s.of(1))
		return ok
	})
	if m := d.next(t); len(m.GetArrivals()) != 1 {
		t.Fatalf("the second message is %v", m)
	}
	d.hang <- struct{}{}
	if m := d.next(t); m.GetCluster() != "llama" {
		t.Fatalf("the first message of the next stream is %v", m)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if !s.are("1 ")() {
		t.Errorf("settled %v, want one request released", s.all)
	}
}

// bubbled connects to a server by memory only, as a bubble of synctest needs it.
func bubbled(t *testing.T, q loadsv1.QueueServer) (conn *Conn, stop func()) {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	g := grpc.NewServer()
	loadsv1.RegisterQueueServer(g, q)
	c, err := grpc.NewClient("passthrough:///", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return listener.DialContext(ctx)
		}))
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = g.Serve(listener) })
	return &Conn{ClientConn: c}, func() {
		g.Stop()
		c.Close()
		serving.Wait()
	}
}

// TestAStreamBreaksAfterSilenceAndNotBefore: the messages of Steelyard are its heartbeats.
func TestAStreamBreaksAfterSilenceAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{asked: make(chan *loadsv1.WaitRequest, 1), answers: make(chan *loadsv1.WaitResponse)}
		conn, stop := bubbled(t, d)
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		var loops sync.WaitGroup
		loops.Go(func() { _ = waiting(t, conn).Run(ctx) })
		defer loops.Wait()
		defer cancel()

		<-d.asked
		for range 10 {
			time.Sleep(silence - time.Millisecond)
			d.answers <- &loadsv1.WaitResponse{}
		}
		last := time.Now()
		select {
		case m := <-d.asked:
			t.Fatalf("after %v at most between two messages the waiter says %v", silence, m)
		default:
		}
		<-d.asked
		if after := time.Since(last); after < silence || after > silence+longestRetry {
			t.Errorf("the waiter opened its next stream after %v of silence, want %v", after, silence)
		}
	})
}

func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	const patience = 20 * time.Second
	for end := time.Now().Add(patience); !check(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// TestAPanicOfAGoroutineIsLeftToTheGuard, as where a panic would end Envoy.
func TestAPanicOfAGoroutineIsLeftToTheGuard(t *testing.T) {
	conn, err := Dial("127.0.0.1:1", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	f := New(conn, "envoy-1", []string{"llama"}, slog.New(slog.DiscardHandler))
	caught := make(chan any, 1)
	f.Guard = func() { caught <- recover() }
	f.Pool("llama").set(&loadsv1.Update{Queue: &loadsv1.QueueHeaders{Class: "x-class"}}, noon)
	w := f.NewWaiter("llama")
	w.heard = noon
	if _, ok := w.Arrive(noon, Arrival{}, func(Outcome) { panic("a defect") }); !ok {
		t.Fatal("it does not wait")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.Run(ctx)
	}()
	if got := <-caught; got != "a defect" { // released, as Steelyard has been silent since noon
		t.Errorf("recovered %v", got)
	}
	cancel()
	<-done
}

// TestVerdictsOfAnOwnerBeforeDoNotCount, until nothing else has come for as long as requests wait without Steelyard.
func TestVerdictsOfAnOwnerBeforeDoNotCount(t *testing.T) {
	w := waiting(t, nil)
	w.open()
	var got []Outcome
	id, _ := w.Arrive(noon, Arrival{}, func(o Outcome) { got = append(got, o) })
	of := func(epoch uint64) *loadsv1.WaitResponse {
		m := verdicts(&loadsv1.Verdict{Id: id, Endpoint: "10.0.0.1:80"})
		m.Epoch = epoch
		return m
	}
	if !w.settle(&loadsv1.WaitResponse{Epoch: 8}, noon) || w.patience() != fencedSilence {
		t.Error("an epoch does not count, or a stream may be silent for long")
	}
	for name, m := range map[string]*loadsv1.WaitResponse{"an owner before": of(7), "the only replica": of(0),
		"pending": {Pending: true, Epoch: 9}} {
		if w.settle(m, noon.Add(picking.Stale)) || len(got) > 0 {
			t.Errorf("%s: a message counts", name)
		}
	}
	if !w.settle(of(7), noon.Add(picking.Stale+1)) || len(got) != 1 || got[0].Endpoint == "" {
		t.Errorf("the verdicts are %+v: there is no way back", got)
	}
}

// A mover tells all waiters at the same time that another replica grants places, and when each of them came again.
type mover struct {
	loadsv1.UnimplementedQueueServer
	moved chan struct{} // closed then
	first chan struct{}
	again chan time.Time
}

func (m *mover) Wait(g grpc.BidiStreamingServer[loadsv1.WaitRequest, loadsv1.WaitResponse]) error {
	select {
	case <-m.moved:
		m.again <- time.Now()
		<-g.Context().Done()
		return nil
	default:
	}
	m.first <- struct{}{}
	select {
	case <-m.moved:
	case <-g.Context().Done():
	}
	return status.Error(codes.Aborted, "another replica grants places")
}

// TestAFleetComesToTheNextOwnerOverAWhile, which is shorter than that one waits before it grants a place.
func TestAFleetComesToTheNextOwnerOverAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many, window = 50, 20 * time.Millisecond
		m := &mover{moved: make(chan struct{}), first: make(chan struct{}, many), again: make(chan time.Time, many)}
		conn, stop := bubbled(t, m)
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		var loops sync.WaitGroup
		for range many {
			loops.Go(func() { _ = waiting(t, conn).Run(ctx) })
		}
		defer loops.Wait()
		defer cancel()
		for range many {
			<-m.first
		}
		at := time.Now()
		close(m.moved)
		var came []time.Duration
		for range many {
			came = append(came, (<-m.again).Sub(at))
		}
		slices.Sort(came)
		if last := came[many-1]; last > spread || spread >= queue.Grace/2 {
			t.Errorf("the last one comes after %v; the next owner grants places after %v", last, queue.Grace)
		}
		for i, d := range came {
			if n, _ := slices.BinarySearch(came, d+window); n-i > many/2 {
				t.Errorf("%d of %d come within %v", n-i, many, window)
			}
		}
	})
}
