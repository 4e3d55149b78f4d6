package discovery

import (
	"context"
	"fmt"
)

type staticSource []Endpoint

// NewStatic returns the source of a fixed set. Run refuses a set that Normalize
// refuses; a caller that reads the set from a file calls Normalize first and adds the
// file's position.
func NewStatic(endpoints []Endpoint) Discoverer { return staticSource(endpoints) }

func (s staticSource) Run(ctx context.Context, sets chan<- []Endpoint) error {
	set, err := Normalize(s)
	if err != nil {
		return fmt.Errorf("static endpoints: %w", err)
	}
	select {
	case sets <- set:
	case <-ctx.Done():
	}
	<-ctx.Done()
	return nil
}
