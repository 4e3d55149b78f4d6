package config

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"sync"
	"time"

	"steelyard/internal/loops"
	"steelyard/internal/watch"
)

// settle is how long the file must be quiet before it is read.
const settle = 100 * time.Millisecond

// WatchOptions connect a Watcher with its user. Run calls Apply and Report, one at a time.
type WatchOptions struct {
	// Apply makes a new configuration the running one, whole or not at all. It
	// is not called for the configuration that NewWatcher returns.
	Apply func(*Config) error
	// Report gets the result of each reload: nil, or why the running configuration stays. A reload that finds nothing
	// new is not reported, unless HUP asked for it. May be nil.
	Report func(error)
	// HUP asks for a reload. May be nil.
	HUP <-chan os.Signal
}

// Status is what the admin API shows about the configuration.
type Status struct {
	Path       string    `json:"path"`
	Generation uint64    `json:"generation"` // 1 for the first, one more for each applied
	Hash       string    `json:"hash"`       // of the running file: the first 16 hex digits of its SHA-256
	LoadedAt   time.Time `json:"loaded_at"`  // when the running configuration was applied
	Error      string    `json:"error"`      // why the newest file is not the running one; empty when it is
	ErrorAt    time.Time `json:"error_at,omitzero"`
	WatchError string    `json:"watch_error"` // why changes are found by polling only; empty where events work
}

// A Watcher keeps a running configuration in step with its file: a good file is applied, a bad one is reported and the
// running one stays. It sees writes, replacements by rename, and the swapped links of a Kubernetes ConfigMap.
type Watcher struct {
	path    string
	options WatchOptions
	seen    string // hash of the newest content that was tried, "" when it could not be read

	mu     sync.Mutex
	status Status
}

// NewWatcher loads the file at path and returns its configuration, with a Watcher that continues from there.
func NewWatcher(path string, o WatchOptions) (*Watcher, *Config, error) {
	data, err := Read(context.Background(), path)
	if err != nil {
		return nil, nil, err
	}
	cfg, err := Parse(path, data)
	if err != nil {
		return nil, nil, err
	}
	hash := hashOf(data)
	status := Status{Path: path, Generation: 1, Hash: hash, LoadedAt: time.Now()}
	return &Watcher{path: path, options: o, seen: hash, status: status}, cfg, nil
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// Status may be called at any time.
func (w *Watcher) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// Run follows the file until ctx is done, and returns nil then. A system that
// has no watches left is no error: the file is then only polled.
//
// It cannot wait forever for anything but Apply and Report: all that it does with files has a deadline (package
// files). So no heartbeat watches it; that of a reload is Apply's.
func (w *Watcher) Run(ctx context.Context) error {
	watcher := watch.File{Path: w.path, Settle: settle, Poll: watch.PollInterval, Report: w.followed}
	changed := loops.NewSignal() // also set for what changed since NewWatcher
	watching := loops.Start(ctx, func(ctx context.Context) { watcher.Run(ctx, changed) })
	defer watching.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			w.reload(ctx, false)
		case <-w.options.HUP:
			w.reload(ctx, true)
		}
	}
}

func (w *Watcher) followed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status.WatchError = ""
	if err != nil {
		w.status.WatchError = err.Error()
	}
}

// reload reads the file and applies it if it is new. If asked, it also tries a file again that was refused before,
// because the cause may be outside of the file.
func (w *Watcher) reload(ctx context.Context, asked bool) {
	data, err := Read(ctx, w.path)
	if ctx.Err() != nil {
		return // not the file's fault
	}
	if err != nil {
		if changed := w.seen != "" || w.Status().Error != err.Error(); changed || asked {
			w.seen = ""
			w.refuse(err)
		}
		return
	}
	hash := hashOf(data)
	if hash == w.seen && !asked {
		return
	}
	w.seen = hash
	if hash == w.Status().Hash { // a bad file was taken back, or a reload was requested without a change
		w.settled(nil)
		return
	}
	cfg, err := Parse(w.path, data)
	if err == nil {
		err = w.options.Apply(cfg)
	}
	if err != nil {
		w.refuse(err)
		return
	}
	w.settled(func(s *Status) {
		s.Generation++
		s.Hash = hash
		s.LoadedAt = time.Now()
	})
}

// settled records that the file and the running configuration are the same.
func (w *Watcher) settled(applied func(*Status)) {
	w.mu.Lock()
	w.status.Error, w.status.ErrorAt = "", time.Time{}
	if applied != nil {
		applied(&w.status)
	}
	w.mu.Unlock()
	w.report(nil)
}

func (w *Watcher) refuse(err error) {
	w.mu.Lock()
	w.status.Error, w.status.ErrorAt = err.Error(), time.Now()
	w.mu.Unlock()
	w.report(err)
}

func (w *Watcher) report(err error) {
	if w.options.Report != nil {
		w.options.Report(err)
	}
}
