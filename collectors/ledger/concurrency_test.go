package ledger

import (
	"math/rand/v2"
	"reflect"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"steelyard/internal/api"
	"steelyard/weighting"
	"steelyard/weighting/flight"
)

// TestConcurrentStreams: in whatever order they come, the counts are right in the end, and the
// wake may read.
func TestConcurrentStreams(t *testing.T) {
	const envoys, requests = 8, 300
	var l *Ledger
	l = New(func(cluster string) { l.Read(cluster, start, nil) })
	l.SetMembers("chat", drawnAddresses)
	var watchers []Envoy
	for i := range envoys {
		watchers = append(watchers, Envoy{NodeID: strconv.Itoa(i)})
	}
	l.SetWatchers("chat", watchers[:4])
	var running sync.WaitGroup
	left := make([]*Stream, envoys)
	for i, node := range watchers {
		running.Go(func() {
			s := l.Open(node, start)
			r := l.Reporting(node, time.Second, start)
			left[i] = s
			for n := range requests {
				s.Begin(start, strconv.Itoa(n), drawnAddresses[n%len(drawnAddresses)])
			}
			for n := range requests - 4 {
				s.End(start, strconv.Itoa(n), drawnAddresses[n%len(drawnAddresses)], Outcome{Status: 200})
			}
			l.Envoys(start)
			l.Modes()
			r.Close()
		})
	}
	running.Go(func() { l.SetWatchers("chat", watchers) })
	running.Go(func() { l.SetMembers("embed", drawnAddresses[:2]); l.Forget("embed") })
	running.Wait()
	for _, c := range l.Read("chat", start, nil) {
		if int(c.InFlight.Value) != envoys {
			t.Errorf("%s: %v in flight, want %d", c.Address, c.InFlight.Value, envoys)
		}
	}
	for _, s := range left {
		s.Close()
	}
	if l.open != 0 || len(l.envoys) != 0 {
		t.Errorf("%d requests and %d Envoys are left", l.open, len(l.envoys))
	}
}

// everything is what all reads of a ledger return at one moment.
type everything struct {
	Readings   map[string][]flight.Counts
	Clusters   map[string]ClusterStatus
	Disputes   map[string][]Dispute
	Envoys     []EnvoyStatus
	Generation uint64
	Modes      map[Envoy]Mode
	Totals     api.Entries
	Reporters  Reporters
}

func (w *world) everything() everything {
	l := w.ledger
	all := everything{
		Readings: map[string][]flight.Counts{}, Clusters: map[string]ClusterStatus{}, Disputes: map[string][]Dispute{},
		Envoys: l.Envoys(w.now), Totals: l.Totals(), Reporters: l.Reporters(),
	}
	for name := range w.clusters {
		all.Readings[name], all.Clusters[name] = l.Read(name, w.now, nil), l.Cluster(name, w.now)
		all.Disputes[name] = l.Disputes(name, w.now)
	}
	all.Generation, all.Modes = l.Modes()
	return all
}

// history plays the same events whenever it is called, and calls read in between.
func history(read func(*world)) *world {
	chance := rand.New(rand.NewPCG(1, 2))
	w := twoClusters()
	w.ledger.SetModeThresholds(1, 4)
	for _, e := range w.envoys {
		w.open(e)
		w.reporting(e)
	}
	for i := range 400 {
		w.after(time.Duration(chance.IntN(60)) * time.Millisecond)
		e := w.envoys[chance.IntN(len(w.envoys))]
		address := drawnAddresses[chance.IntN(len(drawnAddresses))]
		switch chance.IntN(12) {
		default:
			w.begin(e, e.streams[0], strconv.Itoa(i), address, chance.IntN(10) > 0)
		case 5, 6, 7:
			if len(e.open) > 0 {
				w.end(e, e.streams[0], 0, chance.IntN(10) > 0)
			}
		case 8:
			w.report(e)
		case 9:
			e.streams[0].Close()
			e.streams[0] = w.ledger.Open(e.node, w.now)
		case 10:
			w.ledger.Tick(w.now)
		case 11:
			w.after(2 * time.Second) // so that some go silent, and clusters idle
			w.ledger.Served(address, &weighting.ServerReport{
				Queue: weighting.Reading{At: w.now}, Running: weighting.Reading{At: w.now},
			}, 0, w.now)
		}
		read(w)
	}
	return w
}

// TestConcurrentReadsChangeNothing: all that read at the same moment get the same, and what comes later is as if
// there were no reads.
func TestConcurrentReadsChangeNothing(t *testing.T) {
	unread := history(func(*world) {})
	read := history(func(w *world) {
		var all [4]everything
		var readers sync.WaitGroup
		for i := range all {
			readers.Go(func() { all[i] = w.everything() })
		}
		readers.Wait()
		for i := range all {
			if !reflect.DeepEqual(all[0], all[i]) {
				t.Fatalf("two readers at %v:\n%s", w.now, cmp.Diff(all[0], all[i]))
			}
		}
	})
	if diff := cmp.Diff(unread.everything(), read.everything()); diff != "" {
		t.Errorf("unread, and read:\n%s", diff)
	}
	if got := read.everything(); got.Totals.Reconciled == 0 || got.Generation == 0 {
		t.Errorf("the history is too quiet: %+v", got)
	}
}
