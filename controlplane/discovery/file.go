package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"steelyard/internal/files"
)

// The times of a watched file.
const (
	// settleQuiet is how long the directory must be quiet before the file is
	// read: a file that is being written, or replaced in several steps, is best
	// read afterwards.
	settleQuiet = 50 * time.Millisecond
	// settleMost bounds that delay in a directory that is never quiet.
	settleMost = 500 * time.Millisecond
	// rereadEvery is how often the file is read even without a notification: not
	// all file systems and links send them.
	rereadEvery = 5 * time.Second
)

type fileSource struct {
	path   string
	reread time.Duration
	report func(error)
	log    *slog.Logger
	warned []string // the warnings of the latest reading
}

// NewFile returns the source of a watched file in Prometheus' file_sd form, JSON
// or YAML by its extension (.json, .yml, .yaml; Run refuses others). report is
// called with the outcome of every reading: nil, or why the previous set is kept.
// It is called on the goroutine of Run. report and log may be nil.
//
// What is watched is the directory, so that a file replaced by a rename, and a
// link swapped as Kubernetes does with a ConfigMap, are seen. Writers should
// replace the file by a rename: a file read while it is being written may be
// well-formed and short.
func NewFile(path string, report func(error), log *slog.Logger) Discoverer {
	return &fileSource{
		path:   path,
		reread: rereadEvery,
		report: orIgnore(report),
		log:    orDiscard(log).With("source", "file", "path", path),
	}
}

func (f *fileSource) Run(ctx context.Context, sets chan<- []Endpoint) error {
	if _, err := parserFor(f.path); err != nil {
		return err
	}
	w := watch(ctx, filepath.Dir(f.path), f.log)
	defer w.close()
	r := NewRefresher(sets, f.report, f.log)
	refresh := func() {
		endpoints, warnings, err := CheckFile(ctx, f.path)
		f.warn(warnings)
		r.Done(endpoints, err)
	}
	refresh()

	reread := time.NewTicker(f.reread)
	defer reread.Stop()
	var s settler
	for {
		select {
		case <-ctx.Done():
			return nil
		case r.Out() <- r.Pending():
			r.Delivered()
		case e := <-w.events:
			if e.Op != fsnotify.Chmod {
				s.event(time.Now())
			}
		case err := <-w.errors:
			f.log.Debug("watching the directory", "error", err)
			s.event(time.Now()) // events may have been lost
		case <-s.fire:
			s.fire = nil
			refresh()
		case <-reread.C:
			w.ensure(ctx)
			refresh()
		}
	}
}

// warn logs the warnings of a file when they change.
func (f *fileSource) warn(warnings []string) {
	if !slices.Equal(warnings, f.warned) {
		for _, w := range warnings {
			f.log.Warn("a label of the endpoints is not used", "warning", w)
		}
	}
	f.warned = warnings
}

// A settler fires once after a burst of events.
type settler struct {
	fire  <-chan time.Time // nil while there is nothing to wait for
	first time.Time        // of the burst
}

func (s *settler) event(now time.Time) {
	if s.fire == nil {
		s.first = now
	}
	s.fire = time.NewTimer(min(settleQuiet, s.first.Add(settleMost).Sub(now))).C
}

// A watcher notifies about changes in one directory, as long as the system can.
type watcher struct {
	directory string
	log       *slog.Logger
	notify    *fsnotify.Watcher
	warned    bool

	events <-chan fsnotify.Event // never ready when there is no notify
	errors <-chan error
}

func watch(ctx context.Context, directory string, log *slog.Logger) *watcher {
	w := &watcher{directory: directory, log: log}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		w.warn(err)
		return w
	}
	w.notify, w.events, w.errors = notify, notify.Events, notify.Errors
	w.ensure(ctx)
	return w
}

// ensure watches the directory again, should it have been away or replaced.
func (w *watcher) ensure(ctx context.Context) {
	if w.notify == nil {
		return
	}
	if err := w.within(ctx, "watch", func() error { return w.notify.Add(w.directory) }); err != nil &&
		ctx.Err() == nil {
		w.warn(err)
	}
}

// warn logs once that changes will be seen late.
func (w *watcher) warn(err error) {
	if !w.warned {
		w.log.Warn("the directory cannot be watched, the file is only read from time to time", "directory", w.directory,
			"error", err)
	}
	w.warned = true
}

// close ends the watching and waits for it, unless the directory hangs.
func (w *watcher) close() {
	if w.notify == nil {
		return
	}
	_ = w.within(context.Background(), "close", func() error {
		err := w.notify.Close()
		for range w.notify.Events { // closed by the reading goroutine as its last act
		}
		return err
	})
}

// within bounds what may hang with the directory.
func (w *watcher) within(ctx context.Context, name string, do func() error) error {
	_, err := files.Within(ctx, w.directory, fmt.Sprintf("%s %p", name, w),
		func() (struct{}, error) { return struct{}{}, do() })
	return err
}
