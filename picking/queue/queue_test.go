package queue

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"steelyard/picking"
	"steelyard/weighting"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func after(d time.Duration) time.Time { return start.Add(d) }

// endpoints are idle, with names a, b, ….
func endpoints(inFlight ...float64) (out []Endpoint) {
	for i, n := range inFlight {
		out = append(out, Endpoint{InFlight: n, Endpoint: picking.Endpoint{Address: string(rune('a' + i)),
			Vessel: weighting.Vessel{Slots: 1, Speed: 1}}})
	}
	return out
}

var one = Class{Name: "all", Weight: 1, MaxWaiting: 100, MaxWait: time.Minute}

// queued has these classes, and endpoints with one place each.
func queued(e []Endpoint, classes ...Class) *Queue {
	q := New(time.Time{}, func() float64 { return 0 })
	q.SetOptions(start, &Options{Classes: classes, MaxInFlight: 1})
	q.Update(start, e, 0, picking.Requests())
	return q
}

func id(n uint64) ID { return ID{Stream: 1, Request: n} }

func request(n uint64, class, tenant string, since time.Duration) Request {
	return Request{ID: id(n), Class: class, Tenant: tenant, Size: -1, Since: after(since)}
}

// text is verdicts for comparison: request:endpoint, request:-refusal, or request:released.
func text(verdicts []Verdict) (out []string) {
	for _, v := range verdicts {
		what := v.Endpoint
		switch {
		case v.Refused != "":
			what = "-" + string(v.Refused)
		case what == "":
			what = "released"
		}
		out = append(out, fmt.Sprintf("%d:%s", v.ID.Request, what))
	}
	return out
}

func want(t *testing.T, what string, got []Verdict, expected ...string) {
	t.Helper()
	if !slices.Equal(text(got), expected) {
		t.Errorf("%s: %v, want %v", what, text(got), expected)
	}
}

// end returns the verdicts of an end.
func end(q *Queue, at time.Duration, n uint64) []Verdict {
	verdicts, _, _ := q.End(after(at), id(n))
	return verdicts
}

func TestARequestWaitsUntilAnEndpointHasAPlace(t *testing.T) {
	q := queued(endpoints(0, 0), one)
	first := q.Arrive(start, request(1, "all", "", 0))
	second := q.Arrive(start, request(2, "all", "", 0))
	if len(first) != 1 || len(second) != 1 || first[0].Endpoint == second[0].Endpoint {
		t.Fatalf("two requests went to %v and %v, want an endpoint each", text(first), text(second))
	}
	want(t, "without a place", q.Arrive(start, request(3, "all", "", 0)))
	verdicts := end(q, 2*time.Second, 1)
	want(t, "after an end", verdicts, "3:"+first[0].Endpoint)
	if v := verdicts[0]; v.Waited != 2*time.Second || v.Class != "all" {
		t.Errorf("the verdict is %+v, want 2 s in class all", v)
	}
	if got := q.Held(); got != 2 {
		t.Errorf("%d places are held, want 2", got)
	}
}

// A load that its reports claim, and that is none, must not keep the request away that would show it.
func TestAnEndpointWithAFixedShareHasAPlaceWhateverOthersHaveThere(t *testing.T) {
	for name, c := range map[string]struct {
		ends bool
		want float64 // at the first, of 10,000
	}{"requests end at once": {true, 100}, "none of the first ends": {false, 1}} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			q := New(time.Time{}, random.Float64)
			q.SetOptions(start, &Options{Classes: []Class{one}, MaxInFlight: 8})
			e := endpoints(44, 0)
			e[0].Share, e[0].Load = 0.01, 1e6 // the law fills up those that get a fixed share
			got := 0.0
			for n := range uint64(10_000) {
				now := after(time.Duration(n) * time.Millisecond)
				if n%100 == 0 {
					q.Update(now, e, 0, picking.Requests())
				}
				v := q.Arrive(now, request(n, "all", "", 0))
				if len(v) != 1 {
					t.Fatalf("request %d: %v, want a place", n, text(v))
				}
				if v[0].Endpoint == "a" {
					got++
				}
				if c.ends || v[0].Endpoint == "b" {
					q.End(now, id(n))
				}
			}
			if math.Abs(got-c.want) > c.want/3 {
				t.Errorf("%v requests, want about %v", got, c.want)
			}
		})
	}
}

func TestTheOrderOfArrivalIsThatAtTheProxies(t *testing.T) {
	q := queued(endpoints(0), one)
	q.Arrive(start, request(1, "all", "", 0))
	q.Arrive(after(30*time.Millisecond), request(2, "all", "", 20*time.Millisecond))
	q.Arrive(after(31*time.Millisecond), request(3, "all", "", 10*time.Millisecond)) // by a slower stream
	want(t, "the older one", end(q, time.Second, 1), "3:a")
	want(t, "the younger one", end(q, time.Second, 3), "2:a")
}

