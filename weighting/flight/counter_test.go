package flight

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// proxy is what really happens at an endpoint: processes with their requests, and a counter of them.
type proxy struct {
	counter   Counter
	sums      Sums
	processes []*running
	inFlight  int32 // the sum of what the steps returned
	corrected int32
	begun     uint64 // really
	told      []bool // by process: reported in this round
	opened    int    // processes that are there, the first of the list
}

// running is one process.
type running struct {
	id     uint8
	open   int32 // requests in progress
	issued int32 // since the last report
	first  bool  // no report yet
}

func newProxy(processes int) *proxy {
	p := &proxy{told: make([]bool, processes), opened: 1}
	for i := range processes {
		p.processes = append(p.processes, &running{id: uint8(i), first: true})
	}
	p.take(p.counter.Switch(ByLog))
	return p
}

func (p *proxy) take(c Change) Change {
	p.inFlight += c.InFlight
	p.corrected += c.Corrected
	p.sums.Add(&c.Sums)
	return c
}

// joined is how many processes have reported.
func (p *proxy) joined() (n int) {
	for _, r := range p.processes {
		if !r.first {
			n++
		}
	}
	return n
}

func (p *proxy) begin(r *running, logged bool) {
	r.open++
	r.issued++
	p.begun++
	if logged {
		p.take(p.counter.Begin(Beginning{Size: Size{Bytes: 7, Known: true}, Reported: p.joined() > 0}))
	}
}

func (p *proxy) end(r *running, logged bool) {
	if r.open == 0 {
		return
	}
	r.open--
	if logged {
		p.take(p.counter.End(Open, Sums{Ended: 1}))
	}
}

// report sends what a process's report says.
func (p *proxy) report(r *running) Change {
	if p.joined() == 1 && p.opened > 1 {
		for _, other := range p.processes {
			if !other.first {
				p.counter.Share(other.id)
			}
		}
	}
	round := Round{Begins: !slices.Contains(p.told, true), Ends: true, First: r.first}
	p.told[r.id] = true
	for _, other := range p.processes {
		round.Ends = round.Ends && (other.first || p.told[other.id])
	}
	if round.Ends {
		clear(p.told)
	}
	report := &Report{
		InProgress: r.open, Issued: r.issued, Process: r.id, Processes: p.opened,
		Joins: r.first, First: r.first, Round: round, Due: true,
	}
	if r.first {
		report.Issued = 0
	}
	r.issued, r.first = 0, false
	return p.take(p.counter.Report(report))
}

// truth is what is in flight.
func (p *proxy) truth() (n int32) {
	for _, r := range p.processes {
		n += r.open
	}
	return n
}

func (p *proxy) mustBeTrue(t rapid.TB) {
	t.Helper()
	if got := p.counter.InFlight(); got != p.truth() || p.inFlight != got {
		t.Fatalf("%d in flight, %d by the changes, really %d: %+v", got, p.inFlight, p.truth(), p.counter)
	}
}

// TestNothingLostIsNothingCorrected: with any traffic of up to three processes that report at any time.
func TestNothingLostIsNothingCorrected(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newProxy(rapid.IntRange(1, 3).Draw(t, "processes"))
		process := func(t *rapid.T) *running {
			return p.processes[rapid.IntRange(0, p.opened-1).Draw(t, "process")]
		}
		several := rapid.IntRange(1, 20)
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				r := process(t)
				for range several.Draw(t, "requests") {
					p.begin(r, true)
				}
			},
			"end": func(t *rapid.T) {
				r := process(t)
				for range several.Draw(t, "requests") {
					p.end(r, true)
				}
			},
			"report":  func(t *rapid.T) { p.report(process(t)) },
			"another": func(*rapid.T) { p.opened = min(p.opened+1, len(p.processes)) },
			"": func(t *rapid.T) {
				p.mustBeTrue(t)
				if p.corrected != 0 || p.sums.Issued != p.begun || p.sums.Sized != p.sums.Issued ||
					p.sums.Bytes != 7*float64(p.begun) {
					t.Fatalf("%d corrected, %+v of %d begun", p.corrected, p.sums, p.begun)
				}
				if err := p.counter.check(ByLog, p.joined()); err != nil {
					t.Fatal(err)
				}
			},
		})
	})
}

