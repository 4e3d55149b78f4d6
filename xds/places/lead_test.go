package places

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"steelyard/e2e/rig/grpctest"
	"steelyard/internal/api"
	"steelyard/internal/lease"
	"steelyard/xds/loads/loadsv1"
)

// replica is a server with a queue that other replicas reach; set changes it before it runs.
func replica(t *testing.T, set ...func(*Server)) (s *served, address string) {
	t.Helper()
	r := &results{by: make(map[string]int)}
	s = &served{Server: New(r, slog.New(slog.DiscardHandler), time.Time{}), t: t, results: r}
	s.Dial = func(address string) (*grpc.ClientConn, error) {
		return grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	s.Trusted = func(context.Context) bool { return true }
	s.Told = func(lease.Record) {}
	for _, set := range set {
		set(s.Server)
	}
	address, _ = grpctest.Serve(t, s.Register)
	s.conn = grpctest.Connect(t, address)
	ctx, cancel := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	loops.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(func() {
		s.Lead(lease.State{}) // closes its connections
		cancel()
		s.Close()
		loops.Wait()
	})
	s.Lead(lease.State{})
	s.Configure(map[string]*Settings{"llama": one(time.Hour)})
	s.decide()
	s.keepDeciding()
	return s, address
}

// follow has one replica grant places, and the other pass requests on to it.
func follow(owner, other *served, r lease.Record) {
	owner.Lead(lease.State{Owner: r, Mine: true, Until: time.Now().Add(time.Hour)})
	other.Lead(lease.State{Owner: r})
}

// asks opens a stream with a request that waits.
func (s *served) asks(id uint64, held ...*loadsv1.Held) loadsv1.Queue_WaitClient {
	s.t.Helper()
	stream, err := loadsv1.NewQueueClient(s.conn).Wait(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	m := &loadsv1.WaitRequest{Cluster: "llama", Picker: "envoy", Waiter: "w", Held: held}
	if id > 0 {
		m.Arrivals = []*loadsv1.Arrival{{Id: id, Class: "all"}}
	}
	if err := stream.Send(m); err != nil {
		s.t.Fatal(err)
	}
	return stream
}

// verdict returns the first verdict on a stream with its epoch, or the status of the stream.
func verdict(stream loadsv1.Queue_WaitClient) (v *loadsv1.Verdict, epoch uint64, pending bool, err error) {
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil, epoch, pending, err
		}
		pending = pending || m.GetPending()
		if len(m.GetVerdicts()) > 0 {
			return m.GetVerdicts()[0], m.GetEpoch(), pending, nil
		}
	}
}

func TestAReplicaPassesRequestsOnToTheOneThatGrantsPlaces(t *testing.T) {
	a, address := replica(t)
	b, _ := replica(t)
	follow(a, b, lease.Record{ID: "a", Name: "first", Address: address, Epoch: 7})
	stream := b.asks(1)
	v, epoch, _, err := verdict(stream)
	if err != nil || v.GetEndpoint() != "10.0.0.1:80" || epoch != 7 {
		t.Fatalf("the verdict is %v of epoch %d (%v)", v, epoch, err)
	}
	if q, _ := a.State("llama"); q.InFlight.Or(-1) != 1 || q.Envoys != 1 || q.Here != 0 ||
		q.Owner.State != api.QueueGrants || q.Owner.Epoch.Or(-1) != 7 {
		t.Errorf("the owner shows %+v", q)
	}
	q, _ := b.State("llama")
	if _, known := q.InFlight.Value(); known || q.Envoys != 1 || q.Here != 1 || len(q.Classes) != 0 ||
		q.Owner.State != api.QueueFollows || q.Owner.Name != "first" {
		t.Errorf("the other one shows %+v", q)
	}
	follow(b, a, lease.Record{ID: "b", Epoch: 8})
	if _, _, _, err := verdict(stream); status.Code(err) != codes.Aborted {
		t.Errorf("when another replica grants places, the stream ends with %v", err)
	}
	next := b.asks(2, &loadsv1.Held{Id: 1, Endpoint: "10.0.0.1:80"})
	if err := next.Send(&loadsv1.WaitRequest{Ended: []uint64{1}}); err != nil {
		t.Fatal(err)
	}
	if v, epoch, _, err := verdict(next); err != nil || v.GetEndpoint() == "" || epoch != 8 {
		t.Errorf("the verdict of the next owner is %v of epoch %d (%v)", v, epoch, err)
	}
}

