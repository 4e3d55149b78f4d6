package chaos

import (
	"slices"
	"testing"
	"time"
)

func TestAScheduleIsAFunctionOfTheSeed(t *testing.T) {
	a, b := Schedule(7, 10*time.Minute), Schedule(7, 10*time.Minute)
	if !slices.Equal(a, b) {
		t.Error("the same seed makes two schedules")
	}
	if slices.Equal(a, Schedule(8, 10*time.Minute)) {
		t.Error("another seed makes the same schedule")
	}
}

func TestEveryFaultHasItsTurnWithinAMinute(t *testing.T) {
	type fault struct {
		part string
		kind Kind
	}
	for seed := range uint64(500) {
		seen := make(map[fault]bool)
		for _, f := range Schedule(seed, time.Minute) {
			seen[fault{f.Part, f.Kind}] = true
		}
		for _, deck := range lanes() {
			for _, c := range deck {
				if !seen[fault{c.part, c.kind}] {
					t.Fatalf("seed %d has no %s %s", seed, c.part, c.kind)
				}
			}
		}
	}
}

func TestFaultsOfALaneDoNotOverlapAndEndWithinTheRun(t *testing.T) {
	const length = 10 * time.Minute
	ends := make(map[int]time.Duration)
	lanesOf := make(map[string]int)
	for _, f := range Schedule(3, length) {
		if f.At < ends[f.Lane] {
			t.Errorf("%v at %v, and the one before it ends at %v", f, f.At, ends[f.Lane])
		}
		ends[f.Lane] = f.At + f.For
		if f.Kind == Remove {
			continue // is the configuration's matter, whatever happens to the server
		}
		if lane, ok := lanesOf[f.Part]; ok && lane != f.Lane {
			t.Errorf("%s is in lanes %d and %d", f.Part, lane, f.Lane)
		}
		lanesOf[f.Part] = f.Lane
	}
	for lane := range lanes() {
		if ends[lane] > length || ends[lane] < length-time.Minute {
			t.Errorf("lane %d ends at %v of %v", lane, ends[lane], length)
		}
	}
}

func TestSteelyardIsEndedAllThroughARunButItsLastPart(t *testing.T) {
	for length, until := range map[time.Duration]time.Duration{
		time.Minute: 40 * time.Second, 10 * time.Minute: 8 * time.Minute,
	} {
		var last Fault
		for _, f := range Schedule(5, length) {
			if f.Kind == Replace || f.Kind == Close || f.Part == partSteelyard && f.Kind != Pause {
				last = f
			}
		}
		if last.At > until || last.At < until-20*time.Second {
			t.Errorf("of %v: the last is %v at %v, want some until %v and none afterwards", length, last, last.At,
				until)
		}
	}
}
