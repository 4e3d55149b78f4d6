package kubernetes

import (
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// A counted watch passes on its events and reports the errors among them: an informer deals with some of them, such as
// one that asks for a new list, and reports nothing. (watch.Filter leaves a goroutine behind when it is stopped.)
type counted struct {
	watch.Interface
	out  chan watch.Event
	quit chan struct{}
	once sync.Once
}

func newCounted(w watch.Interface, failed func(error)) *counted {
	c := &counted{Interface: w, out: make(chan watch.Event), quit: make(chan struct{})}
	go c.pass(failed)
	return c
}

func (c *counted) pass(failed func(error)) {
	defer close(c.out)
	for e := range c.Interface.ResultChan() {
		if e.Type == watch.Error {
			failed(apierrors.FromObject(e.Object))
		}
		select {
		case c.out <- e:
		case <-c.quit:
			return
		}
	}
}

// ResultChan returns the events.
func (c *counted) ResultChan() <-chan watch.Event { return c.out }

// Stop ends the watch; it may be called more than once.
func (c *counted) Stop() {
	c.once.Do(func() { close(c.quit) })
	c.Interface.Stop()
}
