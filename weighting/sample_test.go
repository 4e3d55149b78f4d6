//go:build !long

package weighting

// sampled are the rows of a table that are played: one in n, beginning with the first.
func sampled[T any](n int, rows []T) (some []T) {
	for i := 0; i < len(rows); i += n {
		some = append(some, rows[i])
	}
	return some
}

// seeds is how many runs a mean is made of, of so many.
func seeds(few, _ uint64) uint64 { return few }
