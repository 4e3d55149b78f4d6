package sim

import (
	"context"
	"errors"
	"fmt"
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
