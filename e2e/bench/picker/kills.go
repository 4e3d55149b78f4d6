package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"steelyard/e2e/bench/placement/fleet"
	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/proc"
)

// A Killing says how to measure what the death of each part costs.
type Killing struct {
	Size fleet.Size
	Away time.Duration // for which a part is dead, or hangs
	Rest time.Duration // until the next one
}

// defaultKilling is as it is published.
func defaultKilling() Killing {
	return Killing{Away: 5 * time.Second, Rest: 5 * time.Second,
		Size: fleet.Size{Envoys: 3, Servers: 5, Slots: 4, Load: 0.6, Service: 100 * time.Millisecond}}
}

// A killed is what became of the requests of a row whose parts were killed.
type killed struct {
	Policy   string `json:"policy"`
	Requests int    `json:"requests"`
	// OnServer and OnEnvoy failed because the server or the Envoy that had them was killed. Failed are all others that
	// did.
	OnServer int `json:"failed_on_killed_server"`
	OnEnvoy  int `json:"failed_on_killed_envoy"`
	Failed   int `json:"failed"`
	Crashes  int `json:"envoys_that_crashed"`
	Left     int `json:"left"` // requests that a server, or the queue, still counts when all have ended
}

// killRows are the rows whose parts are killed.
func killRows() []fleet.Policy {
	return []fleet.Policy{
		{Name: "module", Title: "module", Control: &fleet.Control{Default: true, Module: true, Prefix: true}},
		{Name: "module_queue", Title: "module with queue",
			Control: &fleet.Control{Default: true, Module: true, Queue: true}},
		{Name: "picker", Title: "ext_proc", Control: &fleet.Control{Default: true, Picker: true}},
	}
}

// A death is a time when requests may fail: those that were there.
type death struct {
	at    time.Time
	envoy int // the one that was killed, or -1: a server
}

// living chooses among the Envoys that live, as whatever is in front of them does.
type living struct{ envoys atomic.Int64 }

func (l *living) Pick() int { return rand.IntN(int(l.envoys.Load())) }
func (*living) Done(int)    {}

