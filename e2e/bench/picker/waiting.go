package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"steelyard/e2e/bench/placement/fleet"
	"steelyard/e2e/bench/placement/report"
	"steelyard/e2e/rig/modelsim"
)

// A Waiting says how to measure a queue with classes, at a load of which each class has the same part.
type Waiting struct {
	Envoys, Servers int
	Service         time.Duration // mean, exponential
	Load            float64       // of what the servers can do
	WarmUp, Count   time.Duration // before the shares count, and while they do
	Weights         []float64     // of the classes
}

// defaultWaiting is as it is published. The smallest load of a class, in its share of what the servers can do, is 1.2:
// all classes wait.
func defaultWaiting() Waiting {
	return Waiting{Envoys: 3, Servers: 4, Service: 100 * time.Millisecond, Load: 2, WarmUp: 15 * time.Second,
		Count: time.Minute, Weights: []float64{5, 3, 1}}
}

// A class is what a class of requests got.
type class struct {
	Name   string        `json:"class"`
	Weight float64       `json:"weight"`
	Sent   int           `json:"sent"`
	Share  report.Number `json:"share"`        // of what was sent while all classes waited
	Wanted report.Number `json:"share_wanted"` // its weight among the weights
	Gap    report.Number `json:"longest_gap"`  // seconds in which none of it was sent
	// Younger is how much later than another a request had come that went before it, at most, in seconds. Two that go
	// at the same moment by two Envoys can change places, so Overtaken counts no more than the time by which it went
	// earlier.
	Younger   report.Number `json:"overtaken_by_younger_by"`
	Overtaken report.Number `json:"overtaken_by"`
	Wait      report.Number `json:"wait_p50"` // seconds
}

// A queued is a request with a class, by the clock of its Envoy.
type queued struct {
	class         int
	arrived, sent float64 // seconds
}

// run has requests wait, and returns what each class got and how many requests failed.
func (w Waiting) run(ctx context.Context, at fleet.Place, seed uint64) (all []class, failed int, err error) {
	policy := fleet.Policy{Name: "queue", Title: "queue",
		Control: &fleet.Control{Default: true, Module: true, Queue: true, Stamps: true}}
	for i, weight := range w.Weights {
		policy.Control.Classes = append(policy.Control.Classes,
			fmt.Sprintf("{name: %s, weight: %g, max_waiting: 10000, max_wait: 9m}", className(i), weight))
	}
	size := fleet.Size{Envoys: w.Envoys, Servers: w.Servers, Slots: 1, Service: w.Service}
	f, err := fleet.Start(ctx, at, policy, size)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := joined(ctx, f); err != nil {
		return nil, 0, err
	}
	requests, failed, err := w.send(ctx, f, seed)
	if err != nil {
		return nil, failed, err
	}
	return w.classes(requests), failed, nil
}

func className(i int) string { return "class-" + strconv.Itoa(i+1) }

// joined waits until all Envoys of a row have joined its queue.
func joined(ctx context.Context, f *fleet.Fleet) error {
	return eventually(ctx, func() error {
		q, err := f.QueueState(ctx)
		if err == nil && q.Envoys != len(f.Envoys()) {
			err = fmt.Errorf("%d of %d Envoys have joined the queue", q.Envoys, len(f.Envoys()))
		}
		return err
	})
}

// patience bounds what should be so at once.
const patience = 30 * time.Second

// eventually waits until check returns nil.
func eventually(ctx context.Context, check func() error) error {
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		if err = check(); err == nil {
			return nil
		}
	}
	return errors.Join(err, context.Cause(ctx))
}

