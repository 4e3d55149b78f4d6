// Package inflight reads how many requests are in flight to each endpoint out
// of Redis, where the endpoint pickers behind the proxies (ext_proc services)
// count them: one sorted set per cluster, member IP:PORT, score the number of
// requests in flight.
//
// A Poller reads the sets of all clusters in one pipelined round trip every Interval (default 50 ms) and passes one
// Result per key to its sink. In a Redis Cluster, whose keys are on several nodes, it makes one round trip to each of
// them, concurrently. The wiring in cmd sets the keys and puts the results into the report store.
//
// # What a result means
//
// Unknown is not zero. A key that does not exist, a member that is not in its set, a member with a score that is not a
// count (negative, infinite, NaN) and a key that could not be read all leave the endpoint's reading as it was, so that
// it ages; none of them means that the endpoint is idle. A set with more than MaxMembers is not used at all: Redis
// returns members from the lowest score up, so a limit would cut off the busiest ones.
//
// Result.At is the middle of the exchange with Redis, the best estimate of when the counts were true.
//
// A replica that has lost its primary continues to answer, with old counts. So a server (modes single and sentinel) is
// asked for its role in the same round trip: the answers of a replica whose connection to its primary is down, or over
// which nothing came for 15 s, are an error, and their counts are not used. A primary pings its replicas every 10 s
// (repl-ping-replica-period). In a Redis Cluster a replica redirects readers to the primary.
//
// # While Redis is unreachable
//
// Every interval still yields one Result per key, with Err set. There is one exchange at a time, it ends after Timeout,
// and it is not repeated: the next interval is the retry. Connecting is bounded in time and number, and may outlive the
// poll that asked for it, so that a Redis further away than one Timeout is still reached. After some dozens of failed
// connections go-redis tries once a second until one succeeds. The change from readable to unreadable and back is
// logged once; each further failure is logged at debug level.
//
// While a key of a Redis Cluster cannot be read, the Poller asks for the layout of the cluster five times a second.
// go-redis asks only when a node answers MOVED, which a primary that died does not
// (github.com/redis/go-redis/issues/3979). So counts are back within half a second of the election of a new primary.
// That takes Redis one to two times cluster-node-timeout, and half a second to a second more.
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
// that a replica which has lost its primary would not be noticed. Sentinels may
// have a user and a password of their own; that password is read when the Poller begins to run.
//
// # Synchronised members
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
//	gone MEMBER    a member that was deleted within the last minute. What pickers still subtract makes it a member
//	               again, as the idlest of all: it is deleted at once
//
// An endpoint that comes back is a new member, with 0. Its requests that are still in flight do not count: pickers that
// never lower a count below zero would also not subtract those that ended meanwhile, and a restored count would stay
// forever.
//
// A member below zero, which results when requests from before a flush end, is raised to zero. All times are by the
// clock of Redis, so the replicas' clocks do not matter. The script needs more rights:
//
//	ACL SETUSER steelyard ~{inflight:*}:steelyard +evalsha +eval +time +hgetall +hset +hdel
//	    +zrange +zscore +zadd +zrem +pexpire
//
// with the pattern of the hashes, which ~inflight:* does not match.
// Without them the counts are used, and every result reports the right that is missing.
//
// # Counts that are added
//
// With SetAdding a poll is one script per key, which brings what this process counts (Options.Own) into the scores and
// returns what others count:
//
//	score  = others + Σ parts of the replicas        others = max(0, score - Σ parts that are in it)
//
// A hash (the key of that of the members, with :counts after it) has the part of each replica, as JSON, and the time
// until which it counts: 5 s after the replica last wrote it, or two intervals, if that is longer; then the next script
// takes it out of the scores. It does not expire, because nothing else knows what to take out. Members are not made
// here: a part of one that is missing is added when it comes. The last part is taken out when a key is no longer added
// to, and at the end of Run.
//
//	ACL SETUSER steelyard ~{inflight:*}:steelyard:counts +evalsha +eval +time +hgetall +hset +hdel
//	    +zrange +zcard +zadd
//
// # What it is not
//
// It does not know which members are endpoints: the receiver of the results matches them, and ignores and counts the
// rest. Without SetMembers and SetAdding it writes nothing to Redis. It keeps no history and computes no weight.
//
// The Redis library writes its own log lines to stderr by default, and the setting is global to the process. New
// changes it: the lines go to the Poller's logger at debug level; with several Pollers, to the newest one's.
package inflight
