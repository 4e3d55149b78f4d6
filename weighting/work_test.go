package weighting

import "testing"

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
