package picking

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var usual = QueuedOptions{Threshold: 3 * time.Second, Alpha: 0.3, QueueMax: 3, QueueTimeout: 20 * time.Second}

// queued has these backends.
func queued(addresses ...string) *Queued {
	q := NewQueued(usual)
	q.SetBackends(start, addresses)
	return q
}

// to returns the backends of verdicts, by request; "-" and the reason for a refusal.
func to(verdicts []Verdict) (out []string) {
	for _, v := range verdicts {
		where := v.Backend
		if where == "" {
			where = "-" + string(v.Refused)
		}
		out = append(out, fmt.Sprintf("%d:%s", v.Request, where))
	}
	return out
}

func want(t *testing.T, what string, got []Verdict, expected ...string) {
	t.Helper()
	if !slices.Equal(to(got), expected) {
		t.Errorf("%s: %v, want %v", what, to(got), expected)
	}
}

// answered has a backend answer n requests of a duration, one after the other.
func answered(q *Queued, backend string, n int, took time.Duration) {
	for range n {
		q.backend(backend).InFlight++
		q.Done(start, backend, took, Answered)
	}
}

func TestAnUntriedBackendGetsOneRequestBeforeAllOthers(t *testing.T) {
	q := queued("fast", "new")
	answered(q, "fast", 10, time.Millisecond)
	want(t, "the first", q.Arrive(start, 1), "1:new")
	want(t, "the second", q.Arrive(start, 2), "2:fast")
	want(t, "the answer of the new one", q.Done(start, "new", time.Second, Answered))
	want(t, "the third", q.Arrive(start, 3), "3:fast")
}

func TestABackendOverTheThresholdTakesNothingUntilItIsIdle(t *testing.T) {
	q := queued("slow")
	want(t, "the first", q.Arrive(start, 1), "1:slow")
	want(t, "the second", q.Arrive(start, 2))
	want(t, "after an answer of 40 s it is idle", q.Done(start, "slow", 40*time.Second, Answered), "2:slow")
	want(t, "the third waits", q.Arrive(start, 3))
	if got := q.Depth(); got != 1 {
		t.Errorf("%d wait", got)
	}
}

func TestTheThresholdItselfIsOverTheThreshold(t *testing.T) {
	for latency, state := range map[time.Duration]BackendState{
		usual.Threshold - 1: BackendOpen, usual.Threshold: BackendSlow, usual.Threshold + 1: BackendSlow} {
		q := queued("a")
		answered(q, "a", 1, latency)
		q.Arrive(start, 1)
		if got := q.Backends(start)[0].State; got != state {
			t.Errorf("with a latency of %v it is %s, want %s", latency, got, state)
		}
	}
}

func TestAFreshlyTriedBackendRamps(t *testing.T) {
	q := queued("a")
	answered(q, "a", 1, time.Second)
	for i := range uint64(5) {
		want(t, "up to five times its answers", q.Arrive(start, i), fmt.Sprintf("%d:a", i))
	}
	want(t, "the sixth", q.Arrive(start, 6))
	want(t, "after the second answer", q.Done(start, "a", time.Second, Answered), "6:a")
}

func TestTheLowestLatencyUnderTheThresholdIsChosen(t *testing.T) {
	q := queued("a", "b", "c")
	answered(q, "a", 5, 2*time.Second)
	answered(q, "b", 5, time.Second)
	answered(q, "c", 5, 9*time.Second)
	want(t, "the first", q.Arrive(start, 1), "1:b")
	if got := q.Backends(start)[1].Latency; got != 1 {
		t.Errorf("the mean of equal answers is %v", got)
	}
	q.backend("b").InFlight++
	q.Done(start, "b", 11*time.Second, Answered)
	if got := q.Backends(start)[1].Latency; math.Abs(got-4) > 1e-9 { // 1 + 0.3·10
		t.Errorf("the mean moved to %v, want 4", got)
	}
	want(t, "above the threshold another one", q.Arrive(start, 2), "2:a")
}

