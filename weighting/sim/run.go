package sim

import (
	"context"
	"errors"
)

// Run places the requests of the scenario by one policy.
func Run(ctx context.Context, s Scenario, p Policy) (Result, error) {
	return Result{}, errors.New("not there yet")
}

// RunAll runs every policy on the same requests, as many at a time as there are
// processors, and returns the results in the order of the policies.
func RunAll(ctx context.Context, s Scenario, policies []Policy) ([]Result, error) {
	return nil, errors.New("not there yet")
}
