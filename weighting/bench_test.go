package weighting

import (
	"fmt"
	"testing"
	"time"
)

// go test -run '^$' -bench Step -count 6 ./weighting | benchstat -
func BenchmarkStep(b *testing.B) {
	for _, n := range []int{20, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := Snapshot{PushDelay: 10 * time.Millisecond, PushPeriod: 250 * time.Millisecond}
			for i := range n {
				s.Endpoints = append(s.Endpoints, Endpoint{Address: fmt.Sprintf("10.%d.%d.%d:8000", i/7%200, i%199, i%251)})
			}
			law, now, tick := NewLaw(DefaultParams()), epoch, 0
			b.ReportAllocs()
			for b.Loop() {
				now, tick = now.Add(250*time.Millisecond), tick+1
				for i := range s.Endpoints { // every report is new
					e := &s.Endpoints[i]
					e.Server = scraped("", 0, float64((i+tick)%3), 4, now).Server
					e.Server.Completions = known(float64(tick), now)
					e.InFlight = known(float64(4+(i+tick)%3), now)
				}
				law.Step(now, s)
			}
		})
	}
}
