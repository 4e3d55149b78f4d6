package inflight

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Result holds what one poll read of one key.
type Result struct {
	Cluster, Key string
	// At is the middle of the exchange with Redis, whether it succeeded or not.
	At time.Time
	// Took is how long the exchange took, the same for all keys of a poll.
	Took time.Duration
	// Requests is the number of requests in flight by member, which is IP:PORT if the pickers follow the layout; each
	// number is finite and not negative. A member that is absent is unknown, not idle. Nil if the key could not be used
	// or does not exist: Redis deletes a set that has lost its last member, and a mistyped key looks the same. It
	// belongs to the sink.
	Requests map[string]float64
	// Err is why the key could not be read, or which of its members were left
	// out of Requests; it has the key's name in it.
	Err error
}

// A sourceError is a failure of Redis or of the network, as opposed to a fault in the contents of one key.
type sourceError struct{ error }

func (e sourceError) Unwrap() error { return e.error }

// unreachable reports whether Redis could not be asked for one of the keys.
func unreachable(results []Result) bool {
	return slices.ContainsFunc(results, func(r Result) bool { return errors.As(r.Err, new(sourceError)) })
}

// A source is the Redis that is read.
type source struct {
	addresses   []string
	timeout     time.Duration // of one poll
	replication replication   // used by read only
	adder       *adder
}

func newSource(o *Options) source {
	return source{addresses: o.Addresses, timeout: o.Timeout, replication: replication{maxSilence: maxSilence},
		adder: newAdder(o.Replica, o.Interval, o.Own)}
}

// read does one poll: all keys in one pipeline, one result per key in the same
// order. A single server is asked for its role in the same round trip.
func (s *source) read(ctx context.Context, client redis.UniversalClient, keys []Key) []Result {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	start := time.Now()
	cmds, adding := make([]redis.Cmder, len(keys)), s.adder.adds()
	defer s.adder.asked()
	var role *redis.Cmd // nil in a Redis Cluster
	_, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, k := range keys {
			if adding[k] {
				cmds[i] = s.adder.ask(ctx, pipe, k)
				continue
			}
			cmds[i] = pipe.ZRangeWithScores(ctx, k.Key, 0, MaxMembers) // inclusive: one more than allowed
		}
		if asksForRole(client) {
			role = pipe.Do(ctx, "role")
		}
		return nil
	})
	if slices.ContainsFunc(cmds, lacksScript) {
		s.adder.askAgain(ctx, client, keys, cmds)
		err = nil // of a command, which was answered
	}
	took := time.Since(start)
	at := start.Add(took / 2)

	results := make([]Result, len(keys))
	explained := role != nil && role.Err() != nil
	for i, k := range keys {
		members, keyErr := s.scores(k, cmds[i])
		explained = explained || cmds[i].Err() != nil
		results[i] = Result{Cluster: k.Cluster, Key: k.Key, At: at, Took: took}
		s.fill(&results[i], members, keyErr)
	}
	if role != nil {
		s.discardStale(results, s.replication.check(role.Val(), role.Err(), at))
	}
	if err != nil && !explained {
		// The pipeline failed and no command has an error: none of them was answered.
		for i, k := range keys {
			results[i] = Result{Cluster: k.Cluster, Key: k.Key, At: at, Took: took}
			s.fill(&results[i], nil, err)
		}
	}
	return results
}

// scores returns the members of a key, each with what pickers count for it, by the answer to read's command.
func (s *source) scores(k Key, cmd redis.Cmder) ([]redis.Z, error) {
	if c, ok := cmd.(*redis.Cmd); ok {
		return s.adder.others(k, c)
	}
	return cmd.(*redis.ZSliceCmd).Result()
}

// fill turns Redis' answer for one key into its result.
func (s *source) fill(r *Result, members []redis.Z, err error) {
	if err != nil {
		r.Err = s.explain(r.Key, err)
		return
	}
	switch {
	case len(members) > MaxMembers:
		r.Err = tooMany(r.Key)
	case len(members) > 0:
		r.Requests, r.Err = counts(r.Key, members)
	}
}

func tooMany(key string) error {
	return fmt.Errorf("in-flight key %q has more than %d members, none of them is used; "+
		"it must hold one member per endpoint", key, MaxMembers)
}

// discardStale removes the counts from the results of a replica that has lost its primary. If that cannot be
// determined, the counts stay and the results have that as an error.
func (s *source) discardStale(results []Result, err error) {
	for i := range results {
		r := &results[i]
		switch {
		case errors.As(err, new(lostPrimary)):
			r.Requests, r.Err = nil, s.explain(r.Key, err)
		case err != nil && r.Err == nil:
			r.Err = fmt.Errorf("in-flight key %q: %w", r.Key, err)
		}
	}
}

// explain returns an error with what to do about a failed read.
func (s *source) explain(key string, err error) error {
	switch {
	case strings.HasPrefix(err.Error(), "WRONGTYPE"):
		return fmt.Errorf("in-flight key %q is not a sorted set; delete it, or name the one the pickers write: %w", key,
			err)
	case errors.As(err, new(cannotAdd)):
		return fmt.Errorf("in-flight key %q: %w", key, err)
	case strings.HasPrefix(err.Error(), "TOOMANY"):
		return tooMany(key)
	case strings.HasPrefix(err.Error(), "NOPERM"):
		return fmt.Errorf("in-flight key %q: the ACL user may not read it; grant +zrange, the key's pattern and, "+
			"with a db, +select: %w", key, err)
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("no answer within %v: %w", s.timeout, err)
	}
	return sourceError{fmt.Errorf("reading in-flight key %q from Redis (%s): %w", key,
		strings.Join(s.addresses, ", "), err)}
}

// counts separates the members that hold a count from those that do not.
func counts(key string, members []redis.Z) (map[string]float64, error) {
	requests := make(map[string]float64, len(members))
	var named []string
	bad := 0
	for _, z := range members {
		member, text := z.Member.(string)
		if text && z.Score >= 0 && !math.IsInf(z.Score, 1) { // not NaN
			requests[member] = z.Score
			continue
		}
		if bad++; bad <= maxNamed {
			named = append(named, fmt.Sprintf("%s = %v", quote(member), z.Score))
		}
	}
	if bad == 0 {
		return requests, nil
	}
	if bad > maxNamed {
		named = append(named, fmt.Sprintf("and %d more", bad-maxNamed))
	}
	return requests, fmt.Errorf("in-flight key %q has invalid scores, left out: %s", key,
		strings.Join(named, ", "))
}
