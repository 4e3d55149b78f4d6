package admin

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"sync"
	"time"
)

// A Reviewer asks an authority who has a token and what its rights are. An error is why the authority cannot be asked.
type Reviewer func(ctx context.Context, token string) (Reviewed, error)

// Reviewed is the answer for a token. The zero value stands for one that is not accepted.
type Reviewed struct {
	Name string // for the log
	Role string // empty if it has none
}

// The bounds of reviews.
const (
	// reviewFresh is how long an answer is used, so a right that is taken away ends within it. After a failure the
	// remembered answers are used for as long.
	reviewFresh = 30 * time.Second
	// reviewGrace is how long one is used while the authority cannot be asked: who is at work on a fault of the whole
	// cluster is not locked out.
	reviewGrace   = 15 * time.Minute
	reviewTime    = 5 * time.Second
	maxReviewed   = 1000
	maxReviewing  = 4        // at the same time, so that strangers with made-up tokens are no load for the authority
	longestReview = 16 << 10 // bytes of a token: those of some identity providers list all groups
)

// errBusy is the error of a token that found no turn.
var errBusy = errors.New("too many unknown tokens are asked about at the same time")

// reviews remember the answers of a Reviewer. Only tokens that are accepted are remembered, so what strangers send
// displaces nobody.
type reviews struct {
	ask   Reviewer
	turns chan struct{}

	mu     sync.Mutex
	known  map[[sha256.Size]byte]review
	failed error // of the latest question; nil when it was answered

	failedAt time.Time // when that was asked
}

type review struct {
	Reviewed
	at time.Time
}

func newReviews(ask Reviewer) *reviews {
	return &reviews{ask: ask, turns: make(chan struct{}, maxReviewing), known: make(map[[sha256.Size]byte]review)}
}

// of returns who has a token.
func (r *reviews) of(ctx context.Context, token string, now time.Time) (Reviewed, error) {
	if len(token) < shortestToken || len(token) > longestReview || !printable(token) {
		return Reviewed{}, nil
	}
	hash := sha256.Sum256([]byte(token))
	known, resting := r.remembered(hash, now)
	if known.Role != "" && (resting || now.Sub(known.at) < reviewFresh) {
		return known.Reviewed, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTime)
	defer cancel()
	answer, err := r.inTurn(ctx, token, now)
	// A client that goes, or asks too often, must not live on an old answer: only the authority's failure is one.
	if err != nil && !errors.Is(err, errBusy) && !errors.Is(err, context.Canceled) && known.Role != "" {
		return known.Reviewed, nil
	}
	if err == nil {
		r.remember(hash, review{answer, now})
	}
	return answer, err
}

// printable reports whether a token can be the value of a header. One that cannot is nobody's, and no failure to ask.
func printable(token string) bool {
	return !strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })
}

// inTurn asks, and notes whether there was an answer.
func (r *reviews) inTurn(ctx context.Context, token string, now time.Time) (answer Reviewed, err error) {
	select {
	case r.turns <- struct{}{}:
	case <-ctx.Done():
		return answer, errBusy
	}
	defer func() { <-r.turns }()
	answer, err = r.ask(ctx, token)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !errors.Is(err, context.Canceled) { // by the client
		r.failed, r.failedAt = err, now
	}
	return answer, err
}

// remembered returns what is known of a token, and forgets what is too old. Resting is whether the authority has just
// failed: while it hangs, not every request of the same holder has to wait for that.
func (r *reviews) remembered(hash [sha256.Size]byte, now time.Time) (known review, resting bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for h, known := range r.known {
		if now.Sub(known.at) > reviewGrace {
			delete(r.known, h)
		}
	}
	return r.known[hash], r.failed != nil && now.Sub(r.failedAt) < reviewFresh
}

func (r *reviews) remember(hash [sha256.Size]byte, answer review) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, hash)
	if answer.Role != "" && len(r.known) < maxReviewed {
		r.known[hash] = answer
	}
}

func (r *reviews) failing() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}
