package port

import (
	"sync"
	"time"
)

// A Usage is how much of a bound is used, and how often it was reached.
type Usage struct {
	Used, Limit int
	Refused     uint64    // since the start
	RefusedAt   time.Time // the latest; zero when nothing was
}

// reserve is how often what a connection holds must fit into what is left.
const reserve = 16

// A Quota bounds what all connections together hold of one thing; see the package comment for how it is
// shared. Its methods can be called from any goroutine.
type Quota struct {
	mu    sync.Mutex
	usage Usage
	held  map[string]int // by connection; none of them 0
}

// NewQuota makes a quota of so many.
func NewQuota(limit int) *Quota {
	return &Quota{usage: Usage{Limit: limit}, held: make(map[string]int)}
}

// Take gives the connection one more, and reports whether there was one. What was given must come
// back by Give.
func (q *Quota) Take(connection string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	own := q.held[connection]
	if reserve*own >= q.usage.Limit-q.usage.Used {
		q.usage.Refused++
		q.usage.RefusedAt = time.Now()
		return false
	}
	q.usage.Used++
	q.held[connection] = own + 1
	return true
}

// Give takes one back that Take gave to the connection.
func (q *Quota) Give(connection string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.usage.Used--
	if q.held[connection]--; q.held[connection] == 0 {
		delete(q.held, connection)
	}
}

// Usage is that of now.
func (q *Quota) Usage() Usage {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.usage
}
