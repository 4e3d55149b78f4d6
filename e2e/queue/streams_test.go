package queue

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"steelyard/e2e/rig/testbed"
	"steelyard/picking/prefix"
)

// A streamer is a model server whose answers are streams. It answers as soon as a request begins, and ends its answer
// after the request.
type streamer struct {
	address       string
	running, most atomic.Int64 // requests at a time
	received      atomic.Int64 // bytes of bodies
}

func newStreamer(t *testing.T) *streamer {
	t.Helper()
	s := &streamer{}
	metrics := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: testbed.Pool(t, 1)[0].Address()})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			metrics.ServeHTTP(w, r)
			return
		}
		if n := s.running.Add(1); n > s.most.Load() {
			s.most.Store(n)
		}
		defer s.running.Add(-1)
		stream := http.NewResponseController(w)
		_ = stream.EnableFullDuplex()
		for range 5 {
			_, _ = w.Write([]byte("a piece"))
			_ = stream.Flush()
			time.Sleep(10 * time.Millisecond) // of computing
		}
		n, _ := io.Copy(io.Discard, r.Body)
		s.received.Add(n)
	}))
	t.Cleanup(server.Close)
	s.address = server.Listener.Addr().String()
	return s
}

// eachWay runs a test with the module, with pickers, and with pickers that look at bodies or get them all.
func eachWay(t *testing.T, test func(*testing.T, testbed.Carrier, testbed.Plan)) {
	for _, w := range []struct {
		name  string
		by    testbed.Carrier
		extra []string
		edits []testbed.Edit
	}{
		{"module", testbed.ByModule, nil, nil},
		{"picker", testbed.ByPicker, nil, nil},
		{"module with prefix", testbed.ByModule, []string{"--prefix"}, nil},
		{"picker with prefix", testbed.ByPicker, []string{"--prefix"}, nil},
		{"gateway", testbed.ByPicker, nil, testbed.AsGateway},
	} {
		t.Run(w.name, func(t *testing.T) { test(t, w.by, testbed.Plan{Bootstrap: w.extra, Edits: w.edits}) })
	}
}

// TestAPlaceIsHeldUntilTheLastByteOfAStream, by the queue itself: these Envoys do not report their requests. Nor does
// the queue wait for more of a body than what is read of it: these end only after the answers have begun.
func TestAPlaceIsHeldUntilTheLastByteOfAStream(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, by testbed.Carrier, p testbed.Plan) {
		const requests = 6
		const part = prefix.MaxBody
		s := newStreamer(t)
		p.Envoys, p.Bootstrap = 2, append(p.Bootstrap, testbed.Silent...)
		p.Cluster = "endpoints: {static: [{address: " + s.address + "}]}\nqueue: {max_in_flight: 1}"
		f := by.Start(t, p)
		c := newCallers(t, f)
		for i := range requests {
			c.sending.Go(func() { c.answers <- c.converse(t.Context(), i, part) })
		}
		for range requests {
			if a := c.next(); a.code != http.StatusOK || a.err != nil {
				t.Errorf("request %d: %+v", a.number, a)
			}
		}
		if n := s.most.Load(); n != 1 {
			t.Errorf("%d requests were in flight at the same time, want 1", n)
		}
		if n := s.received.Load(); n != 2*part*requests {
			t.Errorf("the bodies had %d bytes, want %d", n, 2*part*requests)
		}
		f.Eventually("no place is held", func() error { return f.Waits(0, 0) })
	})
}

// TestAClientThatGivesUpWhileItSendsABodyLeavesTheQueue, also where the picker gets the body.
func TestAClientThatGivesUpWhileItSendsABodyLeavesTheQueue(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, by testbed.Carrier, p testbed.Plan) {
		p.Servers, p.Cluster = testbed.Pool(t, 1), "queue: {max_in_flight: 1}"
		f := by.Start(t, p)
		c := newCallers(t, f)
		first, release := context.WithCancel(t.Context())
		defer release()
		c.send(first, 0, 0, "", "", time.Minute)
		f.Eventually("the place is taken", func() error { return f.Waits(0, 1) })
		impatient, giveUp := context.WithCancel(t.Context())
		defer giveUp()
		c.sending.Go(func() { c.answers <- c.converse(impatient, 1, 300_000) })
		f.Eventually("it waits", func() error { return f.Waits(1, 1) })
		giveUp()
		f.Eventually("it has left", func() error { return f.Waits(0, 1) })
		if q, err := f.Queue(); err != nil || q.Classes[0].Left != 1 {
			t.Errorf("the queue is %+v (%v), want one that left", q, err)
		}
	})
}

// converse sends the first part of a body of JSON, and the second one after the answer has begun.
func (c *callers) converse(ctx context.Context, number, part int) answer {
	body, write := io.Pipe()
	defer write.Close()
	defer context.AfterFunc(ctx, func() { body.Close() })() // a client that gives up waits for its body
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.f.URLs[number%len(c.f.URLs)], body)
	if err != nil {
		return answer{number: number, err: err}
	}
	r.Header.Set("Content-Type", "application/json")
	text := []byte(strings.Repeat("x", part))
	first := make(chan error, 1)
	go func() {
		_, err := write.Write(text)
		first <- err
	}()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		body.Close()
		<-first
		return answer{number: number, err: err}
	}
	if err := <-first; err != nil {
		return answer{number: number, code: resp.StatusCode, err: errors.Join(err, resp.Body.Close())}
	}
	defer resp.Body.Close()
	if _, err = write.Write(text); err == nil {
		write.Close()
		_, err = io.Copy(io.Discard, resp.Body)
	}
	return answer{number: number, code: resp.StatusCode, header: resp.Header, err: err}
}