func TestNothingIsGrantedAfterTheLease(t *testing.T) {
	s, _ := replica(t)
	r := lease.Record{ID: "a", Epoch: 1}
	s.Lead(lease.State{Owner: r, Mine: true, Until: time.Now()})
	stream := s.asks(1)
	for range 8 {
		if m, err := stream.Recv(); err != nil || !m.GetPending() || len(m.GetVerdicts()) > 0 {
			t.Fatalf("without a lease: %v (%v)", m, err)
		}
	}
	if q, _ := s.State("llama"); q.Owner.State != api.QueueStopped || q.Classes[0].Waiting != 1 {
		t.Errorf("the queue is %+v, want one that waits", q)
	}
	s.Lead(lease.State{Owner: r, Mine: true, Until: time.Now().Add(time.Hour)})
	if v, epoch, _, err := verdict(stream); err != nil || v.GetEndpoint() == "" || epoch != 1 {
		t.Errorf("after a renewal: %v of epoch %d (%v)", v, epoch, err)
	}
}

func TestAStreamWaitsForAnOwnerButNotForEver(t *testing.T) {
	t.Parallel()
	s, _ := replica(t)
	if _, _, pending, err := verdict(s.asks(1)); status.Code(err) != codes.Unavailable || !pending {
		t.Errorf("without an owner the stream ends with %v; it had to wait: %t", err, pending)
	}
}

func TestANewStreamOfAWaiterReplacesTheOneBefore(t *testing.T) {
	s, _ := replica(t)
	s.Lead(lease.State{Mine: true})
	first := s.asks(1)
	if _, _, _, err := verdict(first); err != nil {
		t.Fatal(err)
	}
	second := s.asks(0, &loadsv1.Held{Id: 1, Endpoint: "10.0.0.1:80"})
	if _, _, _, err := verdict(first); status.Code(err) != codes.Aborted {
		t.Errorf("the stream before ends with %v", err)
	}
	if _, err := second.Recv(); err != nil {
		t.Fatal(err)
	}
	if q, _ := s.State("llama"); q.Envoys != 1 || q.InFlight.Or(-1) != 1 {
		t.Errorf("the queue is %+v, want one Envoy with one request", q)
	}
}

func TestOnlyAReplicaMaySayWhichOneGrantsPlaces(t *testing.T) {
	s, _ := replica(t)
	told := make(chan lease.Record, 1)
	s.Told = func(r lease.Record) { told <- r }
	client, m := loadsv1.NewQueueClient(s.conn), &loadsv1.Leader{Id: "b", Address: "10.0.0.2:18000", Epoch: 3}
	if _, err := client.Lead(t.Context(), m); err != nil || (<-told).Epoch != 3 {
		t.Errorf("a replica was not trusted: %v", err)
	}
	s.Trusted = func(context.Context) bool { return false }
	if _, err := client.Lead(t.Context(), m); status.Code(err) != codes.PermissionDenied || len(told) > 0 {
		t.Errorf("another client gets %v", err)
	}
}

// TestANewOwnerAnnouncesItselfToTheOneBefore, because that may be cut off from where the lease is.
func TestANewOwnerAnnouncesItselfToTheOneBefore(t *testing.T) {
	a, address := replica(t)
	b, _ := replica(t)
	told := make(chan lease.Record, 1)
	a.Told = func(r lease.Record) { told <- r }
	next := lease.Record{ID: "b", Name: "second", Address: "10.0.0.2:18000", Epoch: 2}
	b.Lead(lease.State{Owner: next, Before: lease.Record{ID: "a", Address: address, Epoch: 1}, Mine: true,
		Until: time.Now().Add(time.Hour)})
	if got := <-told; got != next {
		t.Errorf("it announced %+v", got)
	}
}

