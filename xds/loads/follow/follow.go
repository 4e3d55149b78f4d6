package follow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"steelyard/internal/loops"
	"steelyard/picking"
	"steelyard/picking/prefix"
	"steelyard/picking/queue"
	"steelyard/weighting"
	"steelyard/xds/loads/loadsv1"
)

const (
	firstRetry   = 250 * time.Millisecond
	longestRetry = queue.Grace // so that a restarted queue gets all requests before it grants a place
	// silence is the time without a message after which a stream is regarded as broken: three heartbeats.
	silence = 3 * time.Second
	// waitingPrompts is the number of learned prompts that wait to be shared; newer ones are left out.
	waitingPrompts = 256
	// maxAge bounds the age of loads; they are not used long before.
	maxAge = time.Hour
	// maxRoutes bounds the routes of a cluster, whatever a Steelyard asks for: 1.6 GB.
	maxRoutes = 10_000_000
)

// A Pool has the loads of one cluster, and chooses by them. It is safe for concurrent use.
type Pool struct {
	mu      sync.Mutex
	picker  picking.Picker
	updated time.Time // when the loads were decided; zero before the first update
	members []string
	known   map[string]bool // the members
	drop    float64
	queue   *loadsv1.QueueHeaders // nil without a queue
	reader  *prefix.Reader        // it does not change

	cluster string
	routes  *prefix.Table         // nil where prompts are not looked at
	learned chan *loadsv1.Learned // for the other pickers
	matches prefix.Matches
	cached  []picking.Cached
}

func (p *Pool) set(m *loadsv1.Update, now time.Time) {
	u, set := updateOf(m), m.GetPrefix()
	p.update(u, m, now)
	if p.routes != nil { // not under the lock: an endpoint may have many
		p.routes.SetEndpoints(func(yield func(string, int) bool) {
			for _, e := range u.Endpoints {
				if !yield(e.Address, e.Restarts) {
					return
				}
			}
		})
		p.routes.Limit(prefix.Limits{Routes: int(min(set.GetRoutes(), maxRoutes)),
			TTL: time.Duration(set.GetTtlSeconds()) * time.Second})
		p.routes.Expire(now)
	}
}

// update takes in all but what concerns the routes.
func (p *Pool) update(u picking.Update, m *loadsv1.Update, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.picker.Update(u, now)
	p.updated, p.drop, p.queue = now.Add(-u.Age), u.Drop, m.GetQueue()
	p.reader = &prefix.Reader{Markers: m.GetPrefix().GetMarkers(), BlockTokens: u.BlockTokens,
		TokensPerByte: u.TokensPerByte}
	same := func(a string, e picking.Endpoint) bool { return a == e.Address }
	if slices.EqualFunc(p.members, u.Endpoints, same) {
		return
	}
	p.members, p.known = p.members[:0], make(map[string]bool, len(u.Endpoints))
	for _, e := range u.Endpoints {
		p.members, p.known[e.Address] = append(p.members, e.Address), true
	}
}

// The headers in which clients of llm-d name what is a class and a tenant here. They count if a request does not have
// the header that the configuration names.
const (
	objective  = "x-llm-d-inference-objective"
	fairnessID = "x-llm-d-inference-fairness-id"
)

// Queue returns the class and the tenant of a request with these headers in the queue of the cluster; ok is false if
// its requests do not wait.
func (p *Pool) Queue(header func(name string) string) (class, tenant string, ok bool) {
	p.mu.Lock()
	queue := p.queue
	p.mu.Unlock()
	if queue == nil {
		return "", "", false
	}
	first := func(names ...string) (value string) {
		for _, name := range names {
			if value == "" && name != "" {
				value = header(name)
			}
		}
		return value
	}
	return first(queue.GetClass(), objective), first(queue.GetTenant(), fairnessID), true
}

// queues reports whether the requests of the cluster wait.
func (p *Pool) queues() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queue != nil
}

// Reader reads the prompts of the cluster, as its engines cache them.
func (p *Pool) Reader() *prefix.Reader {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reader
}

// Drop returns the share of the requests that are to be refused, because all endpoints are saturated.
func (p *Pool) Drop(now time.Time) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.updated) > picking.Stale {
		return 0
	}
	return p.drop
}

// Choose picks an endpoint for a request, and counts it there. By its prompt, unless that is nil, the routes that were
// learned count too.
func (p *Pool) Choose(now time.Time, r picking.Request, prompt *prefix.Prompt) picking.Choice {
	random := rand.Float64()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.routes != nil && prompt != nil {
		r.Cached, r.Key = p.match(prompt)
	}
	return p.picker.Choose(now, r, random)
}

// match returns what the routes have of a prompt, the most of it first. The memory is reused.
func (p *Pool) match(prompt *prefix.Prompt) (cached []picking.Cached, key uint64) {
	p.routes.Match(prompt, &p.matches)
	deepest := 0
	p.cached = p.cached[:0]
	for _, m := range p.matches.All {
		deepest = max(deepest, m.Blocks)
		p.cached = append(p.cached, picking.Cached{Address: m.Address, Share: prompt.Share(m.Blocks)})
	}
	return p.cached, prompt.Key(deepest)
}

