package inflight

import (
	"fmt"
	"strings"
	"time"
)

// A Key is one sorted set to read and the cluster whose counts it holds.
type Key struct {
	Cluster string
	Key     string
}

// companion returns the key of the hash next to a set, in the same slot of a Redis Cluster: it keeps the set's hash
// tag, or has the whole key as its tag.
func companion(key string) string {
	const suffix = ":steelyard"
	if _, tag, found := strings.Cut(key, "{"); found && strings.IndexByte(tag, '}') > 0 {
		return key + suffix
	}
	return "{" + key + "}" + suffix
}

// syncTimeout bounds the exchanges that write to one set.
const syncTimeout = time.Second

// MaxMembers is how many members one sorted set may have.
const MaxMembers = 10_000

// Bounds on the bad members that an error names.
const (
	maxNamed      = 5   // members
	maxMemberText = 100 // bytes of one member
)

func quote(member string) string {
	if len(member) > maxMemberText {
		return fmt.Sprintf("%q…", member[:maxMemberText])
	}
	return fmt.Sprintf("%q", member)
}