func TestABackendThatFailsFastAttractsNothing(t *testing.T) {
	q := queued("good", "bad")
	answered(q, "good", 100, time.Second)
	want(t, "the first tries the new one", q.Arrive(start, 1), "1:bad")
	q.Done(start, "bad", time.Millisecond, Failed)
	for i := range uint64(3) {
		want(t, "while it is left out", q.Arrive(start, 10+i), fmt.Sprintf("%d:good", 10+i))
	}
	later := start.Add(firstPause)
	want(t, "after the pause", q.Arrive(later, 2), "2:bad")
	q.Done(later, "bad", time.Millisecond, Failed)
	want(t, "the second pause is longer", q.Arrive(later.Add(firstPause), 3), "3:good")
	b := q.Backends(start)[1]
	if !b.untried() || b.Answers != 0 || b.Failures != 2 {
		t.Errorf("the state is %+v, want no latency and two failures", b)
	}
}

// TestABackendThatHangsIsNotTriedForEver: clients give up after 3 s, and the other one answers in 1 s.
func TestABackendThatHangsIsNotTriedForEver(t *testing.T) {
	q := queued("hangs", "good")
	answered(q, "good", 10, time.Second)
	want(t, "the first tries the new one", q.Arrive(start, 1), "1:hangs")
	q.Done(start, "hangs", 3*time.Second, Abandoned)
	want(t, "the second", q.Arrive(start, 2), "2:good")
	answered(q, "good", 20, 5*time.Second)
	want(t, "where the other one is slower, it is tried again", q.Arrive(start, 3), "3:hangs")
	if b := q.Backends(start)[0]; !b.untried() {
		t.Errorf("the latency of one that never answered is %v", b.Latency)
	}
	q = queued("hung later", "good")
	answered(q, "hung later", 10, 100*time.Millisecond)
	answered(q, "good", 10, time.Second)
	for i := range uint64(2) {
		want(t, "it was the fastest", q.Arrive(start, i), fmt.Sprintf("%d:hung later", i))
		q.Done(start, "hung later", 3*time.Second, Abandoned)
	}
	want(t, "no longer", q.Arrive(start, 9), "9:good")
	before := q.Backends(start)[1].Latency
	q.Done(start, "good", time.Millisecond, Abandoned)
	if after := q.Backends(start)[1].Latency; after != before {
		t.Errorf("a client that gave up at once moved the mean from %v to %v", before, after)
	}
}

// TestAWarmBackendThatHangsGetsLittleWhileOthersAreIdle, with clients that wait for as long as it takes.
func TestAWarmBackendThatHangsGetsLittleWhileOthersAreIdle(t *testing.T) {
	q := queued("hangs", "good")
	answered(q, "hangs", 30, 100*time.Millisecond)
	answered(q, "good", 30, 300*time.Millisecond)
	at := map[string]int{}
	now := start
	for i := range uint64(100) {
		b := q.Arrive(now, i)[0].Backend
		if at[b]++; b == "good" {
			q.Done(now, b, 300*time.Millisecond, Answered)
		}
		now = now.Add(100 * time.Millisecond)
	}
	// Until it has been silent for 0.3 s, and then one whenever its silence has doubled.
	if at["hangs"] < 1 || at["hangs"] > 10 {
		t.Errorf("of 100 requests %v", at)
	}
	if s := q.Backends(now)[0].State; s != BackendSlow {
		t.Errorf("after 10 s without an answer it is %v, want %v: that is over the threshold", s, BackendSlow)
	}
	q.Done(now, "hangs", 10*time.Second, Answered)
	if b := q.Backends(now)[0]; b.rank(now) != b.Latency {
		t.Errorf("after an answer its rank is %v, want its latency, %v", b.rank(now), b.Latency)
	}
}

// TestALongStreamDoesNotKeepShortRequestsFromItsBackend: the choices are those without a stream.
func TestALongStreamDoesNotKeepShortRequestsFromItsBackend(t *testing.T) {
	q := queued("streams", "other")
	answered(q, "streams", 30, 200*time.Millisecond)
	answered(q, "other", 30, 300*time.Millisecond)
	want(t, "the stream", q.Arrive(start, 1), "1:streams")
	now := start
	for i := range uint64(100) {
		now = now.Add(100 * time.Millisecond)
		want(t, "a short request", q.Arrive(now, 2+i), fmt.Sprintf("%d:streams", 2+i))
		if i > 0 { // each takes 200 ms
			q.Done(now, "streams", 200*time.Millisecond, Answered)
		}
	}
	if b := q.Backends(now)[0]; b.InFlight != 2 || b.State != BackendOpen {
		t.Errorf("after 10 s with the stream: %+v", b)
	}
}

