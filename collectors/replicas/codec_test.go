package replicas

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"steelyard/collectors/replicas/merge"
	"steelyard/weighting"
	"steelyard/weighting/flight"
)

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

func message() *merge.Message {
	at := noon.Add(-3 * time.Millisecond)
	known := func(v float64) weighting.Reading { return weighting.Reading{Value: v, At: at} }
	return &merge.Message{
		From: "run", Name: "steelyard-0", Seq: 7, Leaving: true,
		Clusters: []merge.Cluster{{
			Name: "llama",
			Head: flight.Watchers{Watching: 5, Events: 3, Reports: 1, Reconciled: 2,
				Rate: 12.5, Age: 40 * time.Millisecond,
				Interval: 100 * time.Millisecond},
			Parts: []flight.Part{{Address: "10.0.0.1:8000", InFlight: 9, Sums: flight.Sums{Issued: 1 << 40,
				Hashed: 12, Ended: 2, Failed: 3, Errors: 4, Succeeded: 5, Answered: 6, Latency: 7.5, Sized: 8,
				Bytes: 9e12, Refused: 10, RefusedBytes: 11e9}}},
		}, {Name: "other", Parts: []flight.Part{}}},
		Scrapes: []merge.Scrape{
			{Cluster: "llama", Address: "10.0.0.1:8000", At: at, Took: time.Millisecond, Report: weighting.ServerReport{
				Queue: known(1), Utilization: known(0.5), Completions: known(100), BusySeconds: known(3.5),
				Tokens:   weighting.TokenCounts{At: at, Prompt: 1, Cached: 2, Generated: 3, First: 4, Iterations: 5},
				Restarts: 2, Implausible: 1,
			}, WrongCounters: "vllm:prompt_tokens_total fell"},
			{Cluster: "llama", Address: "10.0.0.2:8000", At: at, Took: time.Second, Refused: true, Error: "refused"},
			{Cluster: "llama", Address: "10.0.0.3:8000", At: at, Doubt: "twice"},
		},
	}
}

func TestAMessageComesAsItWasSent(t *testing.T) {
	received := noon.Add(time.Hour) // the clocks of two replicas
	got, err := decode(encode(message(), noon), received, maxMessage)
	if err != nil {
		t.Fatal(err)
	}
	shifted := cmp.Transformer("age", func(at time.Time) time.Duration {
		switch {
		case at.IsZero():
			return -1
		case at.After(noon):
			return received.Sub(at)
		}
		return noon.Sub(at)
	})
	if d := cmp.Diff(message(), got, shifted, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestEveryFieldOfAReportIsSent: also those that come later.
func TestEveryFieldOfAReportIsSent(t *testing.T) {
	sent := message()
	sent.Scrapes[0].At = noon
	setAll(t, reflect.ValueOf(&sent.Scrapes[0].Report).Elem())
	got, err := decode(encode(sent, noon), noon, maxMessage)
	if err != nil {
		t.Fatal(err)
	}
	if got := got.Scrapes[0].Report; got != sent.Scrapes[0].Report {
		t.Errorf("of %+v there came %+v", sent.Scrapes[0].Report, got)
	}
}

// setAll sets every number and time in v.
func setAll(t *testing.T, v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case f.Type() == reflect.TypeFor[time.Time]():
			f.Set(reflect.ValueOf(noon))
		case f.Kind() == reflect.Float64:
			f.SetFloat(float64(i + 1))
		case f.Kind() == reflect.Int:
			f.SetInt(int64(i + 1))
		case f.Kind() == reflect.Struct:
			setAll(t, f)
		default:
			t.Fatalf("%s is of a kind that no test knows: %s", v.Type().Field(i).Name, f.Kind())
		}
	}
}

