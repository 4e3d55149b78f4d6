package discovery

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"steelyard/internal/loops"
	"steelyard/internal/watch"
)

// settle is how long the directory must be quiet before the file is read.
const settle = 50 * time.Millisecond

type fileSource struct {
	path   string
	reread time.Duration
	report func(error)
	log    *slog.Logger
	warned []string // the warnings of the latest reading
	polled bool     // it was logged that the directory cannot be watched
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
		reread: watch.PollInterval,
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
	for {
		select {
		case <-ctx.Done():
			return nil
		case r.Out() <- r.Pending():
			r.Delivered()
		case <-changed:
			endpoints, warnings, err := CheckFile(ctx, f.path)
			f.warn(warnings)
			r.Done(endpoints, err)
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

// warn logs the warnings of a file when they change.
func (f *fileSource) warn(warnings []string) {
	if !slices.Equal(warnings, f.warned) {
		for _, w := range warnings {
			f.log.Warn("a label of the endpoints is not used", "warning", w)
		}
	}
	f.warned = warnings
}
