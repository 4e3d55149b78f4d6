// Package stats computes the uncertainty of a quantile of waits.
//
// Waits are not independent draws: a long queue makes many requests wait one after the other, so that 5,000 waits
// contain as much information as some hundreds of independent ones. An interval that ignores this is several times too
// narrow.
//
// # Circular block bootstrap
//
// A resample of n waits is made of n/b blocks of b consecutive waits, each beginning at a random one, where the first
// wait follows the last (Politis and Romano 1992; Künsch 1989 for the blocks). A block keeps the dependence. A
// statistic varies over the resamples as it would over repetitions of the run; the interval is between its 2.5 % and
// 97.5 % quantiles (percentile method).
//
// Blocks must be long compared with the memory of the queues, and numerous. The bench uses as many requests as arrive
// in 20 mean service times: 320 for 20 servers at load 0.8, 15 blocks in 5,000 requests. The queues of a good placement
// forget within a few service times; those of round robin at load 0.8 within about 90 (1/(1-sqrt(0.8))^2), so the
// intervals of the bad rows are somewhat too narrow.
//
// # Pairs
//
// All rows of a bench get the same requests, so random bursts affect them together. Series are therefore resampled
// together, with the same blocks, and the interval of a ratio of two rows is that of the ratio in each resample. It is
// much narrower than the two rows' own intervals suggest.
//
// The package is pure; the seed is an argument. The bench calls it.
package stats
