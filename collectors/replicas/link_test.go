package replicas

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"steelyard/collectors/replicas/merge"
	"steelyard/e2e/rig/grpctest"
	"steelyard/e2e/rig/link"
	"steelyard/e2e/rig/output"
	"steelyard/internal/api"
	"steelyard/weighting/flight"
)

const (
	llama = "llama"
	x, y  = "10.0.0.1:8000", "10.0.0.2:8000"
)

// A node is a replica whose own counts the test sets.
type node struct {
	t       *testing.T
	link    *Link
	address string
	log     output.Buffer
	stop    func() // takes leave
	close   func() // ends its server

	mu        sync.Mutex
	own       map[string]flight.Part
	distrusts bool
	envoys    []merge.Envoy
	kept      []merge.Route
	slow      chan struct{} // what is kept is not known before this is closed; nil: at once
	routes    []merge.Route // of others
	given     int           // how often another one has given all that it keeps
}

// startNode starts a replica that does not know of any other yet.
func startNode(t *testing.T, name string) *node {
	t.Helper()
	n := &node{t: t, own: map[string]flight.Part{x: {Address: x}, y: {Address: y}}}
	n.link = New(merge.ID("run of "+name), Options{
		Dial: func(address string) (*grpc.ClientConn, error) {
			return grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		},
		Trusted: func(context.Context) bool { n.mu.Lock(); defer n.mu.Unlock(); return !n.distrusts },
		Log:     slog.New(slog.NewTextHandler(&n.log, nil)),
		Own:     n.counts, Changed: func([]string) {},
		Envoys: n.connected, Kept: n.keeps, Routes: n.take,
	})
	n.link.Configure(Settings{Enabled: true, Name: name})
	n.link.SetMembers(map[string][]string{llama: {x, y}})
	n.address, n.close = grpctest.Serve(t, n.link.Register)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = n.link.Run(ctx)
	}()
	n.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(n.stop)
	return n
}

// startNodes starts replicas that know each other.
func startNodes(t *testing.T, names ...string) (nodes []*node) {
	t.Helper()
	for _, name := range names {
		nodes = append(nodes, startNode(t, name))
	}
	for _, n := range nodes {
		n.knows(nodes...)
	}
	for _, n := range nodes {
		n.until("the others are live", n.others(slices.Repeat([]api.ReplicaState{api.ReplicaLive}, len(nodes)-1)...))
	}
	return nodes
}

func (n *node) knows(others ...*node) {
	var addresses []string
	for _, o := range others {
		addresses = append(addresses, o.address)
	}
	n.link.SetPeers(addresses, nil)
}

func (n *node) counts(_ string, into []flight.Part) (flight.Watchers, []flight.Part) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return flight.Watchers{Watching: 1, Events: 1, Reconciled: 1}, append(into[:0], n.own[x], n.own[y])
}

func (n *node) connected() []merge.Envoy {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.envoys)
}

// connect makes Envoys those of the node.
func (n *node) connect(names ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.envoys = nil
	for _, name := range names {
		n.envoys = append(n.envoys, merge.Envoy{Kind: api.FollowerEnvoy, Name: name, State: api.EnvoyFollows,
			Clusters: []string{llama}, Connected: time.Minute})
	}
}

func (n *node) keeps() []merge.Route {
	n.mu.Lock()
	slow := n.slow
	n.mu.Unlock()
	if slow != nil {
		<-slow
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.kept)
}

func (n *node) take(routes []merge.Route, given bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.routes = append(n.routes, routes...)
	if given {
		n.given++
	}
}

func (n *node) taken() (routes []merge.Route, given int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.routes), n.given
}

// request counts requests that began at an endpoint, and are in flight.
func (n *node) request(address string, count int64) {
	n.mu.Lock()
	p := n.own[address]
	p.InFlight += count
	p.Sums.Issued += uint64(count)
	n.own[address] = p
	n.mu.Unlock()
	n.link.CountsChanged(llama)
}

// merged returns what the node merges for each endpoint.
func (n *node) merged() []flight.Counts {
	head, parts := n.counts(llama, nil)
	counts := []flight.Counts{{Address: x}, {Address: y}}
	n.link.Merge(time.Now(), llama, head, parts, counts, time.Time{})
	return counts
}

