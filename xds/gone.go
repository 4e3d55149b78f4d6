package xds

import (
	"container/list"
	"time"

	"steelyard/internal/api"
)

const (
	// goneFor is how long the server remembers an Envoy that vanished, unless it reconnects.
	goneFor = 10 * time.Minute
	// maxGone is how many of them it remembers. Beyond that it forgets the one that vanished first.
	maxGone = 1024
)

func envoyOf(g api.GoneEnvoy) envoy { return envoy{g.NodeID, g.Certificate} }

// A goneList holds the Envoys that vanished, each once. The zero value is empty.
type goneList struct {
	byNode map[envoy]*list.Element
	order  list.List // of api.GoneEnvoy; the one that vanished first is at the front
}

// add costs the same however many there are. The caller adds in the order of Since.
func (l *goneList) add(g api.GoneEnvoy) {
	if l.byNode == nil {
		l.byNode = make(map[envoy]*list.Element)
	}
	l.remove(envoyOf(g))
	if len(l.byNode) >= maxGone {
		l.remove(envoyOf(l.order.Front().Value.(api.GoneEnvoy)))
	}
	l.byNode[envoyOf(g)] = l.order.PushBack(g)
}

func (l *goneList) remove(node envoy) {
	if e := l.byNode[node]; e != nil {
		l.order.Remove(e)
		delete(l.byNode, node)
	}
}

// expire removes those that vanished longer ago than goneFor.
func (l *goneList) expire(now time.Time) {
	for e := l.order.Front(); e != nil; e = l.order.Front() {
		g := e.Value.(api.GoneEnvoy)
		if now.Sub(g.Since.Time) <= goneFor {
			return
		}
		l.remove(envoyOf(g))
	}
}

func (l *goneList) latestFirst() []api.GoneEnvoy {
	out := make([]api.GoneEnvoy, 0, len(l.byNode))
	for e := l.order.Back(); e != nil; e = e.Prev() {
		out = append(out, e.Value.(api.GoneEnvoy))
	}
	return out
}
