package simulate

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// A progress is a line on a terminal that shows how far a simulation is; elsewhere
// it is nothing. It is safe for concurrent use.
type progress struct {
	out io.Writer // nil where there is no terminal

	mu       sync.Mutex
	ran, all int
}

func newProgress(out io.Writer, all int) *progress {
	p := &progress{all: all}
	if isTerminal(out) {
		p.out = out
	}
	p.show()
	return p
}

// done counts one run.
func (p *progress) done() {
	p.mu.Lock()
	p.ran++
	p.mu.Unlock()
	p.show()
}

// show and clear begin at the start of the line and clear to its end.
func (p *progress) show() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out != nil {
		fmt.Fprintf(p.out, "\r\x1b[Ksimulating: %d of %d runs", p.ran, p.all)
	}
}

func (p *progress) clear() {
	if p.out != nil {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(file.Fd()))
}
