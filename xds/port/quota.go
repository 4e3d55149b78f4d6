package port

import (
	"sync"
	"time"

	"steelyard/internal/api"
)

// reserve bounds what a connection holds: it may acquire one more while reserve times what it holds is less than what
// is left.
const reserve = 16

// A Quota limits how much of one resource all connections hold together; the package comment describes how they share
// it. Its methods can be called from any goroutine.
type Quota struct {
	mu    sync.Mutex
	usage api.Bound
	held  map[string]int // by connection; without zeros
}

// NewQuota makes a quota with a limit.
func NewQuota(limit int) *Quota {
	return &Quota{usage: api.Bound{Limit: limit}, held: make(map[string]int)}
}

// Acquire reports whether the connection may hold one more. If so, the connection must give it back with Release.
func (q *Quota) Acquire(connection string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	own := q.held[connection]
	if reserve*own >= q.usage.Limit-q.usage.Used {
		q.usage.Refused++
		q.usage.LastRefused = api.At(time.Now())
		return false
	}
	q.usage.Used++
	q.held[connection] = own + 1
	return true
}

// Release gives back one that the connection has acquired.
func (q *Quota) Release(connection string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.usage.Used--
	if q.held[connection]--; q.held[connection] == 0 {
		delete(q.held, connection)
	}
}

// Usage returns the current usage.
func (q *Quota) Usage() api.Bound {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.usage
}
