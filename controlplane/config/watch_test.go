package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// page is a configuration whose one cluster has the name.
func page(name string) string {
	return fmt.Sprintf("clusters: [{name: %s, engine: vllm, endpoints: {file: endpoints.yaml}}]\n", name)
}

// watched runs a Watcher over a real file and records what it does.
type watched struct {
	*Watcher
	path string
	hup  chan os.Signal

	mu      sync.Mutex
	applied []string // names of the clusters
	reports []error
	refusal error // of apply
}

func follow(t *testing.T, path string) *watched {
	t.Helper()
	w := &watched{path: path, hup: make(chan os.Signal)}
	var first *Config
	var err error
	w.Watcher, first, err = NewWatcher(path, WatchOptions{Apply: w.apply, Report: w.report, HUP: w.hup})
	if err != nil {
		t.Fatal(err)
	}
	w.applied = []string{first.Clusters[0].Name}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	w.ask() // Run listens, so it has looked at the file and watches it
	w.await(t, w.applied[0]+", 1 good, 0 bad")
	w.reports = nil
	return w
}

func (w *watched) apply(cfg *Config) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refusal != nil {
		return w.refusal
	}
	w.applied = append(w.applied, cfg.Clusters[0].Name)
	return nil
}

func (w *watched) report(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reports = append(w.reports, err)
}

func (w *watched) refuse(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refusal = err
}

// seen is what happened so far, as a text: clusters applied, then the number of
// reports, good and bad.
func (w *watched) seen() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	good := 0
	for _, err := range w.reports {
		if err == nil {
			good++
		}
	}
	return fmt.Sprintf("%s, %d good, %d bad", strings.Join(w.applied, " "), good, len(w.reports)-good)
}

func (w *watched) lastReport() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reports[len(w.reports)-1]
}

