// Package testbed starts what the end-to-end tests work on: the steelyard binary as a process of its own, real Envoys
// from `steelyard bootstrap`, pickers, a real redis-server; and simulated model servers (e2e/rig/modelsim), which are
// real HTTP servers, for a fault or a load on demand. Every test starts what it needs, which ends with the test.
// Nothing is skipped: a part that is missing fails the test and names the make target that provides it.
//
// A Fleet also answers: its methods return what the admin API, the metrics and the Envoys show, and Eventually waits
// for a condition.
package testbed
