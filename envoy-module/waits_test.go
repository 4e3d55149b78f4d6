package main

import "testing"

func TestAChoiceWaitsForTheBodyOnlyWhereThatHasAPrompt(t *testing.T) {
	for _, c := range []struct {
		contentType, expect string
		bytes               int
		want                bool
	}{
		{"application/json", "", 1000, true},
		{"application/json; charset=utf-8", "", 1000, true},
		{"application/json", "", 0, false},
		{"application/json", "100-continue", 1000, false},
		{"multipart/form-data; boundary=x", "", 1000, false},
		{"application/grpc", "", 1000, false},
		{"", "", 1000, false}, // as of a connection that becomes a WebSocket
	} {
		f := &filter{prefixBytes: c.bytes}
		if got := f.readsBody(c.contentType, c.expect); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

func TestABodyIsNotWaitedForBeyondEnvoysBuffer(t *testing.T) {
	for _, c := range []struct {
		most  int
		limit uint64
		want  uint64
	}{{1000, 0, 1000}, {1000, 400, 400}, {1000, 4000, 1000}} {
		if got := waitsFor(c.most, c.limit); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
