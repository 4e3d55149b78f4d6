package chaos

import (
	"strings"
	"testing"
	"time"
)

func newJournal(t *testing.T) *journal {
	t.Helper()
	return &journal{print: func(line string) { t.Log(line) }, start: time.Now()}
}

func TestARequestIsExcusedByADeathThatItWasThereFor(t *testing.T) {
	j := newJournal(t)
	at := func(seconds float64) time.Time { return j.start.Add(time.Duration(seconds * float64(time.Second))) }
	j.died("server-1", at(10), at(10.1))
	j.stopped("envoy-0", at(9), at(12))
	j.stopped("envoy-1", at(9), at(10.05))
	for _, tt := range []struct {
		name        string
		part        string
		witness     string
		sent, ended float64
		want        bool
	}{
		{"in hand when it died", "server-1", "envoy-2", 9, 10.05, true},
		{"sent while it died", "server-1", "envoy-2", 10.05, 10.2, true},
		{"over before", "server-1", "envoy-2", 9, 9.9, false},
		{"sent afterwards", "server-1", "envoy-2", 10.2, 10.3, false},
		{"another server", "server-2", "envoy-2", 9, 10.05, false},
		{"no server", "", "envoy-2", 9, 10.05, false},
		{"sent afterwards, through an Envoy that could not know yet", "server-1", "envoy-0", 11, 12.1, true},
		{"sent when that Envoy had gone on", "server-1", "envoy-0", 12.1, 12.2, false},
		{"through an Envoy that went on while it died", "server-1", "envoy-1", 10.2, 10.3, false},
	} {
		if got := j.inHand(tt.part, tt.witness, at(tt.sent), at(tt.ended)); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}

func TestTheFaultsAroundAMomentAreNamed(t *testing.T) {
	j := newJournal(t)
	over := j.begin(Fault{Part: "server-0", Kind: Kill, For: time.Second})
	j.end(over)
	over.from, over.to = j.start.Add(-time.Hour), j.start.Add(-time.Hour)
	j.begin(Fault{Part: "envoy-1", Kind: Pause, For: time.Second})
	got := j.around(time.Now(), time.Now())
	if !strings.Contains(got, "envoy-1 pause for 1.0 s, still on") || strings.Contains(got, "server-0") {
		t.Errorf("%q, want the pause that is on, and not the kill of an hour ago", got)
	}
}
