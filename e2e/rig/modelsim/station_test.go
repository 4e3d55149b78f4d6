package modelsim

import (
	"testing"
	"testing/synctest"
	"time"
)

// inBubble runs f in a bubble in which time is exact.
func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func isDone(j *job) bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

func TestStationServesInOrderOfArrival(t *testing.T) {
	tests := []struct {
		name        string
		slots       int
		speed       float64
		work        []time.Duration
		wait, serve []time.Duration
	}{
		{
			name: "one slot", slots: 1, speed: 1,
			work:  []time.Duration{time.Second, 2 * time.Second, time.Second},
			wait:  []time.Duration{0, time.Second, 3 * time.Second},
			serve: []time.Duration{time.Second, 2 * time.Second, time.Second},
		},
		{
			name: "two slots, the first to be free takes the next", slots: 2, speed: 1,
			work:  []time.Duration{3 * time.Second, time.Second, time.Second, time.Second},
			wait:  []time.Duration{0, 0, time.Second, 2 * time.Second},
			serve: []time.Duration{3 * time.Second, time.Second, time.Second, time.Second},
		},
		{
			name: "half the speed takes twice as long", slots: 1, speed: 0.5,
			work:  []time.Duration{time.Second, time.Second},
			wait:  []time.Duration{0, 2 * time.Second},
			serve: []time.Duration{2 * time.Second, 2 * time.Second},
		},
		{
			name: "no work is served in no time", slots: 1, speed: 1,
			work:  []time.Duration{0, 0, time.Second},
			wait:  []time.Duration{0, 0, 0},
			serve: []time.Duration{0, 0, time.Second},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := newStation(tt.slots, tt.speed, totals{})
				var jobs []*job
				for _, w := range tt.work {
					jobs = append(jobs, s.arrive(w, false))
				}
				for i, j := range jobs {
					<-j.done
					if got := j.started.Sub(j.arrived); got != tt.wait[i] {
						t.Errorf("request %d waited %v, want %v", i, got, tt.wait[i])
					}
					if got := j.due.Sub(j.started); got != tt.serve[i] {
						t.Errorf("request %d executed for %v, want %v", i, got, tt.serve[i])
					}
				}
			})
		})
	}
}

func TestStationCountsWhatItIsDoneWith(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStation(1, 1, newTotals(VLLM))
		s.arrive(time.Second, false)
		second := s.arrive(time.Second, false)
		if st := s.state(); st.running != 1 || st.waiting != 1 || st.served != 0 {
			t.Errorf("running %d, waiting %d, served %d; want 1, 1, 0", st.running, st.waiting, st.served)
		}
		<-second.done
		st := s.state()
		if st.served != 2 || st.running != 0 || st.waiting != 0 {
			t.Errorf("served %d, running %d, waiting %d; want 2, 0, 0", st.served, st.running, st.waiting)
		}
		if st.queueTime.sum != time.Second || st.busyTime.sum != 2*time.Second || st.totalTime.sum != 3*time.Second {
			t.Errorf("queue %v, busy %v, total %v; want 1s, 2s, 3s", st.queueTime.sum, st.busyTime.sum,
				st.totalTime.sum)
		}
		if got := st.queueTime.atMost(0.3); got != 1 {
			t.Errorf("%d requests waited at most 0.3 s, want 1", got)
		}
		if got := st.queueTime.atMost(1e9); got != 2 {
			t.Errorf("%d requests waited at all, want 2", got)
		}
	})
}

func TestStationFreesThePlaceOfARequestThatLeaves(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStation(1, 1, totals{})
		first := s.arrive(time.Hour, false)
		second := s.arrive(time.Hour, false)
		third := s.arrive(time.Second, false)

		s.leave(second)
		if st := s.state(); st.waiting != 1 {
			t.Errorf("%d waiting after one of two left, want 1", st.waiting)
		}
		time.Sleep(10 * time.Second)
		s.leave(first)
		s.leave(first) // gone is gone
		<-third.done
		if got := third.started.Sub(third.arrived); got != 10*time.Second {
			t.Errorf("the last one waited %v, want the 10s until the slot was freed", got)
		}
		if st := s.state(); st.aborted != 2 || st.served != 1 {
			t.Errorf("aborted %d, served %d; want 2, 1", st.aborted, st.served)
		}
		s.leave(third)
		if st := s.state(); st.aborted != 2 {
			t.Errorf("a request that was done counts as aborted")
		}
	})
}

func TestStationContinuesAfterAFreezeWhereItStopped(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStation(2, 1, totals{})
		begin := time.Now()
		before := s.arrive(2*time.Second, false)
		time.Sleep(time.Second)
		s.freeze()
		s.freeze() // twice is once
		time.Sleep(time.Minute)
		during := s.arrive(3*time.Second, false)
		time.Sleep(time.Minute)
		if isDone(before) || isDone(during) {
			t.Fatal("a frozen station completed a request")
		}
		s.thaw()
		<-before.done
		if got := time.Since(begin); got != 2*time.Minute+2*time.Second {
			t.Errorf("the first ended after %v, want 2m2s", got)
		}
		<-during.done
		if got := time.Since(begin); got != 2*time.Minute+4*time.Second {
			t.Errorf("the second ended after %v, want 2m4s", got)
		}
	})
}

// A timer that fires late must not make the server slower than configured:
// the next request starts when the one before it was due.
func TestStationDoesNotDriftWithLateTimers(t *testing.T) {
	s := newStation(1, 1, totals{})
	const n = 50
	var jobs []*job
	for range n {
		jobs = append(jobs, s.arrive(time.Millisecond, false))
	}
	first, last := jobs[0], jobs[n-1]
	<-last.done
	if got := last.due.Sub(first.started); got > n*time.Millisecond+last.arrived.Sub(first.arrived) {
		t.Errorf("%d requests of 1ms took %v", n, got)
	}
}
