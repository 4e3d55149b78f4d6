// Package simulate is the command "steelyard simulate": it runs scenarios through
// the simulator of package sim and shows how long requests would wait under
// each policy.
//
// Only cmd/steelyard calls it. It reads scenario files and the deployment that a
// configuration describes, and shows the results; the simulation itself, events and
// queues, is in sim.
//
// # What is shown
//
// All waits are in mean service times, so that a scenario of a second and one of a
// minute can be compared; times to a token, of engines, are in seconds. "Best" leaves
// out shortest_queue and the others that see every pod for every request: these are
// bounds, not policies for production.
//
// The one number of a run is the ratio of a policy's p99, of the wait or of the time to
// first token, to that of least_request on the same requests,
//
//	ratio = max(p99, 0.05) / max(p99 of least_request, 0.05)
//
// because users do not notice a twentieth of a service (or of a second), and from 0.01 to 0.02 is
// a doubling that nothing notices.
//
// # A deployment
//
// With a configuration, Steelyard's settings come from there (endpoints, slots,
// sources, clocks, pushes), and the traffic, service times and events from the
// scenario. The groups and events of the scenario are stretched over the
// endpoints: pod i of n stands for the endpoints from i/n to (i+1)/n of the list.
package simulate
