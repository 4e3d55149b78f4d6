package bench

import (
	"fmt"
	"io"
	"slices"
	"time"

	"steelyard/e2e/bench/placement/fleet"
	"steelyard/e2e/bench/placement/stats"
)

// Options are what to measure. Defaults are those of Default.
type Options struct {
	Size     fleet.Size
	Policies []fleet.Policy  // at every service time; none: those of DefaultPolicies
	Services []time.Duration // mean work of a request; one section each
	Requests int             // counted for each row and service time
	Runs     int             // that follow each other
	Seed     uint64          // of the first run; each run has its own

	WarmUp   float64 // mean service times at the beginning of a block that are not counted
	Blocks   int     // into which the requests of a section are cut where rows take turns
	Group    int     // rows with Steelyard that are measured in one group
	Together float64 // requests per second of the rows of a group that run at the same time
	Lateness float64 // largest p99 of the generator's lateness, in mean service times
	Attempts int     // how often a group is measured, at most, until its requests leave in time

	Place fleet.Place // where the rows live
	Log   io.Writer   // progress, for people
}

// Default returns the bench as it is published: ten Envoys, twenty servers of one
// slot, load 0.8. Group and Together are what two cores carry: at a service of a
// second, a row with Steelyard takes a third of a core, and nearly a whole one at
// 50 ms, where its requests must leave within 2.5 ms of their time. Of 5,000 requests fifty
// are beyond a p99, and the ratio of two rows' p99 moved by 6 % from run to run (one standard
// deviation): targets that are 8 % away want more.
func Default() Options {
	return Options{
		Size:     fleet.Size{Envoys: 10, Servers: 20, Slots: 1, Load: 0.8},
		Services: []time.Duration{time.Second, 250 * time.Millisecond, 50 * time.Millisecond},
		Requests: 8000, Runs: 1, Seed: 1,
		WarmUp: 40, Blocks: 4, Group: 3, Together: 260, Lateness: 0.05, Attempts: 2,
	}
}

// Quick returns the bench in three minutes: all rows, at one service time, and no second
// attempt. Its intervals are wide.
func Quick() Options {
	o := Default()
	o.Services, o.Requests, o.WarmUp, o.Blocks, o.Attempts = []time.Duration{time.Second}, 1000, 15, 2, 1
	return o
}

func (o Options) validate() error {
	switch {
	case o.Size.Envoys < 1 || o.Size.Servers < 1 || o.Size.Slots < 1:
		return fmt.Errorf("a bench of %d Envoys and %d servers of %d slots: want at least one of each", o.Size.Envoys,
			o.Size.Servers, o.Size.Slots)
	case o.Size.Slow < 0 || o.Size.Slow > o.Size.Servers:
		return fmt.Errorf("%d slow servers of %d", o.Size.Slow, o.Size.Servers)
	case !(o.Size.Load > 0):
		return fmt.Errorf("load %v: want a number above 0, such as 0.8", o.Size.Load)
	case len(o.Services) == 0 || slices.Min(o.Services) <= 0:
		return fmt.Errorf("service times %v: want at least one, all above 0", o.Services)
	case o.Requests < 1 || o.Runs < 1 || o.Blocks < 1:
		return fmt.Errorf("%d requests in %d blocks and %d runs: want at least one of each", o.Requests, o.Blocks,
			o.Runs)
	case o.Group < 1 || o.Attempts < 1:
		return fmt.Errorf("%d rows with Steelyard in a group and %d attempts: want at least one of each", o.Group,
			o.Attempts)
	case !(o.WarmUp >= 0) || !(o.Together > 0) || !(o.Lateness > 0):
		return fmt.Errorf("warm-up %v, requests at once %v, lateness %v: want numbers above 0", o.WarmUp, o.Together,
			o.Lateness)
	}
	return nil
}

// everyRow is the shortest service time at which all rows run by default. At less
// there are those that targets speak of, and those that it takes to judge them.
const everyRow = time.Second

// DefaultPolicies returns the rows at a service time.
func DefaultPolicies(service time.Duration) []fleet.Policy {
	if service >= everyRow {
		return fleet.Policies()
	}
	return slices.DeleteFunc(fleet.Policies(), func(p fleet.Policy) bool {
		return !slices.Contains([]string{leastRequest, "round_robin", "steelyard_access_log", bound}, p.Name)
	})
}

// policiesAt returns the policies that run at a service time.
func (o Options) policiesAt(service time.Duration) []fleet.Policy {
	if len(o.Policies) > 0 {
		return o.Policies
	}
	return DefaultPolicies(service)
}

// The references: rows that every group has, to hold its others against.
const (
	leastRequest = "least_request"
	bound        = "shortest_queue"
)

func isReference(p fleet.Policy) bool { return p.Name == leastRequest || p.Name == bound }

// groups cuts rows into those that are measured at the same time, by index: so many
// with Steelyard in each, and the references in all. Other rows cost little and go
// where there is least.
func (o Options) groups(policies []fleet.Policy) [][]int {
	weighted := 0
	for _, p := range policies {
		if p.Control != nil {
			weighted++
		}
	}
	n := max(1, (weighted+o.Group-1)/o.Group)
	groups := make([][]int, n)
	dealt := 0
	for i, p := range policies {
		switch {
		case isReference(p):
			for g := range groups {
				groups[g] = append(groups[g], i)
			}
		case p.Control != nil:
			g := dealt * n / weighted
			groups[g] = append(groups[g], i)
			dealt++
		default:
			groups[n-1] = append(groups[n-1], i)
		}
	}
	return groups
}

// bootstrapServices is the length of a block of the bootstrap, in mean service
// times.
const bootstrapServices = 20

// bootstrap returns how to resample. The length of a block is that of so many service
// times, in requests; it does not depend on how long the service is.
func (o Options) bootstrap() stats.Bootstrap {
	return stats.Bootstrap{
		Block:     max(1, int(bootstrapServices*o.Size.Load*o.Size.Capacity())),
		Resamples: 1000,
		Seed:      o.Seed,
	}
}

// size returns the size of the fleets of rows at a service time.
func (o Options) size(service time.Duration) fleet.Size {
	s := o.Size
	s.Service = service
	return s
}

// A schedule is how the requests of a group are sent.
type schedule struct {
	rate    float64 // requests per second of a row
	warmUp  int     // requests at the beginning of a block that are not counted
	counted int     // requests of a block that are
	blocks  int
	turns   [][]int // rows that run at the same time, by index in the group
}

// schedule plans a group of this many rows.
func (o Options) schedule(service time.Duration, rows int) schedule {
	s := schedule{rate: o.size(service).Rate(), blocks: 1}
	atOnce := min(rows, max(1, int(o.Together/s.rate)))
	turns := (rows + atOnce - 1) / atOnce
	if turns > 1 {
		s.blocks = min(o.Blocks, o.Requests)
	}
	s.turns = make([][]int, turns)
	for i := range rows {
		s.turns[i%turns] = append(s.turns[i%turns], i)
	}
	s.counted = (o.Requests + s.blocks - 1) / s.blocks
	s.warmUp = int(o.WarmUp * service.Seconds() * s.rate)
	return s
}

// lasts returns how long the requests of a group arrive.
func (s schedule) lasts() time.Duration {
	requests := s.blocks * len(s.turns) * (s.warmUp + s.counted)
	return time.Duration(float64(requests) / s.rate * float64(time.Second))
}

// order returns the order of the turns in a block: each time another one begins.
func (s schedule) order(block int) [][]int {
	k := block % len(s.turns)
	return slices.Concat(s.turns[k:], s.turns[:k])
}