// run kills the parts of a row under load, one after the other.
func (k Killing) run(ctx context.Context, at fleet.Place, p fleet.Policy, seed uint64) (out killed, err error) {
	f, err := fleet.Start(ctx, at, p, k.Size)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if p.Queued() {
		if err := joined(ctx, f); err != nil {
			return out, err
		}
	}
	to := &living{}
	to.envoys.Store(int64(k.Size.Envoys))
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	steps := k.steps(f, to)
	lasts := time.Duration(len(steps)+1) * (k.Rest + k.Away)
	plan := f.Plan(load.Plan{Rate: k.Size.Rate(), Duration: lasts, Work: load.Work{Mean: k.Size.Service}, Seed: seed})
	plan.Picker = to
	type outcome struct {
		result load.Result
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		r, err := load.Run(ctx, plan)
		done <- outcome{r, err}
	}()
	var deaths []death
	for _, step := range steps {
		if err := sleep(ctx, k.Rest); err != nil {
			break
		}
		d, err := step(ctx)
		if err != nil {
			stop(err)
			break
		}
		deaths = append(deaths, d...)
	}
	o := <-done
	if o.err != nil {
		return out, o.err
	}
	out = judgeDeaths(o.result, deaths)
	out.Policy = p.Name
	for i, e := range f.Envoys() {
		if i < int(to.envoys.Load()) && !e.Running() {
			out.Crashes++
		}
	}
	out.Left = left(ctx, f)
	return out, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// A step kills a part, and returns when it lives again, or will not. It returns the deaths that requests may suffer by.
type step func(ctx context.Context) ([]death, error)

// steps returns what is done to a row.
func (k Killing) steps(f *fleet.Fleet, to *living) []step {
	all := []step{
		k.hangs(func() *proc.Process { return f.Steelyard(0) }),
		k.dies(func() *proc.Process { return f.Steelyard(0) }, func(ctx context.Context) error {
			return f.RestartSteelyard(ctx, 0)
		}),
	}
	if f.Policy.Control.Picker {
		all = append(all, k.hangs(func() *proc.Process { return f.Picker(0) }),
			k.dies(func() *proc.Process { return f.Picker(0) }, func(ctx context.Context) error {
				return f.RestartPicker(ctx, 0)
			}))
	}
	last := len(f.Envoys()) - 1
	envoyHangs := k.hangs(func() *proc.Process { return f.Envoys()[last].Process })
	all = append(all, func(ctx context.Context) ([]death, error) {
		to.envoys.Store(int64(last))
		defer to.envoys.Store(int64(last + 1))
		return envoyHangs(ctx)
	}, k.serverHangs(f))
	server := func(context.Context) ([]death, error) {
		d := death{time.Now(), -1}
		return []death{d}, f.Servers()[0].Close()
	}
	envoy := func(context.Context) ([]death, error) {
		to.envoys.Store(int64(last))
		d := death{time.Now(), last}
		return []death{d}, f.Envoys()[last].Kill()
	}
	return append(all, server, envoy)
}

func (k Killing) hangs(p func() *proc.Process) step {
	return func(ctx context.Context) ([]death, error) {
		if err := p().Pause(); err != nil {
			return nil, err
		}
		return nil, errors.Join(sleep(ctx, k.Away), p().Resume())
	}
}

// serverHangs has a server answer nothing for a while. Its requests wait.
func (k Killing) serverHangs(f *fleet.Fleet) step {
	return func(ctx context.Context) ([]death, error) {
		s := f.Servers()[0]
		s.SetFrozen(true)
		defer s.SetFrozen(false)
		return nil, sleep(ctx, k.Away)
	}
}

func (k Killing) dies(p func() *proc.Process, again func(context.Context) error) step {
	return func(ctx context.Context) ([]death, error) {
		if err := p().Kill(); err != nil {
			return nil, err
		}
		return nil, errors.Join(sleep(ctx, k.Away), again(ctx))
	}
}

// settling is how much longer than its death a killed part's requests may take to fail, and how much later one may
// have been sent that was on its way.
const settling = 50 * time.Millisecond

// judgeDeaths counts the failures of a run, with those that a death explains: of requests that were sent before it, to
// the Envoy or any server, and ended after it.
func judgeDeaths(r load.Result, deaths []death) killed {
	out := killed{Requests: r.Requests}
	for _, s := range r.Samples {
		if !s.Failed() {
			continue
		}
		sent, ended := r.Start.Add(s.At+s.Lateness), r.Start.Add(s.At+s.Latency)
		switch d, found := explains(deaths, s.Target, sent, ended); {
		case !found:
			out.Failed++
		case d.envoy < 0:
			out.OnServer++
		default:
			out.OnEnvoy++
		}
	}
	return out
}

// explains finds the death that a request may have failed by, which was sent to this Envoy.
func explains(deaths []death, envoy int, sent, ended time.Time) (death, bool) {
	for _, d := range deaths {
		if sent.Before(d.at.Add(settling)) && ended.After(d.at) && (d.envoy < 0 || d.envoy == envoy) {
			return d, true
		}
	}
	return death{}, false
}

// left returns how many requests are counted somewhere although all have ended. Counts have time to come to zero.
func left(ctx context.Context, f *fleet.Fleet) (n int) {
	_ = eventually(ctx, func() error {
		n = 0
		for _, s := range f.Servers() {
			n += s.InFlight()
		}
		if f.Policy.Queued() {
			q, err := f.QueueState(ctx)
			if err != nil {
				n = 1
				return err
			}
			n += int(q.InFlight.Or(1)) // not known is not none
			for _, c := range q.Classes {
				n += c.Waiting
			}
		}
		if n > 0 {
			return fmt.Errorf("%d requests are counted after all have ended", n)
		}
		return nil
	})
	return n
}
