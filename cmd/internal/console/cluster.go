package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"steelyard/cmd/internal/table"
	"steelyard/internal/api"
)

// Cluster asks for a cluster, its worst endpoints first.
func (c *Client) Cluster(ctx context.Context, name string, limit int) (*api.Cluster, error) {
	var v api.Cluster
	most := ""
	if limit > 0 {
		most = fmt.Sprint(limit)
	}
	if err := c.get(ctx, &v, []string{"clusters", name}, "sort", "worst", "limit", most); err != nil {
		return nil, err
	}
	return &v, nil
}

// Shadow asks for what was recorded of a cluster while nobody followed its weights.
func (c *Client) Shadow(ctx context.Context, name string) (*api.Shadow, error) {
	var v api.Shadow
	if err := c.get(ctx, &v, []string{"clusters", name, "shadow"}); err != nil {
		return nil, err
	}
	return &v, nil
}

// FirstCluster returns the name of the first cluster.
func (c *Client) FirstCluster(ctx context.Context) (string, error) {
	names, err := c.Clusters(ctx)
	if err == nil && len(names) == 0 {
		err = errors.New("no cluster is configured")
	}
	if err != nil {
		return "", err
	}
	return names[0], nil
}

// PrintCluster prints what steelyard top shows.
func PrintCluster(o Output, c *api.Cluster, now time.Time) error {
	return o.print(c, func(w io.Writer) { printCluster(w, c, now, o.Width) })
}

func printCluster(w io.Writer, c *api.Cluster, now time.Time, width int) {
	fmt.Fprintln(w, table.Fit(fmt.Sprintf("%s  %s  %s  %s requests/s  capacity in use %s  %s", table.Printable(c.Name),
		now.UTC().Format("15:04:05"), cmp.Or(string(c.State), "ok"), number(arrivalRate(c)),
		percent(c.Use.CapacityUsed), table.Count(c.Counts.Total, "endpoint")), width))
	if !c.Ready {
		fmt.Fprintln(w, table.Fit("not ready: "+table.Printable(c.NotReadyReason), width))
	}
	if drop := c.Decision.DropFraction.Or(0); drop > 0 {
		fmt.Fprintln(w, table.Fit(fmt.Sprintf("SHEDDING %s of the requests: the whole pool is saturated",
			percent(api.Num(drop))), width))
	}
	if c.ShadowEnvoys > 0 {
		fmt.Fprintln(w, table.Fit(fmt.Sprintf("SHADOW: no request of %s follows these weights",
			table.Count(c.ShadowEnvoys, "Envoy")), width))
	}
	endpointTable(c).Write(w, width)
	if more := c.Counts.Total - len(c.Endpoints); more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
	}
}

func endpointTable(c *api.Cluster) *table.Table {
	served, wait, latency := ">SERVED", ">ANSWER", answerTime
	if c.Served.Source == api.ServedCompleted {
		served = ">DONE"
	}
	if slices.ContainsFunc(c.Endpoints, func(e api.Endpoint) bool { return known(e.FirstTokenMean) }) {
		wait, latency = ">TOKEN1", func(e *api.Endpoint) api.Number { return e.FirstTokenMean }
	}
	name := "ENDPOINT"
	if slices.ContainsFunc(c.Endpoints, func(e api.Endpoint) bool { return e.Pod != "" }) {
		name = "POD"
	}
	t := table.New(name, "STATE", served, ">10S", ">CAP%", ">LOAD", ">OPEN", wait, ">FAIL", ">KV", ">AGE")
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		t.Add(cmp.Or(e.Pod, e.Address), stateText(e), percent(e.ServedShare1m), percent(e.ServedShare10s),
			percent(e.CapacityShare), loadText(e), number(current(e.Input("in_flight"))), seconds(latency(e)),
			percent(failed(e)), percent(current(e.Input("utilization"))), seconds(e.HeardSeconds))
	}
	return t
}

func known(n api.Number) bool {
	_, ok := n.Value()
	return ok
}

// stateText is the state of an endpoint in a word or two.
func stateText(e *api.Endpoint) string {
	if e.Override != nil && e.Reason == "drained" {
		return "drained"
	}
	if e.Override != nil && e.Reason == "pinned" {
		return "pinned"
	}
	return cmp.Or(e.State, api.EndpointOK).Words()
}

// arrivalRate is unknown before anything has moved.
func arrivalRate(c *api.Cluster) api.Number {
	if c.Decision.ArrivalRateSource == "unknown" {
		return api.Number{}
	}
	return c.Decision.ArrivalRate
}

// current is the value of a field while it is recent enough to be used as it is.
func current(in api.Input) api.Number {
	if in.State == "fresh" || in.State == "hold" {
		return in.Value
	}
	return api.Number{}
}

// longestQuiet is how old the newest answer may be for their moving averages to be shown, unless three answers
// take longer.
const longestQuiet = 10.0 // seconds