// TestOnlyStreamsAreNoReasonToWait, although each is longer than the threshold, and nothing else is answered.
func TestOnlyStreamsAreNoReasonToWait(t *testing.T) {
	q := queued("streams")
	answered(q, "streams", 30, time.Second)
	q.Arrive(start, 1)
	q.Arrive(start.Add(time.Second), 2)
	now := start.Add(time.Minute)
	want(t, "a short request after a minute", q.Arrive(now, 3), "3:streams")
	want(t, "the next waits for that", q.Arrive(now.Add(time.Second), 4))
	want(t, "which is answered", q.Done(now.Add(time.Second), "streams", time.Second, Answered), "4:streams")
	want(t, "the next", q.Arrive(now.Add(2*time.Second), 5), "5:streams")
}

func TestABackendThatRejectsEverythingIsNotFast(t *testing.T) {
	q := queued("good", "bad")
	answered(q, "good", 10, time.Second)
	at := map[string]int{}
	for i := range uint64(12) {
		v := q.Arrive(start, i)[0]
		at[v.Backend]++
		if v.Backend == "bad" {
			q.Done(start, "bad", time.Millisecond, Rejected)
		} else {
			q.Done(start, "good", time.Second, Answered)
		}
	}
	if at["bad"] != 3 || at["good"] != 9 {
		t.Errorf("of 12 requests %v, want 3 at the one that answers 4xx to all", at)
	}
	for range 5 { // the clients' own errors, between answers
		for range rejectionsOfClients {
			q.backend("good").InFlight++
			q.Done(start, "good", time.Millisecond, Rejected)
		}
		answered(q, "good", 1, time.Second)
	}
	if b := q.Backends(start)[0]; b.Latency != 1 || b.Failures != 0 {
		t.Errorf("the state is %+v, want that of before", b)
	}
}

func TestARequestWhoseBackendIsUnreachableKeepsItsPlace(t *testing.T) {
	q := queued("new", "old")
	answered(q, "old", 1, 9*time.Second) // over the threshold: one at a time
	verdicts := q.Arrive(start, 1)
	want(t, "the first", verdicts, "1:new")
	if !verdicts[0].Unproven {
		t.Error("a new backend is taken for a proven one")
	}
	second := q.Arrive(start, 2)
	want(t, "the second", second, "2:old")
	if second[0].Unproven {
		t.Error("a backend that answered is to be connected to before it gets a request")
	}
	want(t, "the third waits", q.Arrive(start, 3))
	want(t, "so does the first", q.Unreachable(start, "new", 1, start))
	want(t, "it is before the third", q.Done(start, "old", 9*time.Second, Answered), "1:old")
	q.Done(start, "old", 0, Failed) // all are left out, so none is, and none is connected to first
	if v := q.Arrive(start, 4); len(v) != 1 || v[0].Unproven {
		t.Errorf("where all failed: %+v", v)
	}
}

// TestARequestTriesOneNewBackendWhileAnotherIsIdle: each that does not answer costs it the time of a connection.
func TestARequestTriesOneNewBackendWhileAnotherIsIdle(t *testing.T) {
	q := queued("old")
	answered(q, "old", 1, time.Second)
	q.SetBackends(start, []string{"new 1", "new 2", "old"})
	want(t, "new capacity is used at once", q.Arrive(start, 1), "1:new 1")
	want(t, "the idle one is next", q.Unreachable(start.Add(2*time.Second), "new 1", 1, start), "1:old")
	want(t, "others try", q.Arrive(start.Add(2*time.Second), 2), "2:new 2")
}

// TestARequestThatCanBeSentNowhereIsRefusedInTime: it always is on its way to some backend, and never in the queue.
func TestARequestThatCanBeSentNowhereIsRefusedInTime(t *testing.T) {
	q := queued("new 1", "new 2")
	want(t, "at first", q.Arrive(start, 1), "1:new 1")
	at := start.Add(usual.QueueTimeout - 1)
	want(t, "in time", q.Unreachable(at, "new 1", 1, start), "1:new 2")
	at = start.Add(usual.QueueTimeout + 2*time.Second) // the pause of the first has ended
	want(t, "too late", q.Unreachable(at, "new 2", 1, start), "1:-timeout")
	want(t, "the next", q.Arrive(at, 2), "2:new 1")
}

