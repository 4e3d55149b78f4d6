package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"steelyard/internal/loops"
	"steelyard/internal/watch"
)

const (
	// settle is how long the directory must be quiet before the file is read.
	settle = 50 * time.Millisecond
	// patience is how long reading the file may take before that is reported. The largest file takes a second.
	patience = 5 * time.Second
)

type fileSource struct {
	path     string
	reread   time.Duration
	patience time.Duration
	read     func(context.Context) reading
	report   func(error)
	log      *slog.Logger
	polled   bool // it was logged that the directory cannot be watched
}

// A reading is the outcome of reading the file.
type reading struct {
	endpoints []Endpoint
	err       error
}

// NewFile returns the source of a watched file in Prometheus' file_sd form, JSON
// or YAML by its extension (.json, .yml, .yaml; Run refuses others). report is
// called with the outcome of every reading: nil, or why the previous set is kept.
// It is called on the goroutine of Run.
//
// Writers should replace the file by a rename: a file read while it is being written may be well-formed and short.
func NewFile(path string, report func(error), log *slog.Logger) Discoverer {
	return &fileSource{
		path:   path,
		reread: watch.PollInterval, patience: patience,
		read: func(ctx context.Context) reading {
			endpoints, unused, err := CheckFile(ctx, path)
			if err == nil {
				err = Omit(unused)
			}
			return reading{endpoints, err}
		},
		report: report,
		log:    log.With("source", "file", "path", path),
	}
}

func (f *fileSource) Run(ctx context.Context, sets chan<- []Endpoint) error {
	if _, err := parserFor(f.path); err != nil {
		return err
	}
	watcher := watch.File{Path: f.path, Settle: settle, Poll: f.reread, Report: f.watched}
	changed := loops.NewSignal()
	watching := loops.Start(ctx, func(ctx context.Context) { watcher.Run(ctx, changed) })
	defer watching.Stop()
	r := NewRefresher(sets, f.report, f.log)
	done := make(chan reading, 1)
	due := changed // nil while the file is being read
	var readings sync.WaitGroup
	defer readings.Wait()
	late := time.NewTimer(f.patience)
	late.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case r.Out() <- r.Pending():
			r.Delivered()
		case <-due:
			due = nil
			late.Reset(f.patience)
			readings.Go(func() { done <- f.read(ctx) })
		case <-late.C:
			r.Done(nil,
				fmt.Errorf("reading endpoints: %s is not read after %v, and still being read: make it smaller, "+
					"or give this process more CPU time", f.path, f.patience))
		case outcome := <-done:
			late.Stop()
			due = changed
			r.Done(outcome.endpoints, outcome.err)
		}
	}
}

// watched logs once that changes will be seen late.
func (f *fileSource) watched(err error) {
	if err != nil && !f.polled {
		f.polled = true
		f.log.Warn("the directory cannot be watched, the file is only read from time to time", "error", err)
	}
}
