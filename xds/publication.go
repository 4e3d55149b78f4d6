package xds

import (
	"strconv"
	"time"
)

// recentPushes is how many pushes of a cluster the tracker remembers, to find the one that a response contains. A
// response is sent right after it is made, so a few would be enough.
const recentPushes = 32

// fewestAcks is the least number of ACKs over which the ACK delay of a cluster is smoothed, so that with one or two
// Envoys a single slow ACK does not determine it.
const fewestAcks = 8

// A publication has what the streams need of a served cluster: its recent pushes, and how soon Envoys acknowledge them.
type publication struct {
	pushes   [recentPushes]publishedAt
	count    uint64        // of all pushes; the newest is at (count-1) % recentPushes
	ackDelay time.Duration // smoothed, zero is unknown

	proxyTime time.Duration // push.Verdict.ProxyTime of the newest push
}

type publishedAt struct {
	seq uint64
	at  time.Time
}

// versionAt returns the version of the cluster's latest push up to update seq of the cache, and its time. If the
// tracker no longer has it, because the cluster was removed or pushed many times since, it returns the version of the
// update and a zero time.
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

// newest returns the cluster's latest push.
func (p *publication) newest() publishedAt { return p.pushes[(p.count-1)%recentPushes] }

// version returns the cluster's current version.
func (p *publication) version(prefix string) string {
	return prefix + strconv.FormatUint(p.newest().seq, 10)
}

// acked updates the delay, smoothed over about one ACK of each subscriber.
func (p *publication) acked(delay time.Duration, subscribers int) {
	if p == nil {
		return
	}
	p.ackDelay = smooth(p.ackDelay, delay, 1/float64(max(fewestAcks, subscribers)))
}

// smooth moves an average towards the newest value by weight, 0 to 1. An average of zero is unknown.
func smooth(average, value time.Duration, weight float64) time.Duration {
	if average == 0 {
		return value
	}
	return average + time.Duration(weight*float64(value-average))
}
