package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Headers of requests and answers, as the simulated model servers read and
// write them.
const (
	headerWork   = "X-Service-Seconds" // of an answer: as executed
	headerWait   = "X-Queue-Wait-Seconds"
	headerServer = "X-Server"
	headerID     = "X-Request-Id"
)

// headerDropped is Envoy's, on the 503 of a request that it refused because the
// control plane configured it to (drop_overloads).
const headerDropped = "X-Envoy-Drop-Overload"

// shortCompletion is the body of a request without a Completion. An endpoint picker of a gateway refuses one without a
// model and a prompt.
const shortCompletion = `{"model":"m","prompt":"hi"}`

// maxAnswer bounds how much of an answer is read, in bytes.
const maxAnswer = 16 << 20

var errGivenUp = errors.New("given up: no answer by the end of the drain")

// Run generates the load and returns when every request has its answer or was
// given up. When ctx is done it sends nothing more, gives up what is out, and
// returns what there is with the cause of ctx.
func Run(ctx context.Context, p Plan) (Result, error) {
	p, err := p.withDefaults()
	if err != nil {
		return Result{}, err
	}
	r := newRunner(ctx, p)
	defer r.close()
	r.sendAll()
	unfinished := r.drain()
	result := newResult(r.samples(), time.Since(r.start))
	result.Start, result.Unfinished = r.start, unfinished
	return result, context.Cause(ctx)
}

// A runner is one run: the goroutine of Run sends, and each request has a
// goroutine of its own.
type runner struct {
	plan   Plan
	ctx    context.Context // of the run
	out    context.Context // of the requests
	giveUp context.CancelCauseFunc
	http   *http.Transport
	start  time.Time

	requests sync.WaitGroup
	mu       sync.Mutex
	all      []Sample // by order of arrival; written when the request ends
	open     int
}

func newRunner(ctx context.Context, p Plan) *runner {
	out, giveUp := context.WithCancelCause(ctx)
	return &runner{
		plan: p, ctx: ctx, out: out, giveUp: giveUp, start: time.Now(),
		// A connection for every request in flight, and none is closed between
		// bursts: a cap or a dial would be a queue of the generator's own.
		http: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			MaxIdleConnsPerHost: 1 << 16,
			DisableCompression:  true,
		},
	}
}

func (r *runner) close() {
	r.giveUp(nil)
	r.http.CloseIdleConnections()
}

// sendAll starts every request when it is due.
func (r *runner) sendAll() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for a := range r.plan.sequence() {
		timer.Reset(time.Until(r.start.Add(a.At)))
		select {
		case <-r.ctx.Done():
			return
		case <-timer.C:
		}
		r.mu.Lock()
		index := len(r.all)
		r.all = append(r.all, Sample{})
		r.open++
		r.mu.Unlock()
		r.plan.Meter.begin()
		r.requests.Go(func() { r.record(index, r.request(index, a)) })
	}
}

// drain waits for the requests that are out, gives up those that take too
// long, and returns how many that were.
func (r *runner) drain() int {
	unfinished := 0
	timer := time.AfterFunc(r.plan.Drain, func() {
		r.mu.Lock()
		unfinished = r.open
		r.mu.Unlock()
		r.giveUp(errGivenUp)
	})
	r.requests.Wait()
	timer.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	return unfinished
}

func (r *runner) record(index int, s Sample) {
	r.plan.Meter.end(s)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[index] = s
	r.open--
}

func (r *runner) samples() []Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

// request sends one request, which has this place among the samples, and reads its
// answer.
func (r *runner) request(index int, a Arrival) Sample {
	if p := r.plan.Picker; p != nil {
		a.Target = p.Pick()
		defer p.Done(a.Target)
	}
	s := Sample{Arrival: a, Wait: math.NaN(), Service: math.NaN()}
	due := r.start.Add(a.At)
	req, err := r.newRequest(index, a)
	if err != nil {
		s.Err = err
		return s
	}
	s.Lateness = max(0, time.Since(due))
	resp, err := r.http.RoundTrip(req)
	if err == nil {
		answer := firstRead{Reader: io.LimitReader(resp.Body, maxAnswer)}
		_, err = io.Copy(io.Discard, &answer)
		err = errors.Join(err, resp.Body.Close())
		s.FirstByte = answer.at.Sub(due)
	}
	s.Latency = time.Since(due)
	if err != nil {
		s.Err = r.explain(err)
		return s
	}
	s.Status = resp.StatusCode
	s.Server = resp.Header.Get(headerServer)
	s.Wait = number(resp.Header.Get(headerWait))
	s.Service = number(resp.Header.Get(headerWork))
	s.Dropped = resp.Header.Get(headerDropped) != ""
	return s
}

func (r *runner) newRequest(index int, a Arrival) (*http.Request, error) {
	target := r.plan.Targets[a.Target]
	// POST, as inference is: the transport would silently repeat a GET when a
	// connection breaks, and the servers would see more load than was planned.
	var body io.Reader = strings.NewReader(shortCompletion)
	if a.Completion != nil {
		body = a.Completion.reader()
	}
	req, err := http.NewRequestWithContext(r.out, http.MethodPost, target, body)
	if err != nil {
		return nil, fmt.Errorf("making a request to %s: %w", target, err)
	}
	req.Host = r.plan.Host
	maps.Copy(req.Header, r.plan.Header)
	req.Header.Set("Content-Type", "application/json")
	if r.plan.RequestIDs != "" {
		req.Header.Set(headerID, RequestID(r.plan.RequestIDs, index))
	}
	if a.Completion != nil {
		a.Completion.setHeaders(req.Header)
	}
	if r.plan.Work.Mean > 0 {
		req.Header.Set(headerWork, strconv.FormatFloat(a.Work.Seconds(), 'f', -1, 64))
	}
	return req, nil
}

// RequestID returns the X-Request-Id of the request at this place among the samples of a
// plan with this prefix.
func RequestID(prefix string, index int) string { return prefix + "-" + strconv.Itoa(index) }

// explain replaces the error of a request that was given up by the reason.
func (r *runner) explain(err error) error {
	if cause := context.Cause(r.out); cause != nil {
		return cause
	}
	return err
}

// number returns a finite, not negative number, or NaN.
func number(text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || v < 0 || math.IsInf(v, 0) {
		return math.NaN()
	}
	return v
}