// TestAReplicaThatIsCutOffFromTheLeaseLearnsOfTheNextOwnerFromTheOneBefore, which refuses what it passes on: unless
// that is no replica.
func TestAReplicaThatIsCutOffFromTheLeaseLearnsOfTheNextOwnerFromTheOneBefore(t *testing.T) {
	a, addressA := replica(t)
	told := make(chan lease.Record, 10)
	var trusts atomic.Bool
	b, _ := replica(t, func(s *Server) {
		s.Told = func(r lease.Record) {
			told <- r
			s.Lead(lease.State{Owner: r})
		}
		s.Trusted = func(ctx context.Context) bool {
			_, known := peer.FromContext(ctx)
			return known && trusts.Load()
		}
	})
	c, addressC := replica(t)
	before := lease.Record{ID: "a", Name: "first", Address: addressA, Epoch: 1}
	next := lease.Record{ID: "c", Name: "third", Address: addressC, Epoch: 2}
	follow(a, b, before)
	follow(c, a, next)
	if _, _, _, err := verdict(b.asks(1)); status.Code(err) != codes.Aborted || len(told) > 0 {
		t.Errorf("without trust the stream ends with %v, and a replica was trusted %d times", err, len(told))
	}
	trusts.Store(true)
	if _, _, _, err := verdict(b.asks(1)); status.Code(err) != codes.Aborted || len(told) == 0 || <-told != next {
		t.Fatalf("the stream to an owner that is none any more ends with %v", err)
	}
	if v, epoch, _, err := verdict(b.asks(1)); err != nil || v.GetEndpoint() == "" || epoch != 2 {
		t.Errorf("the next stream has the verdict %v of epoch %d (%v)", v, epoch, err)
	}
}

// TestAnOwnerThatHangsIsNotWaitedForWithoutEnd: its connection is open, and nothing comes on it.
func TestAnOwnerThatHangsIsNotWaitedForWithoutEnd(t *testing.T) {
	t.Parallel()
	hangs, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hangs.Close() // it accepts nothing: the kernel does
	s, _ := replica(t)
	s.Lead(lease.State{Owner: lease.Record{ID: "a", Name: "first", Address: hangs.Addr().String(), Epoch: 1}})
	if _, _, pending, err := verdict(s.asks(1)); status.Code(err) != codes.Aborted || !pending {
		t.Errorf("the stream ends with %v; it had to wait: %t", err, pending)
	}
	if q, _ := s.State("llama"); !strings.Contains(q.Owner.Error, errHangs.Error()) {
		t.Errorf("the state has the error %q, want that the owner hangs", q.Owner.Error)
	}
}

// TestAFollowerOffersToGrantPlaces while it could, with the epoch of the owner.
func TestAFollowerOffersToGrantPlaces(t *testing.T) {
	t.Parallel()
	told := make(chan lease.Record, 10)
	a, address := replica(t, func(s *Server) { s.Told = func(r lease.Record) { told <- r } })
	var able atomic.Bool
	self := lease.Record{ID: "b", Name: "second", Address: "10.0.0.2:18000"}
	b, _ := replica(t, func(s *Server) { s.Offer = func() (lease.Record, bool) { return self, able.Load() } })
	follow(a, b, lease.Record{ID: "a", Address: address, Epoch: 7})
	b.offerOnce(t.Context())
	if len(told) > 0 {
		t.Errorf("a replica that could not offers %v", <-told)
	}
	able.Store(true)
	b.offerOnce(t.Context())
	want := self
	want.Epoch = 7
	if got := <-told; got != want {
		t.Errorf("it offers %v, want %v", got, want)
	}
}
