package leastlatency

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var usual = Options{Threshold: 3 * time.Second, Alpha: 0.3, QueueMax: 3, QueueTimeout: 20 * time.Second}

// queued has these backends.
func queued(addresses ...string) *Queue {
	q := New(usual)
	q.SetBackends(began, addresses)
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
func answered(q *Queue, backend string, n int, took time.Duration) {
	for range n {
		q.backend(backend).InFlight++
		q.Done(began, backend, took, Answered)
	}
}

func TestAnUntriedBackendGetsOneRequestBeforeAllOthers(t *testing.T) {
	q := queued("fast", "new")
	answered(q, "fast", 10, time.Millisecond)
	want(t, "the first", q.Arrive(began, 1), "1:new")
	want(t, "the second", q.Arrive(began, 2), "2:fast")
	want(t, "the answer of the new one", q.Done(began, "new", time.Second, Answered))
	want(t, "the third", q.Arrive(began, 3), "3:fast")
}

func TestABackendOverTheThresholdTakesNothingUntilItIsIdle(t *testing.T) {
	q := queued("slow")
	want(t, "the first", q.Arrive(began, 1), "1:slow")
	want(t, "the second", q.Arrive(began, 2))
	want(t, "after an answer of 40 s it is idle", q.Done(began, "slow", 40*time.Second, Answered), "2:slow")
	want(t, "the third waits", q.Arrive(began, 3))
	if got := q.Depth(); got != 1 {
		t.Errorf("%d wait", got)
	}
}

func TestTheThresholdItselfIsOverTheThreshold(t *testing.T) {
	for latency, state := range map[time.Duration]BackendState{
		usual.Threshold - 1: BackendOpen, usual.Threshold: BackendSlow, usual.Threshold + 1: BackendSlow} {
		q := queued("a")
		answered(q, "a", 1, latency)
		q.Arrive(began, 1)
		if got := q.Backends(began)[0].State; got != state {
			t.Errorf("with a latency of %v it is %s, want %s", latency, got, state)
		}
	}
}

func TestAFreshlyTriedBackendRamps(t *testing.T) {
	q := queued("a")
	answered(q, "a", 1, time.Second)
	for i := range uint64(5) {
		want(t, "up to five times its answers", q.Arrive(began, i), fmt.Sprintf("%d:a", i))
	}
	want(t, "the sixth", q.Arrive(began, 6))
	want(t, "after the second answer", q.Done(began, "a", time.Second, Answered), "6:a")
}

func TestTheLowestLatencyUnderTheThresholdIsChosen(t *testing.T) {
	q := queued("a", "b", "c")
	answered(q, "a", 5, 2*time.Second)
	answered(q, "b", 5, time.Second)
	answered(q, "c", 5, 9*time.Second)
	want(t, "the first", q.Arrive(began, 1), "1:b")
	if got := q.Backends(began)[1].Latency; got != 1 {
		t.Errorf("the mean of equal answers is %v", got)
	}
	q.backend("b").InFlight++
	q.Done(began, "b", 11*time.Second, Answered)
	if got := q.Backends(began)[1].Latency; math.Abs(got-4) > 1e-9 { // 1 + 0.3·10
		t.Errorf("the mean moved to %v, want 4", got)
	}
	want(t, "above the threshold another one", q.Arrive(began, 2), "2:a")
}

func TestABackendThatFailsFastAttractsNothing(t *testing.T) {
	q := queued("good", "bad")
	answered(q, "good", 100, time.Second)
	want(t, "the first tries the new one", q.Arrive(began, 1), "1:bad")
	q.Done(began, "bad", time.Millisecond, Failed)
	for i := range uint64(3) {
		want(t, "while it is left out", q.Arrive(began, 10+i), fmt.Sprintf("%d:good", 10+i))
	}
	later := began.Add(firstPause)
	want(t, "after the pause", q.Arrive(later, 2), "2:bad")
	q.Done(later, "bad", time.Millisecond, Failed)
	want(t, "the second pause is longer", q.Arrive(later.Add(firstPause), 3), "3:good")
	b := q.Backends(began)[1]
	if !b.untried() || b.Answers != 0 || b.Failures != 2 {
		t.Errorf("the state is %+v, want no latency and two failures", b)
	}
}

// TestABackendThatHangsIsNotTriedForEver: clients give up after 3 s, and the other one answers in 1 s.
func TestABackendThatHangsIsNotTriedForEver(t *testing.T) {
	q := queued("hangs", "good")
	answered(q, "good", 10, time.Second)
	want(t, "the first tries the new one", q.Arrive(began, 1), "1:hangs")
	q.Done(began, "hangs", 3*time.Second, Abandoned)
	want(t, "the second", q.Arrive(began, 2), "2:good")
	answered(q, "good", 20, 5*time.Second)
	want(t, "where the other one is slower, it is tried again", q.Arrive(began, 3), "3:hangs")
	if b := q.Backends(began)[0]; !b.untried() {
		t.Errorf("the latency of one that never answered is %v", b.Latency)
	}
	q = queued("hung later", "good")
	answered(q, "hung later", 10, 100*time.Millisecond)
	answered(q, "good", 10, time.Second)
	for i := range uint64(2) {
		want(t, "it was the fastest", q.Arrive(began, i), fmt.Sprintf("%d:hung later", i))
		q.Done(began, "hung later", 3*time.Second, Abandoned)
	}
	want(t, "no longer", q.Arrive(began, 9), "9:good")
	before := q.Backends(began)[1].Latency
	q.Done(began, "good", time.Millisecond, Abandoned)
	if after := q.Backends(began)[1].Latency; after != before {
		t.Errorf("a client that gave up at once moved the mean from %v to %v", before, after)
	}
}

// TestAWarmBackendThatHangsGetsLittleWhileOthersAreIdle, with clients that wait for as long as it takes.
func TestAWarmBackendThatHangsGetsLittleWhileOthersAreIdle(t *testing.T) {
	q := queued("hangs", "good")
	answered(q, "hangs", 30, 100*time.Millisecond)
	answered(q, "good", 30, 300*time.Millisecond)
	at := map[string]int{}
	now := began
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
	want(t, "the stream", q.Arrive(began, 1), "1:streams")
	now := began
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
	q.Arrive(began, 1)
	q.Arrive(began.Add(time.Second), 2)
	now := began.Add(time.Minute)
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
		v := q.Arrive(began, i)[0]
		at[v.Backend]++
		if v.Backend == "bad" {
			q.Done(began, "bad", time.Millisecond, Rejected)
		} else {
			q.Done(began, "good", time.Second, Answered)
		}
	}
	if at["bad"] != 3 || at["good"] != 9 {
		t.Errorf("of 12 requests %v, want 3 at the one that answers 4xx to all", at)
	}
	for range 5 { // the clients' own errors, between answers
		for range rejectionsOfClients {
			q.backend("good").InFlight++
			q.Done(began, "good", time.Millisecond, Rejected)
		}
		answered(q, "good", 1, time.Second)
	}
	if b := q.Backends(began)[0]; b.Latency != 1 || b.Failures != 0 {
		t.Errorf("the state is %+v, want that of before", b)
	}
}