func (n *node) until(what string, holds func() error) {
	n.t.Helper()
	var err error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if err = holds(); err == nil {
			return
		}
	}
	n.t.Fatalf("never: %s: %v", what, err)
}

func (n *node) untilInFlight(want map[string]float64) {
	n.t.Helper()
	n.until("the counts of all", func() error {
		c := n.merged()
		if got := map[string]float64{x: c[0].InFlight.Value, y: c[1].InFlight.Value}; !maps.Equal(got, want) {
			return fmt.Errorf("in flight %v, want %v", got, want)
		}
		return nil
	})
}

// others wants other replicas in these states, by name, and counts to be missing if one of them is unreachable.
func (n *node) others(want ...api.ReplicaState) func() error {
	return func() error {
		s := n.link.Status()
		var got []api.ReplicaState
		for _, o := range s.Others {
			got = append(got, o.State)
		}
		connected := !slices.Contains(want, api.ReplicaUnreachable)
		if !slices.Equal(got, want) || s.Connected != connected || (s.Error == "") != connected {
			return fmt.Errorf("connected %t, error %q, others %+v", s.Connected, s.Error, s.Others)
		}
		return nil
	}
}

// sees wants the Envoys of the others to be these, with their states.
func (n *node) sees(want ...string) func() error {
	return func() error {
		var got []string
		for _, e := range n.link.Envoys() {
			got = append(got, e.NodeID+" "+string(e.State))
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("%v, want %v", got, want)
		}
		return nil
	}
}

func TestEachReplicaKnowsTheEnvoysOfTheOthers(t *testing.T) {
	nodes := startNodes(t, "a", "b", "c")
	a, b, late := nodes[0], nodes[1], nodes[2]
	a.connect("edge-1", "edge-2")
	b.until("its Envoys are known", b.sees("edge-1 follows", "edge-2 follows"))
	late.until("one that begins knows them", late.sees("edge-1 follows", "edge-2 follows"))
	a.connect("edge-2")
	b.until("one has left", b.sees("edge-2 follows"))
	a.stop()
	b.until("its replica has stopped", b.sees("edge-2 unheard"))
}

func routes(n int, kept bool) (out []merge.Route) {
	for i := range n {
		out = append(out, merge.Route{Cluster: llama, Endpoint: x, Hashes: []uint64{uint64(i), 1, 2, 3}, Kept: kept})
	}
	return out
}

func TestWhatPickersOfOneReplicaLearnTheOthersHearWithin200ms(t *testing.T) {
	nodes := startNodes(t, "a", "b", "c")
	a, b, c := nodes[0], nodes[1], nodes[2]
	for _, n := range []*node{b, c} {
		n.until("it has what a keeps", func() error {
			if _, given := n.taken(); given == 0 {
				return errors.New("not yet")
			}
			return nil
		})
	}
	began := time.Now()
	for _, r := range routes(50, false) {
		a.link.Learned(r)
	}
	for _, n := range []*node{b, c} {
		n.until("all of it is known", func() error {
			if got, _ := n.taken(); len(got) != 50 {
				return fmt.Errorf("%d", len(got))
			}
			return nil
		})
		if got, _ := n.taken(); got[49].Hashes[0] != 49 || got[49].Endpoint != x {
			t.Errorf("%+v", got[49])
		}
	}
	t.Logf("after %v", time.Since(began))
	if took := time.Since(began); took > 200*time.Millisecond {
		t.Errorf("after %v, want 200 ms", took)
	}
	if got, _ := a.taken(); len(got) > 0 {
		t.Errorf("it comes back to its sender: %+v", got)
	}
	if s := a.link.Status().Messages.Prompts; s != (api.SharedPrompts{Sent: 50}) {
		t.Errorf("counted: %+v", s)
	}
}

func TestAReplicaThatBeginsGetsWhatAnotherOneKeeps(t *testing.T) {
	a := startNode(t, "a")
	kept := routes(20_000, true) // 1.5 MB
	a.mu.Lock()
	a.kept = kept
	a.mu.Unlock()
	b := startNode(t, "b")
	a.knows(b)
	b.knows(a)
	b.until("it has all", func() error {
		got, given := b.taken()
		known := make(map[uint64]bool) // on a slow machine messages get lost, and it asks once more
		for _, r := range got {
			if r.Kept {
				known[r.Hashes[0]] = true
			}
		}
		if len(known) != len(kept) || given == 0 {
			return fmt.Errorf("%d routes, given %d times", len(known), given)
		}
		return nil
	})
}

