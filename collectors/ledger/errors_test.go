package ledger

import (
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// answers are requests that really ended at the one endpoint, and those that a report has not
// reported yet.
type answers struct{ errors, succeeded, newErrors, newSucceeded int }

// ends lets a request begin and end, in the log of the Envoy if it has one that is on.
func (w *world) ends(e *testEnvoy, all *answers, o Outcome) {
	e.issued[one]++
	if o.erred() || o.failed() {
		all.errors, all.newErrors = all.errors+1, all.newErrors+1
	} else {
		all.succeeded, all.newSucceeded = all.succeeded+1, all.newSucceeded+1
	}
	if n := len(e.streams); n > 0 && w.mode(e) != ModeReports {
		id := strconv.Itoa(all.errors + all.succeeded)
		e.streams[n-1].Begin(w.now, id, one)
		e.streams[n-1].End(w.now, id, one, o)
	}
}

// nextAnswers sends the report of a second.
func (w *world) nextAnswers(e *testEnvoy, all *answers) {
	w.after(time.Second)
	e.reports.Report(w.now, []ClusterLoad{{Cluster: "chat", Endpoints: []EndpointLoad{{
		Address: one, Issued: e.issued[one], Succeeded: uint64(all.newSucceeded), Errors: uint64(all.newErrors),
	}}}})
	e.issued[one], all.newErrors, all.newSucceeded = 0, 0, 0
}

// mustHaveAnswered checks the sums of the one endpoint.
func (w *world) mustHaveAnswered(t *testing.T, when string, errors, succeeded int) {
	t.Helper()
	w.mustBeSound(t)
	got := w.read(t).Proxies
	if !got.Errors.Known() || int(got.Errors.Value) != errors || int(got.Succeeded.Value) != succeeded {
		t.Errorf("%s: %v errors and %v succeeded, want %d and %d", when, got.Errors, got.Succeeded, errors, succeeded)
	}
}

var (
	well     = Outcome{Status: 200, Latency: time.Second}
	notFound = Outcome{Status: 404, Latency: time.Millisecond}
)

func TestReportsShowErrorsWhereThereIsNoLog(t *testing.T) {
	w, e := single()
	w.reporting(e)
	all := answers{newErrors: 1000, newSucceeded: 1000} // of a time before this process
	w.nextAnswers(e, &all)
	w.mustHaveAnswered(t, "the first report", 0, 0)
	for range 3 {
		w.ends(e, &all, notFound)
		w.ends(e, &all, well)
		w.ends(e, &all, well)
	}
	w.nextAnswers(e, &all)
	w.mustHaveAnswered(t, "the second", 3, 6)
	w.nextAnswers(e, &all)
	w.mustHaveAnswered(t, "a report of nothing", 3, 6)
}

// TestErrorsGoOnOverAChangeOfTheMode: none is lost for longer than the change takes, and none
// is counted twice.
func TestErrorsGoOnOverAChangeOfTheMode(t *testing.T) {
	w, e, _ := loggedAndReported()
	var all answers
	w.nextAnswers(e, &all)
	second := func(perSecond int) {
		for i := range perSecond {
			if i%10 == 0 {
				w.ends(e, &all, notFound)
			} else {
				w.ends(e, &all, well)
			}
		}
		w.nextAnswers(e, &all)
	}
	for _, step := range []struct {
		perSecond int
		want      Mode
	}{
		{100, ModeEvents}, {600, ModeBatched}, {2000, ModeReports}, {100, ModeEvents}, {2000, ModeReports},
		{600, ModeBatched},
	} {
		for range 15 {
			second(step.perSecond)
			w.mustHaveAnswered(t, w.mode(e).String(), all.errors, all.succeeded)
		}
		if got := w.mode(e); got != step.want {
			t.Fatalf("%d requests a second: %v, want %v", step.perSecond, got, step.want)
		}
	}
}

// TestALogThatEndsBetweenReportsLeavesNoErrorCountedTwice: what it showed, the next report
// shows, too.
func TestALogThatEndsBetweenReportsLeavesNoErrorCountedTwice(t *testing.T) {
	w, e := single()
	s := w.open(e)
	w.reporting(e)
	var all answers
	w.nextAnswers(e, &all)
	w.ends(e, &all, notFound)
	w.ends(e, &all, well)
	w.mustHaveAnswered(t, "by the log", 1, 1)
	s.Close()
	e.streams = nil
	w.nextAnswers(e, &all)
	w.mustHaveAnswered(t, "the report that covers the end of the log", 1, 1)
	w.ends(e, &all, notFound)
	w.nextAnswers(e, &all)
	w.mustHaveAnswered(t, "the next report", 2, 1)
	w.open(e)
	w.ends(e, &all, notFound)
	w.mustHaveAnswered(t, "by the log again", 3, 1)
	w.nextAnswers(e, &all)
	w.mustHaveAnswered(t, "a report next to the log", 3, 1)
}

// TestErrorsAreNeverCountedTwice: whenever logs break and come back. The sums never fall.
func TestErrorsAreNeverCountedTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, e := single()
		w.reporting(e)
		var all answers
		w.nextAnswers(e, &all)
		before := w.ticked().Read("chat", w.now, nil)[0].Proxies
		t.Repeat(map[string]func(*rapid.T){
			"error":   func(*rapid.T) { w.ends(e, &all, notFound) },
			"success": func(*rapid.T) { w.ends(e, &all, well) },
			"report":  func(*rapid.T) { w.nextAnswers(e, &all) },
			"silence": func(*rapid.T) { w.after(4 * time.Second); w.ticked().Read("chat", w.now, nil) },
			"log": func(*rapid.T) {
				if len(e.streams) == 0 {
					w.open(e)
					return
				}
				e.streams[0].Close()
				e.streams = nil
			},
			"": func(t *rapid.T) {
				w.mustBeSound(t)
				now := w.ticked().Read("chat", w.now, nil)[0].Proxies
				if !now.Errors.Known() { // silent
					return
				}
				if now.Errors.Value > float64(all.errors) || now.Succeeded.Value > float64(all.succeeded) {
					t.Fatalf("%v errors of %d, %v succeeded of %d", now.Errors.Value, all.errors, now.Succeeded.Value,
						all.succeeded)
				}
				if now.Errors.Value < before.Errors.Value || now.Succeeded.Value < before.Succeeded.Value {
					t.Fatalf("%v errors after %v, %v succeeded after %v", now.Errors.Value, before.Errors.Value,
						now.Succeeded.Value, before.Succeeded.Value)
				}
				before = now
			},
		})
	})
}
