// Package follow is the picker's side of the stream of loads: it follows a Steelyard, and chooses by the loads that it
// received (package picking). `steelyard picker` and the module inside Envoy use it.
//
// A [Follower] reconnects, 250 ms to 1 s apart, and regards a stream without a message for three seconds as broken. It
// logs one line when the loads are lost, also if there were none before, one when Steelyard refuses to send them, as
// for a cluster that is not configured, and one when they are back.
//
// Where several replicas of Steelyard serve queues, a [Waiter] regards its stream as broken after a second, and
// connects again, behind a load balancer perhaps to another replica, before another one grants places in its stead.
package follow
