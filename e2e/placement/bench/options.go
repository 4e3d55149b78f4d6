package bench

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"steelyard/e2e/placement/fleet"
	"steelyard/e2e/placement/stats"
)

// Options say what to measure. Defaults are those of Default.
type Options struct {
	Size     fleet.Size
	Policies []fleet.Policy
	Services []time.Duration // mean work of a request; one section each
	Requests int             // counted for each row and service time
	Runs     int             // that follow each other
	Seed     uint64          // of the first run; each run has its own

	WarmUp   float64 // mean service times at the beginning of a block that are not counted
	Blocks   int     // into which the requests of a section are cut where rows take turns
	Together float64 // requests per second of the rows that run at the same time
	Lateness float64 // largest p99 of the generator's lateness, in mean service times

	Place fleet.Place // where the rows live
	Log   io.Writer   // progress, for people
}

// Default is the bench as it is published: ten Envoys, twenty servers of one
// slot, load 0.8.
func Default() Options {
	return Options{
		Size:     fleet.Size{Envoys: 10, Servers: 20, Slots: 1, Load: 0.8},
		Policies: fleet.Policies(),
		Services: []time.Duration{time.Second, 250 * time.Millisecond, 50 * time.Millisecond},
		Requests: 5000, Runs: 1, Seed: 1,
		WarmUp: 40, Blocks: 4, Together: 200, Lateness: 0.05,
	}
}

// Quick is the bench in three minutes. Its intervals are wide.
func Quick() Options {
	o := Default()
	o.Requests, o.WarmUp, o.Blocks = 700, 10, 2
	return o
}

func (o Options) validate() error {
	switch {
	case o.Size.Envoys < 1 || o.Size.Servers < 1 || o.Size.Slots < 1:
		return fmt.Errorf("a bench of %d Envoys and %d servers of %d slots: want at least one of each", o.Size.Envoys, o.Size.Servers, o.Size.Slots)
	case o.Size.Slow < 0 || o.Size.Slow > o.Size.Servers:
		return fmt.Errorf("%d slow servers of %d", o.Size.Slow, o.Size.Servers)
	case !(o.Size.Load > 0):
		return fmt.Errorf("load %v: want a number above 0, such as 0.8", o.Size.Load)
	case len(o.Policies) == 0:
		return errors.New("no rows to run")
	case len(o.Services) == 0 || slices.Min(o.Services) <= 0:
		return fmt.Errorf("service times %v: want at least one, all above 0", o.Services)
	case o.Requests < 1 || o.Runs < 1 || o.Blocks < 1:
		return fmt.Errorf("%d requests in %d blocks and %d runs: want at least one of each", o.Requests, o.Blocks, o.Runs)
	case !(o.WarmUp >= 0) || !(o.Together > 0) || !(o.Lateness > 0):
		return fmt.Errorf("warm-up %v, requests at once %v, lateness %v: want numbers above 0", o.WarmUp, o.Together, o.Lateness)
	}
	return nil
}

// fast is the service time below which only the rows of fastRows run: the
// others push and report at a pace that is no match for it.
const fast = 100 * time.Millisecond

// fastRows are the rows that make sense where service is shorter than fast.
var fastRows = []string{"least_request", "round_robin", "steelyard_access_log", "shortest_queue"}

// policiesAt are the policies that run at a service time. A choice of rows that
// leaves none of those that make sense is taken at its word.
func (o Options) policiesAt(service time.Duration) []fleet.Policy {
	if service >= fast {
		return o.Policies
	}
	some := slices.DeleteFunc(slices.Clone(o.Policies), func(p fleet.Policy) bool { return !slices.Contains(fastRows, p.Name) })
	if len(some) == 0 {
		return o.Policies
	}
	return some
}

// bootstrapServices is the length of a block of the bootstrap, in mean service
// times.
const bootstrapServices = 20

// bootstrap is how to resample. The length of a block is that of so many service
// times, in requests; it does not depend on how long the service is.
func (o Options) bootstrap() stats.Bootstrap {
	return stats.Bootstrap{
		Block:     max(1, int(bootstrapServices*o.Size.Load*o.Size.Capacity())),
		Resamples: 1000,
		Seed:      o.Seed,
	}
}

// size is that of rows at a service time.
func (o Options) size(service time.Duration) fleet.Size {
	s := o.Size
	s.Service = service
	return s
}

// A schedule is how the requests of a section are sent.
type schedule struct {
	rate    float64 // requests per second of a row
	warmUp  int     // requests at the beginning of a block that are not counted
	counted int     // requests of a block that are
	blocks  int
	groups  [][]int // rows that run together, by index
}

// schedule plans a section with so many rows.
func (o Options) schedule(service time.Duration, rows int) schedule {
	s := schedule{rate: o.size(service).Rate(), blocks: 1}
	atOnce := min(rows, max(1, int(o.Together/s.rate)))
	groups := (rows + atOnce - 1) / atOnce
	if groups > 1 {
		s.blocks = min(o.Blocks, o.Requests)
	}
	for i := range rows {
		if i < groups {
			s.groups = append(s.groups, nil)
		}
		s.groups[i%groups] = append(s.groups[i%groups], i)
	}
	s.counted = (o.Requests + s.blocks - 1) / s.blocks
	s.warmUp = int(o.WarmUp * service.Seconds() * s.rate)
	return s
}

// turn is the order of the groups in a block: each time another one begins.
func (s schedule) turn(block int) [][]int {
	k := block % len(s.groups)
	return slices.Concat(s.groups[k:], s.groups[:k])
}
