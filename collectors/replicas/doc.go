// Package replicas connects, through Redis, the replicas of a control plane that serve Envoys at the same time. Each
// Envoy reports its requests to one of them, so each publishes what its own Envoys have at each endpoint, and adds up
// the others' (package merge). All decide on the same counts; there is no leader.
//
// # Over the wire
//
//	PREFIX:replicas         a channel: one message for each replica and change, gathered for 5 ms, and at least
//	                        one every 100 ms, which repeats a tenth of the endpoints
//	PREFIX:replicas:state   a hash with a field for each replica, its whole state, written every 2 s and valid for 5 s
//	                        by the clock of Redis: for a replica that has just connected
//
// A message is SYRP, a version and CBOR. A message of another version is ignored and counted, so replicas of two
// versions may run at the same time, each as if the other did not exist. A message has at most 256 KiB; a state that is
// larger takes several. What is received is bounded in size, and names and addresses in length.
//
//	PREFIX:{queue}:owner    the replica that grants the places of queues, with its epoch and address, for [lease.TTL]
//	PREFIX:{queue}:epoch    the latest epoch
//
// # While Redis is unreachable
//
// A replica receives its own messages, too, which shows that messages pass through Redis in both directions. While they
// do not arrive, it closes the connections and makes new ones, five times a second. The state of the link is Status;
// package merge defines what counts meanwhile.
//
// The ACL user needs
//
//	ACL SETUSER steelyard +publish +subscribe +ping +role +evalsha +eval +time +hset +hgetall +hdel +pexpire
//	    +get +set +del
//	    ~steelyard:* &steelyard:*
//
// # What it is not
//
// It holds no counts of its own Envoys: collectors/ledger does. Each replica scrapes all endpoints by itself. A client
// that may publish on the channel can set the counts of endpoints, as one that writes the in-flight sets can.
package replicas