// connecting has backends to which the caller connects.
func connecting(addresses ...string) *Queue {
	o := usual
	o.Connects = true
	q := New(o)
	q.SetBackends(began, addresses)
	return q
}

func wantChecks(t *testing.T, what string, q *Queue, now time.Time, expected ...string) {
	t.Helper()
	if got := q.Checks(now); !slices.Equal(got, expected) {
		t.Errorf("%s: connect to %v, want %v", what, got, expected)
	}
}

func TestARequestWhoseBackendIsUnreachableKeepsItsPlace(t *testing.T) {
	q := queued("new", "old")
	answered(q, "old", 1, 9*time.Second) // over the threshold: one at a time
	want(t, "the first", q.Arrive(began, 1), "1:new")
	want(t, "the second", q.Arrive(began, 2), "2:old")
	want(t, "the third waits", q.Arrive(began, 3))
	want(t, "so does the first", q.Unreachable(began, "new", 1, began))
	want(t, "it is before the third", q.Done(began, "old", 9*time.Second, Answered), "1:old")
	want(t, "all are left out, so none is", q.Done(began, "old", 0, Failed), "3:new")
}

// TestNoRequestWaitsForAConnectionWhileAnotherBackendIsIdle: one to a backend that does not answer takes seconds.
func TestNoRequestWaitsForAConnectionWhileAnotherBackendIsIdle(t *testing.T) {
	q := connecting("old")
	wantChecks(t, "a new backend", q, began, "old")
	q.Connected(began, "old", began, true)
	answered(q, "old", 20, time.Second)
	wantChecks(t, "one that answered", q, began)
	q.SetBackends(began, []string{"gone", "new", "old"})
	if got := q.Backends(began)[1].State; got != BackendConnecting {
		t.Errorf("the state of a new backend is %s, want %s", got, BackendConnecting)
	}
	wantChecks(t, "two new backends", q, began, "gone", "new")
	wantChecks(t, "while they are connected to", q, began)
	want(t, "the first", q.Arrive(began, 1), "1:old")
	want(t, "the new one can be connected to", q.Connected(began, "new", began, true))
	want(t, "it is used at once", q.Arrive(began, 2), "2:new")
	now := began.Add(2 * time.Second)
	q.Connected(now, "gone", began, false)
	want(t, "the one that cannot is left out", q.Arrive(now, 3), "3:old")
	wantChecks(t, "during its pause", q, now.Add(firstPause-1))
	wantChecks(t, "after its pause", q, now.Add(firstPause), "gone")
	for range 9 {
		q.Connected(now, "gone", now, false)
		now = now.Add(longestUnreachable)
		wantChecks(t, "after the longest pause", q, now, "gone")
	}
	want(t, "when it is there", q.Connected(now, "gone", now, true))
	want(t, "it is used", q.Arrive(now, 4), "4:gone")
}

