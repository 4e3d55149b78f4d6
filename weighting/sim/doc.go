// Package sim places simulated requests on simulated servers through simulated
// Envoys, with the real law of package weighting between them.
//
// It is seeded, has no clock of its own and no goroutines but those of [RunAll]:
// the same scenario, policy and seed give the same result, byte for byte.
package sim
