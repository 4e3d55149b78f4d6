package discovery

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// write replaces a file in place.
func write(t *testing.T, path, body string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
}

// rename replaces a file as editors and careful writers do.
func rename(t *testing.T, path, body string) {
	t.Helper()
	temporary := filepath.Join(filepath.Dir(path), ".new")
	write(t, temporary, body)
	if err := os.Rename(temporary, path); err != nil {
		t.Fatal(err)
	}
}

// watchFile runs a source whose safety net is as good as not there, so that only
// the watching can have seen a change.
func watchFile(t *testing.T, path string) *run {
	t.Helper()
	return start(t, func(report func(error)) Discoverer {
		f := NewFile(path, report, quiet).(*fileSource)
		f.reread = time.Hour
		return f
	})
}

func TestFileIsReadAgainWhenReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "llama.yaml")
	write(t, path, "- targets: [10.0.0.1:80]\n")
	r := watchFile(t, path)
	r.next("10.0.0.1:80")
	rename(t, path, "- targets: [10.0.0.1:80, 10.0.0.2:80]\n")
	r.next("10.0.0.1:80", "10.0.0.2:80")
	write(t, path, "- targets: [10.0.0.2:80]\n")
	r.next("10.0.0.2:80")
	write(t, path, "- targets: [10.0.0.2:80]\n  labels: {zone: a}\n")
	if set := r.next("10.0.0.2:80"); set[0].Zone != "a" {
		t.Errorf("zone %q, want a", set[0].Zone)
	}
	write(t, path, "[]")
	r.next()
}

func TestFileKeepsItsSetThroughGarbageAndRemoval(t *testing.T) {
	path := filepath.Join(t.TempDir(), "llama.json")
	write(t, path, `[{"targets": ["10.0.0.1:80"]}]`)
	r := watchFile(t, path)
	r.next("10.0.0.1:80")
	for _, garbage := range []string{`[{"targets": ["10.0.0.1`, "", `[{"targets": ["10.0.0.1:80"]}, {"targets": [7]}]`,
		"null"} {
		n, _ := r.lastReport()
		write(t, path, garbage)
		r.reported(n, "garbage", func(err error) bool { return err != nil })
		r.silent()
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	r.failure("reading endpoints", path, "no such file")
	r.silent()
	write(t, path, `[{"targets": ["10.0.0.1:80"]}]`)
	r.reported(0, "success", func(err error) bool { return err == nil })
	r.silent() // the same set as before is no news
	write(t, path, `[{"targets": ["10.0.0.2:80"]}]`)
	r.next("10.0.0.2:80")
}

func TestFileThatAppearsLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "llama.yml")
	r := watchFile(t, path)
	r.failure(path, "no such file")
	rename(t, path, "- targets: [10.0.0.1:80]\n")
	r.next("10.0.0.1:80")
}

// Kubernetes mounts a ConfigMap as file -> ..data/file, ..data -> a directory
// with a time in its name, and swaps ..data by a rename.
func TestFileBehindSwappedLinks(t *testing.T) {
	directory := t.TempDir()
	swap := func(version, body string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(directory, version), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(directory, version, "llama.yaml"), body)
		if err := os.Symlink(version, filepath.Join(directory, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(directory, "..data_tmp"), filepath.Join(directory, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	swap("..2026_01", "- targets: [10.0.0.1:80]\n")
	path := filepath.Join(directory, "llama.yaml")
	if err := os.Symlink("..data/llama.yaml", path); err != nil {
		t.Fatal(err)
	}
	r := watchFile(t, path)
	r.next("10.0.0.1:80")
	swap("..2026_02", "- targets: [10.0.0.2:80]\n")
	if err := os.RemoveAll(filepath.Join(directory, "..2026_01")); err != nil {
		t.Fatal(err)
	}
	r.next("10.0.0.2:80")
}

func TestFileIsReadWithoutAnySignOfChange(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "later") // cannot be watched yet
	path := filepath.Join(directory, "llama.yaml")
	r := start(t, func(report func(error)) Discoverer {
		f := NewFile(path, report, quiet).(*fileSource)
		f.reread = 10 * time.Millisecond
		return f
	})
	r.failure("no such file")
	if err := os.Mkdir(directory, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, path, "- targets: [10.0.0.1:80]\n")
	r.next("10.0.0.1:80")
}

func TestSlowReceiverGetsTheLatestSet(t *testing.T) {
	r := NewRefresher(make(chan []Endpoint), func(error) {}, quiet)
	for _, address := range []string{"10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"} {
		r.Done([]Endpoint{{Address: address}}, nil)
	}
	got := r.Pending()
	if len(got) != 1 || got[0].Address != "10.0.0.3:80" {
		t.Errorf("to be sent: %v", got)
	}
	got[0].Address = "written over by the receiver"
	r.Delivered()
	r.Done([]Endpoint{{Address: "10.0.0.3:80"}}, nil)
	if r.Out() != nil {
		t.Error("the receiver's writing changed what is known to be sent")
	}
}

func TestRunEndsWhileTheReceiverIsAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "llama.yaml")
	write(t, path, "- targets: [10.0.0.1:80]\n")
	ctx, cancel := context.WithCancel(context.Background())
	report := func(error) { cancel() }
	if err := NewFile(path, report, quiet).Run(ctx, make(chan []Endpoint)); err != nil {
		t.Error(err)
	}
}

func TestRefresherSendsOnlyChanges(t *testing.T) {
	up := make(chan []Endpoint, 1)
	r := NewRefresher(up, func(error) {}, quiet)
	one, two := []Endpoint{{Address: "10.0.0.1:80"}}, []Endpoint{{Address: "10.0.0.2:80"}}
	if r.Out() != nil {
		t.Error("something to send before anything is known")
	}
	r.Done(one, nil)
	if r.Out() == nil {
		t.Error("nothing to send of the first set")
	}
	r.Delivered()
	r.Done(two, nil)
	r.Done(one, nil) // changed back before it was sent
	if r.Out() != nil {
		t.Error("a set equal to the one sent last is to be sent")
	}
	r.Done([]Endpoint{}, nil)
	if r.Out() == nil || len(r.Pending()) != 0 {
		t.Error("an empty set is not to be sent")
	}
	r.Delivered()
	r.Done([]Endpoint{}, nil)
	if r.Out() != nil {
		t.Error("an empty set is to be sent twice")
	}
}

// TestAFileThatTakesLongIsLateAndSaysSo: a reading that is under way is not begun again, and counts when it ends.
func TestAFileThatTakesLongIsLateAndSaysSo(t *testing.T) {
	readings := make(chan reading)
	var underWay, most atomic.Int32
	r := start(t, func(report func(error)) Discoverer {
		f := NewFile(filepath.Join(t.TempDir(), "llama.json"), report, quiet).(*fileSource)
		f.reread, f.patience = time.Millisecond, 20*time.Millisecond
		f.read = func(ctx context.Context) reading {
			most.Store(max(most.Load(), underWay.Add(1)))
			defer underWay.Add(-1)
			select {
			case out := <-readings:
				return out
			case <-ctx.Done():
				return reading{err: ctx.Err()}
			}
		}
		return f
	})
	readings <- reading{endpoints: []Endpoint{{Address: "10.0.0.1:80"}}}
	r.next("10.0.0.1:80")
	r.failure("llama.json is not read after 20ms, and still being read")
	readings <- reading{endpoints: []Endpoint{{Address: "10.0.0.2:80"}}}
	r.next("10.0.0.2:80")
	if n := most.Load(); n != 1 {
		t.Errorf("%d readings at a time, want 1", n)
	}
}
