package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"
	"time"

	"steelyard/e2e/bench/placement/fleet"
	"steelyard/e2e/bench/placement/report"
	"steelyard/e2e/rig/proc"
)

// A waitingDocument is what the bench found of requests that wait, and of parts that are killed.
type waitingDocument struct {
	Conditions struct {
		Started     time.Time     `json:"started"`
		Cores       int           `json:"cores"`
		Envoy       string        `json:"envoy"`
		Seed        uint64        `json:"seed"`
		Seconds     float64       `json:"seconds"` // in which the shares count
		Load        float64       `json:"load"`
		MachineBusy report.Number `json:"machine_busy"` // share of all cores, while requests waited
	} `json:"conditions"`
	Classes []class         `json:"classes"`
	Failed  int             `json:"failed"` // requests of all classes
	Kills   []killed        `json:"kills"`
	Targets []report.Target `json:"targets"`
}

// wait measures both.
func (o *Options) wait(ctx context.Context) (*waitingDocument, error) {
	path, err := proc.Find(proc.ProgramEnvoy)
	if err != nil {
		return nil, err
	}
	d := &waitingDocument{}
	c := &d.Conditions
	c.Started, c.Cores, c.Seed = time.Now().UTC().Truncate(time.Second), runtime.NumCPU(), o.Seed
	c.Seconds, c.Load = o.Waiting.Count.Seconds(), o.Waiting.Load
	if c.Envoy, err = proc.EnvoyBuild(ctx, path); err != nil {
		return nil, err
	}
	o.say("%v of requests that wait", o.Waiting.WarmUp+o.Waiting.Count)
	before, err := fleet.ReadMachine()
	if err != nil {
		return nil, err
	}
	if d.Classes, d.Failed, err = o.Waiting.run(ctx, o.Place, o.Seed); err != nil {
		return nil, err
	}
	now, err := fleet.ReadMachine()
	if err != nil {
		return nil, err
	}
	c.MachineBusy = report.Number(now.Minus(before).Share())
	for _, p := range killRows() {
		o.say("%s, whose parts are killed", p.Title)
		k, err := o.Killing.run(ctx, o.Place, p, o.Seed)
		if err != nil {
			return nil, fmt.Errorf("the row %s: %w", p.Name, err)
		}
		d.Kills = append(d.Kills, k)
	}
	d.Targets = d.targets()
	return d, nil
}

const (
	shareOff    = 0.05 // of what a class is to have
	longestGap  = 1.0  // seconds without a request of a class: it starves
	outOfOrder  = 0.05 // seconds
	atLeastSent = 20   // of a class and minute, so that its share means something
)

func (d *waitingDocument) targets() []report.Target {
	target := func(text string, measured, limit float64) report.Target {
		v := report.Number(measured)
		return report.Target{Text: text, Measured: v, CI: report.CI{v, v}, Limit: report.Number(limit),
			Holds: measured <= limit}
	}
	var all []report.Target
	for _, c := range d.Classes {
		off := float64(c.Share-c.Wanted) / float64(c.Wanted)
		all = append(all,
			target(c.Name+": its share is off by, of the share", max(off, -off), shareOff),
			target(c.Name+": longest time without a request sent, seconds", float64(c.Gap), longestGap),
			target(c.Name+": a younger request went first, by, seconds", float64(c.Overtaken), outOfOrder))
		if float64(c.Sent) < atLeastSent*d.Conditions.Seconds/60 {
			all = append(all, target(c.Name+": too few were sent", 1, 0))
		}
	}
	all = append(all, target("requests that failed while others waited", float64(d.Failed), 0))
	for _, k := range d.Kills {
		all = append(all, target(k.Policy+": failed, not on a killed part", float64(k.Failed), 0),
			target(k.Policy+": Envoys that crashed", float64(k.Crashes), 0),
			target(k.Policy+": requests counted after all ended", float64(k.Left), 0))
	}
	return all
}

// Write prints the tables.
func (d *waitingDocument) Write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "\nwaiting at %g times the load, for %g s; the machine was %.0f %% busy\n\n", d.Conditions.Load,
		d.Conditions.Seconds, 100*d.Conditions.MachineBusy)
	fmt.Fprint(t, "class\tweight\tsent\tshare\twanted\tlongest gap\tovertaken by\tyounger by\twait p50\t\n")
	for _, c := range d.Classes {
		fmt.Fprintf(t, "%s\t%g\t%d\t%.3f\t%.3f\t%.3f s\t%.1f ms\t%.1f ms\t%.2f s\t\n", c.Name, c.Weight, c.Sent,
			c.Share, c.Wanted, c.Gap, 1e3*c.Overtaken, 1e3*c.Younger, c.Wait)
	}
	fmt.Fprint(t, "\nrow\trequests\tfailed on the server\ton the Envoy\tfailed\tcrashes\tleft\t\n")
	for _, k := range d.Kills {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", k.Policy, k.Requests, k.OnServer, k.OnEnvoy, k.Failed,
			k.Crashes, k.Left)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return writeTargets(w, d.Targets)
}
