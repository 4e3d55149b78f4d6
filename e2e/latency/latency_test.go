package latency

import (
	"strings"
	"testing"
	"time"
)

func at(ms int) time.Time {
	return time.Unix(1_700_000_000, 0).Add(time.Duration(ms) * time.Millisecond)
}

// taken returns the samples there are.
func taken(b *Book) []Sample {
	var out []Sample
	for {
		select {
		case s := <-b.Samples():
			out = append(out, s)
		default:
			return out
		}
	}
}

func TestARequestIsKnownWhenTheLastEnvoyHasAWeightThatIncludesIt(t *testing.T) {
	b := NewBook(2, 100)
	b.Acked("e1", 1, at(0))
	b.Acked("e2", 1, at(0))
	b.Arrived("a", at(10))
	b.Arrived("b", at(11))
	b.Decided(map[string]uint64{"a": 1, "b": 0}, at(12), true, 2)
	b.Acked("e1", 2, at(13))
	b.Acked("e1", 2, at(99)) // told again
	if got := taken(b); len(got) != 0 {
		t.Fatalf("%+v while one Envoy has not answered", got)
	}
	b.Decided(map[string]uint64{"a": 1, "b": 1}, at(17), true, 3)
	b.Acked("e2", 3, at(20)) // answers the later one only, which knows both
	got := taken(b)
	if want := (Sample{Endpoint: "a", Arrived: at(10), Decided: at(12), Pushed: at(12),
		Acked: at(20)}); len(got) != 1 || got[0] != want {
		t.Fatalf("%+v, want %+v", got, want)
	}
	b.Acked("e1", 3, at(18))
	got = taken(b)
	if want := (Sample{Endpoint: "b", Arrived: at(11), Decided: at(17), Pushed: at(17),
		Acked: at(20)}); len(got) != 1 || got[0] != want {
		t.Fatalf("%+v, want %+v", got, want)
	}
}

func TestADecisionThatIsHeldBackEndsWithTheNextPush(t *testing.T) {
	b := NewBook(1, 100)
	b.Arrived("a", at(0))
	b.Decided(map[string]uint64{"a": 1}, at(2), false, 1)
	b.Decided(map[string]uint64{"a": 2}, at(30), true, 2) // heard of the second before it arrived
	b.Acked("e1", 2, at(33))
	b.Arrived("a", at(34))
	got := taken(b)
	want := []Sample{
		{Endpoint: "a", Arrived: at(0), Decided: at(2), Held: true, Pushed: at(30), Acked: at(33)},
		{Endpoint: "a", Arrived: at(34), Decided: at(30), Pushed: at(30), Acked: at(33)},
	}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Fatalf("%+v, want %+v", got, want)
	}
	r := NewReport(got)
	if len(r.All) != 2 || len(r.Sent) != 1 || r.All[0] != 33*time.Millisecond || r.Sent[0] != 0 ||
		r.Acking[0] != 3*time.Millisecond {
		t.Errorf("%+v", r)
	}
	arrived, decided := b.Counts()
	if arrived["a"] != 2 || decided["a"] != 2 {
		t.Errorf("%v arrived, %v decided on", arrived, decided)
	}
}

func TestQuantilesAreThoseOfTheValues(t *testing.T) {
	var values []time.Duration
	for i := 100; i > 0; i-- {
		values = append(values, time.Duration(i))
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 1: 100} {
		if got := Quantile(values, q); got != want {
			t.Errorf("quantile %v is %d, want %d", q, got, want)
		}
	}
	if got := Quantile(nil, 0.5); got != 0 {
		t.Errorf("of none: %v", got)
	}
}

func TestTheReportShowsTheHistogramAndTheVerdict(t *testing.T) {
	var samples []Sample
	for i := range 200 {
		s := Sample{Arrived: at(0), Decided: at(1), Pushed: at(1), Acked: at(1 + i%10)}
		if i == 0 {
			s.Acked, s.Held = at(400), true
		}
		samples = append(samples, s)
	}
	text := NewReport(samples).String()
	for _, want := range []string{"held for weights that were pushed, held with the 0.5 % of", "  <= 10 ms",
		"  > 250 ms      1 100.00 %", "   199 "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	for i := range 5 {
		samples[i].Acked = at(30)
	}
	if text := NewReport(samples).String(); !strings.Contains(text,
		": missed for weights that were pushed, missed with") {
		t.Errorf("p99 of 30 ms:\n%s", text)
	}
}
