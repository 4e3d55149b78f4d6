package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"steelyard/e2e/bench/placement/fleet"
	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
)

// options are the flags.
type options struct {
	policies []string
	faults   []string
	runs     int

	envoys, servers, slots int
	service                time.Duration
	load                   float64
	warmUp, length         time.Duration
	drain                  time.Duration // for which an answer may come after the last request was sent
	seed                   uint64

	place fleet.Place
	log   io.Writer
}

func defaults() options {
	o := options{
		policies: []string{"least_request", "inference_extension", "steelyard_scrape_250ms", "steelyard_access_log"},
		runs:     3, envoys: 4, servers: 8, slots: 4, service: 250 * time.Millisecond, load: 0.5,
		warmUp: 15 * time.Second, length: time.Minute, drain: 10 * time.Second, seed: 1,
	}
	for _, f := range faults() {
		o.faults = append(o.faults, f.name)
	}
	return o
}

func (o options) size(observer modelsim.Observer) fleet.Size {
	return fleet.Size{Envoys: o.envoys, Servers: o.servers, Slots: o.slots, Load: o.load, Service: o.service,
		Observer: observer}
}

func (o options) validate() error {
	if min(o.runs, o.envoys, o.slots) < 1 || o.servers < 2 {
		return fmt.Errorf("%d runs, %d Envoys, %d servers of %d slots: want at least 1, and two servers", o.runs,
			o.envoys, o.servers, o.slots)
	}
	if !(o.load > 0) || o.service <= 0 || o.warmUp <= 0 || o.length < 2*settled {
		return fmt.Errorf("load %v, service %v, warm-up %v, length %v: want more than 0, and a length of at least %v",
			o.load, o.service, o.warmUp, o.length, 2*settled)
	}
	for _, name := range o.faults {
		if _, err := faultOf(name); err != nil {
			return err
		}
	}
	return nil
}

func faultOf(name string) (fault, error) {
	all := faults()
	i := slices.IndexFunc(all, func(f fault) bool { return f.name == name })
	if i < 0 {
		names := make([]string, len(all))
		for i, f := range all {
			names[i] = f.name
		}
		return fault{}, fmt.Errorf("there is no fault %q: want some of %v", name, names)
	}
	return all[i], nil
}

// run measures all faults, each as often as asked for.
func (o options) run(ctx context.Context) (document, error) {
	d := document{Started: time.Now().UTC().Truncate(time.Second), Envoys: o.envoys, Servers: o.servers,
		Slots: o.slots, Service: o.service.Seconds(), Load: o.load, Length: o.length.Seconds()}
	if err := o.validate(); err != nil {
		return d, err
	}
	var rows []fleet.Policy
	for _, name := range o.policies {
		p, err := fleet.Named(name)
		if err != nil {
			return d, err
		}
		rows = append(rows, p)
	}
	for _, name := range o.faults {
		f, err := faultOf(name)
		if err != nil {
			return d, err
		}
		for run := range o.runs {
			fmt.Fprintf(o.log, "%s %s, run %d of %d\n", time.Now().Format(time.TimeOnly), f.name, run+1, o.runs)
			cells, err := o.side(ctx, f, rows, o.seed+uint64(run))
			if err != nil {
				return d, fmt.Errorf("%s: %w", f.name, err)
			}
			d.add(f, rows, cells)
		}
	}
	return d, nil
}

// side measures a fault in all rows, at the same time.
func (o options) side(ctx context.Context, f fault, rows []fleet.Policy, seed uint64) (_ []cell, err error) {
	seen := make([]*arrivals, len(rows))
	var fleets []*fleet.Fleet
	defer func() { err = errors.Join(err, fleet.CloseAll(fleets)) }()
	for i, p := range rows {
		seen[i] = &arrivals{at: make(map[string][]time.Time)}
		row, err := fleet.Start(ctx, o.place, p, o.size(seen[i]))
		if err != nil {
			return nil, err
		}
		fleets = append(fleets, row)
	}
	cells := make([]cell, len(rows))
	group, ctx := errgroup.WithContext(ctx)
	for i, row := range fleets {
		group.Go(func() (err error) {
			cells[i], err = o.measure(ctx, f, row, seen[i], seed)
			return err
		})
	}
	return cells, group.Wait()
}

// A victim is the server that a fault hits, and its successors.
type victim struct{ server *modelsim.Server }

// measure sends the requests to a row, and lets the fault happen.
func (o options) measure(ctx context.Context, f fault, row *fleet.Fleet, seen *arrivals, seed uint64) (
	c cell, err error,
) {
	v := &victim{row.Servers()[0]}
	address := v.server.Address()
	defer func() { err = errors.Join(err, v.server.Close()) }()
	plan := row.Plan(load.Plan{Rate: o.size(nil).Rate(), Duration: o.warmUp + o.length, Drain: o.drain, Seed: seed,
		Work: load.Work{Mean: o.service}})
	lasts, end := context.WithCancel(ctx)
	defer end()
	var began time.Time
	failing := make(chan error, 1)
	go func() {
		var err error
		if pause(lasts, o.warmUp) {
			began = time.Now()
			err = f.hit(lasts, v)
		}
		failing <- err
	}()
	result, err := load.Run(ctx, plan)
	end()
	if err = errors.Join(err, <-failing); err != nil {
		return c, err
	}
	return o.judge(result, seen.of(address), began), nil
}

// arrivals notes when requests came to the servers of a row. It is a modelsim.Observer.
type arrivals struct {
	mu sync.Mutex
	at map[string][]time.Time
}

// Begin implements modelsim.Observer.
func (a *arrivals) Begin(address string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at[address] = append(a.at[address], time.Now())
}

// End implements modelsim.Observer.
func (a *arrivals) End(string) {}

func (a *arrivals) of(address string) []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.at[address])
}
