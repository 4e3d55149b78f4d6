// Package lease says which of several replicas acts for all of them, for example grants the places of a queue. It needs
// a store that all of them reach, and no common clock.
//
// A [Store] keeps one [Record]: who has the lease, and its epoch, which rises with each change. Every replica asks the
// store each [Every] ([Keeper.Run]); the same question renews the lease of the one that has it, and takes it where it
// has run out. The store forgets a lease [TTL] after its last renewal. Its owner acts only for [Term] after it began a
// renewal that succeeded, by its own monotonic clock, so it has stopped for TTL − Term before another one can have it,
// however long its messages take. No time of one machine is compared with that of another.
//
//	owner       acts until  asked + Term          asked ≤ stored
//	store       forgets at  stored + TTL
//	the others  may act at  stored + TTL          or earlier only if the owner releases it
//
// A [Claim] is what one replica knows of that; it is pure. Answers of the store count in the order in which they were
// asked for, so one that is late changes nothing. A replica that cannot reach the store still learns of a new owner, if
// that one, or another replica, tells it (Claim.Told).
//
// # Epochs
//
// An epoch never falls: each replica asks with the highest one that it has seen, and a store that has lost its own
// raises the owner's above that. A store that knows only an owner before the one that has told this replica so does not
// count for three seconds: two halves of a store would otherwise take the lease from each other all the time, and
// nobody would act.
//
// # Blind owners
//
// An owner can renew its lease and still be the wrong one, if it lacks what it needs to act well (Keeper.Blind). The
// others tell it that they could act (Keeper.Offer), and then it gives the lease up. Where all are blind nobody tells
// it, and it goes on: what is old is better than nothing.
//
// # What it does not do
//
// A message that an owner has sent may arrive after its term. So it carries the epoch, and who receives it refuses a
// lower epoch than it has seen. A store that loses what it has confirmed (a Redis that fails over) may have two owners
// for up to Term: a new owner therefore waits for longer than that before it acts, and learns meanwhile what it needs
// to know.
package lease
