package picker

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	"steelyard/weighting"
)

// publishWork has the picker follow endpoints without load, where requests cost by their size.
func (r *rig) publishWork(addresses ...string) {
	r.t.Helper()
	r.loads.Publish("llama", worked(addresses...))
	r.eventually("the picker has the loads", func() bool {
		n, _, _ := r.picker.loads.Pool("llama").State(time.Now())
		return n == len(addresses)
	})
}

// worked returns the decision of one step where requests cost by their size.
func worked(addresses ...string) weighting.Decision {
	d := decision(addresses...)
	d.Work = &weighting.Work{PromptTokens: 900, OutputTokens: 200, TokensPerByte: 0.25, BySize: true}
	return d
}

// chat is a body with a system message and a question.
func chat(question string) string {
	return `{"model":"llama","messages":[{"role":"system","content":"` + strings.Repeat("s", 4000) +
		`"},{"role":"user","content":"` + strings.Repeat(question, 500) + `"}]}`
}

// ask plays a request with a body through the picker, up to the headers of its answer, and returns its endpoint.
func (r *rig) ask(body, status string) (endpoint string) {
	r.t.Helper()
	return r.askAt(body, status, &extprocv3.ProcessingRequest{})
}

// askAt does so where the proxy says, with the headers of the answer, which endpoint gave it.
func (r *rig) askAt(body, status string, answer *extprocv3.ProcessingRequest) (endpoint string) {
	r.t.Helper()
	answer.Request = &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{
		Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{{Key: ":status", RawValue: []byte(status)}}}}}
	first := headers(nil)
	first.ProtocolConfig = &extprocv3.ProtocolConfiguration{
		RequestBodyMode: modev3.ProcessingMode_BUFFERED_PARTIAL}
	got, err := r.exchange(r.t.Context(), first,
		&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
			RequestBody: &extprocv3.HttpBody{Body: []byte(body), EndOfStream: true}}}, answer)
	if err != nil || len(got) != 3 {
		r.t.Fatalf("%d answers, error %v", len(got), err)
	}
	undecided(r.t, got[0])
	mutation := got[1].GetRequestBody().GetResponse()
	if !mutation.GetClearRouteCache() || mutation.GetBodyMutation() != nil {
		r.t.Errorf("the answer to the body is %v", mutation)
	}
	header, _ := namedBy(got[1])
	endpoint, _, _ = strings.Cut(header, ",")
	return endpoint
}

// undecided checks the answer to headers whose body is waited for: what a client named is removed, the route is found
// again, with the header that comes later, and the length of the body is given back.
func undecided(t *testing.T, answer *extprocv3.ProcessingResponse) {
	t.Helper()
	got := answer.GetRequestHeaders().GetResponse()
	if !got.GetClearRouteCache() || !slices.Equal(got.GetHeaderMutation().GetRemoveHeaders(), []string{destination}) ||
		len(got.GetHeaderMutation().GetSetHeaders()) != 1 || lengthIn(got) != "1200" ||
		answer.GetDynamicMetadata() != nil {
		t.Errorf("before the body the answer is %v", answer)
	}
}

// lengthIn returns the content-length that an answer sets; empty where it sets none.
func lengthIn(r *extprocv3.CommonResponse) string {
	for _, h := range r.GetHeaderMutation().GetSetHeaders() {
		if h.GetHeader().GetKey() == "content-length" {
			return string(h.GetHeader().GetRawValue())
		}
	}
	return ""
}

