package weighting

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"steelyard/weighting/health"
)

// TestAnEndpointThatFailsHasNoShareWhateverItsLoad: pickers send it nothing while there are others.
func TestAnEndpointThatFailsHasNoShareWhateverItsLoad(t *testing.T) {
	full := []Vessel{{Load: excludedLevel, Slots: 1, Speed: 1}}
	for _, c := range []struct {
		endpoint EndpointDecision
		want     float64
	}{
		{EndpointDecision{Share: 0.1}, 0.1},
		{EndpointDecision{Share: 0.1, Failing: true}, 0},
		{EndpointDecision{Share: 0.1, Overloaded: true}, 0},
	} {
		d := Decision{Endpoints: []EndpointDecision{c.endpoint}, vessels: full}
		want(t, fmt.Sprintf("%+v", c.endpoint), d.Fixed(0), c.want)
	}
}

// Slots that no proxy sends to are not free: the others are saturated without them.
func TestAnEndpointThatTheProxiesDoNotUseDoesNotKeepAPoolFromShedding(t *testing.T) {
	params := DefaultParams()
	params.Shedding.Enabled = true
	law := NewLaw(params)
	var d Decision
	for n := range 240 { // a minute: three of four serve one a second each, and get two
		now := epoch.Add(time.Duration(n) * 250 * time.Millisecond)
		s := Snapshot{ScrapeInterval: 250 * time.Millisecond}
		for i := range 4 {
			e := scraped(fmt.Sprint(i), 1, 0, 0, now)
			e.Server.Completions = known(0, now)
			if seconds := float64(n) / 4; i > 0 {
				e = scraped(fmt.Sprint(i), 1, seconds, 1, now)
				e.Server.Completions = known(seconds, now)
			}
			s.Endpoints = append(s.Endpoints, e)
		}
		d = law.Step(now, s)
	}
	want(t, "reason", d.Endpoints[0].Reason, ReasonUnused)
	if d.DropFraction < 0.4 {
		t.Errorf("%.2f refused at twice the capacity that is used", d.DropFraction)
	}
}

// Where all endpoints in use are overloaded, none of them gets the requests of all, if the only one that could take
// some is not used by the proxies, or gone.
func TestFlagsAreLiftedWhereTheOnlyOtherEndpointIsNotUsed(t *testing.T) {
	for _, gone := range []bool{false, true} {
		law := NewLaw(DefaultParams())
		worst := 0.0
		for n := range 240 { // from the 20th second on the queues are far above what enters a flag
			now := epoch.Add(time.Duration(n) * 250 * time.Millisecond)
			s := Snapshot{ScrapeInterval: 250 * time.Millisecond}
			for i := range 4 {
				e := scraped(fmt.Sprint(i), 1, 0, 0, now)
				e.Server.Completions = known(0, now)
				if i > 0 {
					queue := 0.0
					if n >= 80 {
						queue = 20
					}
					e = scraped(fmt.Sprint(i), 1, queue, 1, now)
					e.Server.Completions = known(float64(n)/4, now)
				}
				e.Refused = gone && i == 0 && n >= 40
				s.Endpoints = append(s.Endpoints, e)
			}
			d := law.Step(now, s)
			var flags int
			for _, e := range d.Endpoints {
				if e.Overloaded {
					flags++
				}
			}
			if n >= 100 && flags > 0 { // five seconds later
				worst = max(worst, float64(flags))
			}
		}
		if worst > 0 {
			t.Errorf("gone %v: %.0f of three equally full endpoints flagged", gone, worst)
		}
	}
}

