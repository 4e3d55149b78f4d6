package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"steelyard/e2e/bench/placement/fleet"
	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
)

// Options say what to measure.
type Options struct {
	Bodies   []int         // sizes, in bytes
	Requests int           // of each size that count, for each row
	WarmUp   int           // of each size that are sent first, and do not count
	Gap      time.Duration // between two requests
	Spread   float64       // largest p99 of the row without a choice, in its p50
	Seed     uint64

	Flood   Flood
	Waiting Waiting
	Killing Killing

	Place fleet.Place
	Log   io.Writer // progress, for people
}

// Default returns the bench as it is published, in ten minutes.
func Default() Options {
	return Options{Bodies: []int{200, 48 << 10, 200 << 10}, Requests: 4000, WarmUp: 200, Gap: 2 * time.Millisecond,
		Spread: 6, Seed: 1, Flood: Flood{Clients: 8, Slices: 10, Slice: time.Second}, Waiting: defaultWaiting(),
		Killing: defaultKilling()}
}

// Quick returns the bench in three minutes.
func Quick() Options {
	o := Default()
	o.Requests, o.Waiting.Count = 400, 15*time.Second
	o.Flood.Slices, o.Flood.Slice = 3, 500*time.Millisecond
	o.Killing.Away, o.Killing.Rest = 2*time.Second, 2*time.Second
	return o
}

// weights is the row without a choice for each request.
const weights = "weights"

// rows returns the rows of the bench, in the order of the tables.
func rows() ([]fleet.Policy, error) {
	base := fleet.Policy{Name: weights, Title: "weights", Control: &fleet.Control{Default: true}}
	all := []fleet.Policy{base}
	for _, r := range []struct{ variants, name, title string }{
		{fleet.VariantModule, rowModule, "module, by size"},
		{fleet.VariantModule + fleet.VariantPrefix, rowModulePrefix, "module, by prompt"},
		{fleet.VariantPicker, rowPicker, "ext_proc, by size (headers only)"},
		{fleet.VariantPicker + fleet.VariantPrefix, rowPickerPrefix, "ext_proc, by prompt"},
	} {
		p, err := base.With(r.variants)
		if err != nil {
			return nil, err
		}
		p.Name, p.Title = r.name, r.title
		all = append(all, p)
	}
	return all, nil
}

// The rows with a choice.
const (
	rowModule       = "module"
	rowModulePrefix = "module_prefix"
	rowPicker       = "picker"
	rowPickerPrefix = "picker_prefix"
)

// measure starts all rows, sends them the requests, and ends them.
func (o *Options) measure(ctx context.Context) (_ *document, err error) {
	policies, err := rows()
	if err != nil {
		return nil, err
	}
	path, err := proc.Find(proc.ProgramEnvoy)
	if err != nil {
		return nil, err
	}
	build, err := proc.EnvoyBuild(ctx, path)
	if err != nil {
		return nil, err
	}
	o.say("starting %d rows", len(policies))
	fleets, err := fleet.StartAll(ctx, o.Place, policies, fleet.Size{Envoys: 1, Servers: 2, Slots: 64})
	defer func() { err = errors.Join(err, fleet.CloseAll(fleets)) }()
	if err != nil {
		return nil, err
	}
	d := &document{Conditions: conditions{Started: time.Now().UTC().Truncate(time.Second), Requests: o.Requests,
		Cores: runtime.NumCPU(), Envoy: build, Seed: o.Seed, Spread: o.Spread}, titles: titles(policies)}
	for _, size := range o.Bodies {
		o.say("%d bodies of %d bytes to each row", o.Requests, size)
		m, err := o.send(ctx, fleets, size)
		if err != nil {
			return nil, err
		}
		d.add(m, o.Seed)
	}
	for _, size := range o.Bodies {
		o.say("as many bodies of %d bytes as each row takes", size)
		all, err := o.flood(ctx, slices.DeleteFunc(slices.Clone(fleets), func(f *fleet.Fleet) bool {
			return !slices.Contains(flooded(), f.Policy.Name)
		}), size)
		if err != nil {
			return nil, err
		}
		d.Throughput = append(d.Throughput, all...)
	}
	d.Targets = append(d.Targets, ceilings(d.Throughput)...)
	d.judge(o.Spread)
	return d, nil
}

