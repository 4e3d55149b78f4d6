package controlplane

import (
	"sync"
	"time"

	"steelyard/weighting/push"
)

// A pacer is the rhythm of a loop. Its methods are safe for concurrent use.
type pacer struct {
	mu     sync.Mutex
	rhythm push.Rhythm
	sooner chan struct{} // capacity one: the next step is sooner than the timer is set
}

func newPacer() pacer {
	return pacer{rhythm: push.NewRhythm(time.Now()), sooner: make(chan struct{}, 1)}
}

// news records something new. However much there is, the loop wakes up for it once or twice between two steps.
func (p *pacer) news(record func(*push.Rhythm) (sooner bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if record(&p.rhythm) {
		select {
		case p.sooner <- struct{}{}:
		default: // it has not looked yet
		}
	}
}

func (p *pacer) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rhythm.Begin()
}

func (p *pacer) finished(pause push.Pause) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rhythm.Finished(time.Now(), pause)
}

// wait is how long the next step has to wait.
func (p *pacer) wait() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rhythm.Wait(time.Now())
}
