package main

import (
	"context"
	"time"

	"steelyard/e2e/rig/modelsim"
)

// A fault is what happens to a server.
type fault struct {
	name  string // in the JSON
	title string // in the table

	// serves is whether requests to it are answered as before: the fault is one of the metrics page.
	serves bool

	// hit makes the server fail until the context ends.
	hit func(ctx context.Context, v *victim) error
}

// once is a fault that is switched on.
func once(hit func(*modelsim.Server)) func(context.Context, *victim) error {
	return func(ctx context.Context, v *victim) error {
		hit(v.server)
		<-ctx.Done()
		return nil
	}
}

func faults() []fault {
	return []fault{
		{"hang", "hangs", false, once(func(s *modelsim.Server) { s.SetFrozen(true) })},
		{"hang_idle", "hangs, and its metrics look idle", false, once(func(s *modelsim.Server) {
			s.SetMetricsFault(modelsim.MetricsIdle)
			s.SetFrozen(true)
		})},
		{"slow", "ten times slower", false, once(func(s *modelsim.Server) { s.SetSpeed(0.1) })},
		{"fast_5xx", "answers 503 at once", false, once(func(s *modelsim.Server) {
			s.SetServingFault(modelsim.ServingUnavailable)
		})},
		{"fast_4xx", "answers 404 at once", false, once(func(s *modelsim.Server) {
			s.SetServingFault(modelsim.ServingNotFound)
		})},
		{"restarts", "restarts again and again", false, restart},
		{"dead_page", "its metrics page is gone", true, once(func(s *modelsim.Server) {
			s.SetMetricsFault(modelsim.MetricsRefuse)
		})},
		{"stuck_page", "its metrics stand still", true, once(func(s *modelsim.Server) {
			s.SetMetricsFault(modelsim.MetricsStuck)
		})},
	}
}

// The rhythm of an engine that crashes, as a kubelet restarts it at first.
const (
	upFor   = time.Second
	downFor = 5 * time.Second
)

// restart kills the server with its requests, and starts it again at its address.
func restart(ctx context.Context, v *victim) error {
	for {
		if err := v.server.Close(); err != nil {
			return err
		}
		if !pause(ctx, downFor) {
			return nil
		}
		o := v.server.Options()
		o.Address = v.server.Address()
		s, err := modelsim.Start(o)
		if err != nil {
			return err
		}
		v.server = s
		if !pause(ctx, upFor) {
			return nil
		}
	}
}

// pause waits, and returns false if the context ends first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
