package merge

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"steelyard/internal/api"
	"steelyard/weighting"
	"steelyard/weighting/flight"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	llama = "llama"
	x, y  = "10.0.0.1:8000", "10.0.0.2:8000"
)

// A fixture is a replica and what its own Envoys have.
type fixture struct {
	*Peers
	now    time.Time
	own    flight.Watchers
	parts  []flight.Part
	counts []flight.Counts
	before time.Time
}

func fixtureOf(addresses ...string) *fixture {
	f := &fixture{Peers: New("self", epoch), now: epoch}
	f.SetMembers(map[string][]string{llama: addresses})
	for _, a := range addresses {
		f.parts = append(f.parts, flight.Part{Address: a})
		f.counts = append(f.counts, flight.Counts{Address: a})
	}
	return f
}

// pass lets time pass, in which the replicas of these messages send them.
func (f *fixture) pass(d time.Duration, live ...*Message) {
	const step = 50 * time.Millisecond
	for end := f.now.Add(d); f.now.Before(end); {
		f.now = f.now.Add(step)
		for _, m := range live {
			m.Seq++
			f.Take(f.now, m)
		}
		f.Tick(f.now)
	}
}

func (f *fixture) merged() (flight.Watchers, []flight.Counts) {
	h := f.Merge(f.now, llama, f.own, f.parts, f.counts, f.before)
	f.before = f.counts[0].InFlight.At
	return h, f.counts
}

// by returns a message of another replica about its requests at x.
func by(id ID, seq uint64, inFlight int64, issued, ended uint64) *Message {
	return &Message{From: id, Name: string(id), Seq: seq, Clusters: []Cluster{{
		Name: llama, Head: flight.Watchers{Watching: 2, Events: 2, Reconciled: 2, Rate: 10},
		Parts: []flight.Part{{Address: x, InFlight: inFlight, Sums: flight.Sums{Issued: issued, Ended: ended}}},
	}}}
}

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestCountsOfLiveReplicasAddUp(t *testing.T) {
	f := fixtureOf(x, y)
	f.own = flight.Watchers{Watching: 1, Events: 1, Reconciled: 1, Rate: 10}
	f.parts[0].InFlight, f.parts[0].Sums = 3, flight.Sums{Issued: 100, Ended: 97}
	f.Take(f.now, by("a", 1, 5, 1000, 995))
	f.Take(f.now, by("b", 1, 2, 50, 48))
	h, c := f.merged()
	want(t, "Envoys", h.Watching, 5)
	want(t, "in flight", c[0].InFlight.Value, 10)
	want(t, "issued: of the others nothing before they were heard of", c[0].Proxies.Issued.Value, 100)
	want(t, "exact", c[0].Exact, true)
	want(t, "partial", c[0].Proxies.Partial, false)
	want(t, "in flight elsewhere", c[1].InFlight, weighting.Reading{At: c[0].InFlight.At})

	changed := f.Take(f.now, by("a", 2, 6, 1007, 1001))
	if d := cmp.Diff([]string{llama}, changed); d != "" {
		t.Errorf("changed (-want +got):\n%s", d)
	}
	_, c = f.merged()
	want(t, "in flight", c[0].InFlight.Value, 11)
	want(t, "issued", c[0].Proxies.Issued.Value, 107)
	want(t, "ended", c[0].Proxies.Ended.Value, 103)
	want(t, "failed, by logs", c[0].Proxies.Failed.Known(), true)
}

func TestWithoutAnEnvoyAnywhereNothingIsKnown(t *testing.T) {
	f := fixtureOf(x)
	m := by("a", 1, 0, 0, 0)
	m.Clusters[0].Head = flight.Watchers{Watching: 3}
	f.Take(f.now, m)
	_, c := f.merged()
	want(t, "in flight is known", c[0].InFlight.Known(), false)
	want(t, "issued is known", c[0].Proxies.Issued.Known(), false)
	m.Seq, m.Clusters[0].Head.Reports = 2, 3
	f.Take(f.now, m)
	_, c = f.merged()
	want(t, "in flight is known", c[0].InFlight.Known(), true)
	want(t, "failures, which reports do not show, are known", c[0].Proxies.Failed.Known(), false)
}

func TestLogsHereAndReportsThereArePartial(t *testing.T) {
	f := fixtureOf(x)
	f.own = flight.Watchers{Watching: 1, Events: 1, Reconciled: 1}
	m := by("a", 1, 1, 1, 0)
	m.Clusters[0].Head.Events, m.Clusters[0].Head.Reports = 0, 2
	f.Take(f.now, m)
	_, c := f.merged()
	want(t, "partial", c[0].Proxies.Partial, true)
	want(t, "exact", c[0].Exact, true)
}

