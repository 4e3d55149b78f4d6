package tally

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A sink takes lines of the log, also those that a timer writes while the test goes on.
type sink chan string

func (s sink) Write(line []byte) (int, error) {
	s <- string(line)
	return len(line), nil
}

func TestEventsAreLoggedAtOnceAndThenSummedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := make(sink, 10)
		tally := New(slog.New(slog.NewTextHandler(out, nil)), slog.LevelWarn, "refused", time.Minute)
		var all []string
		lines := func() []string {
			synctest.Wait()
			for range len(out) {
				_, line, _ := strings.Cut(strings.TrimSpace(<-out), " ") // without the time
				all = append(all, line)
			}
			return all
		}
		want := []string{"level=WARN msg=refused peer=a count=1"}
		for _, peer := range []string{"a", "b", "c"} {
			tally.Add("peer", peer)
		}
		if got := lines(); !slices.Equal(got, want) {
			t.Errorf("at once: %q, want %q", got, want)
		}
		time.Sleep(time.Minute)
		want = append(want, "level=WARN msg=refused peer=c count=2")
		if got := lines(); !slices.Equal(got, want) {
			t.Errorf("after an interval: %q, want %q", got, want)
		}
		time.Sleep(time.Minute) // without an event
		tally.Add("peer", "d")
		want = append(want, "level=WARN msg=refused peer=d count=1")
		if got := lines(); !slices.Equal(got, want) {
			t.Errorf("after a rest: %q, want %q", got, want)
		}
		tally.Add("peer", "e")
		tally.End()
		tally.Add("peer", "f")
		time.Sleep(time.Hour)
		if got := lines(); !slices.Equal(got, want) {
			t.Errorf("after the end: %q, want %q", got, want)
		}
	})
}
