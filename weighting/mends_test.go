package weighting

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// An engine of iterations of two seconds is read each quarter of a second. What no report brings any more (a field, or
// restarts that a scrape no longer knows of) makes no reading new.
func TestTheTimeBetweenIterationsCountsWhateverReportsLack(t *testing.T) {
	for name, first := range map[string]func(*Endpoint, time.Time){
		"nothing":  func(*Endpoint, time.Time) {},
		"a field":  func(e *Endpoint, now time.Time) { e.Server.Awake = known(1, now) },
		"restarts": func(e *Endpoint, _ time.Time) { e.Server.Restarts = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			law, sum, n := NewLaw(DefaultParams()), 0.0, 0
			for i := range 20 * 120 {
				now, read := at(float64(i)*0.05), at(math.Floor(float64(i)/5)*0.25)
				s := Snapshot{ScrapeInterval: seconds(0.25), PushPeriod: seconds(0.05)}
				for _, a := range []string{"a", "b", "c"} {
					done := 4 * math.Floor(read.Sub(epoch).Seconds()/2)
					e := scraped(a, 0, 0, 4, read)
					e.Server.Completions = known(done, read)
					e.Server.Tokens = TokenCounts{At: read, Prompt: 1000 * done, Generated: 20 * done, First: done,
						Iterations: done / 4}
					if i == 0 {
						first(&e, read)
					}
					s.Endpoints = append(s.Endpoints, e)
				}
				if d := law.Step(now, s); i > 20*60 {
					sum, n = sum+d.ArrivalRate, n+1
				}
			}
			if rate := sum / float64(n); rate < 5.4 || rate > 6.6 {
				t.Errorf("%.2f requests a second arrive, want 6", rate)
			}
		})
	}
}

// Until it has answered, the requests that an endpoint has are few and say nothing.
func TestLeastLatencyTrustsANewEndpointWithItsRamp(t *testing.T) {
	p := DefaultParams()
	p.LeastLatency.Enabled = true
	law := NewLaw(p)
	for i := range 260 {
		now, passed := at(float64(i)*0.05), float64(i)*0.05
		s := Snapshot{PushPeriod: seconds(0.2)}
		for j := range 4 {
			answered, inFlight := 40*passed, 20.0
			if j == 3 {
				answered, inFlight = 0, float64(min(20, max(0, i-200)))
			}
			if j < 3 || i >= 200 {
				s.Endpoints = append(s.Endpoints, Endpoint{Address: fmt.Sprint(j), Exact: true,
					InFlight: known(inFlight, now), Proxies: ProxyReport{
						Issued: known(answered+inFlight, now), Ended: known(answered, now),
						Answered:       known(answered, now),
						LatencySeconds: known(answered/2, now), Succeeded: known(answered, now),
						Failed: known(0, now), Errors: known(0, now)}})
			}
		}
		d := law.Step(now, s)
		if i >= 200 {
			if e := d.Endpoints[3]; e.Share > 0.3 {
				t.Fatalf("%v after it came its share is %.2f, with %.2f of its capacity", now.Sub(at(10)), e.Share,
					e.Ramp)
			}
		}
	}
}

func TestTheUnitIsTheRequestAgainWhenTokensAreCountedNoMore(t *testing.T) {
	law := NewLaw(DefaultParams())
	var d Decision
	for i := range 4 * 60 * 15 {
		now, done := at(float64(i)*0.25), float64(i)
		s := Snapshot{ScrapeInterval: seconds(0.25), PushPeriod: seconds(0.05)}
		for _, a := range []string{"a", "b", "c"} {
			e := scraped(a, 4, 1, 3, now)
			e.Server.Completions = known(done, now)
			if i < 400 {
				e.Server.Tokens = TokenCounts{At: now, Prompt: 1000 * done, Generated: 200 * done, First: done,
					Iterations: 20 * done}
			} else {
				e.Server.Restarts = 1
			}
			s.Endpoints = append(s.Endpoints, e)
		}
		if d = law.Step(now, s); i == 399 && d.Work == nil {
			t.Fatal("engines that count tokens have no work")
		}
	}
	if d.Work != nil {
		t.Errorf("the unit is work, a quarter of an hour after the last count of tokens: %+v", d.Work)
	}
}

