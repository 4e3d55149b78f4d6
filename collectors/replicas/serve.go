package replicas

import (
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"steelyard/collectors/replicas/merge"
	"steelyard/internal/api"
)

// service is that by which one replica follows another. All its messages are google.protobuf.BytesValue.
var service = grpc.ServiceDesc{
	ServiceName: "steelyard.replicas.v1.Replicas",
	HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{{StreamName: "Follow", ServerStreams: true,
		Handler: func(link any, stream grpc.ServerStream) error { return link.(*Link).serve(stream) }}},
}

const method = "/steelyard.replicas.v1.Replicas/Follow"

// mostWaiting is how many messages wait for a replica that reads slowly: a third of a second of changes. More are lost,
// and what they had is sent again within a second.
const mostWaiting = 64

// A follower is a replica that follows this one.
type follower struct {
	id    merge.ID
	name  string
	since time.Time
	out   chan []byte // closed when it is to end
}

// Register adds the service to a gRPC server.
func (l *Link) Register(g *grpc.Server) { g.RegisterService(&service, l) }

// serve sends the messages of this replica to another one.
func (l *Link) serve(stream grpc.ServerStream) error {
	if !l.o.Trusted(stream.Context()) {
		return status.Error(codes.PermissionDenied, "only a replica of this Steelyard may follow it: one whose "+
			"certificate has a DNS name of this one's")
	}
	var hello wrapperspb.BytesValue
	if err := stream.RecvMsg(&hello); err != nil {
		return err
	}
	m, err := l.read(time.Now(), hello.GetValue())
	if err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	f, err := l.join(time.Now(), m)
	if err != nil {
		return err
	}
	defer l.part(f)
	for {
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case b, more := <-f.out:
			if !more {
				return errEnded
			}
			if err := stream.SendMsg(&wrapperspb.BytesValue{Value: b}); err != nil {
				return err
			}
		}
	}
}

// The statuses of streams that a replica ends or refuses.
var (
	errEnded = status.Error(codes.Unavailable, "the replica stops, or there is a newer stream of the same follower")
	errAlone = status.Error(codes.FailedPrecondition, "no replicas are configured there: write the section replicas, "+
		"the same for all, or start all with --service")
	errItself = status.Error(codes.AlreadyExists, "it is this replica itself")
)

// read decodes a message, or counts it as one that cannot be read.
func (l *Link) read(now time.Time, b []byte) (*merge.Message, error) {
	m, err := decode(b, maxMessage)
	if err == nil {
		return m, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(err, errVersion) {
		l.peers.Messages.Foreign++
		l.peers.Messages.LastForeign = api.At(now)
	} else {
		l.peers.Messages.Invalid++
	}
	return nil, err
}

// join has a replica get all messages from now on, beginning with the whole state. It replaces an older stream of the
// same replica, whose connection may be dead.
func (l *Link) join(now time.Time, hello *merge.Message) (*follower, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.followers[hello.From]
	switch {
	case l.left:
		return nil, errEnded
	case !l.settings.Enabled:
		return nil, errAlone
	case hello.From == l.id:
		return nil, errItself
	case before != nil:
		l.dismiss(before)
	case len(l.followers) >= merge.MaxReplicas:
		return nil, status.Errorf(codes.ResourceExhausted, "%d replicas follow it, which is the limit",
			len(l.followers))
	}
	f := &follower{id: hello.From, name: hello.Name, since: now, out: make(chan []byte, mostWaiting)}
	l.followers[f.id] = f
	l.serving.Add(1)
	l.whole = true
	l.changed.Set()
	return f, nil
}

// dismiss ends a stream once it has sent what waits. The caller holds the lock.
func (l *Link) dismiss(f *follower) {
	close(f.out)
	delete(l.followers, f.id)
}

// part forgets a follower whose stream ends.
func (l *Link) part(f *follower) {
	l.mu.Lock()
	if l.followers[f.id] == f {
		delete(l.followers, f.id)
	}
	l.mu.Unlock()
	l.serving.Done()
}
