package places

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"steelyard/weighting"
	"steelyard/xds/loads/loadsv1"
)

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

func TestAMessageIsLateAgainstTheFastestOne(t *testing.T) {
	// sent is by the sender's clock, received by ours, both in milliseconds since the first message.
	type message struct{ sent, received, late float64 }
	for what, messages := range map[string][]message{
		"constant, whatever the offset": {{0, 0, 0}, {10, 10, 0}, {500, 500, 0}},
		"one is late":                   {{0, 0, 0}, {10, 100.2, 90.1499}, {101, 101, 0}},
		"the first was late":            {{0, 0, 0}, {10, 3, 0}, {20, 20, 6.9915}},
		"two, received together":        {{0, 0, 0}, {40, 80, 39.96}, {79, 80, 0.96}},
		"a slow clock of the sender":    {{0, 0, 0}, {999.6, 1000, 0}, {1999.2, 2000, 0}, {2099.2, 2150, 49.925}},
		"a fast clock of the sender":    {{0, 0, 0}, {1000.4, 1000, 0}, {2000.8, 2000, 0}, {2100.8, 2150, 49.925}},
		"a clock that jumps back":       {{0, 0, 0}, {-8000, 2000, 1000}, {-7990, 2010, 0}, {-7980, 2050, 29.98}},
		"a clock that jumps ahead":      {{0, 0, 0}, {90_000, 10, 0}, {90_010, 40, 19.985}},
		"a clock that jumps back by less": {{0, 0, 0}, {-400, 100, 499.95}, {599_600, 600_100, 199.95},
			{1_599_600, 1_600_100, 0}},
		"one later than may be": {{0, 0, 0}, {10, 2010, 1000}, {2011, 2011, 0}, {2020, 2060, 39.9755}},
	} {
		t.Run(what, func(t *testing.T) {
			var f fastest
			for i, m := range messages {
				sent := uint64(3_600_000_000 + 1000*m.sent) // its clock is an hour old
				received := noon.Add(time.Duration(m.received * float64(time.Millisecond)))
				if got := f.late(sent, received).Seconds() * 1000; math.Abs(got-m.late) > 1e-5 {
					t.Errorf("message %d is %v ms late, want %v", i, got, m.late)
				}
			}
		})
	}
}

func TestAMessageThatDoesNotSayWhenItWasSentIsNotLate(t *testing.T) {
	var f fastest
	for i, m := range []struct {
		sent, late uint64 // in microseconds
	}{{0, 0}, {5_000_000, 0}, {0, 0}, {5_000_000, 1500 - 1}} {
		got := f.late(m.sent, noon.Add(time.Duration(i)*750*time.Microsecond))
		if want := time.Duration(m.late) * time.Microsecond; got.Truncate(time.Microsecond) != want {
			t.Errorf("message %d is %v late, want %v", i, got, want)
		}
	}
}

func TestWhateverASenderSaysItGainsAtMostASecond(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var f fastest
	for received := noon; received.Before(noon.Add(time.Hour)); {
		received = received.Add(time.Duration(random.Int64N(int64(10 * time.Second))))
		if late := f.late(random.Uint64()>>random.UintN(64), received); late < 0 || late > time.Second {
			t.Fatalf("a message is %v late", late)
		}
	}
}

func TestARequestWhoseMessageIsLateIsSentBeforeAYoungerOne(t *testing.T) {
	h := newTestHall(&results{by: make(map[string]int)}, time.Time{})
	h.configure(one(time.Hour), noon)
	d := weighting.NewLaw(weighting.DefaultParams()).Step(noon, weighting.Snapshot{
		Endpoints: []weighting.Endpoint{{Address: "10.0.0.1:80", Capacity: 4}}})
	h.decided(&d, noon)
	var streams [2]*stream
	for i := range streams {
		streams[i] = newStream(noon)
		h.join(streams[i])
	}
	for _, m := range []struct {
		stream, sent, received int // in milliseconds
		arrivals, ended        []uint64
	}{
		{0, 0, 0, []uint64{1}, nil}, // it takes the place
		{1, 0, 1, nil, nil},
		{0, 100, 100, []uint64{2}, nil},
		{1, 90, 150, []uint64{3}, nil}, // 59 ms late
		{0, 200, 200, nil, []uint64{1}},
	} {
		request := &loadsv1.WaitRequest{Ended: m.ended, SentMicroseconds: 3_600_000_000 + 1000*uint64(m.sent)}
		for _, id := range m.arrivals {
			request.Arrivals = append(request.Arrivals, &loadsv1.Arrival{Id: id, Size: -1, WaitedMicroseconds: 5000})
		}
		received := noon.Add(time.Duration(m.received) * time.Millisecond)
		if err := h.receive(streams[m.stream], request, received); err != nil {
			t.Fatal(err)
		}
	}
	if got := streams[1].taken(); len(got) != 1 || got[0].GetId() != 3 || got[0].GetEndpoint() != "10.0.0.1:80" {
		t.Errorf("the verdicts of the second stream are %v, want that the older request has the place", got)
	}
	if state, _ := h.state(); !state.Classes[0].OldestAt.Equal(noon.Add(95 * time.Millisecond)) {
		t.Errorf("what still waits came at %v, want 95 ms after noon", state.Classes[0].OldestAt)
	}
}