// TestTheLengthOfABodyIsGivenBack: Envoy takes the header away where the picker gets the body, and the access log would
// not have the size of the request.
func TestTheLengthOfABodyIsGivenBack(t *testing.T) {
	r := newRig(t, Options{Prefix: true})
	r.publishWork("10.0.0.1:80")
	for name, c := range map[string]struct {
		mode                        modev3.ProcessingMode_BodySendMode
		length                      string
		whole                       bool // the body that comes, of 4 bytes
		withTheHeaders, withTheBody string
	}{
		"of a whole body":     {modev3.ProcessingMode_BUFFERED_PARTIAL, "4", true, "4", ""},
		"of a long body":      {modev3.ProcessingMode_BUFFERED_PARTIAL, "3000000", false, "3000000", ""},
		"of an empty body":    {modev3.ProcessingMode_BUFFERED_PARTIAL, "0", true, "0", ""},
		"in chunks":           {modev3.ProcessingMode_BUFFERED, "", true, "", "4"},
		"in chunks, a part":   {modev3.ProcessingMode_BUFFERED, "", false, "", ""},
		"in chunks, not held": {modev3.ProcessingMode_BUFFERED_PARTIAL, "", true, "", ""},
		"that is not shown":   {modev3.ProcessingMode_NONE, "4", true, "", ""},
		"that goes through":   {modev3.ProcessingMode_FULL_DUPLEX_STREAMED, "4", true, "", ""},
	} {
		first := headers(nil)
		first.ProtocolConfig = &extprocv3.ProtocolConfiguration{RequestBodyMode: c.mode}
		first.GetRequestHeaders().GetHeaders().GetHeaders()[0].RawValue = []byte(c.length)
		got, err := r.exchange(t.Context(), first, &extprocv3.ProcessingRequest{
			Request: &extprocv3.ProcessingRequest_RequestBody{
				RequestBody: &extprocv3.HttpBody{Body: []byte("body"), EndOfStream: c.whole}}})
		if err != nil || len(got) != 2 {
			t.Fatalf("%s: %d answers, error %v", name, len(got), err)
		}
		if length := lengthIn(got[0].GetRequestHeaders().GetResponse()); length != c.withTheHeaders {
			t.Errorf("%s: a length of %q with the headers, want %q", name, length, c.withTheHeaders)
		}
		if length := lengthIn(got[1].GetRequestBody().GetResponse()); length != c.withTheBody {
			t.Errorf("%s: a length of %q with the body, want %q", name, length, c.withTheBody)
		}
	}
}

// routes is the number of learned routes.
func (r *rig) routes() int {
	s, _ := r.picker.loads.Pool("llama").Routes()
	return s.Own + s.Others
}

func TestAnEndpointIsPreferredForThePromptThatItAnswered(t *testing.T) {
	r := newRig(t, Options{Prefix: true})
	r.publishWork("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80")
	if r.ask(chat("a"), "500"); r.routes() != 0 {
		t.Errorf("%d routes are learned from an answer that failed", r.routes())
	}
	where := r.ask(chat("a"), "200")
	if where == "" || r.routes() == 0 {
		t.Fatalf("chosen %q, %d routes learned", where, r.routes())
	}
	r.eventually("it is chosen again, when its own request counts no more", func() bool {
		r.publishWork("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80")
		return r.ask(chat("a"), "500") == where && strings.Contains(r.page(), `reason="prefix"`)
	})
	if page := r.page(); !strings.Contains(page, `steelyard_picker_prefix_routes{envoy_cluster_name="llama"}`) ||
		!strings.Contains(page, `steelyard_picker_prefix_routes_evicted_total{envoy_cluster_name="llama"} 0`) {
		t.Errorf("no series of routes in\n%s", page)
	}
}

// TestARequestThatComputesNoPromptTeachesNothing: one that counts tokens leaves nothing in a cache.
func TestARequestThatComputesNoPromptTeachesNothing(t *testing.T) {
	r := newRig(t, Options{Prefix: true})
	r.publishWork("10.0.0.1:80")
	answer := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{
		ResponseHeaders: &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
			{Key: ":status", RawValue: []byte("200")}}}}}}
	for _, c := range []struct {
		path    string
		teaches bool
	}{{"/v1/messages/count_tokens?beta=true", false}, {"/v1/messages", true}} {
		first := headers(nil)
		all := first.GetRequestHeaders().GetHeaders()
		all.Headers = append(all.GetHeaders(), &corev3.HeaderValue{Key: ":path", RawValue: []byte(c.path)})
		first.ProtocolConfig = &extprocv3.ProtocolConfiguration{RequestBodyMode: modev3.ProcessingMode_BUFFERED}
		if _, err := r.exchange(t.Context(), first, &extprocv3.ProcessingRequest{
			Request: &extprocv3.ProcessingRequest_RequestBody{
				RequestBody: &extprocv3.HttpBody{Body: []byte(chat("a")), EndOfStream: true}}}, answer); err != nil {
			t.Fatal(err)
		}
		if n := r.routes(); n > 0 != c.teaches {
			t.Errorf("%d routes are learned by %s", n, c.path)
		}
	}
}