// By the conversation, or by a prompt's prefix, requests go where the ones before went, whatever the shares. That none
// comes for long is then no sign, once it has been seen; an endpoint to which nothing goes is still found.
func TestWhereRequestsGatherAnEndpointWithoutThemIsNotUnused(t *testing.T) {
	const endpoints, together = 4, 60 // requests of a conversation
	now := epoch
	law := NewLaw(DefaultParams())
	r := rand.New(rand.NewPCG(1, 1))
	var issued [endpoints]float64
	// unused runs for so long, with 20 requests a second to the first n endpoints, and returns how often one is unused.
	unused := func(length time.Duration, n int) (flagged [endpoints]int) {
		to, left := 0, 0
		var were [endpoints]bool
		for range length / (50 * time.Millisecond) {
			now = now.Add(50 * time.Millisecond)
			if left--; left < 0 {
				to, left = r.IntN(n), together
			}
			issued[to]++
			s := Snapshot{PushPeriod: 50 * time.Millisecond}
			for i, n := range issued {
				s.Endpoints = append(s.Endpoints, Endpoint{Address: fmt.Sprint(i), InFlight: known(0, now), Exact: true,
					Server:  ServerReport{Queue: known(0, now), Running: known(0, now), Completions: known(n, now)},
					Proxies: ProxyReport{Issued: known(n, now), Ended: known(n, now)}})
			}
			for i, e := range law.Step(now, s).Endpoints {
				is := e.Reason == ReasonUnused
				if is && !were[i] {
					flagged[i]++
				}
				were[i] = is
			}
		}
		return flagged
	}
	unused(2*time.Minute, endpoints)
	for i, n := range unused(10*time.Minute, endpoints) {
		if n > 2 {
			t.Errorf("endpoint %d is unused %d times in ten minutes", i, n)
		}
	}
	if got := unused(time.Minute, endpoints-1); got[endpoints-1] != 1 {
		t.Errorf("that one gets nothing is noticed %d times, want once", got[endpoints-1])
	}
}

// Two endpoints, of which the proxies' health checks eject one after the other for half a minute, as in a rolling
// restart whose metrics do not show it: each time it is found about as soon as the first.
func TestEjectionsInTurnAreEachFoundSoon(t *testing.T) {
	const every = 100 * time.Millisecond
	now := epoch
	law := NewLaw(DefaultParams())
	r := rand.New(rand.NewPCG(1, 1))
	var issued [2]float64
	shares := [2]float64{0.5, 0.5}
	for ejection := range 6 {
		ejected := ejection % 2
		found := time.Duration(0)
		for passed := time.Duration(0); passed < time.Minute; passed += every {
			now = now.Add(every)
			if r.Float64() < 3*every.Seconds() { // three requests a second
				to := 0
				if r.Float64() >= shares[0] {
					to = 1
				}
				if passed < 30*time.Second {
					to = 1 - ejected
				}
				issued[to]++
			}
			s := Snapshot{PushPeriod: every}
			for i, n := range issued {
				s.Endpoints = append(s.Endpoints, Endpoint{Address: fmt.Sprint(i), InFlight: known(0, now), Exact: true,
					Server:  ServerReport{Queue: known(0, now), Running: known(0, now), Completions: known(n, now)},
					Proxies: ProxyReport{Issued: known(n, now), Ended: known(n, now)}})
			}
			d := law.Step(now, s)
			for i := range shares {
				shares[i] = d.Endpoints[i].Share
			}
			if d.Endpoints[ejected].Reason == ReasonUnused && found == 0 {
				found = passed
			}
		}
		if found == 0 || found > 15*time.Second {
			t.Errorf("ejection %d is found after %v", ejection, found)
		}
	}
}

// By scrapes only, an engine that answers each request at once with an error looks like one that the proxies do not
// use. Proxies that choose by their least requests send it (n + 1)² times its share, with n requests in flight from
// each at the others.
func TestByScrapesOnlyAnEndpointThatLooksUnusedGetsLittle(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		load    float64 // at each of the others
		counted bool
		want    float64 // of its part of the capacity
	}{
		{0, false, 1}, {10, false, 0.25}, {30, false, 1.0 / 16}, {1000, false, 0.05}, {1000, true, 1},
	} {
		m := filled{candidate: &candidate{judged: &judged{state: health.Verdict{Unused: true}}}}
		wantNear(t, fmt.Sprintf("%+v: part", c), m.fixed(c.counted, c.load), c.want, 1e-9)
	}
}