func TestARequestThatWaitsGoesToTheFirstBackendThatCanBeConnectedTo(t *testing.T) {
	q := connecting("gone", "new")
	wantChecks(t, "both", q, began, "gone", "new")
	want(t, "the first waits", q.Arrive(began, 1))
	want(t, "so does the second", q.Arrive(began, 2))
	want(t, "one can be connected to", q.Connected(began, "new", began, true), "1:new")
	want(t, "the other cannot", q.Connected(began, "gone", began, false))
	want(t, "the second waits for the answer of the first", q.Done(began, "new", time.Second, Answered), "2:new")
}

// TestARequestThatWasUnreachableGoesOnlyWhereAConnectionWasMadeSince, and the others do not wait for it.
func TestARequestThatWasUnreachableGoesOnlyWhereAConnectionWasMadeSince(t *testing.T) {
	q := connecting("a", "b", "c")
	q.Checks(began)
	for i, backend := range []string{"a", "b", "c"} {
		q.Connected(began, backend, began, true)
		answered(q, backend, 20, time.Duration(i+1)*time.Second/10)
	}
	now := began.Add(time.Minute)
	want(t, "the first", q.Arrive(now, 1), "1:a")
	failed := now.Add(2 * time.Second)
	want(t, "it waits", q.Unreachable(failed, "a", 1, now))
	want(t, "the second does not", q.Arrive(failed, 2), "2:b")
	wantChecks(t, "those that are left", q, failed, "b", "c")
	want(t, "a check that began too early", q.Connected(failed, "b", failed.Add(-1), true))
	wantChecks(t, "it is repeated", q, failed, "b")
	want(t, "a check since", q.Connected(failed, "c", failed, true), "1:c")
	wantChecks(t, "none waits any more", q, failed)
	want(t, "an answer shows it, too", q.Done(failed.Add(time.Second), "b", time.Second, Answered))
	want(t, "the third", q.Arrive(failed.Add(time.Second), 3), "3:c")
	want(t, "it goes there", q.Unreachable(failed.Add(time.Second), "c", 3, now), "3:b")
}

func TestRequestsWaitWhileNoBackendCanBeConnectedTo(t *testing.T) {
	q := connecting("a", "b")
	q.Checks(began)
	q.Connected(began, "a", began, true)
	q.Connected(began, "b", began, false)
	want(t, "the first", q.Arrive(began, 1), "1:a")
	want(t, "it waits like those that came later", q.Unreachable(began, "a", 1, began))
	want(t, "the second", q.Arrive(began, 2))
	now := began.Add(firstPause)
	wantChecks(t, "after their pauses", q, now, "a", "b")
	want(t, "none is there", q.Connected(now, "b", now, false))
	want(t, "one is", q.Connected(now, "a", now, true), "1:a")
	want(t, "one that fails is used where the others are not there", q.Done(now, "a", time.Second, Failed), "2:a")
}

// TestASuccessOfACheckDuringWhichARequestFailedCountsForNothing: it is repeated after the pause.
func TestASuccessOfACheckDuringWhichARequestFailedCountsForNothing(t *testing.T) {
	q := connecting("a", "b")
	q.Checks(began)
	q.Connected(began, "a", began, true)
	want(t, "the first", q.Arrive(began, 1), "1:a")
	q.Done(began, "a", time.Second, Failed)
	now := began.Add(firstPause)
	wantChecks(t, "after its pause", q, now, "a")
	want(t, "the second waits", q.Arrive(now, 2))
	q.backend("a").InFlight++
	q.Done(now, "a", time.Second, Failed) // of another request
	want(t, "a check that began before", q.Connected(now, "a", now, true))
	wantChecks(t, "after the second pause", q, now.Add(2*firstPause), "a")
}

