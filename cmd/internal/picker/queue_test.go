package picker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/internal/api"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/metadata"

	"steelyard/picking/queue"
	"steelyard/xds/loads"
	"steelyard/xds/loads/loadsv1"
	"steelyard/xds/places"
)

// unobserved is the observer of queues whose counts are enough.
type unobserved struct{}

func (unobserved) Waited(string, string, string, time.Duration) {}
func (unobserved) Left(string, string)                          {}

const only = "10.0.0.1:80" // the endpoint of the clusters here

// newQueue returns a rig whose cluster has a queue of one place, with two classes.
func newQueue(t *testing.T, o Options) *rig {
	t.Helper()
	joins := make(joined, 1)
	o.Log = slog.New(joins)
	r := newRig(t, o)
	r.hasQueue()
	r.places.Configure(map[string]*places.Settings{"llama": {MaxInFlight: 1, Classes: []queue.Class{
		{Name: "gold", Weight: 1, MaxWaiting: 10, MaxWait: time.Hour},
		{Name: "none", Weight: 1, MaxWaiting: 0, MaxWait: time.Hour}}}})
	r.publish("llama", only)
	r.inQueue(0, 0)
	select {
	case <-joins:
	case <-time.After(patience):
		t.Fatal("the picker has not logged that requests wait in the queue")
	}
	return r
}

// joined is a log that gets a value when requests wait in a queue.
type joined chan struct{}

func (joined) Enabled(context.Context, slog.Level) bool { return true }

func (j joined) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "requests wait in the queue" {
		select {
		case j <- struct{}{}:
		default: // it has joined before
		}
	}
	return nil
}

func (j joined) WithAttrs([]slog.Attr) slog.Handler { return j }
func (j joined) WithGroup(string) slog.Handler      { return j }

// hasQueue has the loads say that the cluster has a queue.
func (r *rig) hasQueue() {
	r.loads.Configure(map[string]loads.Settings{"llama": {Queue: &loadsv1.QueueHeaders{Class: "x-class",
		Tenant: "x-tenant"}}})
}

// inQueue waits until the picker has joined the queue, and so many requests wait and are in flight.
func (r *rig) inQueue(waiting, inFlight int) {
	r.t.Helper()
	var state api.Queue
	defer func() {
		if r.t.Failed() {
			r.t.Logf("the queue is %+v", state)
		}
	}()
	r.eventually("requests wait and are in flight", func() bool {
		// As the loop of the cluster: it publishes again and again.
		r.loads.Publish("llama", decision(only))
		r.places.Publish("llama", decision(only))
		var on bool
		state, on = r.places.State("llama")
		n := 0
		for _, c := range state.Classes {
			n += c.Waiting
		}
		return on && state.Envoys == 1 && state.Shared && n == waiting && state.InFlight.Or(-1) == float64(inFlight)
	})
}

// of are the headers of a request of a class and a tenant.
func of(class, tenant string) *extprocv3.ProcessingRequest {
	m := headers(nil)
	h := m.GetRequestHeaders().GetHeaders()
	h.Headers = append(h.GetHeaders(), &corev3.HeaderValue{Key: "x-class", RawValue: []byte(class)},
		&corev3.HeaderValue{Key: "x-tenant", RawValue: []byte(tenant)})
	return m
}

// A request is the stream of one request.
type request struct {
	t      *testing.T
	stream extprocv3.ExternalProcessor_ProcessClient
	end    func() // by a reset
}

// begin opens a stream with a first message.
func (r *rig) begin(m *extprocv3.ProcessingRequest) *request {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	r.t.Cleanup(cancel)
	stream, err := r.client.Process(metadata.AppendToOutgoingContext(ctx, clusterKey, "llama"))
	if err != nil {
		r.t.Fatal(err)
	}
	q := &request{t: r.t, stream: stream, end: cancel}
	q.send(m)
	return q
}

