package push

import "time"

// An Allowance is how much one proxy has used of the time that it is entitled to: by the pushes of all its clusters
// (Verdict.ProxyTime), and by what else it has a control plane do. The budgets of the clusters are those of the median
// proxy. One that subscribes to more has to wait, so that it gets fewer pushes of each and costs the others nothing.
type Allowance struct {
	paid time.Time // when all that was used is paid for
}

// Use records what was used.
func (a *Allowance) Use(now time.Time, d time.Duration) { a.paid = now.Add(a.unpaid(now) + d) }

// unpaid is what is not paid for yet.
func (a *Allowance) unpaid(now time.Time) time.Duration { return max(0, a.paid.Sub(now)) }

// Wait returns how long the proxy has to wait for more: until no more than two seconds are unpaid, as at its start it
// needs all its clusters; ten seconds at most.
func (a *Allowance) Wait(now time.Time) time.Duration {
	const burst, longest = 2 * time.Second, 10 * time.Second
	return min(max(0, a.unpaid(now)-burst), longest)
}
