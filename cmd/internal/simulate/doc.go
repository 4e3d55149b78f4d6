// Package simulate is the command "steelyard simulate": it runs scenarios through
// the simulator of package weighting/sim and shows what users would wait under
// each policy.
//
// It is called by cmd/steelyard only. It knows scenario files, the fleet that a
// configuration describes, and how results are shown; of what happens in between,
// events and queues, it knows nothing: that is weighting/sim.
//
// # What is shown
//
// All waits are in mean service times, so that a scenario of a second and one of a
// minute can be compared; times to a token, of engines, are in seconds. "Best" leaves
// out shortest_queue and what else sees every pod for every request: these are bounds
// and no policies that one could switch on.
//
// The one number of a run is the ratio of a policy's p99, of the wait or of the time to
// first token, to that of least_request on the same requests,
//
//	ratio = max(p99, 0.05) / max(p99 of least_request, 0.05)
//
// because a twentieth of a service (or of a second) is what nobody feels, and 0.02 to 0.01 is no
// doubling. A hunt runs many seeds and names the one with the largest ratio.
//
// # A fleet
//
// With a configuration, what Steelyard is told comes from there (endpoints, slots,
// sources, clocks, pushes) and what happens from the scenario (traffic, service
// times, events). The groups and events of the scenario are stretched over the
// endpoints: pod i of n stands for the endpoints from i/n to (i+1)/n of the list.
package simulate