func (q *request) send(m *extprocv3.ProcessingRequest) {
	q.t.Helper()
	if err := q.stream.Send(m); err != nil {
		q.t.Fatal(err)
	}
}

func (q *request) next() *extprocv3.ProcessingResponse {
	q.t.Helper()
	a, err := q.stream.Recv()
	if err != nil {
		q.t.Fatal(err)
	}
	return a
}

// takesLonger wants the next message to say that the request waits.
func (q *request) takesLonger() {
	q.t.Helper()
	if a := q.next(); a.GetOverrideMessageTimeout().AsDuration() != time.Hour || a.GetResponse() != nil {
		q.t.Errorf("the answer is %v, want that it takes longer", a)
	}
}

// granted wants the next message to name the endpoint, and to have the proxy send the end of the answer.
func (q *request) granted() {
	q.t.Helper()
	a := q.next()
	header, meta := namedBy(a)
	mode := a.GetModeOverride()
	if header != only || meta != only || mode.GetResponseTrailerMode() != modev3.ProcessingMode_SEND ||
		mode.GetResponseHeaderMode() != modev3.ProcessingMode_SKIP ||
		mode.GetRequestBodyMode() != modev3.ProcessingMode_NONE {
		q.t.Errorf("the answer is %v, want the endpoint, and the mode that keeps the stream", a)
	}
}

func TestARequestWaitsForItsPlaceAndKeepsItUntilItsStreamEnds(t *testing.T) {
	r := newQueue(t, Options{Prefix: true}) // but it has no body
	first := r.begin(of("gold", "a"))
	first.takesLonger()
	first.granted()
	second := r.begin(of("gold", "b"))
	second.takesLonger()
	r.inQueue(1, 1)
	if err := first.stream.CloseSend(); err != nil { // as Envoy does at the end of a request
		t.Fatal(err)
	}
	second.granted()
	r.inQueue(0, 1)
	second.end() // as Envoy does if the picker takes long to end the stream
	r.inQueue(0, 0)
	const counted = `steelyard_picker_choices_total{envoy_cluster_name="llama",reason="queue"} 2`
	if page := r.page(); !strings.Contains(page, counted) {
		t.Errorf("no %s in\n%s", counted, page)
	}
}

// TestARequestAsksForAPlaceByItsPrompt, which is learned where it is answered: the next one with that prompt gets a
// place there, but does not wait for it.
func TestARequestAsksForAPlaceByItsPrompt(t *testing.T) {
	r := newQueue(t, Options{Prefix: true})
	two := []string{only, "10.0.0.2:80"}
	// ask begins a request, up to the answer to its body.
	ask := func() (q *request, endpoint string) {
		t.Helper()
		r.publishWork(two...)
		r.places.Publish("llama", worked(two...))
		first := of("gold", "")
		first.ProtocolConfig = &extprocv3.ProtocolConfiguration{
			RequestBodyMode: modev3.ProcessingMode_BUFFERED_PARTIAL}
		q = r.begin(first)
		a := q.next()
		undecided(t, a)
		if m := a.GetModeOverride(); m.GetRequestBodyMode() != modev3.ProcessingMode_BUFFERED_PARTIAL ||
			m.GetResponseHeaderMode() != modev3.ProcessingMode_SEND ||
			m.GetResponseTrailerMode() != modev3.ProcessingMode_SEND {
			t.Errorf("before the body the mode is %v, want the body, and the answer until its end", m)
		}
		q.send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
			RequestBody: &extprocv3.HttpBody{Body: []byte(chat("a")), EndOfStream: true}}})
		q.takesLonger()
		endpoint, _ = namedBy(q.next())
		return q, endpoint
	}
	first, where := ask()
	first.send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{
		ResponseHeaders: &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
			{Key: ":status", RawValue: []byte("200")}}}}}})
	if a := first.next(); a.GetResponseHeaders() == nil || !slices.Contains(two, where) || r.routes() == 0 {
		t.Fatalf("sent to %q, %d routes are learned, the answer is %v", where, r.routes(), a)
	}
	first.end()
	r.held(0)
	var second *request
	r.eventually("the next gets a place there, when the first counts no more", func() bool {
		var again string
		if second, again = ask(); again == where {
			return true
		}
		second.end()
		r.held(0)
		return false
	})
	if _, third := ask(); third != two[1-slices.Index(two, where)] {
		t.Errorf("while that has no place, the next went to %s", third)
	}
	r.held(2)
	second.end()
	r.held(1)
	const counted = `steelyard_picker_choices_total{envoy_cluster_name="llama",reason="queue_prefix"} 1`
	if page := r.page(); !strings.Contains(page, counted) {
		t.Errorf("no %s in\n%s", counted, page)
	}
}

