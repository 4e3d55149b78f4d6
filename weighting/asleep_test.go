package weighting

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// sleepers is a pool of idle endpoints, each with a report of whether its engine is awake.
type sleepers struct {
	law   *Law
	now   time.Time
	awake []bool
	pages bool // whether their pages can still be read
	read  time.Time
	more  func(i int, e *Endpoint)
}

func newSleepers(n int) *sleepers {
	s := &sleepers{law: NewLaw(DefaultParams()), now: time.Unix(1e9, 0), awake: make([]bool, n), pages: true}
	for i := range s.awake {
		s.awake[i] = true
	}
	return s
}

// step goes on by a scrape interval.
func (s *sleepers) step() Decision {
	s.now = s.now.Add(250 * time.Millisecond)
	if s.pages {
		s.read = s.now
	}
	endpoints := make([]Endpoint, len(s.awake))
	for i := range endpoints {
		endpoints[i] = scraped(fmt.Sprint("e", i), 4, 0, 0, s.read)
		endpoints[i].Server.Awake = known(0, s.read)
		if s.awake[i] {
			endpoints[i].Server.Awake.Value = 1
		}
		if s.more != nil {
			s.more(i, &endpoints[i])
		}
	}
	return s.law.Step(s.now, Snapshot{Endpoints: endpoints, ScrapeInterval: 250 * time.Millisecond})
}

func (s *sleepers) steps(n int) (d Decision) {
	for range n {
		d = s.step()
	}
	return d
}

func TestAnEngineThatSleepsIsFlaggedAtOnceAndBackAtOnce(t *testing.T) {
	s := newSleepers(3)
	s.steps(40)
	for range 3 { // sooner than any dwell
		s.awake[0] = false
		e := of(t, s.step(), "e0")
		if !e.Overloaded || e.Failing || e.Reason != ReasonAsleep || !strings.HasPrefix(e.OverloadReason, "asleep") ||
			e.Share > 0.05 {
			t.Fatalf("asleep: %+v", e)
		}
		s.awake[0] = true
		d := s.step()
		if e = of(t, d, "e0"); e.Overloaded || e.Reason != ReasonFill || math.Abs(e.Share-1.0/3) > 0.01 {
			t.Fatalf("awake: %+v", e)
		}
	}
}

// The bound on flags is against signals that are wrong about most of a pool; this one is no measure of load.
func TestAllThatSleepAreFlaggedAsLongAsOneIsAwake(t *testing.T) {
	s := newSleepers(5)
	s.steps(4)
	copy(s.awake, make([]bool, 4))
	d := s.step()
	for i := range 5 {
		e := of(t, d, fmt.Sprint("e", i))
		if asleep := i < 4; e.Overloaded != asleep || (e.Reason == ReasonAsleep) != asleep {
			t.Errorf("endpoint %d: %+v", i, e)
		}
	}
	if share := of(t, d, "e4").Share; share < 0.8 {
		t.Errorf("the one that is awake gets %v", share)
	}
	if e := of(t, d.Neutral(), "e0"); !e.Overloaded || e.Share > 0.05 {
		t.Errorf("without a control plane: %+v", e)
	}
}

// Overloaded ones serve: a flag for that would make those that sleep as good as them.
func TestWhereAllThatAreAwakeAreOverloadedOnlyThoseThatSleepAreFlagged(t *testing.T) {
	s := newSleepers(4)
	s.awake[0], s.awake[1] = false, false
	s.more = func(i int, e *Endpoint) {
		if s.awake[i] {
			e.Server.Utilization = known(1, s.read)
		}
	}
	for range 40 {
		d := s.step()
		for i := range 4 {
			if e := of(t, d, fmt.Sprint("e", i)); e.Overloaded != (i < 2) {
				t.Fatalf("after %v, endpoint %d: %+v", s.now.Sub(time.Unix(1e9, 0)), i, e)
			}
		}
	}
}

func TestIfAllSleepTheyShareWhatComes(t *testing.T) {
	s := newSleepers(4)
	s.steps(4)
	copy(s.awake, make([]bool, 4))
	d := s.steps(20)
	for i := range 4 {
		e := of(t, d, fmt.Sprint("e", i))
		if !e.Overloaded || e.Reason != ReasonAsleep || math.Abs(e.Share-0.25) > 0.01 {
			t.Errorf("endpoint %d: %+v", i, e)
		}
	}
	s.awake[2] = true
	if e := of(t, s.step(), "e2"); e.Overloaded || e.Share < 0.8 {
		t.Errorf("the first that is awake: %+v", e)
	}
}

// An engine may have been woken since its page was last read.
func TestALateReportOfSleepIsNotTrusted(t *testing.T) {
	s := newSleepers(3)
	s.awake[0] = false
	s.steps(8)
	s.pages = false
	var flagged time.Duration
	for of(t, s.step(), "e0").Overloaded {
		if flagged = s.now.Sub(s.read); flagged > time.Minute {
			t.Fatal("asleep for ever")
		}
	}
	if hold := DefaultParams().Hold; flagged > hold || flagged < hold-time.Second {
		t.Errorf("flagged until the report was %v old, want %v", flagged, hold)
	}
}

// Requests that wait at an engine that was put to sleep are no stall: it is back at once here, too.
func TestRequestsThatASleepHoldsUpAreNoStall(t *testing.T) {
	s := newSleepers(3)
	done := [3]float64{}
	s.more = func(i int, e *Endpoint) {
		if s.awake[i] {
			done[i]++
		}
		e.InFlight, e.Exact = known(3, s.now), true
		e.Server.Running = known(3, s.read)
		e.Server.Completions = known(done[i], s.read)
		e.Proxies.Issued, e.Proxies.Ended = known(done[i]+3, s.now), known(done[i], s.now)
	}
	s.steps(60)
	s.awake[0] = false
	if e := of(t, s.steps(120), "e0"); !e.Overloaded || e.Failing || e.Reason != ReasonAsleep {
		t.Errorf("half a minute later: %+v", e)
	}
	s.awake[0] = true
	for range 8 {
		if e := of(t, s.step(), "e0"); e.Overloaded || e.Failing || e.Probed != "" || e.Share < 0.2 {
			t.Fatalf("awake: %+v", e)
		}
	}
}

func TestAPinIsNotInEffectWhileTheEngineSleeps(t *testing.T) {
	s := newSleepers(3)
	s.more = func(i int, e *Endpoint) {
		if i == 0 {
			e.Override.Share = 0.5
		}
	}
	s.steps(4)
	s.awake[0] = false
	if e := of(t, s.step(), "e0"); e.Override.Share != 0 || e.Share > 0.05 || !e.Overloaded {
		t.Errorf("asleep: %+v", e)
	}
	s.awake[0] = true
	if e := of(t, s.step(), "e0"); e.Override.Share != 0.5 || math.Abs(e.Share-0.5) > 1e-9 || e.Overloaded {
		t.Errorf("awake: %+v", e)
	}
}
