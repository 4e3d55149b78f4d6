// Package latency measures how long it takes until the whole fleet takes a request into account: from the moment when
// it reaches an endpoint to the ACK, by the last Envoy, of weights that include it.
//
// The benchmark itself is BenchmarkArrivalToAck of cmd/internal/daemon, run by `make bench-latency`: it starts a whole
// control plane in its own process, real Envoys and simulated model servers, and writes what happens into a [Book]. It
// is there because a [Book] needs each decision of the loop with its input, which no API shows.
//
// # When a decision includes a request
//
// Envoys count the requests that they issued to each endpoint. All requests come through them, so the first decision
// that includes the k-th request to reach an endpoint is the first one made from a count of at least k issued ones. The
// time ends when every Envoy has acknowledged the version of that decision, or a later one.
//
// A decision that changes too little to be worth a push (the deadband) is not sent. Then the weights in force are those
// of the decision, except for the deadband, and the sample is [Sample.Held]: its time ends with the next push, whatever
// its reason. The report compares with the target both ways, without such requests and with them.
//
// # Accuracy
//
// The arrival is the start of the endpoint's handler, and the ACK's time is when Steelyard received it. ACKs are polled
// every half millisecond; an ACK that is followed by the next one in between counts as that next one, so times are too
// long by up to this, and never too short except for the way of the request from the kernel to the handler. Everything
// shares one machine, so on a busy machine the figures are also the machine's.
package latency
