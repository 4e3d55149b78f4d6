package queue

import (
	"cmp"
	"container/list"
	"slices"
	"time"
)

// A Class is a part of the queue with its share of what is sent.
type Class struct {
	Name       string
	Weight     float64       // its share, relative to the others; above 0
	Strict     bool          // before all classes that are not strict, whatever their weights
	MaxWaiting int           // requests; with more of them, one is refused
	MaxWait    time.Duration // after which a request is refused
}

// waiting is a request in the line.
type waiting struct {
	Request
	class             *class
	tenant            *tenant
	inTenant, inClass *list.Element
}

// tenant is a tenant with waiting requests.
type tenant struct {
	name     string
	requests list.List     // of *waiting, by Since
	turn     *list.Element // in the turns of its class
}

// class is a class with its requests.
type class struct {
	Class
	position float64 // the lowest is next
	tenants  map[string]*tenant
	turns    list.List // of *tenant: the first is next
	requests list.List // of *waiting, by Since
}

func (c *class) oldest() *waiting {
	if c.requests.Len() == 0 {
		return nil
	}
	return c.requests.Front().Value.(*waiting)
}

// line holds the requests that wait, in the order of the package comment.
type line struct {
	classes []*class
	byID    map[ID]*waiting
	served  float64 // position of the class that was served last
}

func newLine(classes []Class) *line {
	l := &line{byID: make(map[ID]*waiting)}
	for _, c := range classes {
		l.classes = append(l.classes, &class{Class: c, tenants: make(map[string]*tenant)})
	}
	return l
}

// class returns the class with a name; the last one for an unknown name.
func (l *line) class(name string) *class {
	for _, c := range l.classes {
		if c.Name == name {
			return c
		}
	}
	return l.classes[len(l.classes)-1]
}

// add adds a request to the line.
func (l *line) add(r Request) {
	c := l.class(r.Class)
	if c.requests.Len() == 0 {
		c.position = max(c.position, l.served)
	}
	t := c.tenants[r.Tenant]
	if t == nil {
		t = &tenant{name: r.Tenant}
		t.turn = c.turns.PushBack(t)
		c.tenants[r.Tenant] = t
	}
	w := &waiting{Request: r, class: c, tenant: t}
	w.inTenant, w.inClass = insert(&t.requests, w), insert(&c.requests, w)
	l.byID[r.ID] = w
}

// insert adds to a list that is ordered by Since. The request is usually the newest.
func insert(to *list.List, w *waiting) *list.Element {
	for e := to.Back(); e != nil; e = e.Prev() {
		if !w.Since.Before(e.Value.(*waiting).Since) {
			return to.InsertAfter(w, e)
		}
	}
	return to.PushFront(w)
}

// next returns the request to send next; nil if none waits.
func (l *line) next() *waiting {
	var best *class
	for _, c := range l.classes {
		switch {
		case c.requests.Len() == 0:
		case c.Strict && (best == nil || !best.Strict):
			best = c
		case best == nil, !c.Strict && !best.Strict && c.position < best.position:
			best = c
		}
	}
	if best == nil {
		return nil
	}
	return best.turns.Front().Value.(*tenant).requests.Front().Value.(*waiting)
}

// serve removes the request that was next: its class and its tenant have had their turn.
func (l *line) serve(w *waiting) {
	if !w.class.Strict {
		l.served = w.class.position
		w.class.position += 1 / w.class.Weight
	}
	w.class.turns.MoveToBack(w.tenant.turn)
	l.remove(w)
}

// remove removes a request that leaves without having been sent.
func (l *line) remove(w *waiting) {
	delete(l.byID, w.ID)
	w.class.requests.Remove(w.inClass)
	w.tenant.requests.Remove(w.inTenant)
	if w.tenant.requests.Len() == 0 {
		w.class.turns.Remove(w.tenant.turn)
		delete(w.class.tenants, w.tenant.name)
	}
}

// excess returns the request to refuse from a class that has more than its maximum: the latest of the tenant with the
// most; of several such tenants, the latest request. It returns nil if the class does not exceed its maximum.
func (c *class) excess() (worst *waiting) {
	if c.requests.Len() <= c.MaxWaiting {
		return nil
	}
	most := 0
	for e := c.turns.Front(); e != nil; e = e.Next() {
		t := e.Value.(*tenant)
		last := t.requests.Back().Value.(*waiting)
		if n := t.requests.Len(); n > most || n == most && last.Since.After(worst.Since) {
			most, worst = n, last
		}
	}
	return worst
}

// all returns the requests that wait, by Since.
func (l *line) all() []*waiting {
	out := make([]*waiting, 0, len(l.byID))
	for _, w := range l.byID {
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b *waiting) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID.Stream, b.ID.Stream),
			cmp.Compare(a.ID.Request, b.ID.Request))
	})
	return out
}
