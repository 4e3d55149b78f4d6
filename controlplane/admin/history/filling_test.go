package history

import (
	"time"

	"steelyard/internal/api"
)

var noon = time.Date(2026, 3, 14, 12, 0, 0, 250e6, time.UTC)

// filledWith writes a sample with these shares; the rest follows from them.
func filledWith(shares []float64) func(*Row) {
	return func(r *Row) {
		for i, share := range shares {
			for field, v := range [FineFields]float64{FieldShare: share, FieldServed: share, FieldLatency: share,
				FieldLoad: 10 * share, FieldInFlight: 100 * share} {
				r.Set(field, i, v)
			}
			r.States()[i] = StateCode(api.EndpointOK)
		}
		r.Pool = [PoolFields]float32{40, 0.9, 3, 1.1, 100, 0.2, 4, 0.7, 0}
	}
}