// TestAFailureOfACheckDuringWhichABackendAnsweredCountsForNothing: a busy one may not take more connections.
func TestAFailureOfACheckDuringWhichABackendAnsweredCountsForNothing(t *testing.T) {
	q := connecting("a")
	q.Checks(began)
	q.Connected(began, "a", began, true)
	answered(q, "a", 20, time.Second)
	now := began.Add(time.Minute)
	want(t, "the first", q.Arrive(now, 1), "1:a")
	want(t, "the second", q.Arrive(now, 2), "2:a")
	q.Unreachable(now, "a", 1, now)
	now = now.Add(firstPause)
	wantChecks(t, "after its pause", q, now, "a")
	later := now.Add(time.Second)
	want(t, "an answer to the second", q.Done(later, "a", time.Second, Answered), "1:a")
	q.Connected(later.Add(time.Second), "a", now, false)
	want(t, "the third", q.Arrive(later.Add(time.Second), 3), "3:a")
	if b := q.Backends(later.Add(time.Second))[0]; b.State != BackendOpen || b.Failures != 0 {
		t.Errorf("the state is %+v, want open and no failure", b)
	}
}

func TestChecksAreBounded(t *testing.T) {
	var addresses []string
	for i := range 2 * maxChecks {
		addresses = append(addresses, fmt.Sprint(i))
	}
	q := connecting(addresses...)
	wantChecks(t, "at first", q, began, addresses[:maxChecks]...)
	wantChecks(t, "then", q, began)
	q.Connected(began, "7", began, true)
	wantChecks(t, "after the end of one", q, began, addresses[maxChecks])
	for _, a := range addresses[:maxChecks] {
		q.Connected(began, a, began, false)
	}
	now := began.Add(time.Minute)
	wantChecks(t, "before those that failed", q, now, addresses[maxChecks+1:]...)
	q.Connected(now, addresses[maxChecks], now, true)
	wantChecks(t, "at last", q, now, addresses[0])
}

// TestChecksOfRemovedBackendsCountToo: lists may be replaced faster than connections are given up.
func TestChecksOfRemovedBackendsCountToo(t *testing.T) {
	var addresses []string
	for i := range maxChecks {
		addresses = append(addresses, fmt.Sprint(i))
	}
	q := connecting(addresses...)
	wantChecks(t, "at first", q, began, addresses...)
	q.SetBackends(began, []string{"new"})
	if got := q.Backends(began); len(got) != 1 || got[0].Address != "new" {
		t.Errorf("the backends are %+v, want only the new one", got)
	}
	wantChecks(t, "while connections to others are attempted", q, began)
	q.SetBackends(began, []string{"new", "7"})
	q.Connected(began, "7", began, true)
	wantChecks(t, "after the end of one", q, began, "new")
	want(t, "one that was set again", q.Arrive(began, 1), "1:7")
	for _, a := range addresses {
		q.Connected(began, a, began, false)
	}
	if len(q.backends) != 2 {
		t.Errorf("%d backends are remembered, want 2", len(q.backends))
	}
}

// TestARequestThatCanBeSentNowhereIsRefusedInTime, while connections are attempted all the time.
func TestARequestThatCanBeSentNowhereIsRefusedInTime(t *testing.T) {
	q := connecting("a", "b")
	q.Checks(began)
	want(t, "it waits", q.Arrive(began, 1))
	q.Connected(began, "a", began, false)
	at := began.Add(firstPause)
	wantChecks(t, "again", q, at, "a")
	q.Connected(at, "b", began, false)
	want(t, "in time", q.Tick(began.Add(usual.QueueTimeout-1)))
	want(t, "too late", q.Tick(began.Add(usual.QueueTimeout)), "1:-timeout")
}

func TestWhereAllFailNoneIsLeftOut(t *testing.T) {
	q := queued("a")
	q.Arrive(began, 1)
	q.Done(began, "a", 0, Failed)
	want(t, "the only one", q.Arrive(began, 2), "2:a")
}

func TestAClientThatGivesUpLeavesNoTrace(t *testing.T) {
	q := queued("a")
	q.Arrive(began, 1)
	q.Arrive(began, 2)
	q.Arrive(began, 3)
	q.Leave(2)
	want(t, "the next in the queue", q.Done(began, "a", 0, Abandoned), "3:a")
	if b := q.Backends(began)[0]; !b.untried() || b.Failures != 0 || b.InFlight != 1 {
		t.Errorf("the state is %+v, want nothing learned", b)
	}
}

