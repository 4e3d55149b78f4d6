package modelsim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"steelyard/sim/engine"
)

// Engine is the kind of server to simulate.
type Engine string

// The engines there are.
const (
	VLLM   Engine = "vllm"
	Triton Engine = "triton"
)

// Headers of requests and answers.
const (
	HeaderService   = "X-Service-Seconds"    // request: work at speed 1; answer: time it executed
	HeaderQueueWait = "X-Queue-Wait-Seconds" // answer: time in the queue
	HeaderServer    = "X-Server"             // answer: the server's address

	HeaderPromptTokens = "X-Prompt-Tokens" // request to an engine: tokens of its prompt, whatever its bytes
)

// The service time of a request, at speed 1: its bound, and its mean where the request does not name it.
const (
	maxWork  = time.Hour
	meanWork = 250 * time.Millisecond
)

// Options describe the server to simulate. The zero value is a vLLM server with one slot.
type Options struct {
	Engine Engine // default VLLM

	// Address to listen on; default 127.0.0.1:0. A server that is closed and
	// started again on the same address is a restarted one.
	Address string
	// MetricsAddress is a second address for /metrics, as Triton has by
	// default; empty serves it on Address.
	MetricsAddress string

	Slots int     // requests executed at once; default 1
	Speed float64 // default 1; 0.5 takes twice as long

	Seed uint64 // of the work of requests without X-Service-Seconds, and of the draws of Cached

	// Batching makes the server an engine that batches continuously and answers
	// completions as vLLM does; there are no slots then. Nil: a server with slots.
	Batching       *engine.Params
	BytesPerToken  float64 // of the text of prompts; default 4.2
	Cached         float64 // mean share of a prompt in the prefix cache, 0..1
	StreamInterval int     // tokens in a piece of a stream, after the first one; default 1

	ORCA       ORCA          // load reports in the answers; default none
	ORCAWindow time.Duration // time constant of their averages; default 10 s

	RealSize bool     // serve the whole recorded page, not only the families that are live
	Observer Observer // called for every request; default none
}

// An Observer is called when a request starts and ends at the server with the
// given address, from the goroutine of the request, which it must not block.
// Every begin has one end, also when the client went away.
type Observer interface {
	Begin(address string)
	End(address string)
}

// A Server is a running simulated model server.
type Server struct {
	options        Options
	address        string
	metricsAddress string
	contentType    string
	page           page
	station        *station // nil with an engine
	batcher        *batcher // nil with slots
	backend        backend  // whichever of the two it is

	drawing sync.Mutex
	draws   *rand.Rand

	metricsFault atomic.Int32
	stuckPage    atomic.Pointer[[]byte]
	servingFault atomic.Int32

	servers  []*http.Server
	closed   chan struct{}
	closing  sync.Once
	serving  sync.WaitGroup // the accept loops
	admitted gate           // the handlers
}

// A backend executes requests.
type backend interface {
	state() state
	inFlight() int
	freeze()
	thaw()
	stop()
}

