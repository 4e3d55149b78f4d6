package signals

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"steelyard/e2e/rig/testbed"
)

// A measure is a server that adds up what it gets.
type measure struct {
	*httptest.Server
	lengths, bytes atomic.Int64 // by the content-lengths of requests, and in their bodies
}

// startMeasure serves HTTP/1.1, and HTTP/2 without TLS.
func startMeasure(t *testing.T) *measure {
	t.Helper()
	m := &measure{}
	m.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		m.bytes.Add(n)
		m.lengths.Add(max(0, r.ContentLength))
	}))
	m.Config.Protocols = new(http.Protocols)
	m.Config.Protocols.SetHTTP1(true)
	m.Config.Protocols.SetUnencryptedHTTP2(true)
	m.Start()
	t.Cleanup(m.Close)
	return m
}

// TestSizesAreKnownThroughThePicker, though Envoy takes the content-length away when it shows the picker a body.
func TestSizesAreKnownThroughThePicker(t *testing.T) {
	t.Parallel()
	const buffer = 1 << 20
	for what, c := range map[string]struct {
		edits                      []testbed.Edit
		refuses                    bool // bodies that are longer than its buffer
		short, long, shortInChunks bool // bodies of a known size
	}{
		"steelyard bootstrap": {short: true, long: true},
		"HTTP/2 to endpoints": {edits: []testbed.Edit{testbed.ToHTTP2}, short: true, long: true},
		"a gateway that holds bodies until they are whole": {edits: []testbed.Edit{
			{"request_body_mode: BUFFERED_PARTIAL", "request_body_mode: BUFFERED"}},
			refuses: true, short: true, shortInChunks: true},
		// Envoy lets nobody set the length of a body that it may not have whole.
		"a gateway that names no limit": {edits: []testbed.Edit{
			{`- {key: x-steelyard-body-limit, value: "1048576"}`, ""}}, long: true},
	} {
		t.Run(what, func(t *testing.T) {
			up := startMeasure(t)
			address := up.Listener.Addr().String()
			r := receive(t, address)
			_, loads := testbed.StartIdleAt(t, address)
			p := testbed.StartPicker(t, t.TempDir(), loads, "", "--prefix")
			eventually(t, "the picker has loads", p.Ready)
			o := logOnly
			o.Picker, o.Prefix = p.Address, true
			envoy := r.envoy(o, 1, append(testbed.Patient, c.edits...)...)

			wantSized, wantBytes, wantAll, sent := 0, 0, 0, 0
			for _, size := range []int{200, 5_000, 48 << 10, 200 << 10, buffer - 1, 3 * buffer} {
				for _, chunked := range []bool{false, true} {
					body := append(testbed.Talk(fmt.Sprint("a ", size)), bytes.Repeat([]byte(" "), size)...)[:size]
					var from io.Reader = bytes.NewReader(body)
					if chunked {
						from = io.MultiReader(from)
					}
					resp, err := http.Post(envoy.url, "application/json", from)
					if err != nil {
						t.Fatal(err)
					}
					resp.Body.Close()
					want := http.StatusOK
					if c.refuses && size > buffer {
						want = http.StatusRequestEntityTooLarge
					}
					if resp.StatusCode != want {
						t.Errorf("%d bytes, chunked %v: status %d, want %d", size, chunked, resp.StatusCode, want)
					}
					if want != http.StatusOK {
						continue
					}
					sent++
					wantAll += size
					if !chunked && size <= buffer && c.short || !chunked && size > buffer && c.long ||
						chunked && size <= buffer && c.shortInChunks {
						wantSized++
						wantBytes += size
					}
				}
			}
			r.becomes("all have ended", ended, sent)
			if n, b := r.sum(sized), r.sum(sizedBytes); n != wantSized || b != wantBytes {
				t.Errorf("%d of a known size, %d bytes; want %d, %d", n, b, wantSized, wantBytes)
			}
			if l, n := up.lengths.Load(), up.bytes.Load(); int(l) != wantBytes || int(n) != wantAll {
				t.Errorf("the endpoint got content-lengths of %d and %d bytes, want %d and %d", l, n, wantBytes,
					wantAll)
			}
			if got := p.Choices(t, "fill") + p.Choices(t, "prefix"); int(got) != sent {
				t.Errorf("%v choices, want %d", got, sent)
			}
		})
	}
}
