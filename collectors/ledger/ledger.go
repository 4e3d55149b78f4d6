package ledger

import (
	"hash/maphash"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"steelyard/internal/api"
	"steelyard/weighting/flight"
)

// Bounds on what is kept: any client can connect as an Envoy.
const (
	maxEnvoys        = 16_384
	maxOpen          = 65_536    // requests of one Envoy
	maxOpenTotal     = 1_048_576 // requests of all, about 150 MB
	maxAccounts      = 2_097_152 // of all Envoys with all endpoints, about 350 MB
	strangers        = 4         // Envoys that watch no cluster get one part in this many
	maxInProgress    = 1_000_000 // requests in progress at one endpoint, by one report
	maxPerSecond     = 100_000   // requests of one Envoy to one endpoint: see Reports.most
	maxLatency       = 24 * time.Hour
	silentAfter      = 3 * time.Second
	silentIntervals  = 3
	maxServices      = 2048             // names of clusters of one Envoy: two for each that can be configured
	maxServicesTotal = 131_072          // of all Envoys, of a kilobyte at most: collectors/loadstats cuts them
	idleAfter        = 10 * time.Second // without a beginning or an end of a request
	idleReports      = 2                // of each Envoy that is counted by its reports, without requests
)

// A Ledger counts the requests in flight of all Envoys. It is safe for concurrent use.
type Ledger struct {
	wake func(cluster string)
	seed maphash.Seed // secret, so that ids cannot be made to collide

	mu           sync.RWMutex // reads share it, and change nothing
	clusters     map[string]*cluster
	addresses    map[string]*address
	envoys       map[Envoy]*envoy
	left         api.Entries // of Envoys that have left
	open         int         // requests of all Envoys
	accounts     int         // of all Envoys
	services     int         // of all Envoys
	watching     map[Envoy]*watching
	reporters    Reporters
	hashed       map[*account]int32 // requests issued by a hash, of the report that is being read
	dirty        []*cluster         // to be woken when the lock is released
	epoch        uint64             // changes with the Envoys that are counted, and how
	trafficEpoch uint64             // changes with which clusters have traffic, which is more often

	batchAbove, reportsAbove float64

	generation atomic.Uint64 // of the modes; written under mu
}

// New makes an empty ledger. wake is called, without the lock and from the goroutine that
// made the change, when a count or a sum of a cluster changed; it must
// not block. It may be nil.
func New(wake func(cluster string)) *Ledger {
	return &Ledger{
		wake:      wake,
		seed:      maphash.MakeSeed(),
		clusters:  make(map[string]*cluster),
		addresses: make(map[string]*address),
		envoys:    make(map[Envoy]*envoy),
		watching:  make(map[Envoy]*watching),
		hashed:    make(map[*account]int32),
	}
}

// A cluster is a set of endpoints and the Envoys that move their counts.
type cluster struct {
	name     string
	alpha    float64   // weight of an end in the averages
	members  []*member // in the caller's order
	watchers map[Envoy]struct{}
	dropped  uint64
	dirty    bool
	counted  *countedWatchers // as of the last Tick; see countedBy
	idle     bool             // no request for a while, and all watchers would have reported one
	traffic  bool             // a request since the last sweep
	quiet    time.Time        // the first sweep without one
	rotated  time.Time        // when the current half minute of the answers' times began
	record   *record          // nil until Envoys report and none follows
}

// watching counts the clusters that an Envoy is subscribed to.
type watching struct{ clusters, busy int }

// A member is one endpoint of one cluster, with the sums and averages over all Envoys that count.
type member struct {
	cluster  *cluster
	at       *address
	address  string // as the caller wrote it
	inFlight int64

	unconfirmed int64 // of inFlight, of Envoys that are not confirmed; see mismatch.go
	excess      int64 // of those, as many do not count
	excessSince time.Time

	sums     flight.Sums
	answers  newestAnswers // of accounts that do not fail
	gaps     gaps
	failures *failureCheck // nil where no Envoy reports failures
	bytes    average       // of an answer
	failed   average       // of requests that the endpoint answered or failed: 1 for a failure
	times    *times        // of answers; nil before the first
}

// An address is an endpoint of at least one cluster.
type address struct {
	key     string
	members []*member
	served  served
}

// servedBy returns which of the endpoint's clusters has a name in EDS: NAME or NAME/…; nil if none of them has.
func (a *address) servedBy(service string) *cluster {
	base, _, _ := strings.Cut(service, "/")
	for _, s := range a.members {
		if s.cluster.name == service || s.cluster.name == base {
			return s.cluster
		}
	}
	return nil
}

// release unlocks, and then wakes the clusters that changed.
func (l *Ledger) release() {
	var space [4]string
	names := space[:0]
	for _, c := range l.dirty {
		c.dirty = false
		names = append(names, c.name)
	}
	l.dirty = l.dirty[:0]
	l.mu.Unlock()
	if l.wake == nil {
		return
	}
	for _, name := range names {
		l.wake(name)
	}
}

// changed makes release wake the cluster.
func (l *Ledger) changed(c *cluster) {
	if !c.dirty {
		c.dirty = true
		l.dirty = append(l.dirty, c)
	}
}

// room returns how many of something there may be at most, when this Envoy asks for one more. An Envoy that watches no
// cluster may be about to, so it is counted; but any client can invent such Envoys, so they leave most of the room to
// those that watch one.
func (l *Ledger) room(node Envoy, limit int) int {
	if l.watching[node] == nil {
		return limit / strangers
	}
	return limit
}