// A pin is not in effect while its endpoint fails, so it keeps nobody from finding out whether it has recovered.
func TestAPinnedEndpointThatFailedIsTriedThoughStreamsStayOpen(t *testing.T) {
	law := NewLaw(DefaultParams())
	var served [4]float64
	ejected := false
	for i := range 20 * 120 {
		now := at(float64(i) * 0.05)
		s := Snapshot{PushDelay: seconds(0.01), PushPeriod: seconds(0.05)}
		for j := range 4 {
			failed := 0.0
			if j == 3 && i > 400 {
				failed = min(float64(i-400), 60)
			} else {
				served[j] += 2
			}
			e := Endpoint{Address: fmt.Sprint(j), Capacity: 16, Exact: true, InFlight: known(2, now),
				Proxies: ProxyReport{Issued: known(served[j]+failed+2, now), Ended: known(served[j]+failed, now),
					Answered: known(served[j]+failed, now), Succeeded: known(served[j], now),
					LatencySeconds: known(served[j]*0.05, now), Failed: known(failed, now), Errors: known(0, now)}}
			if j == 3 {
				e.Override.Share = 0.5
			}
			s.Endpoints = append(s.Endpoints, e)
		}
		e := law.Step(now, s).Endpoints[3]
		ejected = ejected || e.Failing
		if ejected && e.Probed != "" {
			return
		}
	}
	t.Errorf("in a minute and a half it was not tried (ejected: %v)", ejected)
}

// Shares that nothing corrects are good for as long as the reports are old.
func TestTheHorizonGrowsWithTheAgeOfScrapes(t *testing.T) {
	for _, capacity := range []float64{0, 8} {
		law := NewLaw(DefaultParams())
		var d Decision
		for i := range 20*60 + 58 {
			now, read := at(float64(i)*0.05), at(math.Min(math.Floor(float64(i)/5)*0.25, 60)) // the pages stop
			s := Snapshot{ScrapeInterval: seconds(0.25), PushPeriod: seconds(0.05)}
			for j := range 12 {
				running := float64((j*5 + int(read.Sub(epoch)/seconds(0.25))) % 9)
				e := scraped(fmt.Sprintf("%02d", j), capacity, 0, running, read)
				e.Server.Completions = known(math.Floor(read.Sub(epoch).Seconds()*0.5), read)
				s.Endpoints = append(s.Endpoints, e)
			}
			d = law.Step(now, s)
		}
		if d.Horizon < seconds(2.8) {
			t.Errorf("%v slots: with reports of 2.85 s ago, decisions are for %v", capacity, d.Horizon)
		}
	}
}

// A slot that is free because its endpoint gets no requests is none that a refused request could have had.
func TestATrialInASaturatedPoolEndsNoShedding(t *testing.T) {
	const slots = 16.0
	p := DefaultParams()
	p.Shedding.Enabled = true
	law, failed, flagged := NewLaw(p), 0.0, false
	for i := range 20 * 60 {
		now, passed := at(float64(i)*0.05), float64(i)*0.05
		s := Snapshot{PushDelay: seconds(0.01), PushPeriod: seconds(0.05)}
		for j := range 4 {
			done, queue, running, bad := math.Floor(slots*passed), 64.0, slots, 0.0
			if j == 3 && passed >= 20 {
				if !flagged {
					failed++
				}
				done, queue, running, bad = math.Floor(slots*20), 0, 0, failed
			}
			e := Endpoint{Address: fmt.Sprint(j), Capacity: slots, Exact: true, InFlight: known(queue+running, now)}
			e.Server.Queue, e.Server.Running = known(queue, now), known(running, now)
			e.Server.Completions = known(done, now)
			e.Proxies = ProxyReport{Issued: known(done+80+bad, now), Ended: known(done+80-queue-running+bad, now),
				Answered: known(done+bad, now), Succeeded: known(done, now), LatencySeconds: known(done*5, now),
				Failed: known(bad, now), Errors: known(0, now)}
			s.Endpoints = append(s.Endpoints, e)
		}
		d := law.Step(now, s)
		flagged = d.Endpoints[3].Overloaded
		if passed > 21 && passed < 40 && d.DropFraction < 0.5 {
			t.Fatalf("at %.2f s only %.2f are refused, while clients wait for %v", passed, d.DropFraction,
				d.ExpectedWait)
		}
	}
}
