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
