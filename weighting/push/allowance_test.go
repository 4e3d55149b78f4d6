package push

import (
	"testing"
	"time"
)

func TestAProxyWaitsForWhatItUsedBeyondTwoSeconds(t *testing.T) {
	const second = time.Second
	for _, c := range []struct{ used, after, wait time.Duration }{
		{0, 0, 0}, {2 * second, 0, 0}, {3 * second, 0, second}, {3 * second, second, 0}, {time.Hour, 0, 10 * second},
	} {
		var a Allowance
		a.Use(epoch.Add(-time.Hour), second) // paid for long ago
		a.Use(epoch, c.used/2)
		a.Use(epoch, c.used/2)
		if got := a.Wait(epoch.Add(c.after)); got != c.wait {
			t.Errorf("%v used: waits %v after %v, want %v", c.used, got, c.after, c.wait)
		}
	}
}

// TestAPushUsesItsCostOfTheWholeBudgetOfAProxy: also of a proxy with many clusters, each of which has a part of it.
func TestAPushUsesItsCostOfTheWholeBudgetOfAProxy(t *testing.T) {
	for _, c := range []struct {
		budget Budget
		want   time.Duration
	}{
		{Budget{ProxyCPU: 0.02, Cost: cost}, 506 * time.Millisecond / 20},
		{Budget{Cost: cost}, 0},
	} {
		g := NewGate(Options{Budget: c.budget})
		in := twoEndpoints(epoch, 0)
		in.Subscribers = Subscribers{Proxies: 10, Clusters: 20, BusyClusters: 5, Widest: 90, WidestBusy: 30}
		want(t, "time of a proxy", g.Step(epoch, in).ProxyTime, c.want)
	}
}
