package asynclog

import (
	"bytes"
	"sync"
	"time"
)

// limit is how many bytes of lines wait, some five thousand lines. As many again may be in
// the writer's hands.
const limit = 1 << 20

// A queue holds the lines between those who log and the one who writes. It is an
// io.Writer that never blocks, each Write being one whole line.
type queue struct {
	wake chan struct{} // capacity one: there is something to write

	mu      sync.Mutex // never held during a write
	waiting []byte     // whole lines
	spare   []byte     // the memory of the lines written last
	full    bool       // a line was dropped after those that wait
	unsaid  uint64     // dropped lines that no line in the log tells of yet
	status  Status
}

// Status says how the writing goes.
type Status struct {
	Dropped  uint64    // lines that were not written, since the start
	LastDrop time.Time // zero before the first
	// WritingSince is when the write that has not returned yet began; zero while none is under way.
	WritingSince time.Time
	Err          error // of the latest write, nil when it went well
}

// Write queues a line, or drops it. After a dropped line all are dropped until the writer
// has taken those before it, so that it can say where in the log some are missing.
func (q *queue) Write(line []byte) (int, error) {
	q.mu.Lock()
	if q.full || len(q.waiting)+len(line) > limit {
		q.full = true
		q.drop(1)
	} else {
		q.waiting = append(q.waiting, line...)
	}
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default: // awake already
	}
	return len(line), nil
}

// drop counts lines that are not written. It is called with the lock.
func (q *queue) drop(lines int) {
	q.unsaid += uint64(lines)
	q.status.Dropped += uint64(lines)
	q.status.LastDrop = time.Now()
}

// take hands the waiting lines to the writer, and how many were dropped after them. The lines
// are the writer's until it takes again.
func (q *queue) take() (lines []byte, dropped uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lines = q.waiting
	q.waiting, q.spare = q.spare[:0], lines
	q.full = false
	if len(lines) > 0 || q.unsaid > 0 {
		q.status.WritingSince = time.Now()
	}
	return lines, q.unsaid
}

// written takes the outcome of a write down. The lines that it did not write, whole, are lost.
func (q *queue) written(left []byte, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.status.WritingSince, q.status.Err = time.Time{}, err
	if lost := bytes.Count(left, []byte("\n")); lost > 0 {
		q.drop(lost)
	}
}

// said notes that the log tells of so many dropped lines.
func (q *queue) said(dropped uint64) {
	q.mu.Lock()
	q.unsaid -= dropped
	q.mu.Unlock()
}

func (q *queue) snapshot() Status {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.status
}