// send sends requests until the time is over, and has the clients of those that still wait give up.
func (w Waiting) send(ctx context.Context, f *fleet.Fleet, seed uint64) (requests []queued, failed int, err error) {
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1 << 16}}
	defer client.CloseIdleConnections()
	random := rand.New(rand.NewPCG(seed, 8))
	urls := f.URLs()
	gap := w.Service.Seconds() / (w.Load * float64(w.Servers))
	began := time.Now()
	var sending sync.WaitGroup
	var mu sync.Mutex
	for due := began; due.Sub(began) < w.WarmUp+w.Count && ctx.Err() == nil; {
		time.Sleep(time.Until(due))
		due = due.Add(time.Duration(random.ExpFloat64() * gap * float64(time.Second)))
		class, url, work := random.IntN(len(w.Weights)), urls[random.IntN(len(urls))], random.ExpFloat64()
		sending.Go(func() {
			q, err := w.ask(ctx, client, url, class, work)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				requests = append(requests, q)
			case ctx.Err() == nil:
				failed++
			}
		})
	}
	giveUp()
	sending.Wait()
	from, until := unix(began.Add(w.WarmUp)), unix(began.Add(w.WarmUp+w.Count))
	requests = slices.DeleteFunc(requests, func(q queued) bool { return q.sent < from || q.sent > until })
	return requests, failed, w.emptied(context.WithoutCancel(ctx), f)
}

func unix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// emptied waits until nothing waits and no place is held.
func (w Waiting) emptied(ctx context.Context, f *fleet.Fleet) error {
	return eventually(ctx, func() error {
		q, err := f.QueueState(ctx)
		if err != nil {
			return err
		}
		waiting := 0
		for _, c := range q.Classes {
			waiting += c.Waiting
		}
		if held := int(q.InFlight.Or(1)); waiting+held > 0 { // not known is not none
			return fmt.Errorf("after the end %d requests wait and %d hold a place", waiting, held)
		}
		return nil
	})
}

// ask sends one request of a class; work is in mean services.
func (w Waiting) ask(ctx context.Context, client *http.Client, url string, class int, work float64) (queued, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		return queued{}, err
	}
	req.Header.Set("X-Steelyard-Class", className(class))
	req.Header.Set(modelsim.HeaderService, strconv.FormatFloat(work*w.Service.Seconds(), 'f', 6, 64))
	resp, err := client.Do(req)
	if err != nil {
		return queued{}, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	arrived, failed := strconv.ParseFloat(resp.Header.Get(fleet.HeaderArrived), 64)
	held, failedToo := strconv.ParseFloat(resp.Header.Get(fleet.HeaderHeld), 64)
	if resp.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("status %s", resp.Status))
	}
	return queued{class, arrived, arrived + held/1e6}, errors.Join(err, failed, failedToo)
}

// classes returns what each class got of the requests.
func (w Waiting) classes(requests []queued) []class {
	slices.SortFunc(requests, func(a, b queued) int { return cmp.Compare(a.sent, b.sent) })
	sum := 0.0
	for _, weight := range w.Weights {
		sum += weight
	}
	all := make([]class, len(w.Weights))
	for i, weight := range w.Weights {
		c := class{Name: className(i), Weight: weight, Wanted: report.Number(weight / sum)}
		var waits []float64
		var before []queued // of the class
		for _, q := range requests {
			if q.class != i {
				continue
			}
			for _, b := range before {
				younger := b.arrived - q.arrived
				c.Younger = max(c.Younger, report.Number(younger))
				c.Overtaken = max(c.Overtaken, report.Number(min(younger, q.sent-b.sent)))
			}
			if c.Sent++; c.Sent > 1 {
				c.Gap = max(c.Gap, report.Number(q.sent-before[len(before)-1].sent))
			}
			before, waits = append(before, q), append(waits, q.sent-q.arrived)
		}
		c.Share, c.Wait = report.Number(float64(c.Sent)/float64(len(requests))), report.Number(median(waits))
		all[i] = c
	}
	return all
}

func median(numbers []float64) float64 {
	if len(numbers) == 0 {
		return 0
	}
	slices.Sort(numbers)
	return numbers[len(numbers)/2]
}
