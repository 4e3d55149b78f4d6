package loads

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"steelyard/internal/api"
	"steelyard/xds/loads/loadsv1"
)

// A sharer is the stream of one picker that shares what it learns; one that is blocked does not read.
type sharer struct {
	grpc.ServerStream
	ctx     context.Context
	in      chan *loadsv1.Learned
	heard   []uint64 // the first hash of each prompt; 0 of what was lost
	all     []*loadsv1.Learned
	blocked chan struct{}
}

func (s *sharer) Context() context.Context { return s.ctx }

func (s *sharer) Recv() (*loadsv1.Learned, error) {
	select {
	case l, ok := <-s.in:
		if !ok {
			return nil, io.EOF
		}
		return l, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

func (s *sharer) Send(l *loadsv1.Learned) error {
	if s.blocked != nil {
		<-s.blocked
	}
	first := uint64(0)
	if len(l.GetHashes()) > 0 {
		first = l.GetHashes()[0]
	}
	s.heard, s.all = append(s.heard, first), append(s.all, l)
	return nil
}

// shares opens the stream of a picker in a bubble; leave ends it, and returns its status.
func shares(s *Server, clusters ...string) (w *sharer, leave func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	w = &sharer{ctx: ctx, in: make(chan *loadsv1.Learned)}
	done := make(chan error, 1)
	go func() { done <- s.Share(w) }()
	w.in <- &loadsv1.Learned{Clusters: clusters}
	synctest.Wait()
	return w, func() error {
		synctest.Wait()
		cancel()
		return <-done
	}
}

func about(cluster string, hash uint64) *loadsv1.Learned {
	return &loadsv1.Learned{Clusters: []string{cluster}, Endpoint: "10.0.0.1:80", Hashes: []uint64{hash}}
}

func TestWhatOnePickerLearnsTheOthersOfTheClusterHear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(slog.New(slog.DiscardHandler))
		a, leaveA := shares(s, "llama", "embed")
		b, leaveB := shares(s, "llama")
		c, leaveC := shares(s, "embed")
		a.in <- about("llama", 1)
		a.in <- about("embed", 2)
		b.in <- about("llama", 3)
		for _, leave := range []func() error{leaveA, leaveB, leaveC} {
			if err := leave(); !errors.Is(err, context.Canceled) {
				t.Errorf("a stream ended with %v", err)
			}
		}
		for name, heard := range map[string][2][]uint64{"a": {a.heard, {3}}, "b": {b.heard, {1}}, "c": {c.heard, {2}}} {
			if !slices.Equal(heard[0], heard[1]) {
				t.Errorf("%s has heard %v, want %v", name, heard[0], heard[1])
			}
		}
		if len(s.sharing.members) != 0 {
			t.Errorf("%d members after all have left", len(s.sharing.members))
		}
	})
}

// TestAPickerThatDoesNotReadHoldsNobodyUp, and costs a bounded queue.
func TestAPickerThatDoesNotReadHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(slog.New(slog.DiscardHandler))
		speaker, leaveSpeaker := shares(s, "llama")
		slow, leaveSlow := shares(s, "llama")
		slow.blocked = make(chan struct{})
		reader, leaveReader := shares(s, "llama")
		const prompts = LearnedPerSecond + 100
		for i := range uint64(prompts) {
			speaker.in <- about("llama", i)
			synctest.Wait()
		}
		if got := len(reader.heard); got != LearnedPerSecond {
			t.Errorf("one that reads has heard %d of %d prompts of a second, want %d", got, prompts, LearnedPerSecond)
		}
		waiting := uint64(waitingPrompts + 1) // one of them in Send
		left := uint64(prompts-LearnedPerSecond) + LearnedPerSecond - waiting
		if got := s.SharedPrompts(); got != (api.SharedPrompts{Sent: LearnedPerSecond, LeftOut: left}) {
			t.Errorf("%+v are counted, want %d left out", got, left)
		}
		close(slow.blocked)
		_, _, _ = leaveSpeaker(), leaveReader(), leaveSlow()
		if got := len(slow.heard); got > waitingPrompts+1 || got == 0 {
			t.Errorf("one that did not read has heard %d prompts, want at most %d", got, waitingPrompts+1)
		}
	})
}

// TestManyBusyPickersDoNotFloodOne: what it is sent is bounded, however many share, and loads do not wait for it.
func TestManyBusyPickersDoNotFloodOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(slog.New(slog.DiscardHandler))
		reader, leaveReader := shares(s, "llama")
		var ends []func() error
		var busy []*sharer
		for range 20 {
			w, leave := shares(s, "llama")
			busy, ends = append(busy, w), append(ends, leave)
		}
		long := about("llama", 1)
		long.Hashes = make([]uint64, MaxHashes)
		size := proto.Size(long)
		const seconds = 3
		for range seconds * 500 { // of each: 10 MB a second of all
			for _, w := range busy {
				w.in <- long
			}
			time.Sleep(2 * time.Millisecond)
		}
		synctest.Wait()
		rate := float64(len(reader.heard)*size) / seconds
		if most := 1.1 * LearnedBytesPerSecond; rate > most || rate < 0.8*LearnedBytesPerSecond {
			t.Errorf("it was sent %.0f bytes a second of %d, want about %d", rate, 20*500*size, LearnedBytesPerSecond)
		}
		for _, leave := range append(ends, leaveReader) {
			_ = leave()
		}
	})
}

func TestLoadsDoNotWaitForWhatIsShared(t *testing.T) {
	s := New(slog.New(slog.DiscardHandler))
	s.sharing.mu.Lock() // as if very many shared
	defer s.sharing.mu.Unlock()
	s.Publish("llama", decision(1))
}

func TestWhatMayNotBeSharedEndsTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(slog.New(slog.DiscardHandler))
		other, leaveOther := shares(s, "llama", "embed")
		long := about("llama", 1)
		long.Hashes = make([]uint64, MaxHashes+1)
		named := about("llama", 1)
		named.Endpoint = string(make([]byte, maxEndpoint+1))
		for name, l := range map[string]*loadsv1.Learned{"another cluster": about("embed", 1), "many hashes": long,
			"a long address": named, "no cluster": {Hashes: []uint64{1}}} {
			w, leave := shares(s, "llama")
			w.in <- l
			if err := leave(); status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s: %v", name, err)
			}
		}
		_, leave := shares(s)
		if err := leave(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("no clusters: %v", err)
		}
		s.Close()
		if err := leaveOther(); status.Code(err) != codes.Unavailable {
			t.Errorf("when Steelyard stops: %v", err)
		}
		if len(other.heard) != 0 {
			t.Errorf("others have heard %v", other.heard)
		}
		_, leave = shares(s, "llama")
		if err := leave(); status.Code(err) != codes.Unavailable {
			t.Errorf("after Close: %v", err)
		}
	})
}
