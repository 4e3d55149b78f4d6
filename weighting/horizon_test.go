package weighting

import (
	"fmt"
	"math"
	"testing"
)

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