func recent(e *api.Endpoint, value, age api.Number) api.Number {
	if age.Or(0) > max(longestQuiet, 3*e.LatencySeconds.Or(0)) {
		return api.Number{}
	}
	return value
}

func answerTime(e *api.Endpoint) api.Number {
	return recent(e, e.LatencySeconds, e.LatencyAgeSeconds)
}

func failed(e *api.Endpoint) api.Number { return recent(e, e.FailedShare, e.FailedShareAgeSeconds) }

// loadText is how full it is: seconds of work, or requests for each slot. It is unknown where the median is used
// instead.
func loadText(e *api.Endpoint) string {
	switch {
	case e.LoadSource == "median":
		return unknown
	case known(e.Work.Seconds):
		return seconds(e.Work.Seconds)
	}
	return number(e.LoadPerSlot)
}

// Explain asks why an endpoint has its share; at is a time or how long ago, empty for now.
func (c *Client) Explain(ctx context.Context, cluster, endpoint, at string) (*Explanation, error) {
	var x api.Explanation
	err := c.get(ctx, &x, []string{"clusters", cluster, "explain"}, "endpoint", endpoint, "at", at)
	if err != nil {
		return nil, err
	}
	return (*Explanation)(&x), nil
}

// An Explanation is why an endpoint had its share at some time.
type Explanation api.Explanation

// Print prints the explanation: a sentence, and the steps that led to the share.
func (x *Explanation) Print(o Output) error {
	return o.print((*api.Explanation)(x), func(w io.Writer) { x.text(w, o.Width) })
}

func (x *Explanation) text(w io.Writer, width int) {
	const indent = "           "
	e, d := &x.Endpoint, &x.Decision
	line := func(head, format string, args ...any) {
		fmt.Fprintf(w, "%-10s %s\n", head, wrap(fmt.Sprintf(format, args...), indent, width))
	}
	fmt.Fprintf(w, "%s of %s at %s UTC: %s\n", e.Named(), table.Printable(x.Cluster),
		x.At.UTC().Format("2006-01-02 15:04:05"), stateText(e))
	if e.Why != "" {
		fmt.Fprintln(w, wrap(e.Why, "", width))
	}
	fmt.Fprintln(w)
	if e.Pod != "" {
		line("runs", "in namespace %s on node %s", e.Namespace, cmp.Or(e.Node, unknown))
	}
	if e.Role != "" || e.Model != "" {
		line("labels", "role %s, model %s", cmp.Or(e.Role, unknown), cmp.Or(e.Model, unknown))
	}
	if o := e.Override; o != nil {
		line("override", "%s by %s until %s%s", overrideText(*o), cmp.Or(o.By, unknown),
			o.Until.UTC().Format("2006-01-02 15:04:05"), because(o.Reason))
	}
	if known(e.ServedShare1m) || known(e.ServedShare10s) {
		line("served", "%s of the requests in the last minute, %s in the last 10 s; it has %s of the capacity",
			percent(e.ServedShare1m), percent(e.ServedShare10s), percent(e.CapacityShare))
	}
	var inputs []string
	for _, in := range e.Inputs {
		if in.State == "unknown" {
			continue
		}
		inputs = append(inputs, fmt.Sprintf("%s %s (%s old, %s)", strings.ReplaceAll(in.Field, "_", " "),
			number(in.Value), seconds(in.AgeSeconds), in.State))
	}
	line("1 hears", "%s", cmp.Or(strings.Join(inputs, ", "), "nothing"))
	if known(e.Work.Requests) {
		line("2 load", "%s mean requests of work, %s (%s): %s", number(e.Work.Requests), seconds(e.Work.Seconds),
			e.LoadSource, workText(&e.Work))
		line("", "%s", learnedText(&d.Work))
	} else {
		line("2 load", "%s requests in %s slots (%s)", number(e.Load), number(e.Slots), e.LoadSource)
	}
	line("3 fill", "%s requests expected in %s fill the pool up to %s; the median endpoint is at %s",
		number(d.Arrivals), seconds(d.HorizonSeconds), number(d.WaterLevel), number(d.MedianLoad))
	line("4 share", "%s in this decision, which lasts some milliseconds (%s)", percent(e.Share), e.Reason)
	if known(e.Weight) {
		line("5 weight", "%.0f", e.Weight.Or(0))
	}
	if e.Overloaded {
		line("flag", "%s", cmp.Or(e.OverloadReason, "overloaded"))
	}
	for _, p := range e.Problems {
		line(string(p.Severity), "%s", p.Message)
	}
	line("", "The decisions of the last %s are kept, one each %s: --at asks about one of them.", seconds(x.KeptSeconds),
		seconds(x.StepSeconds))
}