func (w *watched) await(t *testing.T, want string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for w.seen() != want {
		if time.Now().After(deadline) {
			t.Fatalf("seen %q, want %q; status %+v", w.seen(), want, w.Status())
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// ask asks for a reload, as SIGHUP does.
func (w *watched) ask() { w.hup <- syscall.SIGHUP }

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// overwrite changes a file in place, in one step where the size stays.
func overwrite(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// replace writes another file and renames it over path, as editors do.
func replace(t *testing.T, path, text string) {
	t.Helper()
	write(t, path+".new", text)
	rename(t, path+".new", path)
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestWatcherAppliesWhatIsWrittenAndRenamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "steelyard.yaml")
	write(t, path, page("a"))
	w := follow(t, path)
	before := w.Status()
	if before.Generation != 1 || before.Hash == "" || before.LoadedAt.IsZero() || before.Error != "" ||
		before.Path != path {
		t.Errorf("status at the start: %+v", before)
	}
	overwrite(t, path, page("b"))
	w.await(t, "a b, 1 good, 0 bad")
	replace(t, path, page("c"))
	w.await(t, "a b c, 2 good, 0 bad")
	after := w.Status()
	if after.Generation != 3 || after.Hash == before.Hash || !after.LoadedAt.After(before.LoadedAt) ||
		after.Error != "" || after.WatchError != "" {
		t.Errorf("status at the end: %+v, before %+v", after, before)
	}
}

func TestWatcherSeesWhatChangedBeforeItRan(t *testing.T) {
	path := filepath.Join(t.TempDir(), "steelyard.yaml")
	write(t, path, page("a"))
	applied := make(chan string, 1)
	w, _, err := NewWatcher(path, WatchOptions{Apply: func(cfg *Config) error {
		applied <- cfg.Clusters[0].Name
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, page("b"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	if got := <-applied; got != "b" {
		t.Errorf("applied %q", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestWatcherKeepsTheRunningConfigurationOverABadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "steelyard.yaml")
	write(t, path, page("a"))
	w := follow(t, path)
	running := w.Status()

	replace(t, path, "clusters: []\n")
	w.await(t, "a, 0 good, 1 bad")
	var problems *Error
	if err := w.lastReport(); !errors.As(err, &problems) || !strings.HasPrefix(err.Error(), path+":1:11: ") {
		t.Errorf("reported %v", err)
	}
	bad := w.Status()
	if bad.Error != w.lastReport().Error() || bad.ErrorAt.IsZero() {
		t.Errorf("status: %+v", bad)
	}
	bad.Error, bad.ErrorAt = "", time.Time{}
	if bad != running {
		t.Errorf("the running configuration is now %+v, and was %+v", bad, running)
	}

	replace(t, path, page("a")) // taken back
	w.await(t, "a, 1 good, 1 bad")
	if taken := w.Status(); taken != running {
		t.Errorf("status %+v, before the bad file %+v", taken, running)
	}
}

func TestWatcherReportsAMissingFileOnceAndTakesItUpAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "steelyard.yaml")
	write(t, path, page("a"))
	w := follow(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	w.await(t, "a, 0 good, 1 bad")
	if !errors.Is(w.lastReport(), os.ErrNotExist) {
		t.Errorf("reported %v", w.lastReport())
	}
	replace(t, path, page("b"))
	w.await(t, "a b, 1 good, 1 bad")
}

func TestWatcherRefusesAFileThatNeverEndsAndTakesUpTheNext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "steelyard.yaml")
	write(t, path, page("a"))
	w := follow(t, path)
	if err := syscall.Mkfifo(path+".pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	rename(t, path+".pipe", path)
	w.await(t, "a, 0 good, 1 bad")
	if err := w.lastReport(); !strings.Contains(err.Error(), path+" is a named pipe, not a regular file") {
		t.Errorf("reported %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	w.await(t, "a, 0 good, 2 bad") // it fails in another way
	replace(t, path, page("b"))
	w.await(t, "a b, 1 good, 2 bad")
	if s := w.Status(); s.Error != "" || s.Generation != 2 {
		t.Errorf("status %+v", s)
	}
}

func TestWatcherDoesNothingWhenTheContentStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "steelyard.yaml")
	write(t, path, page("a"))
	var calls []string
	w, _, err := NewWatcher(path, WatchOptions{
		Apply:  func(*Config) error { calls = append(calls, "apply"); return nil },
		Report: func(err error) { calls = append(calls, fmt.Sprint("report ", err)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	before := w.Status()
	future := time.Now().Add(time.Hour)
	if err := os.Chtimes(path, future, future); err != nil {
		t.Fatal(err)
	}
	w.reload(t.Context(), false)
	replace(t, path, page("a"))
	w.reload(t.Context(), false)
	if len(calls) > 0 || w.Status() != before {
		t.Errorf("calls %q, status %+v, before %+v", calls, w.Status(), before)
	}
	w.reload(t.Context(), true) // asked for, it says that all is well
	if len(calls) != 1 || calls[0] != "report <nil>" || w.Status() != before {
		t.Errorf("calls %q, status %+v, before %+v", calls, w.Status(), before)
	}
}

func TestWatcherTriesAgainWhenAsked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "steelyard.yaml")
	write(t, path, page("a"))
	w := follow(t, path)
	w.refuse(errors.New("no certificate"))
	replace(t, path, page("b"))
	w.await(t, "a, 0 good, 1 bad")
	if got := w.Status(); got.Error != "no certificate" || got.Generation != 1 {
		t.Errorf("status %+v", got)
	}
	w.ask()
	w.await(t, "a, 0 good, 2 bad")
	w.refuse(nil)
	w.ask()
	w.await(t, "a b, 1 good, 2 bad")
	if got := w.Status(); got.Error != "" || !got.ErrorAt.IsZero() || got.Generation != 2 {
		t.Errorf("status %+v", got)
	}
}

// TestWatcherFollowsAConfigMap swaps the links as a kubelet does: the file is a
// link through ..data, and ..data is renamed over.
func TestWatcherFollowsAConfigMap(t *testing.T) {
	mount := t.TempDir()
	publish := func(version, text string) {
		mkdir(t, filepath.Join(mount, version))
		write(t, filepath.Join(mount, version, "steelyard.yaml"), text)
		link(t, version, filepath.Join(mount, "..data_tmp"))
		rename(t, filepath.Join(mount, "..data_tmp"), filepath.Join(mount, "..data"))
	}
	publish("..1", page("a"))
	path := filepath.Join(mount, "steelyard.yaml")
	link(t, filepath.Join("..data", "steelyard.yaml"), path)
	w := follow(t, path)
	publish("..2", page("b"))
	w.await(t, "a b, 1 good, 0 bad")
	if err := os.RemoveAll(filepath.Join(mount, "..1")); err != nil {
		t.Fatal(err)
	}
	publish("..3", page("c"))
	w.await(t, "a b c, 2 good, 0 bad")
}

func TestWatcherFollowsALinkIntoAnotherFolder(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"one", "two", "etc"} {
		mkdir(t, filepath.Join(folder, name))
	}
	one, two := filepath.Join(folder, "one", "file"), filepath.Join(folder, "two", "file")
	path := filepath.Join(folder, "etc", "steelyard.yaml")
	write(t, one, page("a"))
	write(t, two, page("c"))
	link(t, one, path)
	w := follow(t, path)
	replace(t, one, page("b"))
	w.await(t, "a b, 1 good, 0 bad")
	link(t, two, path+".new")
	rename(t, path+".new", path)
	w.await(t, "a b c, 2 good, 0 bad")
	replace(t, two, page("d"))
	w.await(t, "a b c d, 3 good, 0 bad")
}

// TestWatcherPollsForChangesWithoutAnEvent swaps the folder by a link above it: the folder that is watched stays as it
// is.
func TestWatcherPollsForChangesWithoutAnEvent(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"a", "b"} {
		mkdir(t, filepath.Join(root, name))
		write(t, filepath.Join(root, name, "steelyard.yaml"), page(name))
	}
	current := filepath.Join(root, "current")
	link(t, "a", current)
	path := filepath.Join(current, "steelyard.yaml")
	w := follow(t, path)
	link(t, "b", current+".new")
	rename(t, current+".new", current)
	w.await(t, "a b, 1 good, 0 bad")
	replace(t, path, page("c")) // and the new folder is watched
	w.await(t, "a b c, 2 good, 0 bad")
}

func TestNewWatcherRefusesABadFile(t *testing.T) {
	if _, _, err := NewWatcher("testdata/bad/empty.yaml", WatchOptions{}); err == nil ||
		!strings.Contains(err.Error(), "empty.yaml:1:1: ") {
		t.Errorf("a bad file: %v", err)
	}
	if _, _, err := NewWatcher("testdata/none.yaml", WatchOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
