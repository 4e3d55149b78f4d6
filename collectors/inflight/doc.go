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
// # What it is not
//
// It does not know which members are endpoints: the receiver of the results matches
// them, and ignores and counts the rest. It writes nothing to Redis. It keeps no
// history and computes no weight.
//
// The Redis library writes its own log lines to stderr unless it is set otherwise,
// and that choice is one for the whole process. New makes it: they go to the
// Poller's logger at debug level; with several Pollers, to the newest one's.
package inflight
