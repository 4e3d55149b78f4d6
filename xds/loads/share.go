package loads

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"steelyard/internal/api"
	"steelyard/internal/loops"
	"steelyard/internal/streams"
	"steelyard/picking/prefix"
	"steelyard/xds/loads/loadsv1"
)

const (
	// MaxHashes is the number of hashes of one prompt.
	MaxHashes = 128
	// maxEndpoint is the length of an address, in bytes.
	maxEndpoint = 64
	// waitingPrompts is the number of prompts that wait for one picker; while it does not read, newer ones are left
	// out.
	waitingPrompts = 256
	// LearnedPerSecond is the number of prompts of one picker that are passed on; beyond it, they are left out.
	LearnedPerSecond = 1000
	// LearnedBytesPerSecond is what one picker is sent of what all others learn; beyond it, prompts wait, and are then
	// left out.
	LearnedBytesPerSecond = 1 << 20
	// keptBytesPerSecond is what one is sent of what was learned before it came.
	keptBytesPerSecond = BytesPerSecond
	// learnedBurst is how much of that may be sent at once.
	learnedBurst = 50 * time.Millisecond
)

// sharing is the pickers that share what they learn. It has its own lock, so that they delay no loads.
type sharing struct {
	gate *streams.Gate

	mu      sync.RWMutex
	members map[*member]struct{}

	sent, leftOut atomic.Uint64 // prompts
}

// SharedPrompts counts the learned prompts that pickers are sent of each other, and those that are left out because of
// the bounds.
func (s *Server) SharedPrompts() api.SharedPrompts {
	return api.SharedPrompts{Sent: s.sharing.sent.Load(), LeftOut: s.sharing.leftOut.Load()}
}

// A member is a picker that shares what it learns.
type member struct {
	clusters []string
	queue    chan *loadsv1.Learned
	kept     loops.Signal // it is to be sent what is kept
}

// Share serves one stream.
func (s *Server) Share(stream grpc.BidiStreamingServer[loadsv1.Learned, loadsv1.Learned]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	m := &member{clusters: first.GetClusters(), queue: make(chan *loadsv1.Learned, waitingPrompts),
		kept: loops.NewSignal()}
	if n := len(m.clusters); n == 0 || n > MaxClusters {
		return status.Errorf(codes.InvalidArgument, "%d clusters are named, want 1 to %d", n, MaxClusters)
	}
	exit, err := s.sharing.gate.Enter()
	if err != nil {
		return err
	}
	defer exit()
	s.join(m)
	defer s.part(m)
	// It ends with the stream's context, which is done when this function has returned.
	ended := make(chan error, 1)
	go func() { ended <- s.passOn(stream.Context(), m, stream.Recv) }()
	m.kept.Set()
	return s.tell(m, stream, ended)
}

// tell sends a member what is kept and what the others learn, until its stream ends.
func (s *Server) tell(m *member, stream grpc.BidiStreamingServer[loadsv1.Learned, loadsv1.Learned],
	ended <-chan error) error {
	always := make(chan struct{})
	close(always)
	pause, paused := time.NewTimer(0), false
	defer pause.Stop()
	var kept []*loadsv1.Learned
	var due time.Time // of what was sent, at the rate
	for {
		var queue <-chan *loadsv1.Learned
		var rest <-chan struct{}
		if !paused {
			queue = m.queue
		}
		if !paused && len(kept) > 0 {
			rest = always
		}
		var l *loadsv1.Learned
		rate := time.Duration(LearnedBytesPerSecond)
		select {
		case l = <-queue:
		case <-rest:
			l, kept, rate = kept[0], kept[1:], keptBytesPerSecond
		case <-m.kept:
			kept = s.Kept(time.Now(), m.clusters...)
			continue
		case <-pause.C:
			paused = false
			continue
		case err := <-ended:
			return err
		case <-s.sharing.gate.Closed():
			return streams.ErrClosed
		}
		if err := stream.Send(l); err != nil {
			return err
		}
		s.sharing.sent.Add(1)
		now := time.Now()
		if due.Before(now) {
			due = now
		}
		due = due.Add(time.Duration(proto.Size(l)) * time.Second / rate)
		if ahead := due.Sub(now); ahead > learnedBurst {
			paused = true
			pause.Reset(ahead)
		}
	}
}

func (s *Server) join(m *member) {
	s.sharing.mu.Lock()
	defer s.sharing.mu.Unlock()
	s.sharing.members[m] = struct{}{}
}

func (s *Server) part(m *member) {
	s.sharing.mu.Lock()
	defer s.sharing.mu.Unlock()
	delete(s.sharing.members, m)
}

// passOn hands what a member learns to the others, until its stream ends.
func (s *Server) passOn(ctx context.Context, m *member, next func() (*loadsv1.Learned, error)) error {
	var second time.Time
	passed := 0
	for ctx.Err() == nil {
		l, err := next()
		if err != nil {
			return err
		}
		if len(l.GetClusters()) != 1 || !slices.Contains(m.clusters, l.GetClusters()[0]) ||
			len(l.GetHashes()) > MaxHashes || len(l.GetEndpoint()) > maxEndpoint {
			return status.Errorf(codes.InvalidArgument, "want one of the clusters that were named first, at most %d "+
				"hashes, and an address of at most %d bytes", MaxHashes, maxEndpoint)
		}
		if now := time.Now(); now.Sub(second) >= time.Second {
			second, passed = now, 0
		}
		if passed++; passed > LearnedPerSecond {
			s.sharing.leftOut.Add(1)
		} else if len(l.GetHashes()) > 0 {
			if l.GetKept() || l.GetAgeSeconds() > 0 { // it is new, whatever the picker says
				l.Kept, l.AgeSeconds = false, 0
			}
			s.keep(l, prefix.Own)
			s.toOthers(m, l)
			s.tellReplicas(l)
		}
	}
	return ctx.Err()
}

// Take takes in what pickers of another replica have learned, or an endpoint lost: it goes to the pickers here, and no
// further. What that replica has kept is only kept, until TellAll.
func (s *Server) Take(l *loadsv1.Learned) {
	if len(l.GetClusters()) != 1 || len(l.GetHashes()) > MaxHashes || len(l.GetEndpoint()) > maxEndpoint {
		return
	}
	s.keep(l, prefix.Others)
	if !l.GetKept() {
		s.toOthers(nil, l)
	}
}

// TellAll has all pickers be sent what is kept.
func (s *Server) TellAll() {
	s.sharing.mu.RLock()
	defer s.sharing.mu.RUnlock()
	for m := range s.sharing.members {
		m.kept.Set()
	}
}

func (s *Server) tellReplicas(l *loadsv1.Learned) {
	if s.Learned != nil {
		s.Learned(l)
	}
}

func (s *Server) toOthers(from *member, l *loadsv1.Learned) {
	s.sharing.mu.RLock()
	defer s.sharing.mu.RUnlock()
	for m := range s.sharing.members {
		if m == from || !slices.Contains(m.clusters, l.GetClusters()[0]) {
			continue
		}
		select {
		case m.queue <- l:
		default: // it does not read, or is sent as much as it may be
			s.sharing.leftOut.Add(1)
		}
	}
}
