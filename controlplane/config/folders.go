package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/fsnotify/fsnotify"
)

// folders watches the folder of a file and that of the file its links lead to.
// Not the file itself: one that is replaced by a rename is another file, which
// only its folder tells of.
type folders struct {
	watcher *fsnotify.Watcher // nil where the system has none to give
	events  <-chan fsnotify.Event
	errors  <-chan error
}

// newFolders always returns folders that can be used; with an error they tell
// of nothing.
func newFolders() (*folders, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return &folders{}, fmt.Errorf("watching for changes of files: %w", err)
	}
	return &folders{watcher: watcher, events: watcher.Events, errors: watcher.Errors}, nil
}

// follow moves the watches to where the file is now. Real paths are watched: a
// link that is swapped leads to another one.
func (f *folders) follow(path string) error {
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

// close returns when the goroutine behind the watches has ended.
func (f *folders) close() {
	if f.watcher != nil {
		_ = f.watcher.Close() // nothing is written, so nothing is lost
	}
}
