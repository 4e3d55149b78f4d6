package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"steelyard/internal/customrouter"
	"steelyard/internal/customrouter/leastlatency"
	"steelyard/xds/loads/follow"
)

// apiTimeout bounds each request of the API.
const apiTimeout = 10 * time.Second

// A routing is a configuration of the filter of `steelyard router`: it holds each request until it has a backend, and
// serves the API by which the backends are set.
type routing struct {
	router *customrouter.Router
	again  bool   // requests come for the second time
	end    func() // to be called once
}

func (q *routing) stop() { q.end() }

// routers are all that run, by their sockets.
var routers = struct {
	sync.Mutex
	by map[string]*customrouter.Router
}{by: make(map[string]*customrouter.Router)}

// secondRouting returns a configuration for the requests that come to a router for the second time.
func secondRouting(socket string) (*routing, error) {
	routers.Lock()
	defer routers.Unlock()
	r := routers.by[socket]
	if r == nil {
		return nil, fmt.Errorf("filter_config: there is no router with the socket %s", socket)
	}
	return &routing{router: r, again: true, end: func() {}}, nil
}

// newRouting starts a router without backends, with its API.
func newRouting(config string, log *slog.Logger) (*routing, error) {
	var s customrouter.Settings
	d := json.NewDecoder(strings.NewReader(config))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return nil, fmt.Errorf("filter_config: want the one that steelyard router of the same version writes: %w", err)
	}
	if s.JSON {
		logsJSON.Store(true)
		log = logger()
	}
	if s.Again {
		return secondRouting(s.Socket)
	}
	listener, err := net.Listen("unix", s.Socket)
	if err != nil {
		return nil, fmt.Errorf("listening for the API: %w", err)
	}
	s.Options.Log, s.Options.Connect = log, customrouter.Connect
	s.Options.Guard = guard
	q := &routing{router: customrouter.New(s.Options)}
	api := &http.Server{Handler: q.router.Handler(), ReadHeaderTimeout: apiTimeout, ReadTimeout: apiTimeout,
		WriteTimeout: apiTimeout, IdleTimeout: apiTimeout, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	ctx, cancel := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	for _, run := range []func() error{
		func() error { return q.router.Run(ctx) },   // nil once ctx is done
		func() error { return api.Serve(listener) }, // once it is closed
	} {
		loops.Go(func() { follow.Again(ctx, guard, func(context.Context) { _ = run() }) })
	}
	routers.Lock()
	routers.by[s.Socket] = q.router
	routers.Unlock()
	q.end = func() {
		routers.Lock()
		delete(routers.by, s.Socket)
		routers.Unlock()
		cancel()
		api.Close()
		loops.Wait()
	}
	return q, nil
}

// refusedEnded is the refusal of a request that ended before it came again: its client is gone.
const refusedEnded leastlatency.Refusal = "ended"

// routerRefusals are the answers to requests that are refused.
var routerRefusals = map[leastlatency.Refusal]string{
	refusedEnded:                "the request has ended\n",
	leastlatency.RefusedEvicted: "the queue is full, and this request had waited for longest\n",
	leastlatency.RefusedTimeout: "no backend was free within the time that a request may wait\n",
	leastlatency.RefusedStopped: "the router stops, and no backend was free until then\n",
}

// A visit is a request at a router: it waits for its verdict, is at a backend, or was refused. The worker of the
// request arrives, looks at the result and ends; any goroutine settles.
type visit struct {
	router *customrouter.Router
	// wake has the worker look at the result, and free frees what that needs. Neither is called after free.
	wake, free func()

	first   uint64 // number of a request that comes for the second time
	number  uint64
	outcome leastlatency.Outcome // of one that is complete, at a time
	over    time.Time

	mu      sync.Mutex
	verdict *customrouter.Verdict
	waits   bool // for wake
	gone    bool
}

// arrive returns the verdict if there is one at once; otherwise wake announces it.
func (v *visit) arrive() (customrouter.Verdict, bool) {
	v.outcome = leastlatency.Abandoned
	if v.number = v.first; v.first == 0 {
		v.number = v.router.Arrive(time.Now(), v.settle)
	} else if !v.router.Again(time.Now(), v.first, v.settle) {
		v.settle(customrouter.Verdict{Refused: refusedEnded})
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.waits = v.verdict == nil; v.waits {
		return customrouter.Verdict{}, false
	}
	return *v.verdict, true
}

func (v *visit) settle(verdict customrouter.Verdict) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.verdict = &verdict; v.waits && !v.gone {
		v.wake()
	}
}

// result is the verdict of a request that was woken.
func (v *visit) result() customrouter.Verdict {
	v.mu.Lock()
	defer v.mu.Unlock()
	return *v.verdict
}

// complete takes in how the request ended.
func (v *visit) complete(now time.Time, status int, details string) {
	v.over, v.outcome = now, customrouter.OutcomeOf(status, details)
}

// end takes in that it did.
func (v *visit) end() {
	v.mu.Lock()
	v.gone = true
	v.free()
	v.mu.Unlock()
	if v.over.IsZero() {
		v.over = time.Now()
	}
	v.router.End(v.over, v.number, v.outcome)
}