func TestTextsAreCutAndEveryPartOfAMessageIsRefused(t *testing.T) {
	m := message()
	m.Name, m.Scrapes[1].Error = strings.Repeat("n", 2000), strings.Repeat("e", 2000)
	whole := encode(m, noon)
	got, err := decode(whole, noon, maxMessage)
	if err != nil || len(got.Name) != maxText || len(got.Scrapes[1].Error) != maxError {
		t.Fatalf("name of %d and error of %d bytes, %v", len(got.Name), len(got.Scrapes[1].Error), err)
	}
	for n := range whole {
		if _, err := decode(whole[:n], noon, maxMessage); err == nil {
			t.Fatalf("%d of %d bytes are read", n, len(whole))
		}
	}
	if _, err := decode(append(whole, 0), noon, maxMessage); err == nil {
		t.Error("a byte too much is read")
	}
}

func TestAnotherVersionIsNamed(t *testing.T) {
	b := encode(message(), noon)
	b[len(magic)] = version + 1
	if _, err := decode(b, noon, maxMessage); !errors.Is(err, errVersion) {
		t.Errorf("got %v", err)
	}
	if _, err := decode([]byte("hello, world"), noon, maxMessage); err == nil || errors.Is(err, errVersion) {
		t.Errorf("got %v for what is no message", err)
	}
}

func TestWhatIsPublishedIsNoLongerThanWhatReplicasPublish(t *testing.T) {
	parts := make([]flight.Part, maxMessage/leastPart+1)
	m := &merge.Message{From: "a", Seq: 1, Clusters: []merge.Cluster{{Parts: parts}}}
	b := encode(m, noon)
	if _, err := decode(b, noon, maxMessage); err == nil {
		t.Errorf("%d bytes are read", len(b))
	}
	if _, err := decode(b, noon, maxState); err != nil {
		t.Errorf("a state of %d bytes: %v", len(b), err)
	}
	state := &merge.Message{From: "a", Seq: 1, Scrapes: make([]merge.Scrape, maxMessage)}
	if _, err := decode(encode(state, noon), noon, maxState); err == nil {
		t.Error("a state with scrapes of that size is read")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode(message(), noon))
	f.Add(encode(&merge.Message{From: "a", Seq: 1}, noon))
	f.Add([]byte("SYRP\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b, noon, maxMessage)
		if err != nil {
			return
		}
		again, err := decode(encode(m, noon), noon, maxMessage)
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		if len(m.Clusters) != len(again.Clusters) || len(m.Scrapes) != len(again.Scrapes) {
			t.Fatalf("%+v became %+v", m, again)
		}
		p := merge.New("self", noon)
		p.SetMembers(map[string][]string{"llama": {"10.0.0.1:8000"}})
		p.Echo(noon)
		p.Take(noon, m)
		p.Tick(noon)
	})
}

func TestALargeMessageIsSentInPieces(t *testing.T) {
	const most = math.MaxInt64
	m := &merge.Message{From: "a", Seq: 1}
	for range 3 {
		c := merge.Cluster{Name: "llama"}
		for range 5000 {
			c.Parts = append(c.Parts, flight.Part{Address: "10.10.10.10:8000", InFlight: maxCount, Sums: flight.Sums{
				Issued: most, Hashed: most, Ended: most, Failed: most, Errors: most, Succeeded: most, Answered: most,
				Latency: 1,
				Sized:   most, Bytes: 1, Refused: most, RefusedBytes: 1,
			}})
		}
		m.Clusters = append(m.Clusters, c)
	}
	for range 3000 {
		m.Scrapes = append(m.Scrapes, message().Scrapes[1])
	}
	parts, scrapes := 0, 0
	for _, piece := range split(m) {
		piece.Seq = 1
		b := encode(piece, noon)
		if len(b) > maxMessage {
			t.Errorf("a piece has %d bytes", len(b))
		}
		got, err := decode(b, noon, maxMessage)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range got.Clusters {
			parts += len(c.Parts)
		}
		scrapes += len(got.Scrapes)
	}
	if parts != 15_000 || scrapes != 3000 {
		t.Errorf("%d parts and %d scrapes, want 15000 and 3000", parts, scrapes)
	}
}
