// Package stats computes the uncertainty of a quantile of waits.
//
// Waits are no independent draws: a long queue makes many requests wait one
// after the other, so that 5,000 waits say as much as some hundreds of
// independent ones. An interval that ignores this is several times too narrow.
//
// # Circular block bootstrap
//
// A resample of n waits is made of n/b blocks of b consecutive waits, each
// beginning at a random one, the last followed by the first (Politis and Romano
// 1992; Künsch 1989 for the blocks). Inside a block the dependence is kept. What
// a statistic does over the resamples is what it would do over repetitions of
// the run; the interval is between its 2.5 % and 97.5 % quantiles (percentile
// method).
//
// Blocks must be long against the memory of the queues, and many. The bench uses
// as many requests as arrive in 20 mean service times: 320 for 20 servers at load
// 0.8, 15 blocks in 5,000 requests. The queues of a good placement forget within
// a few service times; those of round robin at load 0.8 remember some 90
// (1/(1-sqrt(0.8))^2), so the intervals of the bad rows are somewhat too narrow.
//
// # Pairs
//
// All rows of a bench get the same requests, so the noise of the draw hits them
// together: a burst is a burst for all. Series are therefore resampled together,
// with the same blocks, and the interval of a ratio of two rows is that of the
// ratio in each resample. It is much narrower than what the two rows' own
// intervals suggest.
//
// The package is pure; the seed is an argument. The bench calls it.
package stats