func TestARequestFromTheFutureIsFromNow(t *testing.T) {
	q := queued(endpoints(0), one)
	q.Arrive(start, request(1, "all", "", 0))
	q.Arrive(start, request(2, "all", "", time.Hour))
	q.Arrive(after(time.Second), request(3, "all", "", time.Second))
	want(t, "the first that came", end(q, time.Second, 1), "2:a")
}

func TestTenantsTakeTurnsInTheirClass(t *testing.T) {
	q := queued(endpoints(0), one)
	q.Arrive(start, request(1, "all", "x", 0))
	for i, tenant := range []string{"x", "x", "x", "y", "z", "y"} {
		q.Arrive(start, request(uint64(2+i), "all", tenant, 0))
	}
	var order []string
	for n, i := uint64(1), 0; i < 6; i++ {
		verdicts := end(q, time.Second, n)
		n = verdicts[0].ID.Request
		order = append(order, text(verdicts)...)
	}
	if expected := []string{"2:a", "5:a", "6:a", "3:a", "7:a", "4:a"}; !slices.Equal(order, expected) {
		t.Errorf("the order is %v, want %v", order, expected)
	}
}

func TestAStrictClassIsBeforeAllOthers(t *testing.T) {
	urgent := Class{Name: "urgent", Weight: 1, Strict: true, MaxWaiting: 10, MaxWait: time.Minute}
	q := queued(endpoints(0), one, urgent)
	q.Arrive(start, request(1, "all", "", 0))
	q.Arrive(start, request(2, "all", "", 0))
	q.Arrive(start, request(3, "urgent", "", 0))
	q.Arrive(start, request(4, "urgent", "", 0))
	want(t, "the first", end(q, 0, 1), "3:a")
	want(t, "the second", end(q, 0, 3), "4:a")
	want(t, "the third", end(q, 0, 4), "2:a")
}

// sent returns the classes of the next requests that are sent, as each frees the place that the one before had.
func sent(t *testing.T, q *Queue, first uint64, requests int) (classes []string, last uint64) {
	t.Helper()
	for range requests {
		verdicts := end(q, 0, first)
		if len(verdicts) != 1 {
			t.Fatalf("after %v the verdicts are %v", classes, text(verdicts))
		}
		classes, first = append(classes, verdicts[0].Class), verdicts[0].ID.Request
	}
	return classes, first
}

// TestAClassThatComesBackHasItsShareAndNoMore: what it did not use is not saved up, and what strict classes were sent
// is not held against it.
func TestAClassThatComesBackHasItsShareAndNoMore(t *testing.T) {
	class := func(name string, strict bool) Class {
		return Class{Name: name, Weight: 1, Strict: strict, MaxWaiting: 100, MaxWait: time.Minute}
	}
	for _, before := range []string{"a", "urgent"} {
		q := queued(endpoints(0), class("a", false), class("b", false), class("urgent", true))
		n := uint64(0)
		add := func(name string, requests int) {
			for range requests {
				n++
				q.Arrive(start, request(n, name, "", 0))
			}
		}
		add(before, 21)
		if before != "a" {
			add("a", 1) // waits throughout
		}
		_, last := sent(t, q, 1, 20)
		add("a", 20)
		add("b", 20)
		got, _ := sent(t, q, last, 10)
		if of := len(slices.DeleteFunc(slices.Clone(got), func(c string) bool { return c != "b" })); of < 4 || of > 6 {
			t.Errorf("after 20 of class %s, those of a and b are sent as %v", before, got)
		}
	}
}

// TestAClassWithOneRequestAtATimeHasItsShareAndNoMore after another had all places for long.
func TestAClassWithOneRequestAtATimeHasItsShareAndNoMore(t *testing.T) {
	q := queued(endpoints(0), Class{Name: "single", Weight: 1, MaxWaiting: 9, MaxWait: time.Minute},
		Class{Name: "many", Weight: 1, MaxWaiting: 99, MaxWait: time.Minute})
	for n := range uint64(50) {
		q.Arrive(start, request(1+n, "many", "", 0))
	}
	_, last := sent(t, q, 1, 20)
	singles := 0
	for n := range uint64(10) {
		if q.Classes()[0].Waiting == 0 {
			q.Arrive(start, request(100+n, "single", "", 0))
		}
		var got []string
		got, last = sent(t, q, last, 1)
		if got[0] == "single" {
			singles++
		}
	}
	if singles < 4 || singles > 6 {
		t.Errorf("%d of 10 are of the class with one request at a time, want half", singles)
	}
}

