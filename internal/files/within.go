package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// retryPart spaces the calls for a path while earlier ones hang: the pause after the latest one is this part of the
	// time between the beginnings of the oldest and the latest. So a path that has hung for a day holds 50 goroutines,
	// and a file that replaces the one that hangs is read after a quarter of the time for which that has hung, at the
	// latest.
	retryPart = 4
	// mostHanging bounds the calls that hang, of all paths. Each may hold a thread. It does not apply to a path without
	// a call that hangs: a mount that hangs must not make others unreadable.
	mostHanging = 256
)

// ErrSilent is the error of a file or folder that Within gave up.
var ErrSilent = errors.New("has not answered")

// Within calls do, which works with the file or folder at path and may hang. It gives up after Patience or when ctx is
// done, and then leaves the goroutine of do behind. Calls with the same name and path share one do that began less than
// Patience ago. An older one hangs, and may work with a file that has been replaced since: do is called again, although
// less and less often.
func Within[T any](ctx context.Context, path, name string, do func() (T, error)) (T, error) {
	var none T
	c, err := underWay.join(path, name, func() (any, error) { return do() })
	if err != nil {
		return none, err
	}
	silence := fmt.Errorf("%s %w within %v: is it on a file system that hangs?", path, ErrSilent, Patience)
	patience, cancel := context.WithTimeoutCause(ctx, Patience, silence)
	defer cancel()
	select {
	case <-c.done:
		v, _ := c.value.(T) // the zero value with an error, or of an interface
		if b, ok := any(v).([]byte); ok && c.shared {
			v = any(bytes.Clone(b)).(T) // a copy for each caller
		}
		return v, c.err
	case <-patience.Done():
		if err := ctx.Err(); errors.Is(err, context.DeadlineExceeded) { // the caller has less patience
			return none, fmt.Errorf("%s %w in time: is it on a file system that hangs? (%w)", path, ErrSilent, err)
		}
		return none, context.Cause(patience)
	}
}

// A call is one execution of a do.
type call struct {
	began  time.Time
	done   chan struct{} // closed when it has returned; what follows is settled then
	value  any
	err    error
	shared bool // by several callers
}

// calls are the calls that have not returned.
type calls struct {
	mu     sync.Mutex
	byName map[string][]*call // by name and path; the oldest first
	count  int
}

var underWay = calls{byName: map[string][]*call{}}

// join returns the latest call of this name and path, or begins another one if that one hangs.
func (c *calls) join(path, name string, do func() (any, error)) (*call, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := name + " " + path
	if pending := c.byName[key]; len(pending) > 0 {
		oldest, latest := pending[0], pending[len(pending)-1]
		next := latest.began.Add(latest.began.Sub(oldest.began) / retryPart)
		since := oldest.began.Format(time.DateTime)
		switch {
		case time.Since(latest.began) < Patience:
			latest.shared = true
			return latest, nil
		case c.count >= mostHanging:
			return nil, fmt.Errorf("%s has not answered since %s and is not tried again, because %d calls to files "+
				"hang: restore its file system or restart this process", path, since, c.count)
		case time.Now().Before(next):
			return nil, fmt.Errorf("%s has not answered since %s and is tried again at %s: is it on a file system "+
				"that hangs?", path, since, next.Format(time.DateTime))
		}
	}
	begun := &call{began: time.Now(), done: make(chan struct{})}
	c.byName[key] = append(c.byName[key], begun)
	c.count++
	go func() {
		defer c.end(key, begun)
		begun.value, begun.err = do()
	}()
	return begun, nil
}

func (c *calls) end(key string, ended *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byName[key] = slices.DeleteFunc(c.byName[key], func(other *call) bool { return other == ended })
	if len(c.byName[key]) == 0 {
		delete(c.byName, key)
	}
	c.count--
	close(ended.done)
}
