// Package replicas connects the replicas of a control plane that serve Envoys at the same time. Each Envoy reports its
// requests to one of them, so each tells the others what its own Envoys have at each endpoint, and adds up what it
// hears (package merge). All decide on the same counts; there is no leader. Nothing but the replicas takes part.
//
// # Over the wire
//
// Each replica follows every other one: it opens a stream at the xDS port of that one (steelyard.replicas.v1.Replicas),
// says who it is, and gets the whole state and then messages: one for each change, gathered for 5 ms, and at least one
// every 100 ms, which repeats a tenth of the endpoints. So a message that is lost is made good within a second.
//
// It takes counts only from where it has connected to, with TLS from a server that has the certificate of the replicas,
// and gives its own only to clients that Options.Trusted.
//
// A message is SYRP, a version and CBOR. Replicas of two versions may run at the same time: each refuses the stream of
// the other, says so, and takes its counts for missing.
//
// Besides counts, a message may have the Envoys of its sender, when they changed and every 5 s; what its pickers have
// learned of prefix caches, of which at most [RoutesPerSecond] bytes are sent, the oldest being left out; and, for a
// replica that has just connected and asks this one, the routes that it keeps. None of this is passed on any further.
//
// # Who the others are
//
// The caller knows their addresses ([Link.SetPeers], [LookUp]). That of the replica itself may be among them, and two
// of one replica: the id in the first message shows it, and then the address is left out, but for a look every five
// seconds.
//
// # Which of them may be missing
//
// Each other replica is live, gone or unreachable (package merge). One is gone if it has taken leave, if its machine
// says that nothing listens at its address, if another one is at that address, or if that address is not named any
// more. Counts are missing, and [Link.Status] says why, while the addresses are not known, while one of them is of a
// replica that is neither live nor gone, and while a replica follows this one that this one does not follow.
//
// # Bounds
//
// A message has at most 256 KiB, names and addresses in it 1 KiB. 32 MiB a second are read from each stream, at most 64
// addresses are followed, and 32 replicas may follow. A follower that does not read costs 64 messages, and then loses
// some.
//
// # A lease in Redis
//
// [Lease] keeps the lease on queues, where it is in Redis:
//
//	PREFIX:{queue}:owner    the replica that grants the places of queues, with its epoch and address, for [lease.TTL]
//	PREFIX:{queue}:epoch    the latest epoch
//
// The ACL user needs
//
//	ACL SETUSER steelyard +evalsha +eval +get +set +del ~steelyard:*
//
// # What it is not
//
// It holds no counts of its own Envoys: collectors/ledger does. Each replica scrapes all endpoints by itself.
package replicas