func TestAnUnknownClassIsTheLast(t *testing.T) {
	q := queued(endpoints(0), one, Class{Name: "rest", Weight: 1, MaxWaiting: 1, MaxWait: time.Minute})
	q.Arrive(start, request(1, "all", "", 0))
	q.Arrive(start, request(2, "alll", "", 0))
	if got := q.Classes(); got[0].Waiting != 0 || got[1].Waiting != 1 || !got[1].Oldest.Equal(start) ||
		got[1].Tenants != 1 {
		t.Errorf("the classes are %+v, want one request in the last", got)
	}
}

func TestAFullClassRefusesTheLatestOfItsLargestTenant(t *testing.T) {
	small := Class{Name: "small", Weight: 1, MaxWaiting: 3, MaxWait: time.Minute}
	q := queued(endpoints(0), small)
	q.Arrive(start, request(1, "", "flood", 0))
	for n := range uint64(3) {
		want(t, "there is room", q.Arrive(start, request(2+n, "", "flood", 0)))
	}
	verdicts := q.Arrive(after(2500*time.Millisecond), request(5, "", "modest", 2500*time.Millisecond))
	want(t, "no room", verdicts, "4:-full")
	if got := verdicts[0].RetryAfter; got != 3*time.Second {
		t.Errorf("a client may try again after %v, want 3 s", got)
	}
	verdicts = q.Arrive(after(2600*time.Millisecond), request(6, "", "flood", 2600*time.Millisecond))
	want(t, "the flood itself", verdicts, "6:-full")
}

func TestOfTenantsWithAsManyRequestsTheLatestIsRefused(t *testing.T) {
	for _, tenants := range [][]string{{"x", "x", "y", "y"}, {"y", "x", "x", "y"}} {
		q := queued(endpoints(0), Class{Name: "small", Weight: 1, MaxWaiting: 3, MaxWait: time.Minute})
		q.Arrive(start, request(1, "", "x", 0))
		var verdicts []Verdict
		for n, tenant := range tenants {
			at := time.Duration(n) * time.Second
			verdicts = q.Arrive(after(at), request(uint64(2+n), "", tenant, at))
		}
		want(t, fmt.Sprint("of ", tenants), verdicts, "5:-full")
	}
}

func TestAClassWithoutAQueueRefusesAtOnce(t *testing.T) {
	q := queued(endpoints(0), Class{Name: "none", Weight: 1})
	want(t, "with a place", q.Arrive(start, request(1, "", "", 0)), "1:a")
	verdicts := q.Arrive(start, request(2, "", "", 0))
	if len(verdicts) != 1 || verdicts[0].Refused == "" || verdicts[0].RetryAfter != time.Second {
		t.Errorf("without a place: %+v, want a refusal for a second", verdicts)
	}
}

func TestNoRequestWaitsLongerThanItsClassAllows(t *testing.T) {
	q := queued(endpoints(0), Class{Name: "c", Weight: 1, MaxWaiting: 9, MaxWait: 3 * time.Second})
	q.Arrive(start, request(1, "", "", 0))
	q.Arrive(start, request(2, "", "", 0))
	q.Arrive(after(time.Second), request(3, "", "", time.Second))
	q.Update(after(2*time.Second), endpoints(1), 0, picking.Requests())
	want(t, "too early", q.Tick(after(3*time.Second-1)))
	want(t, "in time", q.Tick(after(3*time.Second)), "2:-timeout")
}

func TestAClientThatLeavesLeavesNoTrace(t *testing.T) {
	q := queued(endpoints(0), one)
	for n := range uint64(3) {
		q.Arrive(start, request(1+n, "", "", 0))
	}
	if verdicts, class, left := q.End(start, id(2)); !left || class != "all" || len(verdicts) != 0 {
		t.Errorf("it left %v the class %q with %v", left, class, text(verdicts))
	}
	want(t, "an end that was not expected", end(q, 0, 2))
	want(t, "the next", end(q, 0, 1), "3:a")
}

func TestABrokenStreamFreesItsPlacesAfterTheGrace(t *testing.T) {
	q := queued(endpoints(0), one)
	q.Arrive(start, request(1, "", "", 0))
	q.Arrive(start, request(2, "", "", 0))
	q.Arrive(start, Request{ID: ID{Stream: 2, Request: 2}, Since: start})
	want(t, "its request may go on", q.Gone(start, 1))
	if got := q.Classes()[0].Waiting; got != 1 || q.Held() != 0 {
		t.Errorf("%d wait and %d places are held, want 1 and 0", got, q.Held())
	}
	want(t, "within the grace", q.Tick(after(Grace-1)))
	want(t, "the one of the other stream", q.Tick(after(Grace)), "2:a")
}