func titles(policies []fleet.Policy) map[string]string {
	all := make(map[string]string)
	for _, p := range policies {
		all[p.Name] = p.Title
	}
	return all
}

func (o *Options) say(format string, args ...any) {
	if o.Log != nil {
		fmt.Fprintf(o.Log, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
	}
}

// A measured is what the rows did with bodies of one size.
type measured struct {
	size    int
	names   []string
	seconds [][]float64 // by row and body
	cpu     []float64   // seconds of the row's Envoy for each request
	busy    float64     // share of the machine
}

// send sends bodies of a size to all rows.
func (o *Options) send(ctx context.Context, fleets []*fleet.Fleet, size int) (*measured, error) {
	m := &measured{size: size, seconds: make([][]float64, len(fleets)), cpu: make([]float64, len(fleets))}
	var urls []string
	for _, f := range fleets {
		m.names = append(m.names, f.Policy.Name)
		urls = append(urls, f.Plan(load.Plan{}).Targets...)
	}
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	texts := rand.New(rand.NewPCG(o.Seed, uint64(size)))
	due := time.NewTicker(o.Gap)
	defer due.Stop()
	var before []float64
	var machine fleet.Machine
	var err error
	for n := range o.WarmUp + o.Requests {
		if n == o.WarmUp {
			if before, err = cpus(ctx, fleets); err != nil {
				return nil, err
			}
			if machine, err = fleet.ReadMachine(); err != nil {
				return nil, err
			}
		}
		body := chat(size, texts)
		for _, i := range texts.Perm(len(urls)) {
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-due.C:
			}
			took, err := post(ctx, client, urls[i], body)
			if err != nil {
				return nil, fmt.Errorf("the row %s: %w", m.names[i], err)
			}
			if n >= o.WarmUp {
				m.seconds[i] = append(m.seconds[i], took.Seconds())
			}
		}
	}
	return m, m.cost(ctx, fleets, before, machine)
}

// cost fills in what the Envoys and the machine did since before.
func (m *measured) cost(ctx context.Context, fleets []*fleet.Fleet, before []float64, machine fleet.Machine) error {
	after, err := cpus(ctx, fleets)
	if err != nil {
		return err
	}
	for i := range m.cpu {
		m.cpu[i] = (after[i] - before[i]) / float64(len(m.seconds[i]))
	}
	now, err := fleet.ReadMachine()
	m.busy = now.Minus(machine).Share()
	return err
}

// cpus returns the CPU seconds of each row's Envoy.
func cpus(ctx context.Context, fleets []*fleet.Fleet) ([]float64, error) {
	var all []float64
	for _, f := range fleets {
		u, err := f.Usage(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, u.Envoys[0])
	}
	return all, nil
}

// chat returns a body of a size: a system prompt that all share, and a text of its own.
func chat(size int, texts *rand.Rand) []byte {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	system := strings.Repeat("You answer in one word. ", size/96)
	render := func(text string) []byte {
		body, err := json.Marshal(map[string]any{"model": "m",
			"messages": []message{{"system", system}, {"user", text}}})
		if err != nil {
			panic(err) // marshalling texts does not fail
		}
		return body
	}
	text := make([]byte, max(1, size-len(render(""))))
	for i := range text {
		text[i] = "abcdefghijklmnop "[texts.IntN(17)]
	}
	return render(string(text))
}

// post sends a body, and returns the time to the end of the answer.
func post(ctx context.Context, client *http.Client, url string, body []byte) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(modelsim.HeaderService, "0.000001")
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	took := time.Since(began)
	resp.Body.Close()
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %s", resp.Status)
	}
	return took, err
}
