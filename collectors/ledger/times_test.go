package ledger

import (
	"math"
	"testing"
	"time"
)

func TestTheTimeOfNinetyNinePercentOfTheAnswers(t *testing.T) {
	w, e := single()
	s := w.open(e)
	if times, all := w.ticked().AnswerTimes("chat"); len(times) != 0 || !math.IsNaN(all) {
		t.Errorf("before the first answer: %v, %v", times, all)
	}
	for i := range 1000 {
		took := 200 * time.Millisecond
		if i%50 == 0 { // two of a hundred
			took = 3 * time.Second
		}
		s.Begin(w.now, "1", one)
		s.End(w.now, "1", one, Outcome{Status: 200, Latency: took})
	}
	times, all := w.ticked().AnswerTimes("chat")
	if len(times) != 1 || times[0].Address != one || math.Abs(times[0].P99/3-1) > 0.04 || all != times[0].P99 {
		t.Errorf("%v, %v", times, all)
	}
	for range 3 {
		w.after(timesPeriod)
		w.ticked()
	}
	if times, all := w.ticked().AnswerTimes("chat"); len(times) != 0 || !math.IsNaN(all) {
		t.Errorf("a minute and a half later: %v, %v", times, all)
	}
}

func TestAMatrixHasTheRequestsOfEachEnvoyAtEachEndpoint(t *testing.T) {
	w := newWorld()
	w.cluster("chat", "10.1.0.1:80", "10.1.0.2:80")
	a, b := w.envoy("a"), w.envoy("b")
	w.watch("chat", a, b)
	logs, other := w.open(a), w.open(b)
	logs.Begin(w.now, "1", "10.1.0.1:80")
	logs.Begin(w.now, "2", "10.1.0.2:80")
	logs.Begin(w.now, "3", "10.1.0.2:80")
	other.Begin(w.now, "4", "10.1.0.1:80")
	m, ok := w.ticked().Matrix("chat")
	if !ok || len(m.Addresses) != 2 || len(m.Rows) != 2 {
		t.Fatalf("%+v", m)
	}
	for _, r := range m.Rows {
		want := [2]int{1, 2}
		if r.Envoy.NodeID == "b" {
			want = [2]int{1, 0}
		}
		if [2]int(r.InFlight) != want || !r.ByLog {
			t.Errorf("%+v, want %v", r, want)
		}
	}
	if _, ok := w.ticked().Matrix("nobody"); ok {
		t.Error("of no cluster")
	}
}