func TestCountsDoNotWaitForWhatIsKept(t *testing.T) {
	a, b := startNode(t, "a"), startNode(t, "b")
	a.mu.Lock()
	a.slow = make(chan struct{})
	a.mu.Unlock()
	known := sync.OnceFunc(func() { close(a.slow) })
	defer known()
	a.knows(b)
	b.knows(a)
	b.until("the other is live", b.others(api.ReplicaLive))
	a.request(x, 3)
	b.untilInFlight(map[string]float64{x: 3, y: 0})
	if _, given := b.taken(); given > 0 {
		t.Error("b got the end of an answer that was not known yet")
	}
	known()
	b.until("it has what is kept", func() error {
		if _, given := b.taken(); given == 0 {
			return errors.New("not yet")
		}
		return nil
	})
}

// TestWhatIsSentOfRoutesIsBounded: of more than is sent in time, the oldest is left out, and counted.
func TestWhatIsSentOfRoutesIsBounded(t *testing.T) {
	var o outbox
	now := time.Now()
	long := merge.Route{Cluster: llama, Endpoint: x, Hashes: make([]uint64, maxHashes)}
	const all = 2000
	for i := range all {
		long.Age = time.Duration(i)
		o.add(long)
	}
	fit := maxWaits / size(&long)
	if o.dropped != all-uint64(fit) || len(o.learned) != fit || o.learned[0].Age != all-time.Duration(fit) {
		t.Errorf("%d of %d are dropped, %d wait, from %d on", o.dropped, all, len(o.learned), o.learned[0].Age)
	}
	sent, began := 0, now
	for len(o.learned) > 0 {
		now = now.Add(gather)
		m := &merge.Message{}
		o.take(now, m)
		for i := range m.Routes {
			sent += size(&m.Routes[i])
		}
	}
	rate := float64(sent) / now.Sub(began).Seconds()
	if rate > 1.3*RoutesPerSecond || rate < 0.9*RoutesPerSecond || o.bytes != 0 {
		t.Errorf("%.0f bytes a second, want %d; %d bytes are left", rate, RoutesPerSecond, o.bytes)
	}
}

func TestCountsReachAllOthers(t *testing.T) {
	nodes := startNodes(t, "a", "b", "c")
	a, b, c := nodes[0], nodes[1], nodes[2]
	a.request(x, 3)
	b.request(x, 1)
	c.request(y, 2)
	for _, n := range nodes {
		n.untilInFlight(map[string]float64{x: 4, y: 2})
	}
	for _, o := range a.link.Status().Others {
		if !o.Follows || o.Error != "" || o.Name == "" || o.Address == "" {
			t.Errorf("a sees %+v", o)
		}
	}
	a.stop()
	b.until("one that stops is gone", b.others(api.ReplicaGone, api.ReplicaLive))
	if o := b.link.Status().Others[0]; o.Since.Sub(o.LastMessage.Time) > merge.Silence/2 {
		t.Errorf("gone %v after its last message, though it took leave", o.Since.Sub(o.LastMessage.Time))
	}
}

// A follower is a connection to a node without a replica behind it.
func (n *node) followed(hello []byte) grpc.ClientStream {
	conn := grpctest.Connect(n.t, n.address)
	stream, err := conn.NewStream(n.t.Context(), &service.Streams[0], method)
	if err == nil {
		err = stream.SendMsg(&wrapperspb.BytesValue{Value: hello})
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return stream
}

func received(stream grpc.ClientStream) (*merge.Message, error) {
	var in wrapperspb.BytesValue
	if err := stream.RecvMsg(&in); err != nil {
		return nil, err
	}
	return decode(in.GetValue(), maxMessage)
}

func TestOneThatJoinsGetsTheWholeStateAtOnce(t *testing.T) {
	nodes := startNodes(t, "a", "b")
	nodes[0].request(x, 5)
	nodes[1].untilInFlight(map[string]float64{x: 5, y: 0})
	stream := nodes[0].followed(encode(&merge.Message{From: "late", Seq: 1}))
	for {
		m, err := received(stream)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Clusters) == 0 || len(m.Clusters[0].Parts) < 2 {
			continue // of the time before it joined
		}
		if p := m.Clusters[0].Parts[0]; p.Address != x || p.InFlight != 5 {
			t.Errorf("it gets %+v", p)
		}
		return
	}
}

