package inflight

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxSilence is how long a replica may receive nothing from its primary before its data counts as old. A primary
// without writes pings its replicas every 10 s (repl-ping-replica-period).
const maxSilence = 15 * time.Second

// A replication tracks the role of the server that is read, by its own answers. A replica that has lost its primary
// continues to answer (replica-serve-stale-data), with old data.
//
// It is only needed if one server is read. The nodes of a Redis Cluster redirect a client that reads a key on a replica
// to the primary.
type replication struct {
	maxSilence time.Duration
	offset     int64     // of the replication stream
	moved      time.Time // when the offset was first seen; zero while the server is no replica
}

// A lostPrimary explains why the counts of a replica are old.
type lostPrimary struct{ error }

// errUnknownRole means that a replica that has lost its primary would not be noticed.
var errUnknownRole = errors.New("cannot tell whether this Redis is a replica that has lost its primary, " +
	"because the ACL user may not ask; grant +role")

// check evaluates the answer to ROLE. The error is a lostPrimary, or errUnknownRole. An answer of another form, from a
// proxy or a server that does not know the command, is ignored.
func (r *replication) check(answer any, err error, now time.Time) error {
	if err != nil && strings.HasPrefix(err.Error(), "NOPERM") {
		return errUnknownRole
	}
	fields, _ := answer.([]any)
	if err != nil || len(fields) < 5 || fields[0] != "slave" {
		r.moved = time.Time{}
		return nil
	}
	primary := fmt.Sprintf("%v", fields[1])
	if port, ok := fields[2].(int64); ok {
		primary = net.JoinHostPort(primary, fmt.Sprint(port))
	}
	if state := fields[3]; state != "connected" {
		r.moved = time.Time{}
		return lostPrimary{fmt.Errorf("it is a replica without a connection to its primary %s (state %q), "+
			"so its counts are old", primary, fmt.Sprint(state))}
	}
	offset, _ := fields[4].(int64)
	if r.moved.IsZero() || offset != r.offset {
		r.offset, r.moved = offset, now
	}
	if silence := now.Sub(r.moved); silence > r.maxSilence {
		return lostPrimary{fmt.Errorf("it is a replica that has received nothing from its primary %s for %v, "+
			"so its counts are old", primary, silence.Round(time.Second))}
	}
	return nil
}

// asksForRole reports whether ROLE is about the keys that client reads.
func asksForRole(client redis.UniversalClient) bool {
	_, cluster := client.(*redis.ClusterClient)
	return !cluster
}
