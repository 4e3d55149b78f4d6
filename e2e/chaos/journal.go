package chaos

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// A journal records the faults, and what went wrong.
type journal struct {
	print func(line string)

	mu       sync.Mutex
	start    time.Time // of the faults
	episodes []*episode
	deaths   []span // in which a part was ended and may have had requests
	pauses   []span
	wrong    []string
}

// An episode is a fault with the time at which it was made.
type episode struct {
	fault    Fault
	from, to time.Time // to is zero while it lasts
}

// A span is a time in which something happened to a part.
type span struct {
	part     string
	from, to time.Time
}

// begins starts the clock of the journal: the faults begin.
func (j *journal) begins() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.start = time.Now()
}

// begin and end enclose a fault, with the recovery from it.
func (j *journal) begin(f Fault) *episode {
	e := &episode{fault: f, from: time.Now()}
	j.mu.Lock()
	j.episodes = append(j.episodes, e)
	j.mu.Unlock()
	j.say("%v", f)
	return e
}

func (j *journal) end(e *episode) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.to = time.Now()
}

// died records that a part was ended between two times, stopped that it was paused.
func (j *journal) died(part string, from, to time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.deaths = append(j.deaths, span{part, from, to})
}

func (j *journal) stopped(part string, from, to time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pauses = append(j.pauses, span{part, from, to})
}

// inHand reports whether a part was ended while it had a request between two times, from the view of a witness. A
// witness that was paused when the part ended notices the end when it continues: until then it treats its connections
// as open.
func (j *journal) inHand(part, witness string, from, to time.Time) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, d := range j.deaths {
		known := d.to
		for _, p := range j.pauses {
			if p.part == witness && !p.from.After(d.to) && p.to.After(known) {
				known = p.to
			}
		}
		if d.part == part && !from.After(known) && !to.Before(d.from) {
			return true
		}
	}
	return false
}

// around lists the faults between two times and shortly before.
func (j *journal) around(from, to time.Time) string {
	const before = 3 * time.Second
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []string
	for _, e := range j.episodes {
		if e.from.Before(to) && (e.to.IsZero() || e.to.After(from.Add(-before))) {
			end := "still on"
			if !e.to.IsZero() {
				end = "over at " + j.since(e.to)
			}
			all = append(all, fmt.Sprintf("%s %v, %s", j.since(e.from), e.fault, end))
		}
	}
	return strings.Join(all, "\n    ")
}

// since formats a time as seconds since the beginning of the faults.
func (j *journal) since(t time.Time) string { return fmt.Sprintf("%.3f s", t.Sub(j.start).Seconds()) }

func (j *journal) say(format string, args ...any) {
	j.mu.Lock()
	since := time.Since(j.start)
	j.mu.Unlock()
	j.print(fmt.Sprintf("%7.1f s  ", since.Seconds()) + fmt.Sprintf(format, args...))
}

// complain records a failure of the run.
func (j *journal) complain(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	j.mu.Lock()
	j.wrong = append(j.wrong, text)
	j.mu.Unlock()
	j.say("WRONG: %s", text)
}
