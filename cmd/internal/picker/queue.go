package picker

import (
	"time"

	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"steelyard/picking"
	"steelyard/xds/loads/follow"
)

const (
	// longestWait is asked of the proxy for a request that waits, instead of its message_timeout: Envoy's most, and
	// the longest max_wait of a class. The queue and its waiter end the waiting.
	longestWait = time.Hour
	// maxName bounds the names of a class and of a tenant.
	maxName = 256
)

// wait has a request wait in the queue of its cluster; waited is false if it does not, or was released. err is not nil
// if the stream ended first.
func (x *exchange) wait(h *extprocv3.HttpHeaders) (o follow.Outcome, waited bool, err error) {
	class, tenant, queued := x.loads.Pool(x.cluster).Queue()
	if !queued {
		return o, false, nil
	}
	outcome := make(chan follow.Outcome, 1)
	waiter := x.waiters[x.cluster]
	id, ok := waiter.Arrive(time.Now(), follow.Arrival{Class: nameIn(h, class), Tenant: nameIn(h, tenant),
		Size: x.asked.Size}, func(o follow.Outcome) { outcome <- o })
	if !ok {
		x.unqueued(x.cluster)
		return o, false, nil
	}
	x.leave() // a proxy could send the headers of a request twice
	x.leave = func() { waiter.End(id) }
	if err := x.in.stream.Send(&extprocv3.ProcessingResponse{
		OverrideMessageTimeout: durationpb.New(longestWait)}); err != nil {
		return o, false, err
	}
	if o, err = x.in.await(outcome); err != nil || o.Reason() == "" {
		return o, false, err
	}
	x.choices(x.cluster, o.Reason())
	return o, true, nil
}

// nameIn is the value of a header whose name may be empty.
func nameIn(h *extprocv3.HttpHeaders, header string) string {
	if header == "" {
		return ""
	}
	name := headerOf(h, header)
	return name[:min(len(name), maxName)]
}

// settled is the answer to the headers of a request that was granted a place, or refused.
func settled(o follow.Outcome) *extprocv3.ProcessingResponse {
	if o.Refused != "" {
		r := o.Refusal() // as the module does
		return immediate(typev3.StatusCode_ServiceUnavailable, r.Headers, r.Body, r.Details)
	}
	response := &extprocv3.HeadersResponse{}
	out := &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{
		RequestHeaders: response},
		// Envoy ends the stream when it has no more to send on it. The place is held until the end of the answer, so it
		// is to send that, by its trailers; and not the body, which nobody looks at any more.
		ModeOverride: &modev3.ProcessingMode{ResponseHeaderMode: modev3.ProcessingMode_SKIP,
			ResponseTrailerMode: modev3.ProcessingMode_SEND}}
	response.Response, out.DynamicMetadata = named(picking.Choice{Address: o.Endpoint})
	return out
}

// An inbox receives the messages of one stream.
type inbox struct {
	stream extprocv3.ExternalProcessor_ProcessServer
	ahead  chan received // of the goroutine that receives the next message; nil if there is none
}

type received struct {
	message *extprocv3.ProcessingRequest
	err     error
}

// next returns the next message.
func (i *inbox) next() (*extprocv3.ProcessingRequest, error) {
	if i.ahead == nil {
		return i.stream.Recv()
	}
	r := <-i.ahead
	i.ahead = nil
	return r.message, r.err
}

// await waits for an outcome, or for the end of the stream: the client has given up. Of a proxy that sends the body
// without an answer to the headers, no more than the first piece is received; the end is then noticed when it resets
// the stream, as Envoy 1.40 does.
func (i *inbox) await(outcome <-chan follow.Outcome) (follow.Outcome, error) {
	ahead := make(chan received, 1)
	go func() {
		m, err := i.stream.Recv()
		ahead <- received{m, err}
	}()
	i.ahead = ahead
	select {
	case o := <-outcome:
		return o, nil
	case r := <-ahead:
		if r.err != nil {
			i.ahead = nil
			return follow.Outcome{}, r.err
		}
		ahead <- r
	}
	select {
	case o := <-outcome:
		return o, nil
	case <-i.stream.Context().Done():
		return follow.Outcome{}, i.stream.Context().Err()
	}
}

// close waits for the goroutine that receives. The stream has ended, or is broken.
func (i *inbox) close() {
	if i.ahead != nil {
		<-i.ahead
	}
}