// TestSaltsBehindALongPromptAreSeen: requests that differ in them share no route.
func TestSaltsBehindALongPromptAreSeen(t *testing.T) {
	r := newRig(t, Options{Prefix: true})
	r.publishWork("10.0.0.1:80")
	salted := func(salt string) string {
		return `{"messages":[{"role":"user","content":"` + strings.Repeat("x", 300<<10) +
			`"}],"cache_salt":"` + salt + `"}`
	}
	r.ask(salted("a"), "200")
	n := r.routes()
	for _, c := range []struct {
		salt string
		want int
	}{{"a", n}, {"b", 2 * n}} {
		if r.ask(salted(c.salt), "200"); n == 0 || r.routes() != c.want {
			t.Errorf("salt %s: %d routes after %d, want %d", c.salt, r.routes(), n, c.want)
		}
	}
}

// TestARouteIsToTheEndpointThatAnswered, as a gateway says it, and as Envoy does.
func TestARouteIsToTheEndpointThatAnswered(t *testing.T) {
	text := func(key, value string) *structpb.Struct {
		return &structpb.Struct{Fields: map[string]*structpb.Value{key: structpb.NewStringValue(value)}}
	}
	for name, said := range map[string]func(endpoint string) *extprocv3.ProcessingRequest{
		"metadata": func(endpoint string) *extprocv3.ProcessingRequest {
			return &extprocv3.ProcessingRequest{MetadataContext: &corev3.Metadata{
				FilterMetadata: map[string]*structpb.Struct{destinationSpace: text(served, endpoint)}}}
		},
		"attribute": func(endpoint string) *extprocv3.ProcessingRequest {
			return &extprocv3.ProcessingRequest{
				Attributes: map[string]*structpb.Struct{attributes: text(upstream, endpoint)}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{Prefix: true})
			r.publishWork("10.0.0.1:80", "10.0.0.2:80")
			if r.askAt(chat("a"), "200", said("10.0.0.3:80")); r.routes() != 0 {
				t.Errorf("%d routes are learned to an unknown endpoint", r.routes())
			}
			other := map[string]string{"10.0.0.1:80": "10.0.0.2:80", "10.0.0.2:80": "10.0.0.1:80"}
			where := r.ask(chat("b"), "500")
			r.askAt(chat("b"), "200", said(other[where]))
			r.eventually("the one that answered is chosen", func() bool {
				r.publishWork("10.0.0.1:80", "10.0.0.2:80")
				return r.ask(chat("b"), "500") == other[where] && strings.Contains(r.page(), `reason="prefix"`)
			})
			const counted = `steelyard_picker_unknown_endpoints_total{envoy_cluster_name="llama",reason="answer"} 1`
			if page := r.page(); !strings.Contains(page, counted) {
				t.Errorf("no %s in\n%s", counted, page)
			}
		})
	}
}

func TestRoutesLeaveWithTheirEndpoint(t *testing.T) {
	r := newRig(t, Options{Prefix: true})
	r.publishWork("10.0.0.1:80")
	r.ask(chat("a"), "200")
	if r.routes() == 0 {
		t.Fatal("nothing is learned")
	}
	r.publishWork("10.0.0.2:80", "10.0.0.3:80")
	if r.routes() != 0 {
		t.Errorf("%d routes to an endpoint that left", r.routes())
	}
}

// TestALongBodyIsNotLookedAt, nor one of unknown length: Envoy may lose its end while the picker has its first part.
func TestALongBodyIsNotLookedAt(t *testing.T) {
	r := newRig(t, Options{Prefix: true})
	r.publishWork("10.0.0.1:80")
	for name, length := range map[string]string{"of a known size": "3000000", "chunked": ""} {
		long := headers(nil)
		long.ProtocolConfig = &extprocv3.ProtocolConfiguration{RequestBodyMode: modev3.ProcessingMode_BUFFERED_PARTIAL}
		long.GetRequestHeaders().GetHeaders().GetHeaders()[0].RawValue = []byte(length)
		got, err := r.exchange(t.Context(), long)
		if err != nil {
			t.Fatal(err)
		}
		if endpoint, meta := namedBy(got[0]); endpoint != "10.0.0.1:80" || meta != endpoint {
			t.Errorf("%s: header %q, metadata %q", name, endpoint, meta)
		}
		mode := got[0].GetModeOverride()
		if mode == nil || mode.GetRequestBodyMode() != modev3.ProcessingMode_NONE {
			t.Errorf("%s: the proxy is to send the body: %v", name, mode)
		}
	}
}