// Each message has what changed in 5 ms: requests that begin all the time are not a message each.
func TestChangesAreGathered(t *testing.T) {
	nodes := startNodes(t, "a", "b")
	a, b := nodes[0], nodes[1]
	before, began := b.link.Status().Messages.Received, time.Now()
	const requests = 2000
	for range requests {
		a.request(x, 1)
		time.Sleep(100 * time.Microsecond) // what a request takes to come, not what is waited for
	}
	b.untilInFlight(map[string]float64{x: requests, y: 0})
	received, most := b.link.Status().Messages.Received-before, uint64(time.Since(began)/gather)+2
	if received > most {
		t.Errorf("%d messages for %d requests in %v, want at most %d", received, requests, time.Since(began), most)
	}
}

func TestAReplicaThatDiesIsGoneAndItsNextRunIsFollowed(t *testing.T) {
	nodes := startNodes(t, "a", "b")
	a, b := nodes[0], nodes[1]
	a.request(x, 2)
	b.untilInFlight(map[string]float64{x: 2, y: 0})
	a.close()
	a.stop()
	b.until("nothing listens there", b.others(api.ReplicaGone))
	o := b.link.Status().Others[0]
	if o.Address != a.address || !strings.Contains(o.Error, "refused") {
		t.Errorf("it is shown as %+v", o)
	}

	next := startNode(t, "next")
	next.request(x, 1)
	next.knows(b)
	b.until("it follows one that this one does not know", func() error {
		s := b.link.Status()
		i := slices.IndexFunc(s.Others, func(r api.Replica) bool { return r.Name == "next" })
		if s.Connected || i < 0 || !s.Others[i].Follows ||
			!strings.Contains(s.Others[i].Error, "none of the addresses") {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	b.knows(next)
	b.until("it is live, and the one before is gone", b.others(api.ReplicaGone, api.ReplicaLive))
}

// betweenTwo leads what a sends to b, and b to a, through links.
func betweenTwo(t *testing.T, a, b *node) [2]*link.Link {
	t.Helper()
	var links [2]*link.Link
	for i, to := range []string{b.address, a.address} {
		l, err := link.Open("127.0.0.1:0", to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(l.Close)
		links[i] = l
	}
	return links
}

func TestAPairThatIsCutIsShownOnBothSidesAndNotByTheThird(t *testing.T) {
	a, b, c := startNode(t, "a"), startNode(t, "b"), startNode(t, "c")
	links := betweenTwo(t, a, b)
	a.link.SetPeers([]string{links[0].Address(), c.address}, nil)
	b.link.SetPeers([]string{links[1].Address(), c.address}, nil)
	c.knows(a, b)
	for _, n := range []*node{a, b, c} {
		n.until("the others are live", n.others(api.ReplicaLive, api.ReplicaLive))
	}
	a.request(x, 3)
	c.request(y, 1)
	b.untilInFlight(map[string]float64{x: 3, y: 1})

	links[0].Hang(true)
	links[1].Hang(true)
	a.until("b cannot be reached", a.others(api.ReplicaUnreachable, api.ReplicaLive))
	b.until("a cannot be reached", b.others(api.ReplicaUnreachable, api.ReplicaLive))
	b.until("it says why", func() error {
		if o := b.link.Status().Others[0]; !strings.Contains(o.Error, errSilent.Error()) {
			return fmt.Errorf("%+v", o)
		}
		return nil
	})
	if !b.merged()[0].Proxies.Partial || c.merged()[0].Proxies.Partial {
		t.Error("counts are partial where they are not missing, or not partial where they are")
	}
	if err := c.others(api.ReplicaLive, api.ReplicaLive)(); err != nil {
		t.Errorf("the third: %v", err)
	}
	a.request(x, 1)
	c.untilInFlight(map[string]float64{x: 4, y: 1})

	logged := func(line string) func() error {
		return func() error {
			if log := b.log.String(); strings.Count(log, line) != 1 {
				return fmt.Errorf("the log has\n%s", log)
			}
			return nil
		}
	}
	b.until("it is logged", logged("counts of other replicas are missing"))
	links[0].Hang(false)
	links[1].Hang(false)
	a.until("b is live", a.others(api.ReplicaLive, api.ReplicaLive))
	b.until("a is live", b.others(api.ReplicaLive, api.ReplicaLive))
	b.untilInFlight(map[string]float64{x: 4, y: 1})
	if b.merged()[0].Proxies.Partial {
		t.Error("counts are partial, though none are missing")
	}
	b.until("it is logged", logged("the messages of all replicas arrive"))
}

// Only one direction: who cannot connect says so, and the other has all counts.
func TestAReplicaThatIsNotTrustedSaysWhyAndGetsNothing(t *testing.T) {
	a, b := startNode(t, "a"), startNode(t, "b")
	a.distrusts = true
	a.knows(b)
	b.knows(a)
	b.until("it says why", func() error {
		s := b.link.Status()
		// There are its address, and who it is.
		if s.Connected || len(s.Others) != 2 || !strings.Contains(s.Error, "certificate") ||
			s.Others[0].State != api.ReplicaUnreachable || !s.Others[1].Follows {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	a.until("the other is live", a.others(api.ReplicaLive))
	if o := a.link.Status().Others[0]; o.Follows {
		t.Errorf("it is followed: %+v", o)
	}
	a.mu.Lock()
	a.distrusts = false
	a.mu.Unlock()
	b.until("the other is live", b.others(api.ReplicaLive))
}

func TestItsOwnAddressAndASecondOneOfAnotherAreLeftOut(t *testing.T) {
	a, b := startNode(t, "a"), startNode(t, "b")
	second := betweenTwo(t, a, b)[0].Address()
	b.knows(a, b)
	a.link.SetPeers([]string{a.address, b.address, second}, nil)
	a.request(x, 1)
	b.request(x, 1)
	a.until("each is there once", a.others(api.ReplicaLive))
	b.until("each is there once", b.others(api.ReplicaLive))
	a.untilInFlight(map[string]float64{x: 2, y: 0})
	b.untilInFlight(map[string]float64{x: 2, y: 0})
	a.until("one of two addresses is left out", func() error {
		a.link.mu.Lock()
		defer a.link.mu.Unlock()
		open, same := 0, 0
		for _, t := range a.link.targets {
			if t.open {
				open++
			}
			if t.same {
				same++
			}
		}
		if open != 1 || same != 2 {
			return fmt.Errorf("%d open, %d left out", open, same)
		}
		return nil
	})
}

func TestWhileTheOthersAreNotKnownCountsAreMissing(t *testing.T) {
	a := startNode(t, "a")
	if s := a.link.Status(); s.Connected || s.Error == "" || !a.merged()[0].Proxies.Partial {
		t.Errorf("before the first answer: %+v", s)
	}
	a.link.SetPeers(nil, errors.New("the API server is away"))
	if s := a.link.Status(); s.Connected || !strings.Contains(s.Error, "the API server is away") {
		t.Errorf("without an answer: %+v", s)
	}
	a.link.SetPeers([]string{a.address}, errors.New("lookup other: no such host"))
	if s := a.link.Status(); s.Connected || !a.merged()[0].Proxies.Partial {
		t.Errorf("with one of two names: %+v", s)
	}
	a.link.SetPeers([]string{}, nil)
	if s := a.link.Status(); !s.Connected || s.Error != "" || a.merged()[0].Proxies.Partial {
		t.Errorf("the only one: %+v", s)
	}
	b := startNode(t, "b")
	a.knows(b)
	b.knows(a)
	a.until("the other is live", a.others(api.ReplicaLive))
	a.link.SetPeers(nil, errors.New("the API server is away"))
	if s := a.link.Status(); !s.Connected || s.Lookup != "the API server is away" {
		t.Errorf("with what was known: %+v", s)
	}
	a.link.SetPeers([]string{}, nil)
	a.until("one that is not named is gone", func() error {
		if s := a.link.Status(); s.Others[0].State == api.ReplicaLive {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

func TestWithoutTheSectionThereIsNoOther(t *testing.T) {
	nodes := startNodes(t, "a", "b")
	a, b := nodes[0], nodes[1]
	b.request(x, 1)
	a.untilInFlight(map[string]float64{x: 1, y: 0})
	a.link.Configure(Settings{})
	if s := a.link.Status(); s.Enabled || len(s.Others) > 0 {
		t.Errorf("it shows %+v", s)
	}
	counts := a.merged()
	if counts[0].InFlight.Known() || counts[0].Proxies.Partial {
		t.Errorf("it merges %+v", counts[0])
	}
	b.until("the other hears why", func() error {
		if s := b.link.Status(); !strings.Contains(s.Error, "no replicas are configured there") {
			return errors.New(s.Error)
		}
		return nil
	})
}

// serveRaw serves messages in the place of a replica, and then says nothing until the test ends.
func serveRaw(t *testing.T, messages ...[]byte) (address string) {
	t.Helper()
	raw := service
	raw.Streams = slices.Clone(raw.Streams)
	raw.Streams[0].Handler = func(_ any, stream grpc.ServerStream) error {
		for _, m := range messages {
			if err := stream.SendMsg(&wrapperspb.BytesValue{Value: m}); err != nil {
				return err
			}
		}
		<-stream.Context().Done()
		return nil
	}
	address, _ = grpctest.Serve(t, func(g *grpc.Server) { g.RegisterService(&raw, nil) })
	return address
}

func TestMessagesOfAnotherVersionAndNonsenseAreRefusedAndCounted(t *testing.T) {
	a := startNode(t, "a")
	foreign := encode(&merge.Message{From: "b", Seq: 1})
	foreign[len(magic)]++
	a.link.SetPeers([]string{serveRaw(t, foreign), serveRaw(t, []byte("hello"))}, nil)
	a.until("they are counted, and why their counts are missing is shown", func() error {
		s := a.link.Status()
		if s.Messages.Foreign == 0 || s.Messages.Invalid == 0 || s.Messages.LastForeign.IsZero() || s.Connected ||
			len(s.Others) != 2 {
			return fmt.Errorf("%+v", s)
		}
		errs := s.Others[0].Error + s.Others[1].Error
		if !strings.Contains(errs, "another version") || !strings.Contains(errs, "not a replica's message") {
			return errors.New(errs)
		}
		return nil
	})
	for _, hello := range [][]byte{foreign, []byte("hello")} {
		if _, err := received(a.followed(hello)); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("one that says %q: %v", hello, err)
		}
	}
}

func TestAFollowerThatDoesNotReadLosesMessagesAndDelaysNoOther(t *testing.T) {
	nodes := startNodes(t, "a", "b")
	a, b := nodes[0], nodes[1]
	slow := a.followed(encode(&merge.Message{From: "slow", Seq: 1}))
	if _, err := received(slow); err != nil {
		t.Fatal(err)
	}
	requests := 0.0
	a.until("messages are lost", func() error {
		a.request(x, 1)
		requests++
		if f := a.link.Status().Messages.Failed; f < 10 {
			return fmt.Errorf("%d", f)
		}
		return nil
	})
	b.untilInFlight(map[string]float64{x: requests, y: 0})
	for {
		m, err := received(slow)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Clusters) > 0 && len(m.Clusters[0].Parts) > 0 && m.Clusters[0].Parts[0].InFlight == int64(requests) {
			return // it has caught up
		}
	}
}

func TestReplicasThatFollowAreBounded(t *testing.T) {
	a := startNode(t, "a")
	for i := range merge.MaxReplicas {
		stream := a.followed(encode(&merge.Message{From: merge.ID(fmt.Sprint(i)), Seq: 1}))
		if _, err := received(stream); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := received(a.followed(encode(&merge.Message{From: "more", Seq: 1}))); status.Code(err) !=
		codes.ResourceExhausted {
		t.Errorf("one more: %v", err)
	}
	again := a.followed(encode(&merge.Message{From: "0", Seq: 1}))
	if _, err := received(again); err != nil {
		t.Errorf("a newer stream of the same: %v", err)
	}
}

func TestNamesStandForAllTheirAddresses(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	LookUp(ctx, []string{"10.0.0.1:18000", "[::1]:18000", "localhost:18000", "no..name:18000"},
		func(addresses []string, err error) {
			cancel()
			if err == nil || !strings.Contains(err.Error(), "no..name") {
				t.Errorf("a name that is none: %v", err)
			}
			for _, want := range []string{"10.0.0.1:18000", "[::1]:18000", "127.0.0.1:18000"} {
				if !slices.Contains(addresses, want) {
					t.Errorf("%s is not among %v", want, addresses)
				}
			}
		})
}