func TestASilentReplicaIsUnreachableWithinASecondAndFades(t *testing.T) {
	f := fixtureOf(x)
	f.own = flight.Watchers{Watching: 1, Events: 1, Reconciled: 1}
	live := by("a", 1, 8, 0, 0)
	for range 20 { // two requests a second end of eight in flight: one takes 4 s
		live.Clusters[0].Parts[0].Sums.Ended++
		f.pass(500*time.Millisecond, live)
	}
	_, c := f.merged()
	want(t, "in flight", c[0].InFlight.Value, 8)
	f.pass(700 * time.Millisecond)
	want(t, "state", f.Status()[0].State, api.ReplicaUnreachable)
	want(t, "it is known to be gone", f.Gone(f.now, "a"), true)
	want(t, "which is no news", f.Gone(f.now, "a"), false)
	want(t, "state", f.Status()[0].State, api.ReplicaGone)
	var last float64 = 9
	for range 10 {
		_, c = f.merged()
		if c[0].InFlight.Value >= last {
			t.Errorf("in flight %v after %v", c[0].InFlight.Value, last)
		}
		last = c[0].InFlight.Value
		want(t, "exact", c[0].Exact, false)
		want(t, "partial", c[0].Proxies.Partial, true)
		f.pass(500 * time.Millisecond)
	}
	if least, most := 8*math.Exp(-5/4.)*0.6, 8*math.Exp(-4/4.)*1.4; last < least || last > most {
		t.Errorf("in flight %v some 5 s later, want %v to %v", last, least, most)
	}
	f.pass(Fade)
	_, c = f.merged()
	want(t, "in flight at last", c[0].InFlight.Value, 0)
	want(t, "exact at last", c[0].Exact, true)
	want(t, "partial at last", c[0].Proxies.Partial, false)
	f.pass(shown)
	want(t, "shown", len(f.Status()), 0)
}

func TestRequestsAreNotCountedTwiceWhenTheirEnvoysConnectElsewhere(t *testing.T) {
	f := fixtureOf(x)
	f.own = flight.Watchers{Watching: 2, Events: 2, Reconciled: 2}
	f.parts[0].InFlight = 4
	live := by("a", 1, 6, 0, 0)
	f.pass(time.Second, live)
	f.merged()
	live.Seq++
	live.Leaving = true
	f.Take(f.now, live)
	_, c := f.merged()
	want(t, "in flight at once", c[0].InFlight.Value, 10)
	f.own.Watching, f.own.Events, f.own.Reconciled = 4, 4, 3 // one has sent a load report
	f.parts[0].InFlight = 7
	_, c = f.merged()
	want(t, "in flight with half of them", c[0].InFlight.Value, 10)
	f.own.Reconciled, f.parts[0].InFlight = 4, 10
	_, c = f.merged()
	want(t, "in flight with all of them", c[0].InFlight.Value, 10)
	want(t, "exact", c[0].Exact, true)
}

func TestTheServerShowsWhatIsLeftOfAReplicaThatIsGone(t *testing.T) {
	f := fixtureOf(x)
	f.own = flight.Watchers{Watching: 1, Events: 1, Reconciled: 1}
	f.parts[0].InFlight = 2
	live := by("a", 1, 12, 0, 0)
	for range 20 { // most requests are short, and those that stay are not
		live.Clusters[0].Parts[0].Sums.Ended += 50
		f.pass(500*time.Millisecond, live)
	}
	f.merged()
	f.pass(700 * time.Millisecond)
	for _, c := range []struct{ served, want float64 }{{14, 12}, {9, 7}, {1, 0}} {
		f.Served(f.now, x, c.served)
		f.pass(50 * time.Millisecond)
		_, counts := f.merged()
		if got := counts[0].InFlight.Value - 2; math.Abs(got-c.want) > 0.1*c.want {
			t.Errorf("with %v requests at the server %v are left of the other's, want %v", c.served, got, c.want)
		}
	}
}

func TestAReplicaThatComesBackIsFollowedFromThere(t *testing.T) {
	f := fixtureOf(x)
	live := by("a", 1, 6, 100, 94)
	f.pass(time.Second, live)
	f.pass(2 * time.Second)
	want(t, "state", f.Status()[0].State, api.ReplicaUnreachable)
	back := by("a", live.Seq+30, 9, 5000, 4991)
	f.Take(f.now, back)
	_, c := f.merged()
	want(t, "state", f.Status()[0].State, api.ReplicaLive)
	want(t, "in flight", c[0].InFlight.Value, 9)
	want(t, "issued: nothing of the time between", c[0].Proxies.Issued.Value, 0)
	f.Take(f.now, by("a", back.Seq+1, 9, 5003, 4994))
	_, c = f.merged()
	want(t, "issued", c[0].Proxies.Issued.Value, 3)
}

