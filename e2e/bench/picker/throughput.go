package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"steelyard/e2e/bench/placement/fleet"
	"steelyard/e2e/bench/placement/report"
	"steelyard/e2e/bench/placement/stats"
	"steelyard/e2e/rig/load"
)

// A Flood says how to measure throughput: clients that send the next body when they have the answer to the last.
type Flood struct {
	Clients int
	Slices  int           // of each row and size
	Slice   time.Duration // in which only one row gets requests
}

// flooded are the rows whose throughput is measured: without a choice, and those that do not look at bodies.
func flooded() []string { return []string{weights, rowModule, rowPicker} }

// keptShare is the least that a row may have of its relative throughput with the smallest bodies: what is missing is
// noise, or a cost that grows with the body.
const keptShare = 0.95

// A throughput is what a row can do with bodies of one size.
type throughput struct {
	Policy    string        `json:"policy"`
	Body      int           `json:"body_bytes"`
	PerSecond report.Number `json:"requests_per_second"` // median of the slices
	// Of the row without a choice.
	Relative   report.Number `json:"relative"`
	RelativeCI report.CI     `json:"relative_ci"`
}

// flood measures the throughput of rows with bodies of a size. The rows take turns, in an order that changes.
func (o *Options) flood(ctx context.Context, fleets []*fleet.Fleet, size int) ([]throughput, error) {
	order := rand.New(rand.NewPCG(o.Seed, uint64(size)))
	rates := make([][]float64, len(fleets))
	for range o.Flood.Slices {
		body := chat(size, order)
		for _, i := range order.Perm(len(fleets)) {
			rate, err := o.Flood.slice(ctx, fleets[i].Plan(load.Plan{}).Targets[0], body)
			if err != nil {
				return nil, fmt.Errorf("the row %s: %w", fleets[i].Policy.Name, err)
			}
			rates[i] = append(rates[i], rate)
		}
	}
	var names []string
	for _, f := range fleets {
		names = append(names, f.Policy.Name)
	}
	return throughputs(names, rates, size, o.Seed), nil
}

// throughputs are the rows of the rates of their slices.
func throughputs(names []string, rates [][]float64, size int, seed uint64) (all []throughput) {
	q := stats.Bootstrap{Block: 1, Resamples: 1000, Seed: seed}.Quantiles(rates, p50)
	base := slices.Index(names, weights)
	for i, name := range names {
		ci := q.Ratio(i, base, p50)
		all = append(all, throughput{Policy: name, Body: size, PerSecond: report.Number(q.Value(i, p50)),
			Relative:   report.Number(q.Value(i, p50) / q.Value(base, p50)),
			RelativeCI: report.CI{report.Number(ci.Low), report.Number(ci.High)}})
	}
	return all
}

// slice sends a body again and again for a while, and returns the answers per second.
func (f Flood) slice(ctx context.Context, url string, body []byte) (float64, error) {
	client := &http.Client{Timeout: time.Minute,
		Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: f.Clients}}
	defer client.CloseIdleConnections()
	var answers atomic.Int64
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for range f.Clients {
		group.Go(func() error {
			for time.Since(began) < f.Slice {
				if _, err := post(ctx, client, url, body); err != nil {
					return err
				}
				answers.Add(1)
			}
			return nil
		})
	}
	err := group.Wait()
	return float64(answers.Load()) / time.Since(began).Seconds(), err
}

// ceilings are the targets of the throughput: relative to the row without a choice, no row has less with larger bodies.
func ceilings(all []throughput) (out []report.Target) {
	smallest := make(map[string]throughput)
	for _, t := range all {
		first, known := smallest[t.Policy]
		switch {
		case !known:
			smallest[t.Policy] = t
		case t.Policy != weights:
			limit := keptShare * first.Relative
			out = append(out, report.Target{Text: fmt.Sprintf("%s: throughput for %d bytes, of that without a choice",
				t.Policy, t.Body), Measured: t.Relative, CI: t.RelativeCI, Limit: limit, AtLeast: true,
				Holds: t.Relative >= limit})
		}
	}
	return out
}