// TestAProxyThatNamesALimitHoldsBodiesUntilTheyAreWhole: in BUFFERED_PARTIAL, Envoy sends some twice.
func TestAProxyThatNamesALimitHoldsBodiesUntilTheyAreWhole(t *testing.T) {
	r := newRig(t, Options{Prefix: true})
	r.publishWork("10.0.0.1:80")
	for length, want := range map[string]modev3.ProcessingMode_BodySendMode{
		"5000": modev3.ProcessingMode_BUFFERED, "5001": modev3.ProcessingMode_NONE} {
		m := headers(nil)
		m.ProtocolConfig = &extprocv3.ProtocolConfiguration{RequestBodyMode: modev3.ProcessingMode_BUFFERED_PARTIAL}
		m.GetRequestHeaders().GetHeaders().GetHeaders()[0].RawValue = []byte(length)
		got, err := r.exchange(metadata.AppendToOutgoingContext(t.Context(), bodyLimitKey, "5000"), m)
		if err != nil {
			t.Fatal(err)
		}
		if mode := got[0].GetModeOverride(); mode == nil || mode.GetRequestBodyMode() != want {
			t.Errorf("%s bytes: mode %v, want %v", length, mode, want)
		}
	}
}

// TestABodyThatComesAfterAnAnswerIsNotWaitedFor: a proxy may leave it to the server to answer 100 (Envoy does with
// proxy_100_continue). A client that expects that sends no body before, and the server is asked after the choice.
func TestABodyThatComesAfterAnAnswerIsNotWaitedFor(t *testing.T) {
	for _, withPrefix := range []bool{true, false} {
		r := newRig(t, Options{Prefix: withPrefix})
		r.publishWork("10.0.0.1:80")
		for _, mode := range []modev3.ProcessingMode_BodySendMode{modev3.ProcessingMode_BUFFERED,
			modev3.ProcessingMode_BUFFERED_PARTIAL} {
			m := headers(nil)
			m.ProtocolConfig = &extprocv3.ProtocolConfiguration{RequestBodyMode: mode}
			of := m.GetRequestHeaders().GetHeaders()
			of.Headers = append(of.Headers, &corev3.HeaderValue{Key: "expect", RawValue: []byte("100-continue")})
			got, err := r.exchange(metadata.AppendToOutgoingContext(t.Context(), bodyLimitKey, "5000"), m)
			if err != nil {
				t.Fatal(err)
			}
			if endpoint, meta := namedBy(got[0]); endpoint != "10.0.0.1:80" || meta != endpoint {
				t.Errorf("%v, prefix %v: header %q, metadata %q", mode, withPrefix, endpoint, meta)
			}
			if o := got[0].GetModeOverride(); o == nil || o.GetRequestBodyMode() != modev3.ProcessingMode_NONE {
				t.Errorf("%v, prefix %v: the proxy is to wait for the body: %v", mode, withPrefix, o)
			}
		}
	}
}

// TestWithoutABodyTheChoiceDoesNotWait: as with a proxy that sends none.
func TestWithoutABodyTheChoiceDoesNotWait(t *testing.T) {
	r := newRig(t, Options{Prefix: true})
	r.publishWork("10.0.0.1:80")
	ended := headers(nil)
	ended.GetRequestHeaders().EndOfStream = true
	ended.ProtocolConfig = &extprocv3.ProtocolConfiguration{RequestBodyMode: modev3.ProcessingMode_BUFFERED}
	for name, m := range map[string]*extprocv3.ProcessingRequest{"a mode without bodies": headers(nil),
		"a request without a body": ended} {
		got, err := r.exchange(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		if header, meta := namedBy(got[0]); header != "10.0.0.1:80" || meta != header {
			t.Errorf("%s: header %q, metadata %q", name, header, meta)
		}
	}
}

// page is /metrics.
func (r *rig) page() string {
	r.t.Helper()
	resp, err := http.Get("http://" + r.picker.AdminAddress() + "/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// TestPickersShareWhatTheyLearn, through the Steelyard that both follow.
func TestPickersShareWhatTheyLearn(t *testing.T) {
	r := newRig(t, Options{Prefix: true})
	r.publishWork("10.0.0.1:80", "10.0.0.2:80")
	another, err := New(Options{Steelyard: r.picker.options.Steelyard, Listen: "127.0.0.1:0", Admin: "127.0.0.1:0",
		Log: quiet, Clusters: []string{"llama"}, Prefix: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- another.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	r.eventually("the other picker has heard of it", func() bool {
		r.ask(chat("a"), "200") // again and again, as both streams have to be open
		s, _ := another.loads.Pool("llama").Routes()
		return s.Others > 0 && s.Own == 0
	})
}
