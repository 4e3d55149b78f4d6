package places

import (
	"math"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"steelyard/weighting"
	"steelyard/xds/loads/loadsv1"
)

// FuzzTake: whatever a proxy sends, what it has open is what waits and what is in flight, and nothing is left of it
// when its stream has ended.
func FuzzTake(f *testing.F) {
	for _, m := range []*loadsv1.WaitRequest{
		llama,
		{Cluster: "llama", Held: []*loadsv1.Held{{Id: 1, Endpoint: "10.0.0.1:80"}, {Id: 1, Endpoint: "?"}}},
		{Arrivals: []*loadsv1.Arrival{{Id: 1, Class: "all", Tenant: "x", Size: -1},
			{Id: 2, WaitedMicroseconds: 1 << 63}}, SentMicroseconds: 1 << 63},
		{Arrivals: []*loadsv1.Arrival{{Id: 1, Key: 7, Cached: []*loadsv1.Cached{{},
			{Endpoint: "10.0.0.1:80", Share: 0.5}, {Endpoint: "?", Share: math.NaN()}}}}},
		{Arrivals: []*loadsv1.Arrival{{Id: 1}, {Id: 1}}, Ended: []uint64{1, 1, 7}},
	} {
		text, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, text)
	}
	now := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, first, second []byte) {
		h := newTestHall(&results{by: make(map[string]int)}, time.Time{})
		h.configure(one(time.Hour), now)
		d := weighting.NewLaw(weighting.DefaultParams()).Step(now, weighting.Snapshot{
			Endpoints: []weighting.Endpoint{{Address: "10.0.0.1:80", Capacity: 4}}})
		h.decided(&d, now)
		s := newStream(now)
		h.join(s)
		for _, text := range [][]byte{first, second} {
			var m loadsv1.WaitRequest
			if proto.Unmarshal(text, &m) != nil || h.receive(s, &m, now) != nil {
				continue
			}
			state, _ := h.state()
			if n := int(state.InFlight.Or(0)) + state.Classes[0].Waiting; n != len(s.open) {
				t.Fatalf("%d wait or are in flight, and %d are open", n, len(s.open))
			}
		}
		h.leave(s, now)
		if state, _ := h.state(); state.InFlight.Or(-1) != 0 || state.Classes[0].Waiting != 0 || state.Envoys != 0 {
			t.Fatalf("after the stream: %+v", state)
		}
	})
}
