package sim

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
)

// Run places the requests of the scenario by one policy. It fails when the two
// are not sound, and when ctx ends first.
func Run(ctx context.Context, s Scenario, p Policy) (Result, error) {
	s, p = s.withDefaults(), p.withDefaults()
	if err := errors.Join(s.check(), p.check(s.Prompts != nil)); err != nil {
		return Result{}, fmt.Errorf("simulating %q under %q: %w", s.Name, p.Name, err)
	}
	w := newWorld(&s, &p)
	if err := w.run(ctx); err != nil {
		return Result{}, fmt.Errorf("simulating %q under %q: stopped at %v of %v: %w", s.Name, p.Name, w.now.duration(),
			s.Duration, err)
	}
	return w.tally.result(), nil
}

// RunAll runs every policy on the same requests, as many at a time as there are
// processors, and returns the results in the order of the policies.
func RunAll(ctx context.Context, s Scenario, policies []Policy) ([]Result, error) {
	results, errs := make([]Result, len(policies)), make([]error, len(policies))
	turns := make(chan int)
	var runners sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(policies)) {
		runners.Go(func() {
			for i := range turns {
				results[i], errs[i] = Run(ctx, s, policies[i])
			}
		})
	}
	for i := range policies {
		turns <- len(policies) - 1 - i // the control planes, which come last, take longest
	}
	close(turns)
	runners.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return results, nil
}
