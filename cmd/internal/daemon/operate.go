package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"steelyard/collectors/inflight"
	"steelyard/controlplane"
	"steelyard/controlplane/admin"
	"steelyard/controlplane/config"
	"steelyard/internal/api"
	"steelyard/internal/loops"
	"steelyard/internal/spelling"
)

// timeOver is how most overrides end.
const timeOver = "as its time is over"

// overridesKey is the hash in Redis that keeps the overrides.
const overridesKey = "steelyard:overrides"

// The times of the overrides in Redis.
const (
	overridesSync    = 2 * time.Second // between two looks at what other replicas changed
	overridesPatient = time.Second     // that a request waits for its override to be kept
)

// An operator is the Daemon's side of what people do by the admin API.
type operator struct {
	d *Daemon

	syncing sync.Mutex // one sync at a time: of two overrides of one endpoint, the later one has to be written last

	mu    sync.Mutex
	store *inflight.Hash // nil without Redis
	err   error          // of the latest sync
}

// Override puts an override in force and waits until it is kept, as long as that is quick.
func (o *operator) Override(v api.Override) (api.Override, error) {
	if err := o.d.manager.Override(v); err != nil {
		return api.Override{}, notFound(err)
	}
	o.d.options.Log.Info("override", "kind", v.Kind, "cluster", v.Cluster, "endpoint", v.Address,
		"share", v.Share.Or(0), "until", v.Until.Time, "by", v.By, "reason", v.Reason)
	o.syncSoon() // the recorder sees the override, and makes the event
	if kept, ok := o.d.manager.Overrides().Of(v.Cluster, time.Now())[v.Address]; ok {
		return kept, nil
	}
	return v, nil
}

// Undo removes an override. One of an endpoint or cluster that is gone can be removed, too.
func (o *operator) Undo(cluster, address, by string) (api.Override, bool) {
	v, ok := o.d.manager.Overrides().Remove(cluster, address)
	if ok {
		o.d.options.Log.Info("override removed", "kind", v.Kind, "cluster", cluster, "endpoint", address, "by", by)
		o.ended(v, "by "+by)
		o.syncSoon()
	}
	return v, ok
}

// ended makes an event of the end of an override.
func (o *operator) ended(v api.Override, why string) {
	was := "drained"
	if v.Kind == api.OverridePin {
		was = "pinned"
	}
	o.d.recorder.OverrideEnded(time.Now(), v, fmt.Sprintf("not %s any more, %s", was, why))
}

// Overrides are those in force.
func (o *operator) Overrides() []api.Override { return o.d.manager.Overrides().All(time.Now()) }

// Diff is what another configuration would change.
func (o *operator) Diff(name string, text []byte) (api.Diff, error) {
	next, err := config.Parse(name, text)
	if err != nil {
		return api.Diff{}, err
	}
	next, _ = o.d.withPools(next)
	return o.d.manager.Diff(o.d.configuration(), next), nil
}

// LogLevel is the least level that is logged.
func (o *operator) LogLevel() string { return strings.ToLower(o.d.options.LogLevel.Level().String()) }

// SetLogLevel changes it until the restart.
func (o *operator) SetLogLevel(level string) error {
	levels := []string{"debug", "info", "warn", "error"}
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil || l.Level() != l {
		return fmt.Errorf("level %q%s: write one of %s", level, spelling.DidYouMean(level, levels),
			strings.Join(levels, ", "))
	}
	o.d.options.LogLevel.Set(l)
	o.d.options.Log.Log(context.Background(), max(l, slog.LevelInfo), "log level changed", "level",
		strings.ToLower(l.String()))
	return nil
}

// notFound makes the error of the control plane that of the admin API.
func notFound(err error) error {
	if _, ok := errors.AsType[controlplane.NotFound](err); ok {
		return admin.Missing(err)
	}
	return err
}

// connect makes cfg the Redis that keeps the overrides; nil for none.
func (o *operator) connect(cfg *config.Redis) error {
	var store *inflight.Hash
	if cfg != nil {
		var err error
		if store, err = inflight.NewHash(o.d.redisOptions(cfg), overridesKey); err != nil {
			return fmt.Errorf("keeping overrides: %w", err)
		}
	}
	o.mu.Lock()
	before := o.store
	o.store, o.err = store, nil
	o.mu.Unlock()
	if before != nil {
		before.Close()
	}
	return nil
}

func (o *operator) close() { _ = o.connect(nil) }

// run ends overrides at their time, and keeps them in line with Redis, until ctx is done.
func (o *operator) run(ctx context.Context) error {
	defer o.close()
	step := func(time.Time) { o.sync(ctx) }
	step(time.Now())
	loops.Every(ctx, overridesSync, step)
	return nil
}

func (o *operator) expire(now time.Time) {
	for _, v := range o.d.manager.Overrides().Expire(now) {
		o.d.options.Log.Info("override ended", "kind", v.Kind, "cluster", v.Cluster, "endpoint", v.Address, "by", v.By)
		o.ended(v, timeOver)
	}
}

// syncSoon is a sync for a request, which does not wait for a Redis that does not answer.
func (o *operator) syncSoon() {
	ctx, cancel := context.WithTimeout(context.Background(), overridesPatient)
	defer cancel()
	o.sync(ctx)
}

// sync ends the overrides whose time is over, and brings the others in line with Redis, where there is one.
func (o *operator) sync(ctx context.Context) {
	o.syncing.Lock()
	defer o.syncing.Unlock()
	o.mu.Lock()
	store := o.store
	o.mu.Unlock()
	now := time.Now()
	o.expire(now) // a Sync would count it as removed by others
	if store == nil {
		return
	}
	added, removed, err := o.d.manager.Overrides().Sync(ctx, store, now)
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	log := o.d.options.Log
	switch before := o.synced(err); {
	case err != nil && before == nil:
		log.Warn("overrides are not kept across a restart", "error", err)
	case err == nil && before != nil:
		log.Info("overrides are kept again")
	}
	for _, v := range added {
		log.Info("override taken over from Redis", "kind", v.Kind, "cluster", v.Cluster, "endpoint", v.Address,
			"until", v.Until.Time, "by", v.By)
	}
	for _, v := range removed {
		log.Info("override was removed in Redis", "kind", v.Kind, "cluster", v.Cluster, "endpoint", v.Address)
		why := "by another replica"
		if !time.Now().Before(v.Until.Time) { // it was a little faster
			why = timeOver
		}
		o.ended(v, why)
	}
}

// synced notes how a sync ended, and returns how the one before did.
func (o *operator) synced(err error) (before error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, o.err = o.err, err
	return before
}

// status is whether the overrides are kept.
func (o *operator) status() api.OverrideStatus {
	s := api.OverrideStatus{Count: len(o.Overrides())}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.store != nil {
		s.KeptIn = "redis"
	}
	if o.err != nil && o.store != nil {
		s.Error = o.err.Error()
	}
	return s
}
