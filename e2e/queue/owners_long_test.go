//go:build long

package queue

import (
	"math/rand/v2"
	"testing"
)

// TestPlacesAreKeptOverAHundredThousandRequests while one owner after the other is killed, stopped or cut off.
func TestPlacesAreKeptOverAHundredThousandRequests(t *testing.T) {
	const requests, each = 100_000, 1000
	random := rand.New(rand.NewPCG(1, 2))
	blown(t, inRedis(t), 3, requests, func(i int) (blow, bool) {
		return blows[random.IntN(len(blows))], i < requests/each
	})
}