func TestARequestThatGoesOnWithoutItsStreamKeepsItsPlace(t *testing.T) {
	q := queued(endpoints(0), one)
	q.Arrive(start, request(1, "", "", 0))
	q.Gone(start, 1)
	q.Arrive(start, Request{ID: ID{Stream: 2, Request: 2}, Since: start})
	for at := time.Duration(0); at < 3*Grace; at += Grace / 4 {
		want(t, "the report has it", q.Update(after(at), endpoints(1), 0, picking.Requests()))
	}
	want(t, "the report has it no more", q.Update(after(3*Grace), endpoints(0), 0, picking.Requests()), "2:a")
}

func TestARequestThatANewStreamNamesHasOnePlace(t *testing.T) {
	q := queued(endpoints(0), one)
	q.Arrive(start, request(1, "", "", 0))
	q.Gone(start, 1)
	q.Hold(ID{Stream: 2, Request: 1}, "a")
	q.Arrive(start, Request{ID: ID{Stream: 2, Request: 2}, Since: start})
	verdicts, _, _ := q.End(after(time.Millisecond), ID{Stream: 2, Request: 1})
	want(t, "its place is free with its end", verdicts, "2:a")
	q.Arrive(after(time.Millisecond), Request{ID: ID{Stream: 2, Request: 3}, Since: start})
	want(t, "and is not freed again after the grace", q.Tick(after(2*Grace)))
}

func TestNothingIsGrantedBeforeTheQueueOpens(t *testing.T) {
	q := New(start.Add(Grace), func() float64 { return 0 })
	q.SetOptions(start, &Options{Classes: []Class{one}, MaxInFlight: 1})
	want(t, "nothing is known yet", q.Arrive(after(Grace/4), request(2, "", "", 20*time.Millisecond)))
	for at := Grace / 4; at < Grace; at += Grace / 4 {
		want(t, "not yet", q.Update(after(at), endpoints(0, 1, 0), 0, picking.Requests()))
	}
	q.Hold(ID{Stream: 2, Request: 5}, "a")
	q.Arrive(after(Grace/2), request(3, "", "", 30*time.Millisecond))
	q.Arrive(after(Grace/2), Request{ID: ID{Stream: 2, Request: 1}, Since: after(10 * time.Millisecond)})
	want(t, "in the order of arrival, where nothing is known to run", q.Update(after(Grace), endpoints(1, 1, 0), 0,
		picking.Requests()), "1:c")
}

func TestNothingIsRefusedBeforeTheQueueOpens(t *testing.T) {
	q := New(start.Add(Grace), func() float64 { return 0 })
	short := Class{Name: "short", Weight: 1, MaxWaiting: 0, MaxWait: time.Millisecond}
	q.SetOptions(start, &Options{Classes: []Class{short}, MaxInFlight: 1})
	q.Update(start, endpoints(0), 0, picking.Requests())
	want(t, "the first", q.Arrive(start, request(1, "", "", 0)))
	want(t, "the second", q.Arrive(start, request(2, "", "", 0)))
	want(t, "both wait", q.Tick(after(Grace-1)))
	want(t, "one has the place, the other none", q.Tick(after(Grace)), "1:a", "2:-timeout")
}

func TestRequestsThatTheQueueDidNotSendTakePlaces(t *testing.T) {
	q := queued(endpoints(1, math.NaN()), one)
	want(t, "where nothing is reported", q.Arrive(start, request(1, "", "", 0)), "1:b")
	want(t, "no place", q.Arrive(start, request(2, "", "", 0)))
	want(t, "the other request ended", q.Update(after(time.Millisecond), endpoints(0, 1), 0, picking.Requests()), "2:a")
}

func TestAReportWithoutTheNumberInFlightFreesNoPlace(t *testing.T) {
	q := queued(endpoints(1), one)
	want(t, "taken by another request", q.Arrive(start, request(1, "", "", 0)))
	want(t, "nothing is reported", q.Update(after(time.Millisecond), endpoints(math.NaN()), 0, picking.Requests()))
	want(t, "it has ended", q.Update(after(2*time.Millisecond), endpoints(0), 0, picking.Requests()), "1:a")
}

func TestALostPlaceThatWasFoundTakesNoOther(t *testing.T) {
	q := queued(endpoints(0), one)
	q.Arrive(start, request(1, "", "", 0))
	q.Gone(start, 1)
	q.Hold(ID{Stream: 2, Request: 1}, "a")
	q.End(after(Grace-1), ID{Stream: 2, Request: 1})
	q.Update(after(Grace-1), endpoints(1), 0, picking.Requests()) // it is late, and has the request still
	q.Tick(after(Grace))
	want(t, "the place is free", q.Arrive(after(Grace), request(2, "", "", Grace)), "2:a")
}