func TestAFullQueueRefusesTheOldestAndAnOldRequestIsRefused(t *testing.T) {
	q := New(usual)
	for i := range uint64(3) {
		want(t, "without backends", q.Arrive(began.Add(time.Duration(i)*time.Second), i))
	}
	want(t, "one too many", q.Arrive(began.Add(3*time.Second), 3), "0:-evicted")
	want(t, "too early", q.Tick(began.Add(usual.QueueTimeout)))
	want(t, "too old", q.Tick(began.Add(usual.QueueTimeout+time.Second)), "1:-timeout")
	want(t, "a backend takes the next", q.SetBackends(began.Add(21*time.Second), []string{"a"}), "2:a")
}

func TestAfterAStopNoRequestWaits(t *testing.T) {
	q := New(usual)
	want(t, "without backends", append(q.Arrive(began, 0), q.Arrive(began, 1)...))
	want(t, "those that wait", q.Stop(), "0:-stopped", "1:-stopped")
	want(t, "one that would wait", q.Arrive(began, 2), "2:-stopped")
	want(t, "none waits for a backend", q.SetBackends(began, []string{"a"}))
	want(t, "one that need not wait", q.Arrive(began, 3), "3:a")
}

func TestLatenciesStayWhenTheBackendsAreSetAgain(t *testing.T) {
	q := queued("a", "b")
	answered(q, "a", 4, time.Second)
	q.backend("b").InFlight = 1
	q.SetBackends(began, []string{"a", "c"})
	got := q.Backends(began)
	if len(got) != 3 || got[0].Address != "a" || got[0].Latency != 1 || got[0].Answers != 4 || got[2].Address != "c" ||
		!got[2].untried() {
		t.Errorf("backends %+v", got)
	}
	if b := got[1]; b.Address != "b" || b.State != BackendRemoved || b.InFlight != 1 {
		t.Errorf("a removed backend with a request in flight is shown as %+v", b)
	}
	q.Done(began, "b", time.Second, Answered)
	if q.backend("b") != nil {
		t.Error("a removed backend is remembered after its last request")
	}
}

func TestTheQueueKeepsItsPromisesWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := usual
		o.Connects = rapid.Bool().Draw(t, "connects")
		q := New(o)
		now, next := began, uint64(0)
		at := map[uint64]string{} // the requests at backends
		arrived, refused, unreachable := map[uint64]time.Time{}, map[uint64]bool{}, map[uint64]bool{}
		var order []uint64
		take := func(verdicts []Verdict) {
			for _, v := range verdicts {
				if at[v.Request] != "" || refused[v.Request] {
					t.Fatalf("request %d has two verdicts", v.Request)
				}
				if !unreachable[v.Request] {
					order = append(order, v.Request)
				}
				if v.Backend == "" {
					refused[v.Request] = true
				} else {
					at[v.Request] = v.Backend
				}
			}
		}
		var checks []string
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0:
				n := rapid.IntRange(0, 3).Draw(t, "backends")
				take(q.SetBackends(now, []string{"a", "b", "c"}[:n]))
			case 1, 2:
				arrived[next] = now
				take(q.Arrive(now, next))
				next++
			case 3, 4:
				if len(at) == 0 {
					break
				}
				request := rapid.SampledFrom(slices.Sorted(maps.Keys(at))).Draw(t, "request")
				backend := at[request]
				delete(at, request)
				if outcome := rapid.IntRange(0, 4).Draw(t, "outcome"); outcome < 4 {
					refused[request] = true
					take(q.Done(now, backend, time.Second, Outcome(outcome)))
				} else {
					unreachable[request] = true
					take(q.Unreachable(now, backend, request, arrived[request]))
				}
			case 5:
				take(q.Tick(now))
			case 6:
				if len(checks) > 0 {
					take(q.Connected(now, checks[0], now, rapid.Bool().Draw(t, "connected")))
					checks = checks[1:]
				}
			}
			checks = append(checks, q.Checks(now)...)
			if q.Depth() > usual.QueueMax {
				t.Fatalf("%d wait", q.Depth())
			}
			inFlight := map[string]int{}
			for _, backend := range at {
				inFlight[backend]++
			}
			for _, b := range q.Backends(began) {
				if b.InFlight != inFlight[b.Address] {
					t.Fatalf("%s has %d in flight, want %d", b.Address, b.InFlight, inFlight[b.Address])
				}
			}
		}
		if !slices.IsSorted(order) {
			t.Fatalf("requests left the queue in the order %v", order)
		}
		now = now.Add(usual.QueueTimeout)
		take(q.Tick(now))
		if q.Depth() > 0 {
			t.Fatalf("%d wait after the longest time", q.Depth())
		}
	})
}

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
