package testbed

import (
	"fmt"
	"slices"
	"testing"
)

// A Carrier is what holds the requests of an Envoy: the module in it, or a picker next to it.
type Carrier string

const (
	ByModule Carrier = "module"
	ByPicker Carrier = "picker"
)

// EachCarrier runs a test with the module, and with pickers.
func EachCarrier(t *testing.T, test func(*testing.T, Carrier)) {
	for _, c := range []Carrier{ByModule, ByPicker} {
		t.Run(string(c), func(t *testing.T) { test(t, c) })
	}
}

// Start runs a fleet whose cluster has a queue, and returns when all its Envoys have joined it.
func (c Carrier) Start(t *testing.T, p Plan) *Fleet {
	t.Helper()
	f := c.Launch(t, p)
	f.Eventually("the Envoys have joined the queue", func() error { return f.Waits(0, 0) })
	return f
}

// Launch runs a fleet whose requests are chosen for once there are loads.
func (c Carrier) Launch(t *testing.T, p Plan) *Fleet {
	t.Helper()
	if c == ByPicker {
		p.Edits = slices.Concat(p.Edits, Patient) // a request that a picker is late for does not wait
	}
	f := WithoutEnvoys(t, p)
	for range max(1, p.Envoys) {
		c.StartEnvoy(t, f, p.Bootstrap...)
	}
	return f
}

// StartEnvoy runs one more Envoy of a fleet, with more arguments of bootstrap.
func (c Carrier) StartEnvoy(t *testing.T, f *Fleet, bootstrap ...string) {
	t.Helper()
	i := len(f.Envoys)
	switch c {
	case ByModule:
		WithModule(t)
		f.Plan.Bootstrap = slices.Concat(bootstrap, []string{"--module"})
	case ByPicker:
		args := []string{"--name", fmt.Sprintf("envoy-%d", i)}
		if slices.Contains(bootstrap, "--prefix") {
			args = append(args, "--prefix")
		}
		k := StartPicker(t, f.Dir, f.XDS, "", args...)
		f.Plan.Bootstrap = slices.Concat(bootstrap, []string{"--picker", k.Address})
		f.Pickers = append(f.Pickers, k)
	}
	f.StartEnvoy(i)
}

// Unqueued is how many requests did not wait in their queue.
func (c Carrier) Unqueued(t *testing.T, f *Fleet) float64 {
	t.Helper()
	if c == ByPicker {
		return f.Pickers[0].Value(t, fmt.Sprintf("steelyard_picker_unqueued_total{envoy_cluster_name=%q}", Cluster))
	}
	return f.EnvoyStat("dynamicmodulescustom.picker_unqueued")
}

// Choices is the count of choices with a reason, of the first Envoy.
func (c Carrier) Choices(t *testing.T, f *Fleet, reason string) float64 {
	t.Helper()
	if c == ByPicker {
		return f.Pickers[0].Choices(t, reason)
	}
	return f.Choices(t, 0, reason)
}
