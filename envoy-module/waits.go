package main

import "strings"

// readsBody reports whether the choice for a request waits for its body: only JSON has a prompt. A client that expects
// an answer before it sends a body, which Envoy passes on where it is configured to, would wait for ever.
func (f *filter) readsBody(contentType, expect string) bool {
	return f.prefixBytes > 0 && strings.Contains(contentType, "json") && expect == ""
}

// waitsFor is how much of a body has to come before the choice. From its limit on, Envoy reads no further; 0 is no
// limit.
func waitsFor(most int, limit uint64) uint64 {
	if limit > 0 {
		return min(uint64(most), limit)
	}
	return uint64(most)
}
