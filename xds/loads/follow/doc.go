// Package follow is the picker's side of the stream of loads: it follows a Steelyard, and chooses by what it got
// (package picking). `steelyard picker` and the module inside Envoy use it.
//
// A [Follower] connects again and again, 250 ms to 2 s apart, and takes a stream without a message for three seconds
// for broken. It logs one line when the loads are lost, and one when they are back.
package follow
