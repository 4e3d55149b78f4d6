package chaos

import "sync"

// A gate blocks its callers while it is shut. It is open at first.
type gate struct {
	mu   sync.Mutex
	held chan struct{} // closed when the gate opens again; nil while it is open
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held == nil {
		g.held = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held != nil {
		close(g.held)
		g.held = nil
	}
}

// pass returns when the gate is open, or when quit is closed, and then false.
func (g *gate) pass(quit <-chan struct{}) bool {
	for {
		g.mu.Lock()
		held := g.held
		g.mu.Unlock()
		if held == nil {
			return true
		}
		select {
		case <-held:
		case <-quit:
			return false
		}
	}
}