// It comes over the network a moment late, and nothing is lost.
func TestALateMessageOfALiveReplicaStartsNothingOver(t *testing.T) {
	f := fixtureOf(x, y)
	live := by("a", 1, 6, 100, 94)
	live.Clusters[0].Parts = append(live.Clusters[0].Parts, flight.Part{Address: y, InFlight: 2})
	f.pass(time.Second, live)
	f.pass(600 * time.Millisecond)
	want(t, "live", f.Live("a"), false)
	f.Take(f.now, by("a", live.Seq+1, 7, 102, 95))
	_, c := f.merged()
	want(t, "live", f.Live("a"), true)
	want(t, "in flight", c[0].InFlight.Value, 7)
	want(t, "in flight where the message has nothing", c[1].InFlight.Value, 2)
	want(t, "issued", c[0].Proxies.Issued.Value, 2)
}

func TestWhileAReplicaMayBeSomewhereCountsArePartial(t *testing.T) {
	f := fixtureOf(x)
	f.own = flight.Watchers{Watching: 1, Events: 1, Reconciled: 1}
	f.parts[0].InFlight = 2
	live := by("a", 1, 6, 100, 94)
	f.pass(time.Second, live)
	f.pass(time.Second)
	want(t, "state", f.Status()[0].State, api.ReplicaUnreachable)
	want(t, "changed", f.SetCut(f.now, true), true)
	want(t, "changed again", f.SetCut(f.now, true), false)
	f.pass(2 * time.Minute)
	want(t, "shown", len(f.Status()), 1)
	_, c := f.merged()
	want(t, "in flight of its own Envoys", c[0].InFlight.Value, 2)
	want(t, "partial", c[0].Proxies.Partial, true)
	cut, since := f.Cut()
	want(t, "cut", cut, true)
	want(t, "for", f.now.Sub(since), 2*time.Minute)

	f.SetCut(f.now, false)
	f.pass(200*time.Millisecond, live)
	_, c = f.merged()
	want(t, "in flight of all", c[0].InFlight.Value, 8)
	want(t, "partial", c[0].Proxies.Partial, false)
}

func TestAReplicaIsNotItsOwnPeer(t *testing.T) {
	f := fixtureOf(x)
	f.Take(f.now, by("self", 1, 6, 0, 0))
	want(t, "replicas", len(f.Status()), 0)
}

// A process that was stopped has not heard the others because of itself.
func TestAProcessThatStoodStillJudgesNobody(t *testing.T) {
	f := fixtureOf(x)
	f.pass(time.Second, by("a", 1, 6, 100, 94))
	f.now = f.now.Add(10 * time.Second)
	want(t, "changed", f.Tick(f.now), false)
	want(t, "state", f.Status()[0].State, api.ReplicaLive)
}

func TestReplicasAreBounded(t *testing.T) {
	f := fixtureOf(x)
	for i := range MaxReplicas + 5 {
		f.Take(f.now, by(ID(rune('A'+i)), 1, 1, 0, 0))
	}
	want(t, "replicas", len(f.Status()), MaxReplicas)
	want(t, "refused", f.Messages.Refused, 5)
	f.pass(time.Second)
	f.Take(f.now, by("new", 1, 1, 0, 0))
	want(t, "replicas after all went", len(f.Status()), MaxReplicas)
	want(t, "refused", f.Messages.Refused, 5)
}

func TestWhatIsNotConfiguredHereIsNotKept(t *testing.T) {
	f := fixtureOf(x)
	m := by("a", 1, 1, 0, 0)
	m.Clusters[0].Parts = append(m.Clusters[0].Parts, flight.Part{Address: "10.9.9.9:1"})
	m.Clusters = append(m.Clusters, Cluster{Name: "other"})
	changed := f.Take(f.now, m)
	want(t, "clusters that changed", len(changed), 1)
	want(t, "endpoints kept", len(f.peers["a"].clusters[llama].parts), 1)
	want(t, "clusters kept", len(f.peers["a"].clusters), 1)
	f.SetMembers(map[string][]string{llama: {y}})
	want(t, "endpoints kept", len(f.peers["a"].clusters[llama].parts), 0)
	f.SetMembers(nil)
	want(t, "clusters kept", len(f.peers["a"].clusters), 0)
}

// drawn is a replica as it is, and its messages.
type drawn struct {
	id    ID
	seq   uint64
	parts map[string]*flight.Part
	first map[string]flight.Sums // as first delivered
}

