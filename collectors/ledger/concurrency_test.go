package ledger

import (
	"strconv"
	"sync"
	"testing"
	"time"
)

// TestManyStreamsAtOnce: whoever comes when, the counts are right in the end, and the
// wake may read.
func TestManyStreamsAtOnce(t *testing.T) {
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
	for i, who := range watchers {
		running.Go(func() {
			s := l.Open(who, start)
			r := l.Reporting(who, time.Second, start)
			left[i] = s
			for n := range requests {
				s.Begin(start, strconv.Itoa(n), drawnAddresses[n%len(drawnAddresses)])
			}
			for n := range requests - 4 {
				s.End(start, strconv.Itoa(n), drawnAddresses[n%len(drawnAddresses)], Outcome{Status: 200})
			}
			l.Envoys(start)
			l.Modes()
			r.Close(start)
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
		s.Close(start)
	}
	if l.open != 0 || len(l.envoys) != 0 {
		t.Errorf("%d requests and %d Envoys are left", l.open, len(l.envoys))
	}
}
