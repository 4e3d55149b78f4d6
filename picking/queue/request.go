package queue

import (
	"time"

	"steelyard/picking"
)

// An ID names a request.
type ID struct {
	Stream  uint64 // of the proxy
	Request uint64 // unique on the stream
}

// A Request asks for a place.
type Request struct {
	ID            ID
	Class, Tenant string
	Size          int64     // bytes of its body, negative where unknown
	Since         time.Time // when it came to its proxy
	// Cached and Key are those of [picking.Request]: they matter where there is a choice of places, and never to the
	// order.
	Cached []picking.Cached
	Key    uint64
}
