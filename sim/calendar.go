package sim

import (
	"math"
	"time"
)

// instant is nanoseconds since the start.
type instant int64

const never = instant(math.MaxInt64)

func (t instant) time() time.Time { return epoch.Add(time.Duration(t)) }

func (t instant) duration() time.Duration { return time.Duration(t) }

func at(d time.Duration) instant { return instant(d) }

// A lane is a place where the next thing to happen is known: the completion of a
// pod, the next arrival, the head of a queue of messages. Whatever moves has a
// lane of its own, so that nothing that was planned ever has to be searched for
// or thrown away.
type lane = int32

// A calendar finds the lane that is next: a binary heap of all lanes by time, and of
// one time by number.
type calendar struct {
	at   []instant
	heap []lane
	pos  []int32 // of each lane in the heap
}

func newCalendar(lanes int) *calendar {
	c := &calendar{at: make([]instant, lanes), heap: make([]lane, lanes), pos: make([]int32, lanes)}
	for i := range c.at {
		c.at[i], c.heap[i], c.pos[i] = never, lane(i), int32(i)
	}
	return c
}

// next is the lane whose time comes first, and that time.
func (c *calendar) next() (lane, instant) { return c.heap[0], c.at[c.heap[0]] }

// set plans a lane's next time, or never.
func (c *calendar) set(l lane, t instant) {
	was := c.at[l]
	if was == t {
		return
	}
	c.at[l] = t
	if t < was {
		c.up(c.pos[l])
	} else {
		c.down(c.pos[l])
	}
}

func (c *calendar) before(a, b lane) bool {
	return c.at[a] < c.at[b] || c.at[a] == c.at[b] && a < b
}

func (c *calendar) up(i int32) {
	l := c.heap[i]
	for i > 0 {
		parent := (i - 1) / 2
		p := c.heap[parent]
		if !c.before(l, p) {
			break
		}
		c.heap[i], c.pos[p] = p, i
		i = parent
	}
	c.heap[i], c.pos[l] = l, i
}

func (c *calendar) down(i int32) {
	l, n := c.heap[i], int32(len(c.heap))
	for {
		child := 2*i + 1
		if child >= n {
			break
		}
		if child+1 < n && c.before(c.heap[child+1], c.heap[child]) {
			child++
		}
		k := c.heap[child]
		if !c.before(k, l) {
			break
		}
		c.heap[i], c.pos[k] = k, i
		i = child
	}
	c.heap[i], c.pos[l] = l, i
}

// A mailbox has messages on their way, in order. Its lane is due when the first one arrives.
type mailbox[T any] struct {
	*calendar
	lane lane
	ring ring[message[T]]
}

type message[T any] struct {
	arrives instant
	content T
}

func newMailbox[T any](c *calendar, l lane) mailbox[T] { return mailbox[T]{calendar: c, lane: l} }

// send puts a message on its way. It arrives no sooner than the one before.
func (m *mailbox[T]) send(arrives instant, content T) {
	if m.ring.len() > 0 {
		arrives = max(arrives, m.ring.last().arrives)
	}
	m.ring.push(message[T]{arrives, content})
	m.plan()
}

// receive takes out the message that has arrived.
func (m *mailbox[T]) receive() T {
	content := m.ring.pop().content
	m.plan()
	return content
}

// clear loses what is on its way.
func (m *mailbox[T]) clear() {
	m.ring = ring[message[T]]{}
	m.plan()
}

func (m *mailbox[T]) plan() {
	next := never
	if m.ring.len() > 0 {
		next = m.ring.first().arrives
	}
	m.set(m.lane, next)
}

// A ring is a first-in, first-out queue.
type ring[T any] struct {
	items []T // a power of two of them
	head  int
	n     int
}

func (r *ring[T]) len() int { return r.n }

func (r *ring[T]) first() *T { return &r.items[r.head] }

func (r *ring[T]) last() *T { return &r.items[(r.head+r.n-1)&(len(r.items)-1)] }

// at is the item at that place from the first one on.
func (r *ring[T]) at(i int) *T { return &r.items[(r.head+i)&(len(r.items)-1)] }

func (r *ring[T]) push(item T) {
	if r.n == len(r.items) {
		r.grow()
	}
	r.items[(r.head+r.n)&(len(r.items)-1)] = item
	r.n++
}

func (r *ring[T]) pop() T {
	item := r.items[r.head]
	r.head = (r.head + 1) & (len(r.items) - 1)
	r.n--
	return item
}

func (r *ring[T]) grow() {
	items := make([]T, max(8, 2*len(r.items)))
	for i := range r.n {
		items[i] = r.items[(r.head+i)&(len(r.items)-1)]
	}
	r.items, r.head = items, 0
}
