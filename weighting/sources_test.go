package weighting

import (
	"testing"
	"time"
)

// Each number of the work of an engine has the source and the reading that it comes from.
func TestTheWorkOfAnEngineHasSourcesAndAges(t *testing.T) {
	for name, c := range map[string]struct {
		sized, counts bool
		alter         func(now float64, s *Snapshot)
		want          WorkSource
		wantPrefill   PrefillSource
	}{
		"sizes":        {true, true, nil, WorkSizes, PrefillMeasured},
		"chunked":      {false, true, nil, WorkRequests, PrefillMeasured},
		"scrapes only": {true, false, nil, WorkExpected, PrefillMeasured},
		"counts in flight": {true, true, func(_ float64, s *Snapshot) {
			for i := range s.Endpoints {
				s.Endpoints[i].Proxies = ProxyReport{}
			}
		}, WorkInFlight, PrefillMeasured},
		"configured": {true, true, func(_ float64, s *Snapshot) {
			for i := range s.Endpoints {
				s.Endpoints[i].Capacity = float64(20 + i)
			}
		}, WorkSizes, PrefillConfigured},
	} {
		p := engines(1, 4, nil)
		p.counts, p.alter = c.counts, c.alter
		if !c.sized {
			p.size = nil
		}
		p.atLoad(0.8)
		p.run(20, nil)
		d := p.decide()
		w := d.Work
		if w == nil || w.Engines != 4 || !recent(d.At, w.CountedAt, 1) || !recent(d.At, w.RatedAt, 4) {
			t.Fatalf("%s: work %+v", name, w)
		}
		if sized := c.want == WorkSizes; w.BySize != sized || sized && !recent(d.At, w.SizedAt, 1) {
			t.Errorf("%s: sizes %v, of %v", name, w.BySize, w.SizedAt)
		}
		for _, e := range d.Endpoints {
			reported := c.want == WorkExpected && e.Work.ReportedAt.IsZero() || recent(d.At, e.Work.ReportedAt, 1)
			if e.Work.Source != c.want || e.Work.PrefillSource != c.wantPrefill || !reported ||
				!recent(d.At, e.Work.CountedAt, 1) || !recent(d.At, e.Work.RatedAt, 4) {
				t.Errorf("%s: %+v, want by %s, prefill rate %s", name, *e.Work, c.want, c.wantPrefill)
			}
		}
	}
}

func recent(now, at time.Time, seconds float64) bool {
	age := now.Sub(at).Seconds()
	return age >= 0 && age <= seconds
}
