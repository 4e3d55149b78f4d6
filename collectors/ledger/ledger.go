package ledger

import "time"

// A Ledger counts. It is safe for concurrent use.
type Ledger struct{ wake func(cluster string) }

// New makes an empty ledger. wake is called, without the lock and from whatever
// goroutine brought the news, when a count of a cluster changed; it must not block.
func New(wake func(cluster string)) *Ledger { return &Ledger{wake: wake} }

// SetMembers replaces the endpoints of a cluster.
func (l *Ledger) SetMembers(cluster string, addresses []string) {}

// SetWatchers replaces the Envoys that are subscribed to a cluster: only they
// move its counts.
func (l *Ledger) SetWatchers(cluster string, envoys []Envoy) {}

// Forget drops a cluster.
func (l *Ledger) Forget(cluster string) {}

// SetModeThresholds sets the request rates, per second of one Envoy, above
// which its entries are batched and given up for load reports. Zero is never.
func (l *Ledger) SetModeThresholds(batchAbove, reportsAbove float64) {}

// A Stream is an open access log stream.
type Stream struct{ l *Ledger }

// Open notes that a stream of an Envoy's access log was opened.
func (l *Ledger) Open(e Envoy, now time.Time) *Stream { return &Stream{l} }

// Begin notes that a request got its connection to an endpoint.
func (s *Stream) Begin(now time.Time, id, address string) {}

// End notes that a request to an endpoint is over.
func (s *Stream) End(now time.Time, id, address string, o Outcome) {}

// Events notes what one message of the stream says, in order.
func (s *Stream) Events(now time.Time, events []Event) {}

// Close ends the stream, and with it the requests that began over it.
func (s *Stream) Close(now time.Time) {}

// Reports is an open stream of load reports.
type Reports struct{ l *Ledger }

// Reporting notes that an Envoy opened a stream of load reports and was asked
// for one every interval.
func (l *Ledger) Reporting(e Envoy, interval time.Duration, now time.Time) *Reports {
	return &Reports{l}
}

// Report takes in one report. interval is what the Envoy is asked for now.
func (r *Reports) Report(now time.Time, interval time.Duration, clusters []ClusterLoad) {}

// Close ends the stream, and with it the counts that came over it.
func (r *Reports) Close(now time.Time) {}

// Read appends to into what is known of each endpoint of a cluster, in the order given to
// SetMembers.
func (l *Ledger) Read(cluster string, now time.Time, into []Counts) []Counts { return into }

// Cluster is the status of a cluster.
func (l *Ledger) Cluster(cluster string, now time.Time) ClusterStatus { return ClusterStatus{} }

// Envoys is the status of all Envoys that have a stream, sorted.
func (l *Ledger) Envoys(now time.Time) []EnvoyStatus { return nil }

// Modes are the modes of all Envoys that have a stream; one that has none is in
// ModeEvents. The generation changes with every change of a mode.
func (l *Ledger) Modes() (generation uint64, modes map[Envoy]Mode) { return 0, nil }

// ModeGeneration is the generation alone.
func (l *Ledger) ModeGeneration() uint64 { return 0 }
