package flight

import "slices"

// shared is what it takes to count a proxy of which several processes report, each at its own time: the
// package comment has the reason. A counter has one only while there are several.
type shared struct {
	processes []process
	low, high int32 // of the drift, by the reports of this round
}

// A process is one of several processes of the proxy. It is known from its first report on.
type process struct {
	id    uint8
	gauge int32
	// Since its last report, in the log of all processes, or unlimited where that is unknown.
	begins, ends int32
	// Since its last report or longer, at the others by their own reports.
	issuedByOthers, endedByOthers int32
}

// unlimited is more than can have happened.
const unlimited = maxKept

// of returns a process, and creates it where it is new.
func (s *shared) of(id uint8) *process {
	i := slices.IndexFunc(s.processes, func(p process) bool { return p.id == id })
	if i < 0 {
		i = len(s.processes)
		s.processes = append(s.processes, process{id: id, begins: unlimited, ends: unlimited})
	}
	return &s.processes[i]
}

// began and ended take in what was logged.
func (s *shared) began() {
	if s == nil {
		return
	}
	for i := range s.processes {
		p := &s.processes[i]
		p.begins = min(p.begins+1, unlimited)
	}
}

func (s *shared) ended() {
	if s == nil {
		return
	}
	for i := range s.processes {
		p := &s.processes[i]
		p.ends = min(p.ends+1, unlimited)
	}
}

// report takes in the report of a process. What the others did since theirs changed the number of requests
// in progress by behind at least and by ahead at most.
func (s *shared) report(p *process, r *Report) (behind, ahead int32) {
	issued, ended := int32(unlimited), int32(unlimited)
	if !r.First {
		issued, ended = r.Issued, max(0, p.gauge+r.Issued-r.InProgress)
	}
	*p = process{id: p.id, gauge: r.InProgress}
	others := 0
	for i := range s.processes {
		other := &s.processes[i]
		if other == p {
			continue
		}
		others++
		other.issuedByOthers = min(unlimited, other.issuedByOthers+issued)
		other.endedByOthers = min(unlimited, other.endedByOthers+ended)
		if r.Processes == 2 {
			moved := other.begins - other.ends
			return moved - min(other.begins, other.issuedByOthers), moved + min(other.ends, other.endedByOthers)
		}
		behind, ahead = min(behind, -other.ends), max(ahead, other.begins)
	}
	if others < r.Processes-1 {
		return -unlimited, unlimited // one has not reported yet
	}
	return behind, ahead
}

// narrow adds a range of the drift to those of the round, and returns what they have in common. Where they
// contradict each other, because an event and a report crossed on the way, low is above high: nothing is shown.
func (s *shared) narrow(r Round, low, high int32) (int32, int32) {
	if r.Begins {
		s.low, s.high = low, high
	}
	s.low, s.high = max(s.low, low), min(s.high, high)
	return s.low, s.high
}

// restart forgets what the round showed.
func (s *shared) restart() {
	if s != nil {
		s.low, s.high = 0, 0
	}
}

// leave takes a process out and returns its gauge.
func (s *shared) leave(id uint8) (gauge int32) {
	i := slices.IndexFunc(s.processes, func(p process) bool { return p.id == id })
	if i < 0 {
		return 0
	}
	gauge = s.processes[i].gauge
	s.processes = slices.Delete(s.processes, i, i+1)
	return gauge
}