func TestAReportThatIsLateTakesNoPlace(t *testing.T) {
	q := queued(endpoints(0), one)
	for n := range uint64(20) { // the report has the request that ended just before
		at := time.Duration(n) * 250 * time.Millisecond
		want(t, "granted at once", q.Arrive(after(at), request(n, "", "", at)), fmt.Sprintf("%d:a", n))
		q.Update(after(at+1), endpoints(1), 0, picking.Requests())
		end(q, at+2, n)
		q.Update(after(at+3), endpoints(1), 0, picking.Requests())
		q.Update(after(at+4), endpoints(0), 0, picking.Requests())
	}
	for i := range 12 { // one that stays is found within two seconds
		q.Update(after(time.Duration(20+i)*250*time.Millisecond), endpoints(1), 0, picking.Requests())
	}
	want(t, "taken by another request", q.Arrive(after(8*time.Second), request(99, "", "", 0)))
}

func TestWithoutAMaximumAnEndpointHasAPlaceForEachSlot(t *testing.T) {
	q := New(time.Time{}, func() float64 { return 0 })
	q.SetOptions(start, &Options{Classes: []Class{one}})
	e := endpoints(0)
	e[0].AtOnce = 2.5
	q.Update(start, e, 0, picking.Requests())
	want(t, "the first", q.Arrive(start, request(1, "", "", 0)), "1:a")
	want(t, "the second", q.Arrive(start, request(2, "", "", 0)), "2:a")
	want(t, "no slot", q.Arrive(start, request(3, "", "", 0)))
	e[0].AtOnce = math.NaN()
	want(t, "the slots are not known", q.Update(start, e, 0, picking.Requests()), "3:a")
	e[0].AtOnce = 0.2
	want(t, "fewer slots", q.Update(start, e, 0, picking.Requests()))
	want(t, "no slot again", q.Arrive(start, request(4, "", "", 0)))
	for n := range uint64(2) {
		want(t, "still too many", end(q, 0, 1+n))
	}
	want(t, "one at least", end(q, 0, 3), "4:a")
}

func TestPlacesThatAreHeldAlreadyCount(t *testing.T) {
	q := New(time.Time{}, rand.Float64)
	q.SetOptions(start, &Options{Classes: []Class{one}, MaxInFlight: 1})
	q.Hold(id(7), "a")
	q.Update(start, endpoints(1), 0, picking.Requests())
	want(t, "the place is held", q.Arrive(start, request(8, "", "", 0)))
	want(t, "until it ends", end(q, time.Millisecond, 7), "8:a")
}

func TestFlaggedEndpointsGetNothingUnlessAllAre(t *testing.T) {
	e := endpoints(0, 0)
	e[0].Avoid = picking.AvoidFlagged
	q := queued(e, one)
	want(t, "the other one", q.Arrive(start, request(1, "", "", 0)), "1:b")
	want(t, "it is full", q.Arrive(start, request(2, "", "", 0)))
	e[1].Avoid = picking.AvoidFlagged
	want(t, "all are flagged", q.Update(start, e, 0, picking.Requests()), "2:a")
}

func TestADrainedEndpointGetsNothingWhereAllOthersAreFlagged(t *testing.T) {
	e := endpoints(0, 0, 0)
	e[0].Avoid, e[1].Avoid, e[2].Avoid = picking.AvoidDrained, picking.AvoidFlagged, picking.AvoidFlagged
	q := queued(e, one)
	want(t, "another, though flagged", q.Arrive(start, request(1, "", "", 0)), "1:b")
	want(t, "the last, though flagged", q.Arrive(start, request(2, "", "", 0)), "2:c")
	want(t, "they are full", q.Arrive(start, request(3, "", "", 0)))
	e[1].Avoid, e[2].Avoid = picking.AvoidDrained, picking.AvoidDrained
	want(t, "all are drained", q.Update(start, e, 0, picking.Requests()), "3:a")
}

func TestWithoutLoadsRequestsAreReleasedInOrder(t *testing.T) {
	q := New(time.Time{}, rand.Float64)
	want(t, "switched off", q.Arrive(start, request(1, "", "", 0)), "1:released")
	q.SetOptions(start, &Options{Classes: []Class{one}, MaxInFlight: 1})
	want(t, "no endpoints yet", q.Arrive(start, request(2, "", "", 0)), "2:released")
	q.Update(start, endpoints(1), 0, picking.Requests())
	q.Arrive(start, request(3, "", "", 0))
	q.Arrive(start, request(4, "", "", 0))
	want(t, "still in use", q.Tick(after(picking.Stale)))
	want(t, "too old", q.Tick(after(picking.Stale+1)), "3:released", "4:released")
}

