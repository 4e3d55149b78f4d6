package picker

import (
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"steelyard/xds/loads/follow"
)

const (
	// longestWait is asked of the proxy for a request that waits, instead of its message_timeout: Envoy's most, and
	// the longest max_wait of a class. The queue and its waiter end the waiting.
	longestWait = time.Hour
	// maxName bounds the names of a class and of a tenant.
	maxName = 256
)

// arrives is the request as it asks for a place; nil where its cluster has no queue.
func (x *exchange) arrives(h *extprocv3.HttpHeaders) *follow.Arrival {
	class, tenant, queued := x.loads.Pool(x.cluster).Queue(func(name string) string { return nameIn(h, name) })
	if !queued {
		return nil
	}
	return &follow.Arrival{Class: class, Tenant: tenant, Since: time.Now()}
}

// wait has the request wait in the queue of its cluster. The outcome is empty if it does not, or was released. err is
// not nil if the stream ended first.
func (x *exchange) wait() (o follow.Outcome, err error) {
	a := x.arrival
	if a == nil {
		return o, nil
	}
	a.Size = x.asked.Size
	a.Cached, a.Key = x.loads.Pool(x.cluster).Asked(&x.prompt)
	outcome := make(chan follow.Outcome, 1)
	waiter := x.waiters[x.cluster]
	id, ok := waiter.Arrive(time.Now(), *a, func(o follow.Outcome) { outcome <- o })
	if !ok {
		x.unqueued(x.cluster)
		return o, nil
	}
	x.leave() // a proxy could send the headers of a request twice
	x.leave = func() { waiter.End(id) }
	if err := x.in.stream.Send(&extprocv3.ProcessingResponse{
		OverrideMessageTimeout: durationpb.New(longestWait)}); err != nil {
		return o, err
	}
	if o, err = x.in.await(outcome); err == nil && o.Reason() != "" {
		x.choices(x.cluster, o.Reason())
	}
	return o, err
}

// nameIn is the value of a header, as far as a name may be long.
func nameIn(h *extprocv3.HttpHeaders, header string) string {
	name := headerOf(h, header)
	return name[:min(len(name), maxName)]
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