// held waits until so many requests are in flight.
func (r *rig) held(n int) {
	r.t.Helper()
	r.eventually(fmt.Sprint(n, " are in flight"), func() bool {
		state, on := r.places.State("llama")
		return on && state.InFlight.Or(-1) == float64(n)
	})
}

func TestARequestThatTheQueueRefusesGetsItsAnswer(t *testing.T) {
	r := newQueue(t, Options{})
	r.begin(of("gold", "")).takesLonger()
	r.inQueue(0, 1)
	refused := r.begin(of("none", ""))
	refused.takesLonger()
	a := refused.next().GetImmediateResponse()
	got := make(map[string]string)
	for _, h := range a.GetHeaders().GetSetHeaders() {
		got[h.GetHeader().GetKey()] = string(h.GetHeader().GetRawValue())
	}
	if a.GetStatus().GetCode() != typev3.StatusCode_TooManyRequests || got["retry-after"] != "1" ||
		got["x-steelyard-refused"] != "full" || got["x-llm-d-request-dropped-reason"] != "rejected-saturated" ||
		a.GetDetails() != "steelyard_queue_full" ||
		!strings.Contains(string(a.GetBody()), "the queue is full") {
		t.Errorf("the answer is %v", a)
	}
	const counted = `steelyard_picker_choices_total{envoy_cluster_name="llama",reason="queue_full"} 1`
	if page := r.page(); !strings.Contains(page, counted) {
		t.Errorf("no %s in\n%s", counted, page)
	}
}

// TestAClientThatGivesUpLeavesTheQueue, also where the proxy has sent a part of the body, behind which the end comes.
func TestAClientThatGivesUpLeavesTheQueue(t *testing.T) {
	r := newQueue(t, Options{})
	r.begin(of("gold", "")).takesLonger()
	r.inQueue(0, 1)
	piece := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
		RequestBody: &extprocv3.HttpBody{Body: []byte("a piece")}}}
	for what, end := range map[string]func(*request){
		"a half-closed stream": func(q *request) { _ = q.stream.CloseSend() },
		"a reset stream":       func(q *request) { q.end() },
		"a reset stream with a body": func(q *request) {
			q.send(piece)
			q.end()
		},
	} {
		t.Run(what, func(t *testing.T) {
			q := r.begin(of("gold", ""))
			q.takesLonger()
			r.inQueue(1, 1)
			end(q)
			r.inQueue(0, 1)
		})
	}
}

func TestAProxyThatSendsHeadersTwiceHoldsOnePlace(t *testing.T) {
	r := newQueue(t, Options{})
	q := r.begin(of("gold", ""))
	q.takesLonger()
	q.granted()
	q.send(of("gold", ""))
	q.takesLonger()
	q.granted()
	r.inQueue(0, 1)
	q.end()
	r.inQueue(0, 0)
}

