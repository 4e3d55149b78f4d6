// Command placement is `make bench-placement`: it measures on real Envoys how
// long requests wait under Steelyard's weights, under Envoy's own policies, and
// under a generator that sees everything and picks the emptiest server.
//
//	make bench-placement ARGS="--quick"
//
// What is measured and how is described in package bench, the uncertainty in package
// stats, and what is written in package report. It is not part of the product.
package main