// canonical returns an address as Envoys write it.
func canonical(given string) string {
	if a, err := netip.ParseAddrPort(given); err == nil {
		return a.String()
	}
	return given
}

// An account counts the requests of one Envoy at one endpoint of one cluster. There may be as many as Envoys times
// endpoints, so accounts are small.
type account struct {
	envoy  *envoy
	member *member
	count  flight.Counter

	open   list   // requests begun and not ended, oldest first; count has the same number open
	closed int32  // of the Envoy's closed requests, those of the account
	ended  uint32 // requests, as in the sums; it wraps around

	next    tally // of the report that is being read
	watched bool  // the Envoy watches the member's cluster: the member counts it
	recent  outcomes
}

// A tally adds up a report about one endpoint, over the Envoy's clusters that it may belong to.
type tally struct{ inProgress, issued, succeeded, errors int32 }

// countedInFlight returns how many requests are in flight, without those that do not count.
func (s *member) countedInFlight() int64 {
	return s.inFlight - s.excess
}

// An envoy is an Envoy that has a stream.
type envoy struct {
	node     Envoy
	accounts map[*member]*account
	requests map[key]*request
	open     int  // requests, with the closed ones
	closed   list // requests whose ends seem lost, and may come after all
	closings int  // length of closed

	services map[string]service // cluster by the Envoy's own name, where that misleads
	streams  int                // of the access log
	reports  []*Reports         // the open streams of load reports, oldest first
	counting int                // of them, those whose gauges count
	first    bool               // in this round there was the first report of a stream
	silent   bool
	progress int  // requests in progress by the last reports, over all endpoints
	unlogged bool // its reports showed requests, and no log did
	wide     bool // its log has requests to other addresses, too
	grouped  Reporters

	came       time.Time // or may be confirmed again
	confirmed  bool      // a request of its ended where an endpoint completed some since; see mismatch.go
	overstated overstated

	unbatched time.Time   // when Steelyard asked it to stop batching its entries
	early     map[key]int // ends since then without a beginning, which may be in the last batch

	mode  Mode
	calm  time.Time // since when the rate is low enough for a mode before this one
	rate  rate
	asked time.Duration // interval of reports

	lastEvent, lastReport, lastMessage time.Time
	totals                             api.Entries
}

// A service is what an Envoy's own name for a cluster stands for.
type service struct {
	name   string    // of a cluster here; empty: it is none of them
	hashes bool      // it chooses endpoints by a hash, and not by the weights
	named  time.Time // in the latest report
}

// overstated is about a load report with more requests of an endpoint than there can be.
type overstated struct {
	address       string // of the endpoint of the latest one
	requests      uint64
	since, latest time.Time
}

// reported reports whether there are load reports to count by.
func (e *envoy) reported() bool { return e.counting > 0 }

// reportsOnly reports whether load reports are the only source of the Envoy's requests. An Envoy without requests has
// no log either, but more frequent reports of it would show nothing sooner.
func (e *envoy) reportsOnly() bool { return e.mode == ModeReports || e.streams == 0 && e.unlogged }

// basis returns what the Envoy is counted by. Events take precedence over reports, which are older. A silent Envoy is
// not counted at all.
func (e *envoy) basis() flight.Basis {
	switch {
	case e.silent:
		return flight.ByNothing
	case e.streams > 0 && e.mode != ModeReports:
		return flight.ByLog
	case e.reported():
		return flight.ByReports
	}
	return flight.ByNothing
}

// Reports is an open stream of load reports. A process has one. If an Envoy has several, they belong to several
// processes and add up, or one is left over from before its Envoy opened the next.
type Reports struct {
	ledger   *Ledger
	envoy    *envoy // nil if there are too many Envoys, and after Close
	process  uint8  // identifies it among the streams of its Envoy
	counts   bool   // its gauges are in the Envoy's accounts
	later    bool   // there was a report over this stream
	reported bool   // in this round
	logged   bool   // since the last report a log showed the same requests, too

	opened, lastReport time.Time // lastReport is `opened` before the first one
	compared           time.Time // when the sums of requests issued were last compared
}

// A Stream is an open access log stream. Each worker of an Envoy has one for each of its loggers.
type Stream struct {
	ledger *Ledger
	envoy  *envoy // nil if there are too many Envoys, and after Close
	open   list   // requests whose beginning came over it
}

// countedWatchers has the watchers of a cluster that are counted. They change far less often than the counts.
type countedWatchers struct {
	ClusterStatus              // what follows from the Envoys, and not from the time
	epoch, trafficEpoch uint64 // of the ledger, when this was computed
	envoys              []*envoy
	late                bool // some Envoy's counts are older than the events of this moment
}

// setIdle notes whether a cluster has traffic.
func (l *Ledger) setIdle(c *cluster, idle bool) {
	if c.idle == idle {
		return
	}
	c.idle = idle
	for node := range c.watchers {
		if idle {
			l.watching[node].busy--
		} else {
			l.watching[node].busy++
		}
	}
	l.trafficEpoch++
}

// patience returns how long an Envoy, or one of its streams, may send nothing.
func (e *envoy) patience() time.Duration { return max(silentAfter, silentIntervals*e.asked) }

// account returns the account with an endpoint, or nil.
func (e *envoy) account(s *member) *account {
	if e == nil {
		return nil
	}
	return e.accounts[s]
}
