package push

import (
	"testing"
	"time"
)

// Waits are as of a step that ended at 0 with a pause of 10 ms, and 100 ms more without traffic.
func TestTheNextStepFollowsThePauseAndTheNews(t *testing.T) {
	const ms = time.Millisecond
	start := time.Unix(1_700_000_000, 0)
	poke, activity := (*Rhythm).Poked, (*Rhythm).ProxyActive
	type news func(*Rhythm) bool
	for name, tt := range map[string]struct {
		during, after []news // the step
		at, want      time.Duration
	}{
		"nothing is new":                         {at: 0, want: 110*ms + MaxIdle},
		"something is new":                       {after: []news{poke}, at: 0, want: 110 * ms},
		"proxies are active":                     {after: []news{activity}, at: 0, want: 10 * ms},
		"both":                                   {after: []news{poke, activity}, at: 4 * ms, want: 6 * ms},
		"during the step":                        {during: []news{activity}, at: 0, want: 10 * ms},
		"something is new after the pause":       {after: []news{poke}, at: 200 * ms, want: 0},
		"proxies are active in the longer pause": {after: []news{activity}, at: 50 * ms, want: 0},
	} {
		var r Rhythm
		r.ProxyActive() // that the step decides on
		r.Begin()
		for _, n := range tt.during {
			n(&r)
		}
		r.Finished(start, Pause{Rest: 10 * ms, IdleRest: 100 * ms})
		for _, n := range tt.after {
			n(&r)
		}
		if got := r.Wait(start.Add(tt.at)); got != tt.want {
			t.Errorf("%s: waits %v, want %v", name, got, tt.want)
		}
	}
}

func TestOnlyNewsThatHastenTheNextStepAreReported(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	r := NewRhythm(start)
	if got := r.Wait(start); got != MaxIdle {
		t.Errorf("a loop that has not stepped yet waits %v, want %v", got, MaxIdle)
	}
	for round := range 2 {
		got := []bool{r.Poked(), r.Poked(), r.ProxyActive(), r.ProxyActive(), r.Poked()}
		want := []bool{true, false, true, false, false}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("round %d: news %d hastens: %t, want %t", round, i, got[i], want[i])
			}
		}
		r.Begin()
	}
}