// Start listens and serves. The caller must Close.
func Start(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{
		options: o,
		draws:   rand.New(rand.NewPCG(o.Seed, 0)),
		closed:  make(chan struct{}),
	}
	format := formatOf(o.Engine)
	if o.Batching != nil {
		format = batchingFormat(*o.Batching)
		s.batcher = newBatcher(o)
		s.backend = s.batcher
	} else {
		s.station = newStation(o.Slots, o.Speed, newTotals(o.Engine))
		s.backend = s.station
		if o.ORCA != ORCANone {
			s.station.usage.window = o.ORCAWindow
		}
	}
	s.contentType, s.page = format.contentType, newPage(format, o.RealSize)
	if err := s.listen(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (o Options) withDefaults() (Options, error) {
	if o.Engine == "" {
		o.Engine = VLLM
	}
	if o.Address == "" {
		o.Address = "127.0.0.1:0"
	}
	if o.Slots == 0 {
		o.Slots = 1
	}
	if o.Speed == 0 {
		o.Speed = 1
	}
	if o.ORCAWindow == 0 {
		o.ORCAWindow = 10 * time.Second
	}
	if o.BytesPerToken == 0 {
		o.BytesPerToken = 4.2
	}
	if o.StreamInterval == 0 {
		o.StreamInterval = 1
	}
	return o, o.check()
}

func (o *Options) check() error {
	switch {
	case o.Engine != VLLM && o.Engine != Triton:
		return fmt.Errorf("simulating a model server: engine %q is none of %q, %q", o.Engine, VLLM, Triton)
	case o.ORCA != ORCANone && o.ORCA != ORCASlots && o.ORCA != ORCAQueue:
		return fmt.Errorf("simulating a model server: ORCA reports of %q, want %q, %q or none", o.ORCA, ORCASlots,
			ORCAQueue)
	case o.Slots < 0:
		return fmt.Errorf("simulating a model server: %d slots, want at least 1", o.Slots)
	case !(o.Speed > 0) || math.IsInf(o.Speed, 0):
		return fmt.Errorf("simulating a model server: speed %v, want a finite number above 0", o.Speed)
	case o.Batching != nil:
		return o.checkBatching()
	}
	return nil
}

func (o *Options) checkBatching() error {
	switch {
	case o.Engine != VLLM || o.ORCA != ORCANone:
		return fmt.Errorf("simulating a model server: an engine that batches is %s without ORCA reports, want no "+
			"engine %s and no ORCA %q", VLLM, o.Engine, o.ORCA)
	case !(o.BytesPerToken > 0) || !(o.Cached >= 0 && o.Cached <= 1) || o.StreamInterval < 0:
		return fmt.Errorf("simulating a model server: %v bytes per token, %v cached, stream interval %d: want a "+
			"positive one, 0 to 1, 1 or more",
			o.BytesPerToken, o.Cached, o.StreamInterval)
	}
	if err := o.Batching.Check(); err != nil {
		return fmt.Errorf("simulating a model server: %w", err)
	}
	return nil
}

// newTotals returns the sums of a server that has just booted, with the buckets of
// its engine.
func newTotals(e Engine) totals {
	if e == Triton {
		return totals{}
	}
	return totals{
		queueTime: newHistogram(bounds(vllmRecording, "vllm:request_queue_time_seconds")),
		busyTime:  newHistogram(bounds(vllmRecording, "vllm:request_inference_time_seconds")),
		totalTime: newHistogram(bounds(vllmRecording, "vllm:e2e_request_latency_seconds")),
	}
}

func (s *Server) listen() error {
	mux := http.NewServeMux()
	if s.batcher != nil {
		mux.HandleFunc("POST /v1/completions", s.serveCompletion)
		mux.HandleFunc("POST /v1/chat/completions", s.serveCompletion)
	} else {
		mux.HandleFunc("/", s.serveInference)
	}
	mux.HandleFunc("/health", s.serveHealth)
	mux.HandleFunc("/v2/health/ready", s.serveHealth)
	metrics := mux
	if s.options.MetricsAddress != "" {
		mux.HandleFunc("/metrics", http.NotFound)
		metrics = http.NewServeMux()
	}
	metrics.HandleFunc("/metrics", s.serveMetrics)

	var err error
	if s.address, err = s.serve(s.options.Address, mux); err != nil {
		return err
	}
	s.metricsAddress = s.address
	if metrics != mux {
		s.metricsAddress, err = s.serve(s.options.MetricsAddress, metrics)
	}
	return err
}

// serve starts one HTTP server and returns the address that it listens on.
func (s *Server) serve(address string, h http.Handler) (string, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "", fmt.Errorf("simulating a model server: %w", err)
	}
	server := &http.Server{
		Handler: s.admitted.through(h),
		// its messages are about faults that were requested
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	s.servers = append(s.servers, server)
	s.serving.Go(func() { _ = server.Serve(l) })
	return l.Addr().String(), nil
}

// Close drops all connections and returns when no goroutine of the server is
// left. Requests in flight get no answer, as when the process is killed.
func (s *Server) Close() error {
	var errs []error
	s.closing.Do(func() {
		close(s.closed)
		s.backend.stop()
		for _, server := range s.servers {
			errs = append(errs, server.Close())
		}
	})
	s.serving.Wait()
	s.admitted.closeAndWait()
	return errors.Join(errs...)
}

// Shutdown ends the server in order: it takes no new connections, finishes the requests
// that it has, and is then closed. When ctx is done first, the requests that are left get
// no answer, and the error says so.
func (s *Server) Shutdown(ctx context.Context) error {
	var errs []error
	for _, server := range s.servers {
		errs = append(errs, server.Shutdown(ctx))
	}
	return errors.Join(append(errs, s.Close())...)
}

// Address returns where the server takes requests, as IP:PORT.
func (s *Server) Address() string { return s.address }

// MetricsAddress returns where the server answers /metrics, as IP:PORT.
func (s *Server) MetricsAddress() string { return s.metricsAddress }

// Options returns the options of Start with the defaults filled in.
func (s *Server) Options() Options { return s.options }

// InFlight returns the number of requests waiting and executing.
func (s *Server) InFlight() int { return s.backend.inFlight() }

// Queue returns the number of requests waiting; of an engine, as its gauge has it.
func (s *Server) Queue() int { return s.backend.state().waiting }

// Running returns the number of requests executing; of an engine, as its gauge has it.
func (s *Server) Running() int { return s.backend.state().running }

// Work returns the work that an engine has before it, in seconds (engine.Engine.Work); unknown, NaN, for a server with
// slots.
func (s *Server) Work(meanOutput float64) float64 {
	if s.batcher == nil {
		return math.NaN()
	}
	return s.batcher.work(meanOutput)
}

// Served returns the number of requests executed since the start, failures included.
func (s *Server) Served() uint64 {
	st := s.backend.state()
	return st.served + st.failed
}

// Tokens returns the sums of an engine; zero without one.
func (s *Server) Tokens() engine.Counters {
	if s.batcher == nil {
		return engine.Counters{}
	}
	return s.batcher.counters()
}

func (s *Server) serveInference(w http.ResponseWriter, r *http.Request) {
	if o := s.options.Observer; o != nil {
		o.Begin(s.address)
		defer o.End(s.address)
	}
	// Only a request that was read to its end is watched for a disconnect.
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	fault := ServingFault(s.servingFault.Load())
	if status := fault.status(); status != 0 {
		http.Error(w, http.StatusText(status), status)
		return
	}
	work, err := s.workOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	j := s.station.arrive(work, fault == ServingFailing)
	if s.await(r, j) {
		s.answer(w, j)
		return
	}
	s.station.leave(j)
	panic(http.ErrAbortHandler) // no response: the client has gone
}

// workOf returns the service time in the request, or a random one.
func (s *Server) workOf(r *http.Request) (time.Duration, error) {
	text := r.Header.Get(HeaderService)
	if text == "" {
		s.drawing.Lock()
		defer s.drawing.Unlock()
		draw := -math.Log(1 - s.draws.Float64())
		return min(time.Duration(draw*float64(meanWork)), maxWork), nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(seconds >= 0 && seconds <= maxWork.Seconds()) {
		return 0, fmt.Errorf("%s: %q is not a number of seconds from 0 to %v", HeaderService, text, maxWork.Seconds())
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// await reports whether the request was executed. A vLLM server gives up with
// the client; Triton goes on.
func (s *Server) await(r *http.Request, j *job) bool {
	gone := r.Context().Done()
	if s.options.Engine == Triton {
		gone = nil
	}
	select {
	case <-j.done:
		return true
	case <-gone:
		return false
	case <-s.closed:
		return false
	}
}

func (s *Server) answer(w http.ResponseWriter, j *job) {
	h := w.Header()
	h.Set(HeaderQueueWait, seconds(j.started.Sub(j.arrived)))
	h.Set(HeaderService, seconds(j.due.Sub(j.started)))
	h.Set(HeaderServer, s.address)
	if o := s.options.ORCA; o != ORCANone {
		h.Set(headerORCA, s.station.report(o))
	}
	h.Set("Content-Type", "application/json")
	if j.fails {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"error":"simulated failure"}`)
		return
	}
	_, _ = io.WriteString(w, `{"choices":[{"text":"","finish_reason":"length"}]}`)
}

func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	if ServingFault(s.servingFault.Load()) == ServingUnavailable {
		http.Error(w, "unavailable", http.StatusServiceUnavailable)
	}
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 6, 64) }

// A gate counts the handlers inside it, so that closing can wait for them:
// http.Server.Close does not.
type gate struct {
	mu     sync.Mutex
	closed bool
	inside sync.WaitGroup
}

func (g *gate) through(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.enter() {
			panic(http.ErrAbortHandler)
		}
		defer g.inside.Done()
		h.ServeHTTP(w, r)
	})
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.inside.Add(1)
	}
	return !g.closed
}

func (g *gate) closeAndWait() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.inside.Wait()
}
