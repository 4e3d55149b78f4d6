package weighting

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// go test -run '^$' -bench Step -count 6 ./weighting | benchstat -
func BenchmarkStep(b *testing.B) {
	for _, n := range []int{20, 100, 1000} {
		for _, every := range []int{1, 5} { // of the reports, one in so many is new in a step
			for _, unit := range []string{"requests", "work"} {
				b.Run(fmt.Sprintf("endpoints=%d/new=1in%d/unit=%s", n, every, unit),
					func(b *testing.B) { benchmarkStep(b, n, every, unit == "work") })
			}
		}
	}
}

func benchmarkStep(b *testing.B, n, every int, work bool) {
	s := Snapshot{PushDelay: 10 * time.Millisecond, PushPeriod: 50 * time.Millisecond}
	for i := range n {
		s.Endpoints = append(s.Endpoints, Endpoint{Address: fmt.Sprintf("10.%d.%d.%d:8000", i%7, i%199, i%251)})
	}
	random := rand.New(rand.NewPCG(1, 1))
	completed := make([]float64, n)
	now := time.Now() // with a monotonic part, as in a real loop
	report := func(i int) {
		e, load := &s.Endpoints[i], float64(random.IntN(12))
		completed[i] += float64(random.IntN(3))
		e.Server.Queue, e.Server.Running = known(max(0, load-4), now), known(min(load, 4), now)
		e.Server.Completions = known(completed[i], now)
		e.InFlight = known(load, now)
		if !work {
			return
		}
		e.Server.Tokens = TokenCounts{
			At: now, Prompt: 1000 * completed[i], Generated: 200 * completed[i], First: completed[i],
			Iterations: float64(now.UnixMilli() / 20),
		}
		e.Proxies.Issued, e.Proxies.Ended = known(completed[i]+load, now), known(completed[i], now)
		e.Proxies.Sized, e.Proxies.SizedBytes = e.Proxies.Issued, known(4000*e.Proxies.Issued.Value, now)
	}
	for i := range n {
		report(i)
	}
	law := NewLaw(DefaultParams())
	b.ReportAllocs()
	for tick := 0; b.Loop(); tick++ {
		now = now.Add(50 * time.Millisecond)
		for i := tick % every; i < n; i += every {
			report(i)
		}
		if d := law.Step(now, s); tick == 1000 && (d.Work != nil) != work {
			b.Fatalf("the unit of load is not the one measured: %+v", d.Work)
		}
	}
}
