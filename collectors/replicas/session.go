package replicas

import (
	"cmp"
	"context"

	"steelyard/internal/api"

	_ "embed"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"steelyard/collectors/replicas/merge"
	"steelyard/internal/loops"
)

var (
	//go:embed store.lua
	storeScript string
	//go:embed load.lua
	loadScript string

	store, load = redis.NewScript(storeScript), redis.NewScript(loadScript)
)

func (l *Link) channel() string { return l.o.Prefix + ":replicas" }
func (l *Link) hash() string    { return l.o.Prefix + ":replicas:state" }

// follow receives messages, and reconnects when a session fails, until ctx is done.
func (l *Link) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := l.session(ctx)
		if ctx.Err() != nil {
			return
		}
		l.failed(err)
		loops.Pause(ctx, again)
	}
}

func (l *Link) failed(err error) {
	l.mu.Lock()
	l.err = err
	l.mu.Unlock()
}

// session connects, and receives until something fails or ctx is done.
func (l *Link) session(ctx context.Context) error {
	client := l.o.Connect()
	defer client.Stop()
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	started, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	subscription := client.Subscribe(started, l.channel())
	defer subscription.Close()
	if _, err := subscription.Receive(started); err != nil { // the confirmation
		return fmt.Errorf("subscribing to %q: %w", l.channel(), err)
	}
	if err := checkPrimary(started, client); err != nil {
		return err
	}
	states, err := l.loadStates(started, client)
	if err != nil {
		return err
	}
	l.begin(&client, abort)
	defer l.begin(nil, nil)
	err = l.receive(ctx, subscription, states)
	return cmp.Or(context.Cause(ctx), err)
}

// checkPrimary returns an error if Redis is a replica: its primary does not get what is published there, so of two
// replicas of Steelyard, one connected to each, only one would hear of the other. Where the role may not be asked for
// it is taken for a primary. In a Redis Cluster each message reaches every node.
func checkPrimary(ctx context.Context, client Client) error {
	if _, cluster := client.UniversalClient.(*redis.ClusterClient); cluster {
		return nil
	}
	role, err := client.Do(ctx, "ROLE").Slice()
	if err != nil || len(role) < 3 || role[0] != "slave" {
		return nil
	}
	return fmt.Errorf("this Redis is a replica of %v:%v, which does not get what is published here: write the address "+
		"of the primary", role[1], role[2])
}

// begin makes send use this client, starting with a full state. send calls abort when a message cannot be sent.
func (l *Link) begin(c *Client, abort context.CancelCauseFunc) {
	l.mu.Lock()
	l.client, l.abort, l.whole = c, abort, true
	l.mu.Unlock()
	l.changed.Set()
}

// loadStates returns what the replicas last stored.
func (l *Link) loadStates(ctx context.Context, client Client) ([]string, error) {
	states, err := load.Run(ctx, client, []string{l.hash()}).StringSlice()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("reading %q: %w", l.hash(), err)
	}
	return states, nil
}

// receive takes in messages until the connection fails, or this replica's own messages do not come back. It takes in
// the stored states with the first own message that comes back; until then the other replicas do not count.
func (l *Link) receive(ctx context.Context, subscription *redis.PubSub, states []string) error {
	var echo atomic.Int64 // when the last of its own messages came, since began
	began := time.Now()
	ended := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		// A read with a deadline could end in the middle of a message, and all later ones would be lost.
		l.watch(ctx, ended, subscription, func() time.Duration {
			return time.Since(began) - time.Duration(echo.Load())
		})
	})
	defer watch.Wait()
	defer close(ended)
	for {
		received, err := subscription.Receive(ctx)
		switch {
		case err != nil && time.Since(began)-time.Duration(echo.Load()) > patience:
			return errSilent
		case err != nil:
			return err
		}
		if m, is := received.(*redis.Message); is && l.handle(time.Now(), []byte(m.Payload), maxMessage) {
			echo.Store(int64(time.Since(began)))
			l.echoed(time.Now(), states)
			states = nil
		}
	}
}

var errSilent = errors.New("the messages of this replica do not come back")

// patience is how long to wait for this replica's own messages before reconnecting.
const patience = 2 * merge.Silence

// watch closes a subscription when ctx is done, or when no message of this replica came for too long.
func (l *Link) watch(ctx context.Context, ended <-chan struct{}, subscription *redis.PubSub,
	silent func() time.Duration) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ended:
			return
		case <-ctx.Done():
			_ = subscription.Close()
			return
		case <-tick.C:
		}
		if silent() > patience {
			_ = subscription.Close()
			return
		}
		const pings = 10 // beats; each ping also renews how many bytes the connection may receive
		if n%pings == 0 {
			_ = subscription.Ping(ctx) // Receive returns a failure of the connection
		}
	}
}

// echoed notes that a message of this replica came back, and takes in stored states.
func (l *Link) echoed(now time.Time, states []string) {
	l.mu.Lock()
	l.peers.Echo(now)
	l.mu.Unlock()
	for _, state := range states {
		l.handle(now, []byte(state), maxState)
	}
}

// handle takes in a message of at most `most` bytes, and reports whether this replica sent it.
func (l *Link) handle(now time.Time, b []byte, most int) (own bool) {
	m, err := decode(b, most)
	l.mu.Lock()
	if err != nil {
		if errors.Is(err, errVersion) {
			l.peers.Messages.Foreign++
			l.peers.Messages.LastForeign = api.At(now)
		} else {
			l.peers.Messages.Invalid++
		}
		l.mu.Unlock()
		return false
	}
	changed := l.peers.Take(now, m)
	l.mu.Unlock()
	if len(changed) > 0 {
		l.o.Changed(changed)
	}
	return m.From == l.id
}
