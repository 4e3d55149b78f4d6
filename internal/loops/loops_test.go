package loops

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestASignalIsSetOnceHoweverOften(t *testing.T) {
	s := NewSignal()
	s.Set()
	s.Set()
	<-s
	select {
	case <-s:
		t.Error("it is set twice")
	default:
	}
	s.Set()
	<-s
}

func TestAPauseEndsWithItsTimeOrItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		Pause(t.Context(), time.Minute)
		if took := time.Since(start); took != time.Minute {
			t.Errorf("it took %v, want a minute", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		Pause(ctx, time.Minute)
		if took := time.Since(start); took != time.Minute+time.Second {
			t.Errorf("the second ended after %v, want with its context", took)
		}
	})
}

func TestEveryCallsUntilItsContextIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, calls := time.Now(), 0
		ctx, cancel := context.WithCancel(t.Context())
		Every(ctx, time.Second, func(now time.Time) {
			if calls++; now.Sub(start) != time.Duration(calls)*time.Second {
				t.Errorf("call %d after %v", calls, now.Sub(start))
			}
			if calls == 3 {
				cancel()
			}
		})
		if calls != 3 {
			t.Errorf("%d calls, want 3", calls)
		}
	})
}

func TestStopWaitsForTheEndOfATask(t *testing.T) {
	ended := false
	task := Start(t.Context(), func(ctx context.Context) {
		<-ctx.Done()
		ended = true
	})
	task.Stop()
	if !ended {
		t.Error("it has not ended")
	}
	task.Stop()
}
