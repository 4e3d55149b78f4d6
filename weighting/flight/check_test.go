package flight

import "fmt"

// check says what of a counter contradicts itself, if it counts by this and so many processes report.
func (c *Counter) check(basis Basis, processes int) error {
	switch {
	case c.basis != basis:
		return fmt.Errorf("counts by %d, want %d", c.basis, basis)
	case c.open < 0 || c.gauge < 0 || c.unseen < 0 || c.overcounted < 0:
		return fmt.Errorf("a number below zero: %+v", *c)
	case basis == ByReports && (c.open != 0 || c.correction != 0 || c.difference != 0):
		return fmt.Errorf("counts by reports, and has a log's: %+v", *c)
	case processes == 0 && (c.gauge != 0 || c.correction != 0 || c.gap != 0):
		return fmt.Errorf("no process reports, and has a report's: %+v", *c)
	}
	for _, n := range []int32{c.gap, c.least, c.most, c.unseen, c.overcounted, c.unended} {
		if abs(n) > maxKept {
			return fmt.Errorf("a number beyond bounds: %+v", *c)
		}
	}
	return c.shared.check(c.gauge, processes)
}

// check says what contradicts itself.
func (s *shared) check(gauge int32, processes int) error {
	switch {
	case s == nil && processes > 1 && gauge != 0:
		return fmt.Errorf("%d in progress at %d processes, and which has them is not known", gauge, processes)
	case s == nil:
		return nil
	case len(s.processes) > processes:
		return fmt.Errorf("%d processes of %d", len(s.processes), processes)
	}
	for _, p := range s.processes {
		gauge -= p.gauge
	}
	if gauge != 0 {
		return fmt.Errorf("%d in progress at no process", gauge)
	}
	return nil
}