// Whatever is lost, doubled, late or restarted: sums never go back, and once every replica has sent all, the counts are
// those of all of them.
func TestMessagesInAnyOrderComeToTheSameCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := fixtureOf(x, y)
		f.own = flight.Watchers{Watching: 1, Events: 1, Reconciled: 1}
		var replicas []*drawn
		runs := 0
		restart := func(i int) {
			runs++
			d := &drawn{id: ID(fmt.Sprint(runs)), parts: map[string]*flight.Part{x: {Address: x}, y: {Address: y}},
				first: make(map[string]flight.Sums)}
			if i < len(replicas) {
				f.Take(f.now, &Message{From: replicas[i].id, Seq: replicas[i].seq + 1, Leaving: true})
				replicas[i] = d
				return
			}
			replicas = append(replicas, d)
		}
		restart(0)
		restart(1)
		var old []*Message
		gone := make(map[string]flight.Sums) // of runs that ended, as far as they were delivered
		seen := make(map[ID]map[string]flight.Sums)
		deliver := func(m *Message) {
			if p := f.peers[m.From]; p != nil && m.Seq <= p.seq {
				f.Take(f.now, m)
				return
			}
			f.Take(f.now, m)
			for _, part := range m.Clusters[0].Parts {
				if seen[m.From] == nil {
					seen[m.From] = make(map[string]flight.Sums)
				}
				if last, ok := seen[m.From][part.Address]; ok {
					d := since(&last, &part.Sums)
					total := gone[part.Address]
					total.Add(&d)
					gone[part.Address] = total
				}
				seen[m.From][part.Address] = part.Sums
			}
		}
		message := func(d *drawn, all bool) *Message {
			d.seq++
			m := &Message{From: d.id, Seq: d.seq, Clusters: []Cluster{{Name: llama,
				Head: flight.Watchers{Watching: 1, Events: 1, Reconciled: 1, Rate: 1}}}}
			for _, a := range []string{x, y} {
				if all || rapid.Bool().Draw(t, "sent") {
					m.Clusters[0].Parts = append(m.Clusters[0].Parts, *d.parts[a])
				}
			}
			return m
		}
		var before [2]flight.Counts
		check := func() {
			_, c := f.merged()
			for i := range c {
				if c[i].Proxies.Issued.Value < before[i].Proxies.Issued.Value ||
					c[i].Proxies.Ended.Value < before[i].Proxies.Ended.Value {
					t.Fatalf("a sum went back from %v to %v", before[i].Proxies, c[i].Proxies)
				}
				if c[i].InFlight.Value < 0 || c[i].InFlight.At.Before(before[i].InFlight.At) {
					t.Fatalf("in flight %v after %v", c[i].InFlight, before[i].InFlight)
				}
				before[i] = c[i]
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			i := rapid.IntRange(0, 1).Draw(t, "replica")
			d := replicas[i]
			p := d.parts[rapid.SampledFrom([]string{x, y}).Draw(t, "endpoint")]
			n := rapid.IntRange(0, 5).Draw(t, "requests")
			p.InFlight += int64(n)
			p.Sums.Issued += uint64(n)
			ended := rapid.Int64Range(0, p.InFlight).Draw(t, "ended")
			p.InFlight -= ended
			p.Sums.Ended += uint64(ended)
			switch m := message(d, false); rapid.IntRange(0, 5).Draw(t, "fate") {
			case 0: // lost
			case 1:
				old = append(old, m) // late
			case 2:
				deliver(m)
				deliver(m)
			case 3:
				if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
					restart(i)
				}
			default:
				deliver(m)
			}
			if len(old) > 0 && rapid.Bool().Draw(t, "late") {
				deliver(old[0])
				old = old[1:]
			}
			f.now = f.now.Add(time.Millisecond) // so that nobody is silent for long
			f.Tick(f.now)
			check()
		}
		var inFlight float64
		for _, d := range replicas {
			deliver(message(d, true))
			inFlight += float64(d.parts[x].InFlight)
		}
		for _, o := range f.peers { // what is left of runs that ended is another test's
			// One that ended is live for a second if a message of it came late.
			if o.state != api.ReplicaLive || o.id != replicas[0].id && o.id != replicas[1].id {
				delete(f.peers, o.id)
			}
		}
		check()
		if got := before[0].InFlight.Value; got != inFlight {
			t.Fatalf("in flight %v, want %v", got, inFlight)
		}
		if got, want := before[0].Proxies.Issued.Value, float64(gone[x].Issued); got != want {
			t.Fatalf("issued %v, want %v", got, want)
		}
	})
}
