package envoyid

import (
	"slices"
	"strings"
	"testing"
)

func TestAHostHasNoPortAndOneForm(t *testing.T) {
	for peer, host := range map[string]string{
		"10.0.0.1:4711":            "10.0.0.1",
		"[::ffff:10.0.0.1]:4711":   "10.0.0.1",
		"[2001:DB8::1]:4711":       "2001:db8::1",
		"[fe80::1%eth0]:4711":      "fe80::1%eth0",
		"@":                        "", // a Unix socket
		"/run/steelyard.sock":      "",
		"10.0.0.1":                 "",
		"envoy.example:4711":       "",
		"":                         "",
		"[::ffff:10.0.0.1]:400000": "",
	} {
		if got := HostOf(peer); got != host {
			t.Errorf("the host of %q is %q, want %q", peer, got, host)
		}
	}
}

func TestANodeIDIsCutAtTheEndOfARune(t *testing.T) {
	for sent, kept := range map[string]string{
		"envoy-1":                       "envoy-1",
		strings.Repeat("a", 256):        strings.Repeat("a", 256),
		strings.Repeat("a", 300):        strings.Repeat("a", 256),
		strings.Repeat("a", 255) + "äb": strings.Repeat("a", 255),
		strings.Repeat("\x80", 300):     "",
	} {
		if got := NodeID(sent); got != kept {
			t.Errorf("of %q there is %q, want %q", sent, got, kept)
		}
	}
}

func TestEnvoysAreSortedByNodeThenHostThenCertificate(t *testing.T) {
	sorted := []ID{{"a", "1", "y"}, {"a", "2", ""}, {"a", "2", "x"}, {"b", "1", ""}}
	got := []ID{sorted[2], sorted[3], sorted[0], sorted[1]}
	slices.SortFunc(got, Compare)
	if !slices.Equal(got, sorted) {
		t.Errorf("sorted %v, want %v", got, sorted)
	}
}
