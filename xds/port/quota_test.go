package port

import (
	"fmt"
	"math"
	"testing"
)

// acquire acquires until the quota refuses, at most atMost times, and returns how many it got.
func acquire(q *Quota, connection string, atMost int) (n int) {
	for n < atMost && q.Acquire(connection) {
		n++
	}
	return n
}

func TestAQuotaIsNeverExceeded(t *testing.T) {
	q := NewQuota(100)
	all := 0
	for i := range 200 {
		all += acquire(q, fmt.Sprint(i), 1000)
	}
	u := q.Usage()
	if all > 100 || u.Used != all || u.Limit != 100 || u.Refused != 200 || u.LastRefused.IsZero() {
		t.Errorf("%d taken, %+v", all, u)
	}
}

// TestGreedyConnectionsLeaveRoomForOthers: each of them gets a seventeenth of what the ones before it left.
func TestGreedyConnectionsLeaveRoomForOthers(t *testing.T) {
	for strangers, leave := range map[int]float64{1: 0.941, 5: 0.738, 10: 0.545, 30: 0.162} {
		const limit, envoys = 100_000, 50
		q := NewQuota(limit)
		for range 10 { // until none of them gets any more
			for i := range strangers {
				acquire(q, fmt.Sprint("stranger ", i), limit)
			}
		}
		if left := 1 - float64(q.Usage().Used)/limit; math.Abs(left-leave) > 0.001 {
			t.Errorf("%d strangers leave %.3f of the limit, want %.3f", strangers, left, leave)
		}
		for i := range envoys {
			if got := acquire(q, fmt.Sprint("envoy ", i), 100); got != 100 {
				t.Errorf("with %d strangers Envoy %d of %d gets %d, want 100", strangers, i, envoys, got)
				break
			}
		}
	}
}

// TestAFleetCanUseNearlyTheWholeLimit: the threshold falls only when little is left.
func TestAFleetCanUseNearlyTheWholeLimit(t *testing.T) {
	q := NewQuota(100_000)
	for i := range 1000 {
		if got := acquire(q, fmt.Sprint(i), 98); got != 98 {
			t.Fatalf("Envoy %d of 1000 gets %d, want 98", i, got)
		}
	}
}

func TestWhatOneConnectionReleasesAnotherCanAcquire(t *testing.T) {
	q := NewQuota(170)
	if got := acquire(q, "a", 100); got != 10 {
		t.Errorf("one connection gets %d of 170, want 10", got)
	}
	for range 10 {
		q.Release("a")
	}
	if u := q.Usage(); u.Used != 0 || len(q.held) != 0 {
		t.Errorf("%+v is left, held by %v", u, q.held)
	}
	if got := acquire(q, "b", 100); got != 10 {
		t.Errorf("the next gets %d", got)
	}
}
