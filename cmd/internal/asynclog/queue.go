package asynclog

import (
	"bytes"
	"sync"
	"time"

	"steelyard/internal/api"
	"steelyard/internal/loops"
)

// limit bounds the lines that wait, in bytes: some five thousand lines. The writer may hold as many again.
const limit = 1 << 20

// A queue holds the lines between the callers of the log and its writer. It is an io.Writer that never blocks; each
// Write is one whole line.
type queue struct {
	wake loops.Signal // there is something to write

	mu         sync.Mutex // never held during a write
	waiting    []byte     // whole lines
	spare      []byte     // the memory of the lines written last
	full       bool       // a line was dropped after those that wait
	unreported uint64     // dropped lines that no line in the log has counted yet
	status     api.LogStatus
	// writingSince is when the write that has not returned yet began; zero while none is under way.
	writingSince time.Time
}

// Write queues a line, or drops it. After a dropped line all lines are dropped until the writer has taken those before
// it, so that the log shows where lines are missing.
func (q *queue) Write(line []byte) (int, error) {
	q.mu.Lock()
	if q.full || len(q.waiting)+len(line) > limit {
		q.full = true
		q.drop(1)
	} else {
		q.waiting = append(q.waiting, line...)
	}
	q.mu.Unlock()
	q.wake.Set()
	return len(line), nil
}

// drop counts lines that are not written. It is called with the lock.
func (q *queue) drop(lines int) {
	q.unreported += uint64(lines)
	q.status.DroppedLines += uint64(lines)
	q.status.LastDrop = api.At(time.Now())
}

// drain returns the waiting lines to the writer, and how many were dropped after them. The lines belong to the writer
// until the next take.
func (q *queue) drain() (lines []byte, dropped uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lines = q.waiting
	q.waiting, q.spare = q.spare[:0], lines
	q.full = false
	if len(lines) > 0 || q.unreported > 0 {
		q.writingSince = time.Now()
	}
	return lines, q.unreported
}

// written records the outcome of a write. Lines that were not written in full are lost.
func (q *queue) written(left []byte, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.writingSince, q.status.Error = time.Time{}, ""
	if err != nil {
		q.status.Error = err.Error()
	}
	if lost := bytes.Count(left, []byte("\n")); lost > 0 {
		q.drop(lost)
	}
}

// reported records that a line in the log has counted dropped lines.
func (q *queue) reported(dropped uint64) {
	q.mu.Lock()
	q.unreported -= dropped
	q.mu.Unlock()
}

func (q *queue) snapshot() api.LogStatus {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := q.status
	if !q.writingSince.IsZero() {
		out.StalledSeconds = api.Seconds(time.Since(q.writingSince))
	}
	return out
}