// TestWhatIsLostIsCorrected: by three quiet rounds of reports, whatever was lost before. One process takes
// two.
func TestWhatIsLostIsCorrected(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newProxy(rapid.IntRange(1, 3).Draw(t, "processes"))
		rounds := 3
		if len(p.processes) == 1 {
			rounds = 2
		}
		p.opened = len(p.processes)
		for _, r := range p.processes {
			p.report(r)
		}
		which, logged := rapid.SampledFrom(p.processes), rapid.Bool()
		t.Repeat(map[string]func(*rapid.T){
			"begin":  func(t *rapid.T) { p.begin(which.Draw(t, "process"), logged.Draw(t, "logged")) },
			"end":    func(t *rapid.T) { p.end(which.Draw(t, "process"), logged.Draw(t, "logged")) },
			"report": func(t *rapid.T) { p.report(which.Draw(t, "process")) },
			"": func(t *rapid.T) {
				if err := p.counter.check(ByLog, len(p.processes)); err != nil {
					t.Fatal(err)
				}
				if p.sums.Sized > p.sums.Issued || p.sums.Bytes != 7*float64(p.sums.Sized) {
					t.Fatalf("%+v", p.sums)
				}
			},
		})
		clear(p.told)
		for range rounds {
			for _, r := range p.processes {
				p.report(r)
			}
		}
		p.mustBeTrue(t)
	})
}

// TestAnOldProcessThatIsQuietShowsWhatIsLost: even while the new one has all the traffic, and whichever
// lost it.
func TestAnOldProcessThatIsQuietShowsWhatIsLost(t *testing.T) {
	p := newProxy(2)
	p.opened = 2
	old, young := p.processes[0], p.processes[1]
	busy := func() { // as many requests as make any gauge stale at once
		for range 300 {
			p.begin(young, true)
		}
		for range 280 {
			p.end(young, true)
		}
	}
	for range 2 {
		p.report(old)
		busy()
		p.report(young)
		busy()
	}
	for range 5 {
		p.begin(young, false)
	}
	for range 4 {
		p.report(old)
		busy()
		p.report(young)
		busy()
	}
	p.mustBeTrue(t)
}

// TestWhatIsCorrectedStaysWhileOthersAreBusy: requests that began unseen, as before the log was opened, are
// counted until they end, also while no report can show how many they are.
func TestWhatIsCorrectedStaysWhileOthersAreBusy(t *testing.T) {
	p := newProxy(2)
	old, young := p.processes[0], p.processes[1]
	for range 50 {
		p.begin(old, false)
	}
	p.report(old)
	p.mustBeTrue(t)
	p.opened = 2
	for range 5 {
		for range 300 {
			p.begin(young, true)
			p.begin(old, true)
		}
		p.mustBeTrue(t)
		p.report(old)
		p.mustBeTrue(t)
		for range 280 {
			p.end(young, true)
			p.end(old, true)
		}
		p.report(young)
		p.mustBeTrue(t)
	}
	for range 20 {
		old.open-- // of those that began unseen
		p.take(p.counter.End(Unpaired, Sums{Ended: 1}))
	}
	p.report(old)
	p.report(young)
	p.mustBeTrue(t)
}

// TestTheSizeOfARequestIsNotAddedTwice: a request that only reports showed is Unsized, and the beginning
// that makes up for it adds neither.
func TestTheSizeOfARequestIsNotAddedTwice(t *testing.T) {
	p := newProxy(1)
	r := p.processes[0]
	p.report(r)
	p.begin(r, false)
	p.report(r)
	p.report(r)
	want := func(issued, sized uint64) {
		t.Helper()
		if p.sums.Issued != issued || p.sums.Sized != sized || p.sums.Bytes != 7*float64(sized) {
			t.Errorf("%+v, want %d issued and %d of them sized", p.sums, issued, sized)
		}
	}
	want(1, 0)
	late := Beginning{Size: Size{Bytes: 7, Known: true}, Reported: true}
	p.take(p.counter.Begin(late))
	want(2, 1)
	p.report(r)
	p.report(r)
	p.begin(r, true)
	want(2, 1)
	p.begin(r, true)
	want(3, 2)
}

// TestAProcessThatLeavesTakesItsGauge: and the one that stays is counted as one alone.
func TestAProcessThatLeavesTakesItsGauge(t *testing.T) {
	p := newProxy(2)
	p.opened = 2
	p.take(p.counter.Switch(ByReports))
	old, young := p.processes[0], p.processes[1]
	p.report(old)
	for range 3 {
		p.begin(old, false)
		p.begin(young, false)
	}
	p.report(old)
	p.report(young)
	p.mustBeTrue(t)
	p.take(p.counter.Leave(old.id, 1, false))
	old.open = 0
	p.mustBeTrue(t)
	if err := p.counter.check(ByReports, 1); err != nil {
		t.Error(err)
	}
	p.take(p.counter.Leave(young.id, 0, false))
	young.open = 0
	p.mustBeTrue(t)
}
