package config

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/fsnotify/fsnotify"

	"steelyard/internal/files"
)

// folders watches the folder of a file and the folder that its links lead to. It does not watch the file itself: a file
// that is replaced by a rename is another file, and only the folder has an event for it.
type folders struct {
	watcher *fsnotify.Watcher // nil where the system has none to give
	events  <-chan fsnotify.Event
	errors  <-chan error
}

// newFolders always returns folders that can be used; with an error they have no events.
func newFolders() (*folders, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return &folders{}, fmt.Errorf("watching for changes of files: %w", err)
	}
	return &folders{watcher: watcher, events: watcher.Events, errors: watcher.Errors}, nil
}

// follow moves the watches to where the file is now.
func (f *folders) follow(ctx context.Context, path string) error {
	_, err := files.Within(ctx, path, fmt.Sprintf("watch %p", f),
		func() (struct{}, error) { return struct{}{}, f.move(path) })
	return err
}

// move watches real paths: a link that is swapped leads to another one.
func (f *folders) move(path string) error {
	var wanted []string
	if folder, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		wanted = append(wanted, folder)
	}
	if file, err := filepath.EvalSymlinks(path); err == nil {
		wanted = append(wanted, filepath.Dir(file))
	}
	var errs []error
	watched := f.watcher.WatchList()
	for _, folder := range wanted {
		if slices.Contains(watched, folder) {
			continue
		}
		if err := f.watcher.Add(folder); err != nil {
			errs = append(errs, fmt.Errorf("watching %s: %w", folder, err))
		}
	}
	for _, folder := range watched {
		if !slices.Contains(wanted, folder) {
			_ = f.watcher.Remove(folder) // it may be gone already
		}
	}
	return errors.Join(errs...)
}

// close returns when the goroutine behind the watches has ended, unless a folder hangs.
func (f *folders) close() {
	if f.watcher != nil {
		_, _ = files.Within(context.Background(), "", fmt.Sprintf("close %p", f), func() (struct{}, error) {
			return struct{}{}, f.watcher.Close() // nothing is written, so nothing is lost
		})
	}
}
