package console

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"steelyard/cmd/internal/table"
	"steelyard/internal/api"
)

// Override drains or pins an endpoint. before is what was in force for it; nil for nothing.
func (c *Client) Override(
	ctx context.Context, cluster, endpoint string, change api.OverrideRequest,
) (o api.Override, before *api.Override, err error) {
	body, err := json.Marshal(change)
	if err != nil {
		return o, nil, err
	}
	var list api.OverrideList
	if err := c.get(ctx, &list, []string{"overrides"}); err != nil {
		return o, nil, err
	}
	err = c.do(ctx, http.MethodPut, overridePath(cluster, endpoint), nil, body, &o)
	for i, v := range list.Overrides {
		if v.Cluster == o.Cluster && v.Address == o.Address {
			before = &list.Overrides[i]
		}
	}
	return o, before, err
}

// Undo removes what an operator decided about an endpoint.
func (c *Client) Undo(ctx context.Context, cluster, endpoint string) (o api.Override, err error) {
	err = c.do(ctx, http.MethodDelete, overridePath(cluster, endpoint), nil, nil, &o)
	return o, err
}

func overridePath(cluster, endpoint string) []string {
	return []string{"clusters", cluster, "overrides", endpoint}
}

// PrintOverride prints the override that is now in force, the one that it replaced, if any, and how to undo it; program
// is how commands are run.
func PrintOverride(o Output, v api.Override, before *api.Override, program string) error {
	return o.print(v, func(w io.Writer) {
		fmt.Fprintf(w, "%s of %s is %s until %s (%s)\n", v.Address, table.Printable(v.Cluster), overrideText(v),
			until(v), endsIn(v, v.Since.Time))
		if before != nil {
			fmt.Fprintf(w, "This replaces what %s decided: %s until %s%s\n", table.Printable(before.By),
				overrideText(*before), until(*before), table.Printable(reasonText(*before)))
		}
		if !v.Kept {
			fmt.Fprintln(w, "It is not in Redis, so it ends with a restart of Steelyard.")
		}
		fmt.Fprintf(w, "undo: %s undrain %s %s\n", program, table.Printable(v.Cluster), v.Address)
	})
}

func until(v api.Override) string { return v.Until.UTC().Format("2006-01-02 15:04:05 UTC") }

func reasonText(v api.Override) string {
	if v.Reason == "" {
		return ""
	}
	return ": " + v.Reason
}

// PrintUndone prints which override is no longer in force.
func PrintUndone(o Output, v api.Override) error {
	return o.print(v, func(w io.Writer) {
		fmt.Fprintf(w, "%s of %s is not %s any more\n", v.Address, table.Printable(v.Cluster), overrideText(v))
	})
}

// LogLevel is the level of the log of the process; SetLogLevel changes it.
func (c *Client) LogLevel(ctx context.Context) (string, error) {
	var answer struct {
		Level string `json:"level"`
	}
	err := c.get(ctx, &answer, []string{"log-level"})
	return answer.Level, err
}

// SetLogLevel changes the least level that is logged, until the restart.
func (c *Client) SetLogLevel(ctx context.Context, level string) error {
	body, err := json.Marshal(map[string]string{"level": level})
	if err != nil {
		return err
	}
	var answer struct{}
	return c.do(ctx, http.MethodPost, []string{"log-level"}, nil, body, &answer)
}

// ConfigFile is the path of the configuration that is followed.
func (c *Client) ConfigFile(ctx context.Context) (string, error) {
	var process api.Status
	err := c.get(ctx, &process, []string{"status"})
	return process.ConfigFile, err
}

// Diff asks what a configuration would change.
func (c *Client) Diff(ctx context.Context, name string, text []byte) (*api.Diff, error) {
	var d api.Diff
	if err := c.do(ctx, http.MethodPost, []string{"diff"}, []string{"name", name}, text, &d); err != nil {
		return nil, err
	}
	return &d, nil
}

// PrintDiff prints what would change.
func PrintDiff(o Output, d *api.Diff) error {
	return o.print(d, func(w io.Writer) { printDiff(w, d, o.Width) })
}

