package sim

import "math/rand/v2"

// Each use of randomness has a stream of its own.
const (
	streamGaps = iota + 1
	streamPlaces
	streamServices
	streamSeeds
	streamPicks
	streamDither
	streamSignals
	streamLoss
	streamPrompts
	streamSpread
	streamPickers
)

func source(seed, stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(scrambled(seed), scrambled(stream)))
}

// scrambled sets seeds and streams that are near each other far apart (the
// finalizer of MurmurHash3).
func scrambled(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
