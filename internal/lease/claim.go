package lease

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

const (
	// Every is the time between two questions to the store.
	Every = 150 * time.Millisecond
	// Term is for how long an owner acts after it began a renewal that succeeded.
	Term = 450 * time.Millisecond
	// TTL is how long a store keeps a lease that is not renewed.
	TTL = 600 * time.Millisecond
)

// heed is for how long an owner that told this replica so counts more than a store that knows only of one before: of
// two halves of a store, both may have an owner, and each replica would take the lease back at once.
const heed = 3 * time.Second

// A Record is an owner of the lease. The zero value is none. The epoch is not part of its text.
type Record struct {
	ID      string `json:"id"`      // of one run of a replica
	Name    string `json:"name"`    // for people
	Address string `json:"address"` // host:port for the other replicas
	Epoch   uint64 `json:"-"`       // higher than that of every owner before
}

// MaxEpoch is what every store can count to: the transitions of a Lease in Kubernetes have 32 bits. With a change of
// the owner each second, that takes 68 years.
const MaxEpoch = math.MaxInt32

// maxText bounds the text of an owner, in bytes.
const maxText = 4096

// Text returns the text under which a store keeps the owner.
func (r Record) Text() string {
	text, _ := json.Marshal(r) // texts only
	return string(text)
}

// Parse reads that text.
func Parse(text string, epoch uint64) (r Record, err error) {
	if len(text) > maxText {
		return r, fmt.Errorf("reading the owner of a lease: %d bytes, want at most %d", len(text), maxText)
	}
	if epoch > MaxEpoch {
		return r, fmt.Errorf("reading the owner of a lease: its epoch is %d, want at most %d: delete the lease where "+
			"it is kept, and restart all replicas", epoch, MaxEpoch)
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Record{}, fmt.Errorf("reading the owner of a lease: %w", err)
	}
	r.Epoch = epoch
	return r, nil
}

// A Claim is what one replica knows of the lease. It is pure, and not safe for concurrent use.
type Claim struct {
	id     string
	owner  Record    // the latest that is known
	since  time.Time // when it was first known
	asked  time.Time // when what is known of it was asked for, or told
	until  time.Time // the replica itself acts before; zero: it does not
	floor  uint64    // the highest epoch that was seen
	heeds  time.Time // until then, lower epochs of a store do not count
	before Record    // the owner before
}

// NewClaim returns the claim of a replica that knows of no owner.
func NewClaim(id string) *Claim { return &Claim{id: id} }

// Answered takes in whom the store named as the owner, when it was asked at a time. It reports whether the owner is
// another one than before, or the same one with another epoch.
func (c *Claim) Answered(asked, now time.Time, r Record) (changed bool) {
	if asked.Before(c.asked) || c.behind(now) && r.Epoch < c.floor { // something newer is known
		return false
	}
	changed = c.take(asked, now, r)
	if r.ID == c.id {
		c.until = asked.Add(Term)
	}
	return changed
}

// mostTold bounds by how much an epoch may rise that a replica tells: its owner may have changed while this one was cut
// off, but one that makes epochs up must not use them up for all.
const mostTold = 1000

// Told takes in a new owner that has told this replica so. It reports whether that is news.
func (c *Claim) Told(now time.Time, r Record) (changed bool) {
	if r.ID == c.id || r.Epoch <= c.floor || r.Epoch > c.floor+mostTold {
		return false
	}
	c.heeds = now.Add(heed)
	return c.take(now, now, r)
}

// behind reports whether the store may know less than this replica.
func (c *Claim) behind(now time.Time) bool { return now.Before(c.heeds) }

func (c *Claim) take(asked, now time.Time, r Record) (changed bool) {
	c.asked, c.floor = asked, max(c.floor, r.Epoch)
	if c.owner.ID == r.ID && c.owner.Epoch == r.Epoch {
		return false
	}
	c.before, c.owner, c.since, c.until = c.owner, r, now, time.Time{}
	return true
}

// Floor is the highest epoch that was seen.
func (c *Claim) Floor() uint64 { return c.floor }

// Asks is the floor with which the store is asked: it raises the epoch of an owner above that, also if it has lost its
// own. It is 0 while the store may be behind.
func (c *Claim) Asks(now time.Time) uint64 {
	if c.behind(now) {
		return 0
	}
	return c.floor
}

// Rise takes in an epoch that was seen elsewhere, such as in another store.
func (c *Claim) Rise(epoch uint64) { c.floor = max(c.floor, epoch) }

// Offered reports whether another replica could act in the stead of this one: it names itself with this one's epoch.
func (c *Claim) Offered(r Record) bool {
	return c.owner.ID == c.id && r.ID != c.id && r.Epoch == c.owner.Epoch
}

// End ends what the replica may do by its lease.
func (c *Claim) End(now time.Time) { c.until = now }

// Acts reports whether the replica itself has the lease, and acts at this time.
func (c *Claim) Acts(now time.Time) bool { return now.Before(c.until) }
