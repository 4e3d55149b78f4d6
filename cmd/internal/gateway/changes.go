package gateway

import (
	"slices"
	"time"
)

// A change of a rule is one that Envoy Gateway may not know yet.
type change struct {
	backends []Backend
	since    time.Time
}

// catchesUpWithin is how long Envoy Gateway may take to see a change of a route. When its pools are still others later,
// they are not the route's past, but something that nobody thought of: refused for ever, it would hold all changes of
// the Gateway.
const catchesUpWithin = 10 * time.Second

// changes are by rule.
type changes map[RuleID]change

// mayCatchUp notes a rule for which Envoy Gateway has other pools, and reports whether these may be the past.
func (all changes) mayCatchUp(id RuleID, backends []Backend) bool {
	c, ok := all[id]
	if ok && slices.Equal(c.backends, backends) {
		return time.Since(c.since) < catchesUpWithin
	}
	if !ok && len(all) >= maxPools {
		clear(all)
	}
	all[id] = change{backends, time.Now()}
	return true
}
