package xds

import (
	"context"
	"log/slog"
	"sync"
)

// A loggingMutex is a lock with a log: it writes the lines that are logged while it is held when it is released. A log
// may be slow, and goroutines that wait for the lock must not wait for the log too.
type loggingMutex struct {
	sync.Mutex
	log   *slog.Logger
	lines []line // of the current critical section
}

type line struct {
	level   slog.Level
	message string
	args    []any
}

// logLater logs a line as soon as the lock is released. The caller holds the lock.
func (m *loggingMutex) logLater(level slog.Level, message string, args ...any) {
	m.lines = append(m.lines, line{level, message, args})
}

// Unlock releases the lock, and then writes the lines.
func (m *loggingMutex) Unlock() {
	lines := m.lines
	m.lines = nil
	m.Mutex.Unlock()
	for _, l := range lines {
		m.log.Log(context.Background(), l.level, l.message, l.args...)
	}
}
