// Package inflight reads how many requests are in flight to each endpoint out
// of Redis, where the endpoint pickers behind the proxies (ext_proc services)
// count them: one sorted set per cluster, member IP:PORT, score the number of
// requests in flight.
//
// A Poller reads the sets of all clusters in one pipelined round trip every
// Interval (default 50 ms) and hands one Result per key to its sink. In a Redis
// Cluster the keys live on several nodes; there it is one round trip to each of
// them, side by side. The wiring in cmd sets the keys and puts the results into
// the report store.
//
// # What a result means
//
// Unknown is not zero. A key that does not exist, a member that is not in its
// set, a member with a score that is no count (negative, infinite, NaN) and a
// key that could not be read all leave the endpoint's reading as it was, and so
// let it age; none of them means that the endpoint is idle. A set above
// MaxMembers is not used at all: Redis hands members out from the lowest score
// up, so what a limit cuts off is the busiest part.
//
// Result.At is the middle of the exchange with Redis, the best guess at the
// moment the counts were true.
//
// A replica that has lost its primary goes on answering, with old counts. So a server
// (modes single and sentinel) is asked for its role in the same round trip: the answers of
// a replica whose connection to its primary is down, or over which nothing came for 15 s,
// are an error, and their counts are not used. A primary pings its replicas every 10 s
// (repl-ping-replica-period). In a Redis Cluster a replica sends readers to the primary.
//
// # When Redis is away
//
// Every interval still yields one Result per key, with Err set. There is one
// exchange at a time, it ends after Timeout, and it is not repeated: the next
// interval is the retry. A connection in the making is bounded in time and
// number, and may outlive the poll that asked for it, so that a Redis further
// away than one Timeout is still reached. After some dozens of failed
// connections go-redis tries once a second until one succeeds. The change from
// readable to not and back is logged once; the single failures only at debug
// level.
//
// While a key of a Redis Cluster cannot be read, the layout of the cluster is asked for
// every half second. go-redis does so by itself only when a node answers MOVED, which a
// primary that died does not (github.com/redis/go-redis/issues/3979).
//
// # Credentials and rights
//
// The password and the client certificate are read from their files for every
// new connection, so a rotated one is used from the next connection on. The ACL
// user needs no more than
//
//	ACL SETUSER steelyard on >… ~inflight:* +zrange +role
//
// with a database other than 0 also +select, and in a Redis Cluster
// +cluster|slots in place of +role. Without +role the counts are used, and every result reports
// that a replica which has lost its primary would not be noticed. Authentication towards the
// sentinels themselves is not supported.
//
// # Members kept in step
//
// With SetMembers a Poller also keeps sets equal to the endpoints, at each change and once a second, each set by one
// script: new members get 0, removed members are deleted, and the scores of all others are left alone. Several
// replicas may do so with lists that differ for a while, because a member is only deleted when no replica has it.
// A hash next to the set (its key with :steelyard after it, in the set's slot) has
//
//	list REPLICA   the list of each replica, which counts for 5 s after it was last written. A member that a list no
//	               longer has, or that only an expired list had, is deleted at once if it is on no other
//	alien MEMBER   since when the set has a member that is on no list; it is deleted after 10 s. So right after a
//	               flush of Redis no list deletes what another replica is about to write
//	gone MEMBER    the count of a deleted member, kept for a minute. What pickers still subtract is taken off it,
//	               and an endpoint that comes back begins with what is left, not as the idlest of all
//
// A member below zero, as the ends of requests from before a flush make it, is raised to zero. All times are by the
// clock of Redis, and the replicas' clocks do not matter. The script needs more rights:
//
//	ACL SETUSER steelyard ~{inflight:*}:steelyard +evalsha +eval +time +hgetall +hset +hdel
//	    +zrange +zscore +zadd +zrem +pexpire
//
// with the pattern of the hashes, which ~inflight:* does not match.
// Without them the counts are used, and every result reports the right that is missing.
//
// # What it is not
//
// It does not know which members are endpoints: the receiver of the results matches
// them, and ignores and counts the rest. Without SetMembers it writes nothing to Redis. It keeps no
// history and computes no weight.
//
// The Redis library writes its own log lines to stderr unless it is set otherwise,
// and that choice is one for the whole process. New makes it: they go to the
// Poller's logger at debug level; with several Pollers, to the newest one's.
package inflight
