package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A reload can wait for a loop that never ends, and SIGTERM is how a process that is stuck is restarted.
func TestAReloadThatIsStuckDoesNotHoldTheEndUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		defer close(stuck)
		ctx, terminate := context.WithCancel(t.Context())
		untilDone := func(ctx context.Context) error { <-ctx.Done(); return nil }
		began := time.Now()
		time.AfterFunc(time.Second, terminate)
		err := runWith(ctx, untilDone, func(context.Context) error { <-stuck; return nil })
		if took := time.Since(began) - time.Second; err != nil || took > reloadPatience {
			t.Errorf("%v, %v after SIGTERM", err, took)
		}
	})
}

func TestTheDaemonAndTheWatcherEndTogether(t *testing.T) {
	failure := errors.New("it failed")
	untilDone := func(ctx context.Context) error { <-ctx.Done(); return nil }
	fails := func(context.Context) error { return failure }
	if err := runWith(t.Context(), fails, untilDone); !errors.Is(err, failure) {
		t.Errorf("a daemon that fails: %v", err)
	}
	if err := runWith(t.Context(), untilDone, fails); !errors.Is(err, failure) {
		t.Errorf("a watcher that fails: %v", err)
	}
}
