package watch

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"steelyard/internal/files"
	"steelyard/internal/loops"
)

// PollInterval is the usual time between two polls. It bounds how late a change is seen without an event: on a network
// file system, behind a chain of links, or when the system has no watches left.
const PollInterval = 5 * time.Second

// longestSettle bounds the wait in a folder that is never quiet, in times of Settle.
const longestSettle = 10

// A File is a file to watch: for writes, for replacements by a rename, and for the swapped links of a Kubernetes
// ConfigMap. What is watched is its folder and the folder that its links lead to, and not the file itself: a file that
// is replaced by a rename is another file, and only the folder has an event for it.
type File struct {
	Path string
	// Settle is how long the folders must be quiet before a change is reported: an editor writes in several steps.
	Settle time.Duration
	Poll   time.Duration // between two changes that are assumed without an event
	// Report is called with why changes are found by polling only; nil: events work.
	Report func(error)
}

// Run sets changed once the file is watched, and then whenever it may have changed, until ctx is done. It cannot wait
// forever for a file system that hangs.
func (w *File) Run(ctx context.Context, changed loops.Signal) {
	var events <-chan fsnotify.Event // never ready without a notifier
	var lost <-chan error
	notifier, err := fsnotify.NewWatcher()
	if err != nil {
		w.Report(fmt.Errorf("watching for changes of files: %w", err))
	} else {
		defer w.close(notifier)
		events, lost = notifier.Events, notifier.Errors
	}
	look := func() { // watches before the file is read, so that no change falls in between
		if notifier != nil {
			if err := w.follow(ctx, notifier); ctx.Err() == nil {
				w.Report(err)
			}
		}
		changed.Set()
	}
	look()
	poll := time.NewTicker(w.Poll)
	defer poll.Stop()
	quiet := time.NewTimer(w.Settle)
	quiet.Stop()        // until there is an event
	var first time.Time // event that is not reported
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
			look()
			continue
		case <-quiet.C:
			first = time.Time{}
			look()
			continue
		case err := <-lost:
			w.Report(err)
		case <-events:
		}
		if first.IsZero() {
			first = time.Now()
		}
		quiet.Reset(min(w.Settle, longestSettle*w.Settle-time.Since(first)))
	}
}

// follow moves the watches to where the file is now.
func (w *File) follow(ctx context.Context, notifier *fsnotify.Watcher) error {
	_, err := files.Within(ctx, w.Path, fmt.Sprintf("watch %p", w),
		func() (struct{}, error) { return struct{}{}, move(notifier, w.Path) })
	return err
}

// move watches real paths: a link that is swapped leads to another one.
func move(notifier *fsnotify.Watcher, path string) error {
	folder, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("watching the folder of %s: %w", path, err)
	}
	wanted := []string{folder}
	if file, err := filepath.EvalSymlinks(path); err == nil {
		wanted = append(wanted, filepath.Dir(file))
	}
	var errs []error
	watched := notifier.WatchList()
	for _, folder := range wanted {
		if slices.Contains(watched, folder) {
			continue
		}
		if err := notifier.Add(folder); err != nil {
			errs = append(errs, fmt.Errorf("watching %s: %w", folder, err))
		}
	}
	for _, folder := range watched {
		if !slices.Contains(wanted, folder) {
			_ = notifier.Remove(folder) // it may be gone already
		}
	}
	return errors.Join(errs...)
}

// close returns when the goroutine behind the watches has ended, unless a folder hangs.
func (w *File) close(notifier *fsnotify.Watcher) {
	_, _ = files.Within(context.Background(), "", fmt.Sprintf("close %p", w), func() (struct{}, error) {
		return struct{}{}, notifier.Close() // nothing is written, so nothing is lost
	})
}