// Asked returns what the routes have of a prompt, for a request that asks for a place. It has at most maxCached
// endpoints: where more have a part of the prompt, such as a system prompt that all have, what the others have at most
// is left out, as it makes no difference.
func (p *Pool) Asked(prompt *prefix.Prompt) (cached []picking.Cached, key uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.routes == nil {
		return nil, 0
	}
	all, key := p.match(prompt)
	common := 0.
	if len(all) > maxCached {
		common = all[maxCached].Share
	}
	for _, c := range all[:min(len(all), maxCached)] {
		if c.Share > common {
			cached = append(cached, picking.Cached{Address: c.Address, Share: c.Share - common})
		}
	}
	return cached, key
}

// Learn notes that an endpoint of the pool has answered a prompt.
func (p *Pool) Learn(prompt *prefix.Prompt, address string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.routes == nil || len(prompt.Steps) == 0 || !p.known[address] {
		return
	}
	p.routes.Learn(prompt, address, prefix.Own, now)
	l := &loadsv1.Learned{Clusters: []string{p.cluster}, Endpoint: address,
		Hashes: make([]uint64, 0, len(prompt.Steps))}
	for _, s := range prompt.Steps {
		l.Hashes = append(l.Hashes, s.Hash)
	}
	select {
	case p.learned <- l:
	default: // others get the next one
	}
}

// received notes what other pickers have learned, or that an endpoint has lost it. It may come before the first loads,
// which then leave only the routes of the endpoints that there are.
func (p *Pool) received(l *loadsv1.Learned, now time.Time) {
	p.mu.Lock()
	known := p.routes != nil && (p.updated.IsZero() || p.known[l.GetEndpoint()])
	p.mu.Unlock()
	if known {
		p.routes.Take(&prefix.Learned{Address: l.GetEndpoint(), Hashes: l.GetHashes(), Kept: l.GetKept(),
			Age: time.Duration(l.GetAgeSeconds()) * time.Second}, prefix.Others, now)
	}
}

// Unknown reports whether one of the addresses is not among the endpoints of the pool; false before the first update.
func (p *Pool) Unknown(addresses ...string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.updated.IsZero() && slices.ContainsFunc(addresses, func(a string) bool { return !p.known[a] })
}

// Routes returns the sizes of the table of routes; false if there is none.
func (p *Pool) Routes() (prefix.Stats, bool) {
	if p.routes == nil {
		return prefix.Stats{}, false
	}
	return p.routes.Stats(), true
}

// State returns the number of endpoints and the age of their loads; known is false before the first update.
func (p *Pool) State(now time.Time) (endpoints int, age time.Duration, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.members), now.Sub(p.updated), !p.updated.IsZero()
}

// A Follower keeps the pools up to date.
type Follower struct {
	// Guard is deferred by each goroutine, those of its waiters too, for a process that must not end by a panic. Set it
	// before NewWaiter and Run.
	Guard func()

	conn     *Conn
	name     string
	clusters []string
	log      *slog.Logger
	learns   bool

	learned chan *loadsv1.Learned // for the other pickers

	mu    sync.Mutex
	pools map[string]*Pool
	lost  error  // why the loads are not followed at present; nil while they are
	noted string // what the log has of that, as in stateOf; empty before the first attempt
}

// New makes a follower of clusters under a name; Run starts it. It does not own the connection.
func New(conn *Conn, name string, clusters []string, log *slog.Logger) *Follower {
	f := &Follower{Guard: func() {}, conn: conn, name: name, clusters: clusters, log: log,
		pools: make(map[string]*Pool), lost: errors.New("not connected yet"),
		learned: make(chan *loadsv1.Learned, waitingPrompts)}
	for _, c := range clusters {
		f.pools[c] = &Pool{cluster: c, reader: new(prefix.Reader)}
	}
	return f
}

// LearnRoutes makes the pools learn where prompts are cached, and share that with the other pickers of the Steelyard.
// Call it before Run.
func (f *Follower) LearnRoutes() {
	f.learns = true
	for _, p := range f.pools {
		p.routes, p.learned = prefix.NewTable(prefix.Limits{}), f.learned
	}
}

// Pool returns the pool of a cluster, nil for an unknown one.
func (f *Follower) Pool(cluster string) *Pool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pools[cluster]
}

// Again runs a loop until ctx is done: after a panic that the guard recovers from, it runs once more.
func Again(ctx context.Context, guard func(), run func(context.Context)) {
	for ctx.Err() == nil {
		func() {
			defer guard()
			run(ctx)
		}()
		loops.Pause(ctx, firstRetry)
	}
}

// Status returns why the loads are currently not followed; nil while they are.
func (f *Follower) Status() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}

