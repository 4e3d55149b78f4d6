package xds

import (
	"strconv"
	"time"
)

// recentPushes is how many pushes of a cluster are remembered, to tell which of them a
// response holds. A response goes out right after it was made, so a few would do.
const recentPushes = 32

// fewestAcks bounds the smoothing of a cluster's ACK delay from below, so that with one
// or two Envoys a single slow ACK does not stand for all.
const fewestAcks = 8

// A publication is what the streams need to know of a served cluster: its recent pushes, newest
// last, and how soon they are acknowledged.
type publication struct {
	pushes   [recentPushes]publishedAt
	count    uint64        // of all pushes; the newest is at (count-1) % recentPushes
	ackDelay time.Duration // smoothed, zero is unknown
}

type publishedAt struct {
	seq uint64
	at  time.Time
}

// published takes down that the cluster's content is about to be that of update seq of the cache.
func (t *tracker) published(cluster string, seq uint64, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.clusters[cluster]
	if p == nil {
		p = &publication{}
		t.clusters[cluster] = p
	}
	p.pushes[p.count%recentPushes] = publishedAt{seq, at}
	p.count++
}

func (t *tracker) removed(cluster string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.clusters, cluster)
}

func (t *tracker) ackDelay(cluster string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.clusters[cluster]; p != nil {
		return p.ackDelay
	}
	return 0
}

// versionAt is the version of the cluster's own last push within update seq of the cache,
// and when that was. Where it is no longer known, because it was removed or
// many pushes ago, the version of the update stands in, with a zero time.
func (p *publication) versionAt(prefix string, seq uint64) (string, time.Time) {
	if p != nil {
		for i := p.count; i > 0 && p.count-i < recentPushes; i-- {
			if push := p.pushes[(i-1)%recentPushes]; push.seq <= seq {
				return prefix + strconv.FormatUint(push.seq, 10), push.at
			}
		}
	}
	return prefix + strconv.FormatUint(seq, 10), time.Time{}
}

// newest is the cluster's last push.
func (p *publication) newest() publishedAt { return p.pushes[(p.count-1)%recentPushes] }

// version is the cluster's current version.
func (p *publication) version(prefix string) string {
	return prefix + strconv.FormatUint(p.newest().seq, 10)
}

// acked smooths the delay over about one round of all subscribers.
func (p *publication) acked(delay time.Duration, subscribers int) {
	if p == nil {
		return
	}
	p.ackDelay = smooth(p.ackDelay, delay, 1/float64(max(fewestAcks, subscribers)))
}