func TestChangedOptionsKeepTheOrder(t *testing.T) {
	q := queued(endpoints(1), one)
	q.Arrive(start, request(1, "", "", 0))
	q.Arrive(after(time.Second), request(2, "", "", time.Second))
	two := Options{Classes: []Class{{Name: "new", Weight: 1, MaxWaiting: 5, MaxWait: time.Hour}}, MaxInFlight: 2}
	want(t, "more places", q.SetOptions(after(2*time.Second), &two), "1:a")
	want(t, "switched off", q.SetOptions(after(2*time.Second), nil), "2:released")
	if q.On() || q.Classes() != nil {
		t.Error("the queue is on")
	}
}

func TestARequestBelongsToTheClassThatItNamedOnceThereIsOne(t *testing.T) {
	urgent := Class{Name: "urgent", Weight: 1, Strict: true, MaxWaiting: 100, MaxWait: time.Minute}
	q := queued(endpoints(0), one)
	want(t, "the only place", q.Arrive(start, request(1, "", "", 0)), "1:a")
	q.Arrive(start, request(2, "", "", 0))
	q.Arrive(after(time.Second), request(3, "urgent", "", time.Second))
	q.Arrive(after(time.Second), request(4, "urgent", "", time.Second))
	q.SetOptions(after(time.Second), &Options{Classes: []Class{urgent, one}, MaxInFlight: 1})
	for _, c := range q.Classes() {
		if got, wanted := c.Waiting, map[string]int{"urgent": 2, "all": 1}[c.Name]; got != wanted {
			t.Errorf("%d requests wait in class %s, want %d", got, c.Name, wanted)
		}
	}
	want(t, "the strict class first", end(q, 2*time.Second, 1), "3:a")
	q.SetOptions(after(2*time.Second), &Options{Classes: []Class{one}, MaxInFlight: 1})
	if _, class, left := q.End(after(2*time.Second), id(4)); !left || class != "all" {
		t.Errorf("left class %q, %t, want all, as its own has gone", class, left)
	}
	want(t, "the order of arrival", end(q, 2*time.Second, 3), "2:a")
}

// atTwiceTheLoad has each class send as much as all endpoints can serve, and counts what is granted.
func atTwiceTheLoad(classes []Class, tenants int, seed uint64) (granted map[string]int, byTenant map[string]int) {
	random := rand.New(rand.NewPCG(seed, 1))
	q := New(time.Time{}, random.Float64)
	q.SetOptions(start, &Options{Classes: classes, MaxInFlight: 1})
	q.Update(start, endpoints(make([]float64, 4)...), 0, picking.Requests())
	granted, byTenant = make(map[string]int), make(map[string]int)
	tenantOf := make(map[ID]string)
	var busy []ID
	note := func(verdicts []Verdict) {
		for _, v := range verdicts {
			if v.Endpoint != "" {
				granted[v.Class]++
				byTenant[tenantOf[v.ID]]++
				busy = append(busy, v.ID)
			}
		}
	}
	next := uint64(0)
	for step := range 1200 {
		now := after(time.Duration(step) * time.Millisecond)
		q.Update(now, endpoints(math.NaN(), math.NaN(), math.NaN(), math.NaN()), 0, picking.Requests())
		for range 2 {
			next++
			c := classes[random.IntN(len(classes))]
			r := Request{ID: id(next), Class: c.Name, Tenant: fmt.Sprint(c.Name, random.IntN(tenants)), Since: now}
			tenantOf[r.ID] = r.Tenant
			note(q.Arrive(now, r))
		}
		if len(busy) > 0 {
			i := random.IntN(len(busy))
			ended := busy[i]
			busy = slices.Delete(busy, i, i+1)
			verdicts, _, _ := q.End(now, ended)
			note(verdicts)
		}
	}
	return granted, byTenant
}

func TestSharesAreTheWeightsAtTwiceTheLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Weights up to 1 : 1.5, so that both classes send more than their share.
		weight := rapid.Float64Range(1, 1.5).Draw(t, "weight")
		bounds := Class{MaxWaiting: 50, MaxWait: time.Hour}
		a, b := bounds, bounds
		a.Name, a.Weight, b.Name, b.Weight = "a", 1, "b", weight
		granted, byTenant := atTwiceTheLoad([]Class{a, b}, 3, rapid.Uint64().Draw(t, "seed"))
		all := float64(granted["a"] + granted["b"])
		if share, wanted := float64(granted["b"])/all, weight/(1+weight); math.Abs(share-wanted) > 0.05*wanted {
			t.Fatalf("the share is %.3f, want %.3f", share, wanted)
		}
		for tenant, n := range byTenant {
			mean := float64(granted[tenant[:1]]) / 3
			if math.Abs(float64(n)-mean) > 0.1*mean {
				t.Fatalf("tenant %s was granted %d, want about %.0f", tenant, n, mean)
			}
		}
	})
}

