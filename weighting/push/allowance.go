package push

import "time"

// An Allowance is how much one proxy has used of the time that it is entitled to: by the pushes of all its clusters
// (Verdict.ProxyTime), and by what else it has a control plane do. The budgets of the clusters are those of the median
// proxy. A proxy that subscribes to more has to wait, so that it gets fewer pushes of each and costs the others nothing.
type Allowance struct {
	paid time.Time // when all that was used is paid for
}

// Use records what was used.
func (a *Allowance) Use(now time.Time, d time.Duration) { a.paid = now.Add(a.owed(now) + d) }

// owed is what is not paid for yet.
func (a *Allowance) owed(now time.Time) time.Duration { return max(0, a.paid.Sub(now)) }

// Wait returns how long the proxy has to wait for more: until it owes no more than two seconds, as at its start it
// needs all its clusters; ten seconds at most.
func (a *Allowance) Wait(now time.Time) time.Duration {
	const burst, longest = 2 * time.Second, 10 * time.Second
	return min(max(0, a.owed(now)-burst), longest)
}
