package watch

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"steelyard/internal/loops"
)

// watch watches a file until the test ends; it returns when the file is watched.
func watch(t *testing.T, path string, settle, poll time.Duration) (changed loops.Signal, reports chan error) {
	t.Helper()
	reports = make(chan error, 1000)
	w := File{Path: path, Settle: settle, Poll: poll, Report: func(err error) { reports <- err }}
	changed = loops.NewSignal()
	ctx := t.Context()
	task := loops.Start(ctx, func(ctx context.Context) { w.Run(ctx, changed) })
	t.Cleanup(task.Stop)
	<-changed
	return changed, reports
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestChangesAreReportedAfterABurstAndDuringAnEndlessOne(t *testing.T) {
	const settle = 100 * time.Millisecond
	path := filepath.Join(t.TempDir(), "list")
	changed, _ := watch(t, path, settle, time.Hour)
	put(t, path, "one")
	latest := time.Now()
	put(t, path, "two")
	<-changed
	if after := time.Since(latest); after < settle {
		t.Errorf("a burst was reported %v after its latest event, want %v at least", after, settle)
	}
	began := time.Now()
	for reported := false; !reported; {
		put(t, path, "again")
		select {
		case <-changed:
			reported = true
		case <-time.After(settle / 10):
		}
	}
	if took := time.Since(began); took < 2*settle || took > 5*longestSettle*settle {
		t.Errorf("endless events were reported after %v, want about %v", took, longestSettle*settle)
	}
}

func TestAFolderThatCannotBeWatchedIsReportedUntilItCan(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "later")
	path := filepath.Join(folder, "list")
	changed, reports := watch(t, path, 10*time.Millisecond, 20*time.Millisecond)
	if err := <-reports; err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("without the folder: %v, want the path", err)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for err := <-reports; err != nil; err = <-reports {
	}
	put(t, path, "one")
	<-changed
}
