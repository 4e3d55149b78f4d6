package weighting

// Outliers: endpoints that fail
//
// A failure is the endpoint's own: no connection, a reset, a 5xx. An endpoint is an outlier by its failures where
//
//	often        five requests in a row failed; or at least half, and five, of the last fifty or of those of the
//	             last ten seconds, whichever are fewer, and of those that ended last
//	significant  given the median share q that the others fail, q to the power of those in a row is 1e-4 at most, or
//	             the failures are 3.7 standard deviations more than q of the requests

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Bounds on what is chance.
const (
	// sigmas is the number of standard deviations with about the probability of improbable.
	sigmas              = 3.7
	fewestEnded         = 5 // that a share of failures needs
	failingShare        = 0.5
	failingTau          = 10 * time.Second
	failingRequests     = 50 // requests: the span, where they are fewer than those of failingTau
	consecutiveFailures = 5  // no later than a proxy ejects the endpoint: then nothing more is seen
)

// outcomes adds requests that failed, and all that ended, in some time.
func (o *outlier) outcomes(failed, ended float64, elapsed time.Duration) {
	keep := math.Exp(-elapsed.Seconds()/failingTau.Seconds() - ended/failingRequests)
	o.failed, o.ended = o.failed*keep+failed, o.ended*keep+ended
	if o.consecutive += failed; ended-failed > rounding {
		o.consecutive = 0
	}
	if failed+ended > 0 {
		o.failing = failed >= failingShare*ended
	}
}

// failureReason describes the failures; empty where there are none.
func (o *outlier) failureReason() string {
	switch {
	case o.consecutive >= consecutiveFailures:
		return fmt.Sprintf("failing: the last %.0f requests failed", o.consecutive)
	case o.failsOften() && o.failing:
		return fmt.Sprintf("failing: %.0f of the last %.0f requests failed", o.failed, o.attempts())
	}
	return ""
}

// failsOften reports whether the endpoint failed at least half of its recent requests.
func (o *outlier) failsOften() bool {
	share, enough := o.failedShare()
	return enough && share >= failingShare
}

// failsMoreThan reports whether the endpoint's failures are significant where such a share of all requests fails.
func (o *outlier) failsMoreThan(share float64) bool {
	if o.consecutive >= consecutiveFailures && o.consecutive*-math.Log(share) >= improbable {
		return true
	}
	attempts := o.attempts()
	return o.failing && o.failed-share*attempts >= sigmas*math.Sqrt(share*(1-share)*attempts) && share < 1
}

// failures are the shares of their requests that members failed, sorted.
type failures []float64

func (p *pool) failedShares() failures {
	shares := make(failures, 0, len(p.members))
	for i := range p.members {
		if share, enough := p.members[i].outlier.failedShare(); enough {
			shares = append(shares, share)
		}
	}
	slices.Sort(shares)
	return shares
}

// failedShare is the share of the recent requests that failed; enough is false where they are too few.
func (o *outlier) failedShare() (share float64, enough bool) {
	attempts := o.attempts()
	return o.failed / attempts, attempts >= fewestEnded
}

// attempts are the recent requests. One that got no connection failed, and is not among those that ended.
func (o *outlier) attempts() float64 { return max(o.ended, o.failed) }

// others is the share that the others of the pool fail: their median, and 0 where none is known. What all of them fail
// now and then is the fault of the requests, or of their number.
func (f failures) others(but *outlier) float64 {
	own, others := len(f), len(f)
	if share, enough := but.failedShare(); enough {
		own, _ = slices.BinarySearch(f, share)
		others--
	}
	if others == 0 {
		return 0
	}
	at := func(k int) float64 {
		if k >= own {
			k++
		}
		return f[k]
	}
	return (at((others-1)/2) + at(others/2)) / 2
}