// workText is what the work of an endpoint is made of, with sources and ages.
func workText(w *api.EndpointWork) string {
	return fmt.Sprintf("%s prompt tokens outstanding (by %s%s; corrected by its counters%s), %s tokens/s (%s%s)",
		number(w.PromptTokens), strings.ReplaceAll(w.Source, "_", " "), old(w.AgeSeconds), old(w.CountedAgeSeconds),
		number(w.PrefillRate), w.PrefillRateSource, old(w.PrefillRateAgeSeconds))
}

// PrintWork prints the work of the endpoint as a table, each number with its source and age, and the reason of the
// share in a sentence. It prints a sentence where the endpoint has no work, as its cluster counts requests.
func (x *Explanation) PrintWork(o Output) error {
	return o.print((*api.Explanation)(x), func(w io.Writer) {
		e, d := &x.Endpoint.Work, &x.Decision.Work
		if !known(e.Requests) {
			fmt.Fprintln(w, wrap("The load of cluster "+x.Cluster+" is counted in requests, and not in work.", "",
				o.Width))
			return
		}
		engines := "counters of " + table.Count(d.Engines, "engine")
		t := table.New("WORK", ">VALUE", ">AGE", "FROM")
		t.Add("prompt tokens outstanding", number(e.PromptTokens), seconds(e.AgeSeconds), fmt.Sprintf(
			"%s, and its counters (%s old)", strings.ReplaceAll(e.Source, "_", " "), seconds(e.CountedAgeSeconds)))
		t.Add("prefill rate (tokens/s)", number(e.PrefillRate), seconds(e.PrefillRateAgeSeconds), e.PrefillRateSource)
		t.Add("tokens per byte", number(d.TokensPerByte), seconds(d.TokensPerByteAgeSeconds),
			"counters, and sizes in logs")
		t.Add("prompt tokens of a request", number(d.PromptTokens), seconds(d.CountedAgeSeconds), engines)
		t.Add("prompt tokens from caches", percent(d.CachedShare), seconds(d.CountedAgeSeconds), engines)
		t.Add("output tokens of a request", number(d.OutputTokens), seconds(d.CountedAgeSeconds), engines)
		t.Write(w, o.Width)
		fmt.Fprintln(w, wrap(x.Endpoint.Why, "", o.Width))
	})
}

// learnedText is what was learned of the cluster's requests and engines.
func learnedText(w *api.Work) string {
	guess, cached := "each prompt counts as a mean one", ""
	if w.BySize {
		guess = "prompts are guessed by size"
	}
	if _, known := w.CachedShare.Value(); known {
		cached = ", " + percent(w.CachedShare) + " of the prompts from caches"
	}
	return fmt.Sprintf("a request: %s prompt tokens, %s of output%s (counters of %d engines%s), %s tokens/byte "+
		"(counters and sizes%s), so %s; a typical engine: %s tokens/s (measured%s)", number(w.PromptTokens),
		number(w.OutputTokens), cached, w.Engines, old(w.CountedAgeSeconds), number(w.TokensPerByte),
		old(w.TokensPerByteAgeSeconds), guess, number(w.PrefillRate), old(w.PrefillRateAgeSeconds))
}

// old is an age, where it is known.
func old(age api.Number) string {
	if !known(age) {
		return ", never"
	}
	return ", " + seconds(age) + " old"
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// An EventQuery picks events.
type EventQuery struct {
	Cluster string
	Kinds   []string
	Limit   int
	Since   uint64 // an id
}

// Events asks for what changed, oldest first.
func (c *Client) Events(ctx context.Context, q EventQuery) ([]api.Event, error) {
	list, err := c.events(ctx, q)
	if err == nil && len(list.Events) == 0 && q.Cluster != "" {
		// Events of a cluster that was removed are kept; without any, it may be a mistake in the name.
		_, err = c.Cluster(ctx, q.Cluster, 1)
	}
	return list.Events, err
}

func (c *Client) events(ctx context.Context, q EventQuery) (list api.EventList, err error) {
	parameters := []string{"cluster", q.Cluster}
	for _, k := range q.Kinds {
		parameters = append(parameters, "kind", k)
	}
	if q.Limit > 0 {
		parameters = append(parameters, "limit", fmt.Sprint(q.Limit))
	}
	if q.Since > 0 {
		parameters = append(parameters, "since", fmt.Sprint(q.Since))
	}
	err = c.get(ctx, &list, []string{"events"}, parameters...)
	if list.Events == nil {
		list.Events = []api.Event{}
	}
	return list, err
}

// PrintEvents prints one line for each event.
func PrintEvents(o Output, events []api.Event) error {
	return o.print(struct {
		Events []api.Event `json:"events"`
	}{events}, func(w io.Writer) {
		for _, e := range events {
			line := fmt.Sprintf("%s  %-16s  %s", clock(e.At), e.Kind, table.Printable(e.Text))
			fmt.Fprintln(w, table.Fit(line, o.Width))
		}
	})
}
