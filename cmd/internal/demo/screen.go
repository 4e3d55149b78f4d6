package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"steelyard/e2e/rig/load"
)

// A frame is a running phase as it is shown.
type frame struct {
	title             string
	elapsed, duration time.Duration
	load              load.Snapshot
	servers           []gauge
}

// A gauge is one server at one moment.
type gauge struct {
	endpoint
	queue, running int
	weight         float64 // 0..1; 0 where there are no weights
}

// line is the frame in one line, without the servers.
func (f frame) line() string {
	return fmt.Sprintf("%-11s %3.0f s  sent %-5d wait p50 %8s  p99 %8s  errors %d",
		f.title, f.elapsed.Seconds(), f.load.Sent, span(f.load.Wait.P50), span(f.load.Wait.P99), f.load.Errors)
}

// plain is the frame in one line with the queues.
func (f frame) plain() string {
	var queues strings.Builder
	for _, s := range f.servers {
		fmt.Fprintf(&queues, " %d", s.queue)
	}
	return f.line() + "  queues" + queues.String() + "\n"
}

// maxRows is how many servers are drawn: the picture must fit on a screen.
const maxRows = 16

// picture is the frame with a row for each server: its slots, and its queue as a
// bar of one dot for each request.
func (f frame) picture() string {
	var b strings.Builder
	fmt.Fprintln(&b, f.line())
	for _, s := range f.servers[:min(len(f.servers), maxRows)] {
		fmt.Fprintf(&b, "  %-15s %-6s %4gx  %s  %s%s%s\n", s.address, s.engine, s.speed, percent(s.weight),
			strings.Repeat("■", s.running), strings.Repeat("□", max(0, s.slots-s.running)), bar(s.queue))
	}
	if more := len(f.servers) - maxRows; more > 0 {
		fmt.Fprintf(&b, "  and %d more\n", more)
	}
	if f.elapsed > f.duration {
		fmt.Fprintf(&b, "  the load has ended; %d requests are outstanding\n", f.load.Sent-f.load.Done)
	}
	return b.String()
}

// maxBar keeps rows within 80 columns.
const maxBar = 28

// bar is a queue drawn with one dot for each request that waits.
func bar(queue int) string {
	if queue == 0 {
		return ""
	}
	return fmt.Sprintf("  %s %d", strings.Repeat("•", min(queue, maxBar)), queue)
}

// A screen is where the demo writes. On a terminal a running phase is redrawn in
// place, elsewhere it leaves one line a second.
type screen struct {
	out      io.Writer
	terminal bool
	drawn    int // lines of the picture that stand above the cursor
	every    int // frames for each plain line
	frames   int
}

func newScreen(out io.Writer) *screen {
	return &screen{out: out, terminal: isTerminal(out), every: 1}
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(interface{ Stat() (os.FileInfo, error) })
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (s *screen) printf(format string, args ...any) {
	fmt.Fprintf(s.out, format, args...)
}

// calm thins out the lines of a phase that may last for days.
func (s *screen) calm() { s.every = 60 }

// show draws a frame over the one before.
func (s *screen) show(f frame) {
	if !s.terminal {
		if s.frames++; s.frames%s.every == 0 {
			s.printf("%s", f.plain())
		}
		return
	}
	picture := f.picture()
	s.printf("%s%s", s.erase(), picture)
	s.drawn = strings.Count(picture, "\n")
}

// settle replaces the picture by a text that stays.
func (s *screen) settle(text string) {
	s.printf("%s%s", s.erase(), text)
	s.drawn = 0
}

// erase returns the control sequence that removes the picture from a terminal: up by its
// height, then clear to the end.
func (s *screen) erase() string {
	if s.drawn == 0 {
		return ""
	}
	return fmt.Sprintf("\x1b[%dA\x1b[J", s.drawn)
}

// percent is a share, and blank where there is none.
func percent(share float64) string {
	if share == 0 {
		return strings.Repeat(" ", len("12.3%"))
	}
	return fmt.Sprintf("%4.1f%%", 100*share)
}

// span is a number of seconds with the unit that suits it.
func span(seconds float64) string {
	if seconds < 1 {
		return fmt.Sprintf("%.0f ms", 1000*seconds)
	}
	return fmt.Sprintf("%.2f s", seconds)
}
