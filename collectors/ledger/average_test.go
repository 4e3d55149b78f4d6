package ledger

import (
	"math"
	"testing"
	"time"
)

func TestAnEndpointsAveragesFollowTheEnds(t *testing.T) {
	w, e := single()
	w.ledger.SetAlpha("chat", 0.5)
	s := w.open(e)
	if got := w.read(t); got.ResponseBytes.Known() || got.FailedShare.Known() {
		t.Errorf("nothing ended, and yet %+v", got)
	}
	for _, step := range []struct {
		name           string
		o              Outcome
		bytes, failing float64
		news           bool // of bytes
	}{
		{"the first is all", Outcome{Status: 200, Latency: time.Second, Bytes: 100}, 100, 0, true},
		{"a broken server", Outcome{Status: 500, Latency: time.Second, Bytes: 20}, 60, 0.5, true},
		{"no connection", Outcome{ConnectFailed: true}, 60, 0.75, false},
		{"a reset", Outcome{Status: 200, Bytes: 7, Reset: true}, 60, 0.875, false},
		{"a full queue answers", Outcome{Status: 503, Latency: time.Second, Bytes: 0}, 30, 0.9375, true},
	} {
		w.after(time.Second)
		s.End(w.now, "1", one, step.o)
		got := w.read(t)
		if math.Abs(got.ResponseBytes.Value-step.bytes) > 1e-9 || math.Abs(got.FailedShare.Value-step.failing) > 1e-9 {
			t.Errorf("%s: %v bytes, %v failing; want %v and %v", step.name, got.ResponseBytes.Value,
				got.FailedShare.Value, step.bytes, step.failing)
		}
		if got.ResponseBytes.At.Equal(w.now) != step.news || !got.FailedShare.At.Equal(w.now) {
			t.Errorf("%s: as of %v and %v", step.name, got.ResponseBytes.At, got.FailedShare.At)
		}
	}
	before := w.read(t)
	w.after(time.Second)
	s.End(w.now, "1", one, Outcome{Status: 200}) // the client went away
	if got := w.read(t); got.ResponseBytes != before.ResponseBytes || got.FailedShare != before.FailedShare {
		t.Errorf("no answer and no failure, and yet %+v after %+v", got, before)
	}
}

func TestAnEnvoyThatDoesNotWatchMovesNoAverage(t *testing.T) {
	w, e := single()
	w.watch("chat")
	w.open(e).End(w.now, "1", one, Outcome{Status: 500, Latency: time.Second, Bytes: 9})
	if got := w.read(t); got.ResponseBytes.Known() || got.FailedShare.Known() {
		t.Errorf("%+v", got)
	}
}
