package merge

import (
	"testing"
	"time"
)

// speak is a message without counts.
func speak(from ID, seq uint64) *Message { return &Message{From: from, Name: string(from), Seq: seq} }

func TestAReplicaThatBeginsAsksTheOneThatRunsForLongest(t *testing.T) {
	f := fixtureOf(x)
	want(t, "asked while nobody is there", f.Wants(f.now), "")
	a, b := speak("a", 0), speak("b", 0)
	f.pass(time.Second, b)
	f.pass(100*time.Millisecond, a, b)
	want(t, "asked", f.Wants(f.now), "b")
	f.pass(time.Second, a, b)
	want(t, "asked within the time for an answer", f.Wants(f.now), "b")

	b.Routes = []Route{{Cluster: llama, Endpoint: x, Hashes: []uint64{1}, Kept: true}}
	f.pass(50*time.Millisecond, b)
	b.Routes = nil
	f.pass(answering-100*time.Millisecond, a, b)
	want(t, "asked, as an answer has begun", f.Wants(f.now), "b")
	b.Gave = "another one"
	f.pass(50*time.Millisecond, b)
	want(t, "asked, as the answer is for another one", f.Wants(f.now), "b")
	b.Gave = "self"
	f.pass(50*time.Millisecond, b)
	want(t, "asked after the answer", f.Wants(f.now), "")
	routes, given := f.Routes()
	want(t, "routes", len(routes), 1)
	want(t, "given", given, true)
	routes, given = f.Routes()
	want(t, "routes that were handed on", len(routes), 0)
	want(t, "given again", given, false)
}

func TestAReplicaThatDoesNotAnswerIsAskedAgainAfterTheOthers(t *testing.T) {
	f := fixtureOf(x)
	a, b := speak("a", 0), speak("b", 0)
	f.pass(time.Second, a)
	for _, name := range []ID{"a", "b", "", "a"} {
		want(t, "asked", f.Wants(f.now), name)
		f.pass(answering+50*time.Millisecond, a, b)
	}
}

func TestAnAnswerOfWhichAPartGotLostIsAskedForOnceMore(t *testing.T) {
	f := fixtureOf(x)
	a := speak("a", 0)
	f.pass(50*time.Millisecond, a)
	want(t, "asked", f.Wants(f.now), "a")
	f.pass(50*time.Millisecond, a)
	a.Seq++ // one with routes
	a.Gave = "self"
	f.pass(50*time.Millisecond, a)
	_, given := f.Routes()
	want(t, "given, without a part", given, false)
	a.Gave = ""
	f.pass(50*time.Millisecond, a)
	want(t, "asked once more", f.Wants(f.now), "a")
	a.Gave = "self"
	f.pass(50*time.Millisecond, a)
	_, given = f.Routes()
	want(t, "given", given, true)
	want(t, "asked after the answer", f.Wants(f.now), "")
}

func TestTheEndOfAnAnswerThatWasInterruptedIsNotTakenForAll(t *testing.T) {
	f := fixtureOf(x)
	a := speak("a", 0)
	f.pass(50*time.Millisecond, a)
	want(t, "asked", f.Wants(f.now), "a")
	for range 20 { // cut off
		f.now = f.now.Add(50 * time.Millisecond)
		f.Tick(f.now)
	}
	f.SetCut(f.now, true)
	f.pass(50*time.Millisecond, a)
	f.SetCut(f.now, false)
	want(t, "asked again", f.Wants(f.now), "a")
	a.Gave = "self"
	f.pass(50*time.Millisecond, a)
	want(t, "asked once more", f.Wants(f.now), "a")
	f.pass(50*time.Millisecond, a)
	want(t, "asked after the whole answer", f.Wants(f.now), "")
}

func TestAReplicaThatWasCutOffAsksAgain(t *testing.T) {
	f := fixtureOf(x)
	a := speak("a", 0)
	f.pass(50*time.Millisecond, a)
	f.Wants(f.now)
	a.Gave = "self"
	f.pass(50*time.Millisecond, a)
	want(t, "asked after an answer", f.Wants(f.now), "")
	a.Gave = ""
	for range 20 {
		f.now = f.now.Add(50 * time.Millisecond)
		f.Tick(f.now)
	}
	f.SetCut(f.now, true)
	want(t, "asked while it is cut off", f.Wants(f.now), "")
	f.pass(100*time.Millisecond, a)
	f.SetCut(f.now, false)
	want(t, "asked after it was cut off", f.Wants(f.now), "a")
}

func TestAReplicaIsAnsweredOnceThoughItRepeatsItsQuestion(t *testing.T) {
	f := fixtureOf(x)
	a, b := speak("a", 0), speak("b", 0)
	a.Wants, b.Wants = "self", "c"
	f.pass(50*time.Millisecond, a, b)
	want(t, "the asker", f.Asker(f.now), "a")
	f.pass(time.Second, a, b)
	want(t, "the asker without an answer", f.Asker(f.now), "")
	f.pass(answering, a, b)
	want(t, "the asker, as the answer got lost", f.Asker(f.now), "a")
	f.pass(answering+time.Second, a, b)
	f.Answered(f.now, "a") // which took so long
	f.pass(time.Second, a, b)
	want(t, "the asker after its answer", f.Asker(f.now), "")
}

func TestWhatWaitsToBeHandedOnIsBounded(t *testing.T) {
	f := fixtureOf(x)
	m := speak("a", 1)
	m.Routes = make([]Route, maxTaken+5)
	f.Take(f.now, m)
	want(t, "left out", f.Messages.Prompts.LeftOut, 5)
	routes, _ := f.Routes()
	want(t, "routes", len(routes), maxTaken)
}

// TestWhatThisReplicaSentItselfIsNotTakenIn, though its messages come back.
func TestWhatThisReplicaSentItselfIsNotTakenIn(t *testing.T) {
	f := fixtureOf(x)
	m := speak("self", 1)
	m.Routes = []Route{{Cluster: llama}}
	f.Take(f.now, m)
	if routes, _ := f.Routes(); len(routes) > 0 {
		t.Errorf("%+v", routes)
	}
}