func TestNoClassStarvesHoweverSmallItsWeight(t *testing.T) {
	bounds := Class{MaxWaiting: 1000, MaxWait: time.Hour}
	small, large := bounds, bounds
	small.Name, small.Weight, large.Name, large.Weight = "small", 0.01, "large", 1
	granted, _ := atTwiceTheLoad([]Class{small, large}, 1, 1)
	if n := granted["small"]; n < 9 {
		t.Errorf("the small class was granted %d of %d", n, n+granted["large"])
	}
}

// TestAMillionRequestsLeaveNothing, with streams that break, endpoints that come and go, and other options.
func TestAMillionRequestsLeaveNothing(t *testing.T) {
	const requests, streams = 1_000_000, 8
	small := Class{Name: "small", Weight: 1, MaxWaiting: 20, MaxWait: 2 * time.Millisecond}
	random := rand.New(rand.NewPCG(5, 6))
	q := New(time.Time{}, random.Float64)
	q.SetOptions(start, &Options{Classes: []Class{small}, MaxInFlight: 3})
	open := make([][]uint64, streams) // requests without an end, by stream
	now := start
	verdicts := make(map[Refusal]int)
	note := func(all []Verdict) {
		for _, v := range all {
			verdicts[v.Refused]++
		}
	}
	for n := range uint64(requests) {
		now = now.Add(50 * time.Microsecond)
		at := random.IntN(streams)
		note(q.Arrive(now, Request{ID: ID{uint64(at), n}, Tenant: string('a' + rune(n%5)), Size: -1, Since: now}))
		open[at] = append(open[at], n)
		for other := random.IntN(streams); len(open[other]) > 4; {
			i := random.IntN(len(open[other]))
			ended, _, _ := q.End(now, ID{uint64(other), open[other][i]})
			note(ended)
			open[other] = slices.Delete(open[other], i, i+1)
		}
		switch n % 5000 {
		case 1000:
			note(q.Gone(now, uint64(at)))
			open[at] = nil
		case 2000:
			note(q.SetOptions(now, &Options{Classes: []Class{small}, MaxInFlight: 1 + random.IntN(4)}))
		}
		if n%500 == 0 {
			note(q.Update(now, endpoints(make([]float64, 1+random.IntN(6))...), 0, picking.Requests()))
		}
	}
	for at, numbers := range open {
		for _, n := range numbers {
			ended, _, _ := q.End(now, ID{uint64(at), n})
			note(ended)
		}
		note(q.Gone(now, uint64(at)))
	}
	q.Tick(now.Add(Grace))
	q.Update(now.Add(Grace), nil, 0, picking.Requests())
	if q.Held() != 0 || q.Classes()[0].Waiting != 0 || len(q.places.by) != 0 || len(q.line.byID) != 0 ||
		len(q.line.classes[0].tenants) != 0 {
		t.Errorf("%d places are held at %d endpoints, %d requests wait of %d tenants", q.Held(), len(q.places.by),
			q.Classes()[0].Waiting, len(q.line.classes[0].tenants))
	}
	t.Logf("verdicts by refusal: %v", verdicts)
	if verdicts[""] < requests/10 || verdicts[RefusedFull] == 0 ||
		verdicts[RefusedTimeout] == 0 {
		t.Errorf("the verdicts are %v, want many of each kind", verdicts)
	}
}

// TestWhateverHappensEachRequestHasOneVerdict is the conservation law, with the bounds and the order.
func TestWhateverHappensEachRequestHasOneVerdict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		classes := []Class{{Name: "a", Weight: 3, MaxWaiting: 4, MaxWait: 9 * time.Second},
			{Name: "b", Weight: 1, MaxWaiting: 3, MaxWait: 4 * time.Second}}
		const places = 2
		q := New(time.Time{}, rand.New(rand.NewPCG(1, 2)).Float64)
		options := &Options{Classes: classes, MaxInFlight: places}
		q.SetOptions(start, options)
		m := model{open: make(map[ID]Request), held: make(map[ID]string), latest: make(map[string]time.Time)}
		now := start
		for i := range rapid.IntRange(1, 80).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 900).Draw(t, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0, 1, 2, 3:
				r := Request{ID: ID{uint64(rapid.IntRange(1, 2).Draw(t, "stream")), uint64(i)}, Since: now,
					Class: rapid.SampledFrom([]string{"a", "b", "?"}).Draw(t, "class"), Size: -1,
					Tenant: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "tenant"), Cached: somewhere(t)}
				m.open[r.ID] = r
				m.note(t, q.Arrive(now, r))
			case 4, 5:
				m.end(t, q, now)
			case 6:
				m.note(t, q.Tick(now))
			case 7, 8:
				m.note(t, q.Update(now, endpoints(make([]float64, rapid.IntRange(1, 3).Draw(t, "n"))...), 0,
					picking.Requests()))
			case 9:
				stream := uint64(rapid.IntRange(1, 2).Draw(t, "broken"))
				m.gone(stream)
				m.note(t, q.Gone(now, stream))
			}
			m.check(t, q, now, places)
		}
	})
}

