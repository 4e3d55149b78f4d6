// Package leastlatency is the strategy of the router: queued least latency. Requests wait in one queue for the backend
// with the lowest mean latency under a threshold. It is pure: times, answers and failures go in, verdicts come out.
package leastlatency
