//go:build long

package sim

import (
	"testing"
	"time"
)

// signalled is the p99 of the wait under Steelyard, with signals of the scenario's.
func signalled(t *testing.T, o Steelyard, signals Signals) float64 {
	t.Helper()
	s := small()
	s.Pods, s.Signals = []PodGroup{{Count: 20, Slots: 1}}, signals
	return run(t, s, steelyard("steelyard", o)).Wait.P99
}

func TestLongerDelaysMakeTheWaitLonger(t *testing.T) {
	t.Parallel()
	scrapes := Steelyard{Source: Scrape, ScrapeInterval: 250 * time.Millisecond}
	scrape := func(d time.Duration) Signals { return Signals{ScrapeDelay: &d} }
	signal := func(d time.Duration) Signals { return Signals{Delay: &d} }
	push := func(d time.Duration) Signals { return Signals{PushDelay: &d} }
	for _, c := range []struct {
		what  string
		o     Steelyard
		delay func(time.Duration) Signals
	}{
		{"scrapes", scrapes, scrape},
		{"entries of the access log", Steelyard{Source: AccessLog}, signal},
		{"load reports", Steelyard{Source: LoadReports}, signal},
		{"reads of Redis", Steelyard{Source: Redis}, signal},
		{"pushes", Steelyard{Source: AccessLog}, push},
		{"pushes by scrapes", scrapes, push},
	} {
		before := signalled(t, c.o, Signals{})
		for _, d := range []time.Duration{200 * time.Millisecond, time.Second} {
			p99 := signalled(t, c.o, c.delay(d))
			t.Logf("%s %v late: p99 %.2f after %.2f", c.what, d, p99, before)
			if p99 < 1.1*before {
				t.Errorf("%s %v late: p99 of the wait is %.2f, and %.2f with less", c.what, d, p99, before)
			}
			before = p99
		}
	}
}

// Lost entries of the access log cost waits, the more the more are lost; but load
// reports put the counts right, so that half an hour is no worse than ten minutes. Nobody
// does so without them, or in Redis, where the counts drift on.
func TestLossMakesTheWaitLongerAndReportsKeepItBounded(t *testing.T) {
	t.Parallel()
	s := small()
	s.Pods = []PodGroup{{Count: 20, Slots: 1}}
	p99 := func(o Steelyard, loss float64, duration time.Duration) float64 {
		s.Signals.Loss, s.Duration = &loss, duration
		return run(t, s, steelyard("steelyard", o)).Wait.P99
	}
	const short, long = 10 * time.Minute, 30 * time.Minute
	corrected := Steelyard{Source: AccessLog}
	before := p99(corrected, 0, short)
	for _, loss := range []float64{0.05, 0.2} {
		brief, lasting := p99(corrected, loss, short), p99(corrected, loss, long)
		t.Logf("loss %v: p99 %.2f in %v, %.2f in %v; %.2f with less", loss, brief, short, lasting, long, before)
		if brief < 1.2*before || lasting > 1.2*brief {
			t.Errorf("loss %v: p99 of the wait is %.2f in %v and %.2f in %v, with less %.2f: want more, that does "+
				"not grow", loss, brief, short, lasting, long, before)
		}
		before = brief
	}
	with, without := p99(corrected, 0.01, short), p99(Steelyard{Source: AccessLog, Uncorrected: true}, 0.01, short)
	t.Logf("loss 0.01: p99 %.2f with load reports, %.2f without", with, without)
	if without < 2*with {
		t.Errorf("loss 0.01: p99 of the wait is %.2f with load reports and %.2f without: want that they correct the "+
			"counts", with,
			without)
	}
	redis := Steelyard{Source: Redis}
	brief, lasting := p99(redis, 0.01, short), p99(redis, 0.01, long)
	t.Logf("Redis: p99 %.2f in %v, %.2f in %v", brief, short, lasting, long)
	if lasting < 1.3*brief {
		t.Errorf("Redis: p99 of the wait is %.2f in %v and %.2f in %v: want a drift", brief, short, lasting, long)
	}
}
