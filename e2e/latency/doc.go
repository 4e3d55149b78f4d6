// Package latency measures how long it takes until a request is known to the whole fleet: from the
// moment when it reaches an endpoint to the ACK, by the last Envoy, of weights that
// know it.
//
// The benchmark itself is BenchmarkArrivalToAck of cmd/internal/daemon, run by `make
// bench-latency`: it starts a whole control plane in its own process, real Envoys and simulated
// model servers, and writes what happens into a [Book]. It stands there because a [Book]
// needs to see each decision of the loop with what it was made from, which no
// listener tells.
//
// # When a decision includes a request
//
// Envoys count the requests that they issued to each endpoint. All requests come through them, so
// the k-th request to reach an endpoint is known to the first decision that was made
// from a count of at least k issued ones. The time ends when every Envoy has acknowledged
// the version of that decision, or a later one.
//
// A decision that changes too little to be worth a push (the deadband) is not sent. Then the
// weights in force are, but for the deadband, those of the decision, and the sample is
// [Sample.Held]: its time ends with the next push that is made, whatever for. The report judges
// by the target both ways, without such requests and with them.
//
// # Accuracy
//
// The arrival is the start of the endpoint's handler, and the ACK's time is Steelyard's own, of its
// receipt. ACKs are looked for every half a millisecond; one that is overtaken by
// the next in between counts as that next, so times are too long by up to this, and never too short
// but for the way of the request from the kernel to the handler. Everything shares one machine:
// on a busy one the figures are the machine's.
package latency
