package loads

import (
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"steelyard/internal/api"
	"steelyard/weighting"
	"steelyard/xds/loads/loadsv1"
)

// keeper is a server with two clusters, of which one has 10.0.0.1:80 as its endpoint. It returns what it sends to other
// replicas.
func keeper() (s *Server, told *[]*loadsv1.Learned) {
	s, told = New(slog.New(slog.DiscardHandler)), new([]*loadsv1.Learned)
	s.Learned = func(l *loadsv1.Learned) { *told = append(*told, l) }
	s.Configure(map[string]Settings{"llama": {Prefix: &loadsv1.Prefix{}},
		"embed": {Prefix: &loadsv1.Prefix{Routes: 2}}})
	s.Publish("llama", decision(1))
	return s, told
}

func TestAPickerThatComesIsSentWhatIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := keeper()
		a, leaveA := shares(s, "llama", "embed")
		a.in <- about("llama", 1)
		a.in <- about("embed", 7)
		time.Sleep(90 * time.Second)
		s.Take(about("llama", 2))
		b, leaveB := shares(s, "llama")
		_, _ = leaveA(), leaveB()
		want := []*loadsv1.Learned{
			{Clusters: []string{"llama"}, Endpoint: "10.0.0.1:80", Hashes: []uint64{2}, Kept: true},
			{Clusters: []string{"llama"}, Endpoint: "10.0.0.1:80", Hashes: []uint64{1}, Kept: true, AgeSeconds: 90}}
		if !slices.EqualFunc(b.all, want, func(a, b *loadsv1.Learned) bool { return proto.Equal(a, b) }) {
			t.Errorf("it is sent %v, want %v", b.all, want)
		}
		if got := s.Routes("llama"); *got != (api.Routes{Here: 1, Elsewhere: 1, LastMinute: 1, LastTenMinutes: 2,
			LastHour: 2}) {
			t.Errorf("%+v", got)
		}
	})
}

// TestWhatIsLearnedGoesOneHop: what pickers here learn to the other replicas, what theirs learn to the pickers here.
func TestWhatIsLearnedGoesOneHop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, told := keeper()
		a, leaveA := shares(s, "llama")
		b, leaveB := shares(s, "llama")
		c, leaveC := shares(s, "embed")
		a.in <- about("llama", 1)
		pretended := about("llama", 2)
		pretended.Kept, pretended.AgeSeconds = true, 5
		a.in <- pretended
		a.in <- &loadsv1.Learned{Clusters: []string{"llama"}, Endpoint: "10.0.0.1:80"} // lost, says a picker
		synctest.Wait()
		s.Take(about("llama", 3))
		_, _, _ = leaveA(), leaveB(), leaveC()
		if len(*told) != 2 || (*told)[0].GetHashes()[0] != 1 || (*told)[1].GetKept() {
			t.Errorf("the other replicas are sent %v", *told)
		}
		for name, heard := range map[string][2][]uint64{"a": {a.heard, {3}}, "b": {b.heard, {1, 2, 3}}, "c": {}} {
			if !slices.Equal(heard[0], heard[1]) {
				t.Errorf("%s has heard %v, want %v", name, heard[0], heard[1])
			}
		}
		_ = c
	})
}

// TestWhatAnotherReplicaKeepsGoesToThePickersOnceItIsAll here.
func TestWhatAnotherReplicaKeepsGoesToThePickersOnceItIsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, told := keeper()
		a, leave := shares(s, "llama")
		for _, hash := range []uint64{3, 2, 1} {
			l := about("llama", hash)
			l.Kept, l.AgeSeconds = true, uint32(100-hash)
			s.Take(l)
		}
		synctest.Wait()
		if len(a.heard) > 0 {
			t.Errorf("before it is all, a picker has heard %v", a.heard)
		}
		s.TellAll()
		_ = leave()
		if want := []uint64{3, 2, 1}; !slices.Equal(a.heard, want) {
			t.Errorf("a picker has heard %v, want %v", a.heard, want)
		}
		if len(*told) > 0 {
			t.Errorf("the other replicas are sent %v", *told)
		}
	})
}

func TestARestartOfAnEngineGoesToAllReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, told := keeper()
		a, leave := shares(s, "llama")
		s.Take(about("llama", 1))
		restarted := decision(1)
		restarted.Endpoints = slices.Clone(restarted.Endpoints)
		restarted.Endpoints[0].Restarts++
		s.Publish("llama", restarted)
		if len(*told) != 1 || (*told)[0].GetEndpoint() != "10.0.0.1:80" || len((*told)[0].GetHashes()) > 0 {
			t.Errorf("the other replicas are sent %v", *told)
		}
		if got := s.Kept(time.Now()); len(got) > 0 {
			t.Errorf("%v are kept", got)
		}
		s.Take(about("llama", 2))
		s.Take((*told)[0]) // another replica has seen it, too
		if got := s.Kept(time.Now().Add(time.Nanosecond)); len(got) > 0 {
			t.Errorf("%v are kept", got)
		}
		_ = leave()
		if want := []uint64{1, 2, 0}; !slices.Equal(a.heard, want) {
			t.Errorf("a picker has heard %v, want %v", a.heard, want)
		}
	})
}

func TestWhatIsKeptIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := keeper()
		for i := range uint64(5) {
			s.Take(about("embed", i))
			s.Take(about("unknown", i))
			stranger := about("llama", i)
			stranger.Endpoint = "10.9.9.9:80"
			s.Take(stranger)
		}
		if r := s.Routes("embed"); r.Elsewhere != 2 || r.Evicted != 3 {
			t.Errorf("of a cluster with two routes: %+v", r)
		}
		if r := s.Routes("unknown"); r != nil {
			t.Errorf("of one that is not configured: %+v", r)
		}
		if r := s.Routes("llama"); r.Elsewhere != 0 {
			t.Errorf("of an endpoint that is not in the pool: %+v", r)
		}
		for _, l := range []*loadsv1.Learned{{}, {Clusters: []string{"llama"}, Hashes: make([]uint64, MaxHashes+1)},
			{Clusters: []string{"llama"}, Endpoint: string(make([]byte, maxEndpoint+1)), Hashes: []uint64{1}}} {
			s.Take(l)
		}
		settings := make(map[string]Settings)
		for i := range 10 {
			settings[string(rune('a'+i))] = Settings{Prefix: &loadsv1.Prefix{Routes: maxKept}}
		}
		s.Configure(settings)
		if r := s.Routes("llama"); r != nil {
			t.Errorf("of one that was removed: %+v", r)
		}
		for name := range settings {
			s.Take(about(name, 1))
		}
		s.keeping.mu.Lock()
		defer s.keeping.mu.Unlock()
		if n := len(s.keeping.tables); n != 10 {
			t.Errorf("%d tables", n)
		}
	})
}

// TestAllWhoComeAtOnceAreSentTheSameSnapshot, which has what was learned before they came.
func TestAllWhoComeAtOnceAreSentTheSameSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := keeper()
		for i := range uint64(50) {
			s.Take(about("llama", i+1))
		}
		first := s.Kept(time.Now(), "llama")
		s.Take(about("llama", 100))
		began := time.Now()
		time.Sleep(time.Millisecond)
		var heard [20]*sharer
		var ends []func() error
		for i := range heard {
			var leave func() error
			heard[i], leave = shares(s, "llama")
			ends = append(ends, leave)
		}
		time.Sleep(telling)
		for i, leave := range ends {
			_ = leave()
			if got := heard[i].all; len(got) == 0 || got[0] != heard[0].all[0] || got[0] == first[0] {
				t.Errorf("picker %d is sent %v", i, got)
			}
		}
		if took := time.Since(began); took > 2*telling {
			t.Errorf("it took %v", took)
		}
	})
}

func TestADecisionWithoutEndpointsForgetsNothing(t *testing.T) {
	s, _ := keeper()
	s.Take(about("llama", 1))
	s.Publish("llama", weighting.Decision{})
	if got := s.Kept(time.Now()); len(got) != 1 {
		t.Errorf("%v are kept", got)
	}
}