func printDiff(w io.Writer, d *api.Diff, width int) {
	same := len(d.Restart)+len(d.Added)+len(d.Removed)+len(d.Clusters) == 0 && !d.Redis
	if same {
		fmt.Fprintln(w, "Nothing would change.")
		return
	}
	if len(d.Restart) > 0 {
		fmt.Fprintf(w, "A reload would be refused: the section %s needs a restart.\n", strings.Join(d.Restart, " and "))
	}
	if d.Redis {
		fmt.Fprintln(w, "The section redis changes: counts are read from there at once.")
	}
	for _, name := range d.Added {
		fmt.Fprintf(w, "+ cluster %s\n", table.Printable(name))
	}
	for _, name := range d.Removed {
		fmt.Fprintf(w, "- cluster %s: its Envoys get no weights any more\n", table.Printable(name))
	}
	for i := range d.Clusters {
		printClusterDiff(w, &d.Clusters[i], width)
	}
}

func printClusterDiff(w io.Writer, c *api.ClusterDiff, width int) {
	fmt.Fprintf(w, "~ cluster %s\n", table.Printable(c.Name))
	for _, k := range c.Keys {
		before, after := table.Printable(k.Before), table.Printable(k.After)
		switch {
		case before == "":
			fmt.Fprintln(w, table.Fit(fmt.Sprintf("    + %s: %s", k.Path, after), width))
		case after == "":
			fmt.Fprintln(w, table.Fit(fmt.Sprintf("    - %s: %s", k.Path, before), width))
		default:
			fmt.Fprintln(w, table.Fit(fmt.Sprintf("    %s: %s -> %s", k.Path, before, after), width))
		}
	}
	if c.Note != "" {
		fmt.Fprintf(w, "  Note: %s.\n", c.Note)
	}
	if len(c.Endpoints) == 0 {
		return
	}
	fmt.Fprintf(w, "  capacity of the pool: %s -> %s", number(c.CapacityBefore), number(c.CapacityAfter))
	if known(c.CapacityUsed) {
		fmt.Fprintf(w, "; in use: %s -> %s", percent(c.CapacityUsed), percent(c.CapacityUsedAfter))
	}
	fmt.Fprintln(w)
	rows := slices.DeleteFunc(slices.Clone(c.Endpoints), unchanged)
	if len(rows) == 0 {
		fmt.Fprintln(w, "  no endpoint gets another part of the capacity")
		return
	}
	t := table.New("  ENDPOINT", ">SERVED 1M", ">CAPACITY", ">WOULD BE", ">SLOTS", ">WOULD BE", "CHANGE")
	for _, e := range rows {
		t.Add("  "+e.Address, percent(e.ServedShare1m), percent(e.Before.CapacityShare), percent(e.After.CapacityShare),
			number(e.Before.Slots), number(e.After.Slots), changeText(e))
	}
	t.Write(w, width)
	fmt.Fprintln(w, wrap("  CAPACITY is the part of the pool's: the share of the requests that an endpoint gets in "+
		"the long run while the pool is busy.", "  ", width))
}

func unchanged(e api.EndpointDiff) bool { return e.Change == "" && changeText(e) == "" }

// changeText is what would change for an endpoint, in words.
func changeText(e api.EndpointDiff) string {
	var out []string
	if e.Change != "" {
		out = append(out, e.Change)
	}
	before, after := e.Before.CapacityShare.Or(0), e.After.CapacityShare.Or(0)
	switch {
	case e.Change != "":
	case after > before+0.0005:
		out = append(out, "more")
	case after < before-0.0005:
		out = append(out, "less")
	}
	switch {
	case e.After.Overloaded && !e.Before.Overloaded:
		out = append(out, "would be flagged")
	case e.Before.Overloaded && !e.After.Overloaded && e.Change == "":
		out = append(out, "flag would be lifted")
	}
	return strings.Join(out, ", ")
}

// Every calls f at once and then at each interval, until it fails, ctx is done, or it was called count times (0: for
// ever).
func Every(ctx context.Context, interval time.Duration, count int, f func() error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for n := 1; ; n++ {
		if err := f(); err != nil {
			return err
		}
		if n == count {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
