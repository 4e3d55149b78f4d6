package scrape

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync"

	"steelyard/internal/credentials"
)

// Once fetches a target's page as a loop does, and returns the body.
func Once(ctx context.Context, t Target) ([]byte, error) {
	f, err := newFetcher(&t, &network{credentials: credentials.New(slog.New(slog.DiscardHandler))})
	if err != nil {
		return nil, err
	}
	defer f.close()
	bodies := sync.Pool{New: func() any { return new(bytes.Buffer) }}
	_, body, err := f.fetch(ctx, &bodies)
	if err != nil {
		return nil, err
	}
	return slices.Clone(body.Bytes()), nil
}
