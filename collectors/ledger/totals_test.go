package ledger

import (
	"testing"
	"time"

	"steelyard/internal/api"
)

func TestTotalsOutliveTheEnvoysThatTheyAreOf(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l := New(func(string) {})
	node := Envoy{NodeID: "a", Host: "10.0.0.9"}
	l.SetMembers("llama", []string{"10.0.0.1:80"})
	l.SetWatchers("llama", []Envoy{node})
	s := l.Open(node, now)
	s.Begin(now, "1", "10.0.0.1:80")
	s.End(now, "1", "10.0.0.1:80", Outcome{Status: 200})
	s.End(now, "2", "10.0.0.1:80", Outcome{Status: 200})
	s.Begin(now, "3", "10.9.9.9:80")
	want := api.Entries{Received: 4, Ignored: 1, Unpaired: 1}
	if got := l.Totals(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	s.Close()
	if n := len(l.Envoys(now)); n != 0 {
		t.Fatalf("%d Envoys are left", n)
	}
	if got := l.Totals(); got != want {
		t.Errorf("after it left %+v, want %+v", got, want)
	}
}