// model is what a queue must agree with.
type model struct {
	open   map[ID]Request // without a verdict
	held   map[ID]string
	latest map[string]time.Time // arrival of the latest that was granted, by class and tenant
}

func (m *model) note(t *rapid.T, verdicts []Verdict) {
	for _, v := range verdicts {
		r, open := m.open[v.ID]
		if !open {
			t.Fatalf("a verdict for a request that does not wait: %+v", v)
		}
		delete(m.open, v.ID)
		if v.Endpoint == "" {
			continue
		}
		m.held[v.ID] = v.Endpoint
		key := v.Class + r.Tenant
		if r.Since.Before(m.latest[key]) {
			t.Fatalf("request %+v was overtaken", r)
		}
		m.latest[key] = r.Since
	}
}

// end ends some request, in flight or waiting.
func (m *model) end(t *rapid.T, q *Queue, now time.Time) {
	ids := make([]ID, 0, len(m.held)+len(m.open))
	for id := range m.held {
		ids = append(ids, id)
	}
	for id := range m.open {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return
	}
	slices.SortFunc(ids, func(a, b ID) int { return int(a.Request) - int(b.Request) })
	ended := rapid.SampledFrom(ids).Draw(t, "ended")
	_, waits := m.open[ended]
	delete(m.open, ended)
	delete(m.held, ended)
	verdicts, _, left := q.End(now, ended)
	if left != waits {
		t.Fatalf("request %v left the queue: %v, want %v", ended, left, waits)
	}
	m.note(t, verdicts)
}

func (m *model) gone(stream uint64) {
	for id := range m.open {
		if id.Stream == stream {
			delete(m.open, id)
		}
	}
	for id := range m.held {
		if id.Stream == stream {
			delete(m.held, id)
		}
	}
}

func (m *model) check(t *rapid.T, q *Queue, now time.Time, places int) {
	m.note(t, q.Tick(now))
	waits := 0
	for _, c := range q.Classes() {
		waits += c.Waiting
		if c.Waiting > 0 && now.Sub(c.Oldest) >= c.MaxWait {
			t.Fatalf("a request of class %s waits for %v", c.Name, now.Sub(c.Oldest))
		}
		if c.Waiting > c.MaxWaiting {
			t.Fatalf("%d wait in class %s, at most %d may", c.Waiting, c.Name, c.MaxWaiting)
		}
	}
	if waits != len(m.open) || q.Held() != len(m.held) {
		t.Fatalf("%d wait and %d are in flight, want %d and %d", waits, q.Held(), len(m.open), len(m.held))
	}
	at := make(map[string]int)
	for _, address := range m.held {
		if at[address]++; at[address] > places {
			t.Fatalf("%s has more than %d requests", address, places)
		}
	}
}

func TestAQueueThatForgetsBeginsWithWhatIsNamed(t *testing.T) {
	q := queued(endpoints(0, 0), one)
	q.Arrive(start, request(1, "all", "", 0))
	q.Arrive(start, request(2, "all", "", 0))
	q.Arrive(start, request(3, "all", "", 0))
	q.Forget(after(time.Second))
	if q.Held() != 0 || q.Classes()[0].Waiting != 0 || q.Classes()[0].Class != one {
		t.Fatalf("%d hold a place, and the classes are %+v", q.Held(), q.Classes())
	}
	q.Hold(id(1), "a")
	want(t, "before it opens", q.Arrive(start, request(3, "all", "", 0)))
	q.Update(after(time.Second/2), endpoints(1, 0), 0, picking.Requests())
	want(t, "once it opens", q.Tick(after(time.Second)), "3:b")
	want(t, "the place that was named ends", end(q, time.Second, 1))
}

func TestAClosedQueueGrantsAndRefusesNothing(t *testing.T) {
	q := queued(endpoints(0), one, Class{Name: "short", Weight: 1, MaxWaiting: 0, MaxWait: time.Second})
	q.Close(after(time.Second))
	want(t, "before", q.Arrive(start, request(1, "all", "", 0)), "1:a")
	want(t, "from then on", q.Arrive(after(time.Second), request(2, "short", "", time.Second)))
	want(t, "an end", end(q, time.Second, 1))
	q.Close(time.Time{})
	want(t, "open again", q.Tick(after(time.Second)), "2:a")
}
