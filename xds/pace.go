package xds

import (
	"time"

	"steelyard/weighting/push"
)

const (
	// requestCost is what a request costs that is neither the first of its stream nor an answer that changes nothing.
	// An Envoy sends one when its clusters change.
	requestCost = 2 * time.Millisecond
	// changeCost is what each name costs that a request subscribes to, or no longer subscribes to.
	changeCost = 200 * time.Microsecond
)

// A pace is the allowance of an Envoy, which all its streams share. A push uses of it what the gate's verdict says, an
// unsolicited request requestCost, and a change of subscriptions changeCost for each name. Where the Envoy has used too
// much, the server handles its next request later. It sends nothing on that stream in the meantime, and the latest
// assignment afterwards.
type pace struct {
	push.Allowance
	streams int
}