func TestABodyThatCameWhileItsRequestWaitedIsSentBackAfterTheChoice(t *testing.T) {
	r := newQueue(t, Options{})
	first := r.begin(of("gold", ""))
	first.takesLonger()
	r.inQueue(0, 1)
	m := of("gold", "")
	m.ProtocolConfig = &extprocv3.ProtocolConfiguration{RequestBodyMode: modev3.ProcessingMode_FULL_DUPLEX_STREAMED}
	q := r.begin(m)
	q.takesLonger()
	pieces := []string{"a piece", "another one"}
	for i, text := range pieces {
		q.send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
			RequestBody: &extprocv3.HttpBody{Body: []byte(text), EndOfStream: i == len(pieces)-1}}})
	}
	r.inQueue(1, 1)
	first.end()
	q.granted()
	var got []string
	for range pieces {
		body := q.next().GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse()
		got = append(got, string(body.GetBody()))
	}
	if !slices.Equal(got, pieces) {
		t.Errorf("the body came back as %q", got)
	}
}

func TestARequestThatIsReleasedIsChosenForAsWithoutAQueue(t *testing.T) {
	r := newQueue(t, Options{})
	r.begin(of("gold", "")).takesLonger()
	r.inQueue(0, 1)
	q := r.begin(of("gold", ""))
	q.takesLonger()
	r.inQueue(1, 1)
	r.places.Configure(nil) // switched off
	if a := q.next(); a.GetModeOverride() != nil {
		t.Errorf("the answer is %v, want that the stream may end", a)
	} else if header, _ := namedBy(a); header != only {
		t.Errorf("the answer is %v, want an endpoint", a)
	}
	const counted = `steelyard_picker_choices_total{envoy_cluster_name="llama",reason="fill"} 1`
	if page := r.page(); !strings.Contains(page, counted) {
		t.Errorf("no %s in\n%s", counted, page)
	}
}

// TestWhatCannotWaitIsChosenForAtOnce: the queue grants any endpoint, so no request waits whose endpoints the proxy
// limits; nor one whose proxy takes no answers.
func TestWhatCannotWaitIsChosenForAtOnce(t *testing.T) {
	r := newQueue(t, Options{})
	r.begin(of("gold", "")).takesLonger()
	r.inQueue(0, 1)
	limited := of("gold", "")
	limited.MetadataContext = hint(only)
	if header, _ := namedBy(r.begin(limited).next()); header != only {
		t.Errorf("with a subset the endpoint is %q", header)
	}
	observed := of("gold", "")
	observed.ObservabilityMode = true
	q := r.begin(observed)
	if err := q.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if a, err := q.stream.Recv(); err == nil {
		t.Errorf("a proxy that takes no answers got %v", a)
	}
	r.inQueue(0, 1)
	const counted = `steelyard_picker_choices_total{envoy_cluster_name="llama",reason="fill"} 2`
	if page := r.page(); !strings.Contains(page, counted) {
		t.Errorf("no %s in\n%s", counted, page)
	}
}

// TestRequestsThatDoNotWaitInTheirQueueAreCounted: the loads say that there is one, which is not served.
func TestRequestsThatDoNotWaitInTheirQueueAreCounted(t *testing.T) {
	r := newRig(t, Options{})
	r.hasQueue()
	r.publish("llama", only)
	if header, _ := namedBy(r.begin(of("gold", "")).next()); header != only {
		t.Errorf("the endpoint is %q", header)
	}
	const counted = `steelyard_picker_unqueued_total{envoy_cluster_name="llama"} 1`
	if page := r.page(); !strings.Contains(page, counted) {
		t.Errorf("no %s in\n%s", counted, page)
	}
}

// TestALongNameIsCut: the names of a thousand requests have to fit into one message.
func TestALongNameIsCut(t *testing.T) {
	m := of(strings.Repeat("gold", 1000), "")
	if got := nameIn(m.GetRequestHeaders(), "x-class"); len(got) != maxName || !strings.HasPrefix(got, "gold") {
		t.Errorf("the class has %d bytes, want %d", len(got), maxName)
	}
}
