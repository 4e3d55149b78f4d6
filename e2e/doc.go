// Package e2e tests with real parts what the rest of the project relies on: the steelyard binary as its own process,
// real Envoys started from `steelyard bootstrap`, a real redis-server, a real Triton; and simulated model servers
// (e2e/rig/modelsim), which are real HTTP servers, where a test needs a fault or a load on demand.
//
// Every test starts what it needs and stops it. Nothing is skipped: a part that
// is missing fails the test and names the make target that provides it.
package e2e
