package picking

// A Request is what is known of a request before it is sent.
type Request struct {
	Size int64 // bytes of its body, negative where unknown
	// Subset are the only addresses that it may go to; empty for all.
	Subset []string
	// May reports whether it may go to an address; nil for all.
	May func(address string) bool
	// Cached are the endpoints that have a part of its prompt in their cache.
	Cached []Cached
	// Key, unless it is 0, replaces chance: among equal endpoints, requests with one key get the same one.
	Key uint64
}

// A Cached is a part of a prompt that an endpoint need not compute.
type Cached struct {
	Address string
	Share   float64 // of the prompt, 0..1
}
