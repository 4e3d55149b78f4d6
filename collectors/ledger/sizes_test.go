package ledger

import (
	"testing"
	"time"
)

// beginSized has a request begin whose body has this size.
func (w *world) beginSized(s *Stream, id string, body Size) {
	s.Events(w.now, []Event{{ID: []byte(id), Address: []byte(one), Body: body}})
}

func (w *world) expectSizes(t *testing.T, sized, bytes, unsized float64) {
	t.Helper()
	c := w.read(t)
	p := c.Proxies
	if without := p.Issued.Value - p.Sized.Value; p.Sized.Value != sized || p.SizedBytes.Value != bytes ||
		without != unsized {
		t.Errorf("%v sized, %v bytes, %v unsized; want %v, %v, %v",
			p.Sized.Value, p.SizedBytes.Value, without, sized, bytes, unsized)
	}
	if p.Sized.At != p.Issued.At || p.SizedBytes.At != p.Issued.At {
		t.Errorf("as of %v and %v, and issued as of %v", p.Sized.At, p.SizedBytes.At, p.Issued.At)
	}
}

// TestASizeOfZeroIsKnown, and an unknown one is not zero.
func TestASizeOfZeroIsKnown(t *testing.T) {
	w, e := single()
	if c := w.read(t); c.Proxies.Sized.Known() || c.Proxies.SizedBytes.Known() {
		t.Errorf("no Envoy reports, and yet %+v", c)
	}
	s := w.open(e)
	w.beginSized(s, "1", Size{Known: true})
	w.expectSizes(t, 1, 0, 0)
	w.beginSized(s, "2", Size{})
	w.expectSizes(t, 1, 0, 1)
	w.beginSized(s, "3", Size{Bytes: 1 << 53, Known: true})
	w.expectSizes(t, 2, 1<<28, 1)
	s.End(w.now, "3", one, Outcome{Status: 200})
	w.expectSizes(t, 2, 1<<28, 1)
}

// TestARequestThatOnlyReportsShowHasNoSize: and where its beginning is logged after all, the request that
// makes up for it adds no bytes either.
func TestARequestThatOnlyReportsShowHasNoSize(t *testing.T) {
	w, e := single()
	s := w.open(e)
	w.reporting(e)
	w.nextReport(e, 0, 0)
	w.nextReport(e, 1, 1)
	w.nextReport(e, 1, 0)
	w.expectSizes(t, 0, 0, 1)
	w.beginSized(s, "late", Size{Bytes: 7, Known: true}) // counted twice, until the next reports show it
	w.expectSizes(t, 1, 7, 1)
	w.nextReport(e, 1, 0)
	w.nextReport(e, 1, 0)
	w.beginSized(s, "makes up for it", Size{Bytes: 5, Known: true})
	w.expectSizes(t, 1, 7, 1)
	w.beginSized(s, "next", Size{Bytes: 3, Known: true})
	w.expectSizes(t, 2, 10, 1)
	if got := w.read(t).Proxies.Issued.Value; got != 3 {
		t.Errorf("%v issued, want 3", got)
	}
}

// TestRequestsOfAnEnvoyWithReportsOnlyHaveNoSize: there is no log that could show it.
func TestRequestsOfAnEnvoyWithReportsOnlyHaveNoSize(t *testing.T) {
	w, e := single()
	w.reporting(e)
	w.nextReport(e, 0, 0)
	w.nextReport(e, 2, 5)
	w.after(time.Second)
	w.expectSizes(t, 0, 0, 5)
}

// TestTheSizeOfARefusedRequestIsKnownTwice: with its beginning, and with the 4xx that ends it. Where the beginning had
// no size, or was not logged, the end has none either.
func TestTheSizeOfARefusedRequestIsKnownTwice(t *testing.T) {
	w, e := single()
	s := w.open(e)
	end := func(id string, body Size, o Outcome) {
		s.Events(w.now, []Event{{Ended: true, ID: []byte(id), Address: []byte(one), Body: body, Outcome: o}})
	}
	known := func(bytes uint64) Size { return Size{Bytes: bytes, Known: true} }
	refused, served := Outcome{Status: 400, Latency: time.Second}, Outcome{Status: 200, Latency: time.Second}
	for _, r := range []struct {
		id          string
		body        Size
		logged      bool // its beginning
		o           Outcome
		n, refusedN float64 // bytes refused until then, and requests
	}{
		{"a large prompt", known(200_000), true, refused, 200_000, 1},
		{"too many requests", known(5), true, Outcome{Status: 429, Latency: time.Second}, 200_005, 2},
		{"made up", known(1 << 53), true, refused, 200_005 + 1<<28, 3},
		{"served", known(7), true, served, 200_005 + 1<<28, 3},
		{"failed", known(7), true, Outcome{Status: 500, Latency: time.Second}, 200_005 + 1<<28, 3},
		{"a gRPC error", known(7), true, Outcome{Status: 200, GRPCStatus: 3, Latency: time.Second}, 200_005 + 1<<28, 3},
		{"chunked", Size{}, true, refused, 200_005 + 1<<28, 3},
		{"without a beginning", known(7), false, refused, 200_005 + 1<<28, 3},
	} {
		if r.logged {
			w.beginSized(s, r.id, r.body)
		}
		end(r.id, r.body, r.o)
		p := w.read(t).Proxies
		if p.Refused.Value != r.refusedN || p.RefusedBytes.Value != r.n {
			t.Errorf("%s: %v refused, %v bytes; want %v, %v", r.id, p.Refused.Value, p.RefusedBytes.Value, r.refusedN,
				r.n)
		}
		if p.Refused.At != p.Issued.At || p.RefusedBytes.At != p.Issued.At {
			t.Errorf("%s: as of %v and %v, and issued as of %v", r.id, p.Refused.At, p.RefusedBytes.At, p.Issued.At)
		}
	}
}