// Run follows the loads until ctx is done.
func (f *Follower) Run(ctx context.Context) error {
	if f.learns {
		var sharing sync.WaitGroup
		sharing.Go(func() { Again(ctx, f.Guard, f.runShare) })
		defer sharing.Wait()
	}
	retry := firstRetry
	for ctx.Err() == nil {
		err := f.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if f.setState(err) {
			f.log.Warn("the loads are not followed: requests go by the proxies' weights, unless there were loads in "+
				"the last "+picking.Stale.String(), "error", err)
			retry = firstRetry
		}
		loops.Pause(ctx, retry/2+rand.N(retry/2))
		retry = min(2*retry, longestRetry)
	}
	return nil
}

// setState keeps the state of the stream, and reports whether it changed.
func (f *Follower) setState(err error) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost = err
	state := stateOf(err)
	if state == f.noted || state == stateLost && f.noted == stateDistrusted { // such as one address of several
		return false
	}
	f.noted = state
	return true
}

const (
	stateLost       = "lost"
	stateDistrusted = "distrusted" // a certificate of one side is not accepted by the other
)

// stateOf returns a word for the state of the stream after err: how it was lost is of no matter, but why one side
// refuses the other is.
func stateOf(err error) string {
	switch code := status.Code(err); code {
	case codes.OK:
		return "followed"
	case codes.Unavailable, codes.Unknown, codes.Canceled, codes.DeadlineExceeded:
		if strings.Contains(err.Error(), "tls: ") { // gRPC keeps no more of an error than its text
			return stateDistrusted
		}
		return stateLost
	default:
		return code.String()
	}
}

// follow applies the updates of one stream until it breaks.
func (f *Follower) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(silence, func() {
		cancel(fmt.Errorf("no update for %v", silence))
		f.conn.Renew()
	})
	defer quiet.Stop()
	stream, err := loadsv1.NewLoadsClient(f.conn).Follow(ctx,
		&loadsv1.FollowRequest{Picker: f.name, Clusters: f.clusters})
	for err == nil {
		var u *loadsv1.Update
		if u, err = stream.Recv(); err != nil {
			break
		}
		quiet.Reset(silence)
		if f.setState(nil) {
			f.log.Info("following the loads")
		}
		f.apply(u)
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("Steelyard ended the stream")
	}
	return fmt.Errorf("following the loads of Steelyard: %w", err)
}

func (f *Follower) apply(u *loadsv1.Update) {
	p := f.Pool(u.GetCluster())
	if p == nil {
		return
	}
	p.set(u, time.Now())
}

// updateOf converts an update of the wire; endpoints with numbers that the fill cannot use are left out.
func updateOf(u *loadsv1.Update) picking.Update {
	c := u.GetCost()
	out := picking.Update{
		ArrivalRate: atLeast0(u.GetArrivalRate()),
		Cost: picking.Cost{Base: atLeast0(c.GetBase()), PerByte: atLeast0(c.GetPerByte()), Mean: atLeast0(c.GetMean()),
			Most: atLeast0(c.GetMost()), Cached: min(atLeast0(c.GetCached()), picking.MostCached)},
		Drop:          min(1, atLeast0(u.GetDropFraction())),
		BlockTokens:   int(min(u.GetPrefix().GetBlockTokens(), math.MaxInt32)),
		TokensPerByte: atLeast0(u.GetPrefix().GetTokensPerByte()),
		LongestMatch:  u.GetPrefix().GetLongestMatch(),
		Age:           ageOf(u.GetAgeSeconds()),
		Endpoints:     make([]picking.Endpoint, 0, len(u.GetEndpoints())),
	}
	for _, e := range u.GetEndpoints() {
		if !(e.GetSlots() > 0 && e.GetSpeed() > 0 && e.GetLoad() >= 0) {
			continue
		}
		out.Endpoints = append(out.Endpoints, picking.Endpoint{Address: e.GetAddress(), Avoid: avoidanceOf(e),
			LoadAge: ageOf(e.GetLoadAgeSeconds()), Restarts: int(e.GetRestarts()),
			Share:  min(1, atLeast0(e.GetShare())),
			Vessel: weighting.Vessel{Load: e.GetLoad(), Slots: e.GetSlots(), Speed: e.GetSpeed()}})
	}
	return out
}

func avoidanceOf(e *loadsv1.Endpoint) picking.Avoidance {
	switch {
	case e.GetDrained():
		return picking.AvoidDrained
	case e.GetAvoid():
		return picking.AvoidFlagged
	}
	return picking.AvoidNone
}

// ageOf returns an age within its bounds; 0 for one that is not a number.
func ageOf(seconds float64) time.Duration {
	return time.Duration(min(atLeast0(seconds), maxAge.Seconds()) * float64(time.Second))
}

// atLeast0 returns x, or 0 if it is negative or not a number.
func atLeast0(x float64) float64 {
	if x > 0 {
		return x
	}
	return 0
}