func TestWhereAllFailNoneIsLeftOut(t *testing.T) {
	q := queued("a")
	q.Arrive(start, 1)
	q.Done(start, "a", 0, Failed)
	want(t, "the only one", q.Arrive(start, 2), "2:a")
}

func TestAClientThatGivesUpLeavesNoTrace(t *testing.T) {
	q := queued("a")
	q.Arrive(start, 1)
	q.Arrive(start, 2)
	q.Arrive(start, 3)
	q.Leave(2)
	want(t, "the next in the queue", q.Done(start, "a", 0, Abandoned), "3:a")
	if b := q.Backends(start)[0]; !b.untried() || b.Failures != 0 || b.InFlight != 1 {
		t.Errorf("the state is %+v, want nothing learned", b)
	}
}

func TestAFullQueueRefusesTheOldestAndAnOldRequestIsRefused(t *testing.T) {
	q := NewQueued(usual)
	for i := range uint64(3) {
		want(t, "without backends", q.Arrive(start.Add(time.Duration(i)*time.Second), i))
	}
	want(t, "one too many", q.Arrive(start.Add(3*time.Second), 3), "0:-evicted")
	want(t, "too early", q.Tick(start.Add(usual.QueueTimeout)))
	want(t, "too old", q.Tick(start.Add(usual.QueueTimeout+time.Second)), "1:-timeout")
	want(t, "a backend takes the next", q.SetBackends(start.Add(21*time.Second), []string{"a"}), "2:a")
}

func TestLatenciesStayWhenTheBackendsAreSetAgain(t *testing.T) {
	q := queued("a", "b")
	answered(q, "a", 4, time.Second)
	q.backend("b").InFlight = 1
	q.SetBackends(start, []string{"a", "c"})
	got := q.Backends(start)
	if len(got) != 3 || got[0].Address != "a" || got[0].Latency != 1 || got[0].Answers != 4 || got[2].Address != "c" ||
		!got[2].untried() {
		t.Errorf("backends %+v", got)
	}
	if b := got[1]; b.Address != "b" || b.State != BackendRemoved || b.InFlight != 1 {
		t.Errorf("a removed backend with a request in flight is shown as %+v", b)
	}
	q.Done(start, "b", time.Second, Answered)
	if q.backend("b") != nil {
		t.Error("a removed backend is remembered after its last request")
	}
}

func TestQueuedKeepsItsPromisesWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := NewQueued(usual)
		now, next := start, uint64(0)
		inFlight := map[string]int{}
		settled := map[uint64]bool{}
		var order []uint64
		take := func(verdicts []Verdict) {
			for _, v := range verdicts {
				if settled[v.Request] {
					t.Fatalf("request %d has two verdicts", v.Request)
				}
				settled[v.Request] = true
				if v.Backend != "" {
					inFlight[v.Backend]++
				}
				order = append(order, v.Request)
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				n := rapid.IntRange(0, 3).Draw(t, "backends")
				take(q.SetBackends(now, []string{"a", "b", "c"}[:n]))
			case 1, 2:
				take(q.Arrive(now, next))
				next++
			case 3:
				for _, b := range []string{"a", "b", "c"} {
					if inFlight[b] > 0 {
						inFlight[b]--
						take(q.Done(now, b, time.Second, Outcome(rapid.IntRange(0, 3).Draw(t, "outcome"))))
						break
					}
				}
			case 4:
				take(q.Tick(now))
			}
			if q.Depth() > usual.QueueMax {
				t.Fatalf("%d wait", q.Depth())
			}
			for _, b := range q.Backends(start) {
				if b.InFlight != inFlight[b.Address] {
					t.Fatalf("%s has %d in flight, want %d", b.Address, b.InFlight, inFlight[b.Address])
				}
			}
		}
		if !slices.IsSorted(order) {
			t.Fatalf("requests left the queue in the order %v", order)
		}
	})
}
