package console

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"steelyard/cmd/internal/table"
	"steelyard/internal/api"
)

// A Status is what steelyard status prints.
type Status struct {
	Asked     string          `json:"asked"` // URL of the admin listener that answered
	Process   api.Status      `json:"process"`
	State     api.State       `json:"state"` // the worst of all
	Clusters  []api.Cluster   `json:"clusters"`
	Envoys    []EnvoyStatus   `json:"envoys"` // of all replicas
	Pickers   []PickerStatus  `json:"pickers"`
	Left      []api.LeftEnvoy `json:"left"` // in the last hour, and not back
	Overrides []api.Override  `json:"overrides"`
	Incidents []api.Incident  `json:"incidents"`
	LeftOut   int             `json:"incidents_left_out"`
}

// Status asks for everything that is shown.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	var s Status
	var clusters api.ClusterList
	var clients api.ClientList
	var incidents api.IncidentList
	var overrides api.OverrideList
	for _, answer := range []struct {
		path string
		into any
	}{{"status", &s.Process}, {"clusters", &clusters}, {"clients", &clients}, {"incidents", &incidents},
		{"overrides", &overrides}} {
		if err := c.get(ctx, answer.into, []string{answer.path}); err != nil {
			return nil, err
		}
	}
	s.Asked = c.String()
	s.Clusters, s.Left, s.Overrides = clusters.Clusters, clients.Left, overrides.Overrides
	s.Incidents, s.LeftOut, s.State = incidents.Incidents, incidents.LeftOut, incidents.State
	s.take(&clients)
	return &s, nil
}

// Well reports whether nothing needs a person. Warnings count unless they are to be ignored.
func (s *Status) Well(ignoreWarnings bool) bool {
	for _, i := range s.Incidents {
		if i.Severity == api.SeverityError || !ignoreWarnings {
			return false
		}
	}
	for _, e := range s.Envoys {
		if e.State == api.EnvoyRefuses || e.State == api.EnvoyBehind ||
			e.State == api.EnvoyUnknown && !ignoreWarnings {
			return false
		}
	}
	return s.Process.Ready && s.Process.LastReload.Error == ""
}

// Print prints the status.
func (s *Status) Print(o Output, where string) error {
	return o.print(s, func(w io.Writer) {
		s.heading(w, where)
		fmt.Fprintln(w)
		s.clusters(w, o.Width)
		s.omitted(w, o.Width)
		fmt.Fprintln(w)
		s.envoys(w, o.Width)
		if s.Process.Replicas.Enabled {
			fmt.Fprintln(w)
			s.replicas(w, o.Width)
		}
		if len(s.Pickers) > 0 {
			fmt.Fprintln(w)
			s.pickers(w, o.Width)
		}
		if len(s.Overrides) > 0 {
			fmt.Fprintln(w)
			s.overrides(w, o.Width)
		}
		fmt.Fprintln(w)
		s.incidents(w, o.Width)
	})
}

func (s *Status) heading(w io.Writer, where string) {
	p := &s.Process
	fmt.Fprintf(w, "Steelyard %s at %s, up %s, configuration %d", table.Printable(p.Version), where,
		seconds(p.UptimeSeconds), p.ConfigGeneration)
	if age := p.LastReload.At.Age(p.Now.Time); p.LastReload.Error == "" && !p.LastReload.At.IsZero() {
		fmt.Fprintf(w, " of %s ago", seconds(age))
	}
	if !p.Ready {
		fmt.Fprint(w, ", NOT READY")
	}
	fmt.Fprintln(w)
	if p.LastReload.Error != "" {
		fmt.Fprintf(w, "the latest configuration was refused: %s\n", table.Printable(p.LastReload.Error))
	}
}

func (s *Status) clusters(w io.Writer, width int) {
	t := table.New("CLUSTER", "STATE", ">ENDPOINTS", ">FLAGGED", ">UNREAD", ">REQ/S", ">USED", ">SPARE", "SOURCES")
	for i := range s.Clusters {
		c := &s.Clusters[i]
		state := string(c.State)
		if !c.Ready {
			state = "not ready"
		}
		t.Add(c.Name, state, fmt.Sprint(c.Counts.Total), fmt.Sprint(c.Counts.Overloaded), fmt.Sprint(c.Counts.Failing),
			number(arrivalRate(c)), percent(c.Use.CapacityUsed), number(c.Use.ToSpare), sources(c))
	}
	t.Write(w, width)
	for i := range s.Clusters {
		if q := s.Clusters[i].Queue; q != nil {
			owner(w, s.Clusters[i].Name, q.Owner, s.Process.Now.Time)
		}
		if r := s.Clusters[i].Routes; r != nil {
			fmt.Fprintf(w, "routes of %s: %d, of which pickers of other replicas learned %d; confirmed within 1m %d, "+
				"10m %d, 1h %d\n", table.Printable(s.Clusters[i].Name), r.Here+r.Elsewhere, r.Elsewhere, r.LastMinute,
				r.LastTenMinutes, r.LastHour)
		}
	}
}

// owner says which replica grants the places of a queue; nothing where there is only one.
func owner(w io.Writer, cluster string, o api.QueueOwner, now time.Time) {
	epoch, several := o.Epoch.Value()
	switch cluster = table.Printable(cluster); {
	case o.State == api.QueueGrants && several:
		fmt.Fprintf(w, "queue of %s: this replica grants places, for %s, epoch %.0f\n", cluster, ago(o.Since, now),
			epoch)
	case o.State == api.QueueFollows:
		fmt.Fprintf(w, "queue of %s: replica %s at %s grants places, for %s, epoch %.0f\n", cluster,
			table.Printable(o.Name), table.Printable(o.Address), ago(o.Since, now), epoch)
	case o.State != api.QueueGrants:
		fmt.Fprintf(w, "queue of %s: no replica is known to grant places\n", cluster)
	}
}

// sources lists those that are not healthy.
func sources(c *api.Cluster) string {
	var bad []string
	for _, s := range c.Sources {
		if s.State != api.SourceOK && s.State != api.SourceIdle {
			bad = append(bad, s.Name+" "+string(s.State))
		}
	}
	if len(bad) == 0 {
		return "ok"
	}
	return strings.Join(bad, ", ")
}

// omitted lists what discovery has found and left out.
func (s *Status) omitted(w io.Writer, width int) {
	for i := range s.Clusters {
		for _, source := range s.Clusters[i].Sources {
			o := &source.Omitted
			if o.Count == 0 {
				continue
			}
			fmt.Fprintf(w, "\nLeft out of %s by %s:\n", table.Printable(s.Clusters[i].Name), source.Name)
			for _, omission := range o.First {
				fmt.Fprintln(w, "  "+wrap(omission.String(), "    ", width))
			}
			if more := o.Count - len(o.First); more > 0 {
				fmt.Fprintf(w, "  and %d more\n", more)
			}
		}
	}
}

func (s *Status) overrides(w io.Writer, width int) {
	t := table.New("OVERRIDE", "CLUSTER", "ENDPOINT", "ENDS IN", "BY", "REASON")
	for _, o := range s.Overrides {
		t.Add(overrideText(o), o.Cluster, cmp.Or(o.Pod, o.Address), endsIn(o, s.Process.Now.Time),
			cmp.Or(o.By, unknown), o.Reason)
	}
	t.Write(w, width)
}

func (s *Status) incidents(w io.Writer, width int) {
	if len(s.Incidents) == 0 {
		fmt.Fprintln(w, "No incidents.")
		return
	}
	fmt.Fprintln(w, table.Count(len(s.Incidents)+s.LeftOut, "incident")+", errors first:")
	for _, i := range s.Incidents {
		fmt.Fprintln(w)
		printIncident(w, i, s.Process.Now.Time, width)
	}
	if s.LeftOut > 0 {
		fmt.Fprintf(w, "\nand %d more\n", s.LeftOut)
	}
}

// printIncident prints the four parts of an incident.
func printIncident(w io.Writer, i api.Incident, now time.Time, width int) {
	const indent = "             "
	line := func(head, text string) {
		if text != "" {
			fmt.Fprintf(w, "  %-10s %s\n", head, wrap(text, indent, width))
		}
	}
	fmt.Fprintf(w, "%s since %s (%s): %s\n", strings.ToUpper(string(i.Severity)), clock(i.Since), ago(i.Since, now),
		table.Printable(i.Title))
	line("why", i.Why)
	blame := map[api.Blame]string{api.BlameNo: "no", api.BlameInPart: "in part", api.BlameYes: "yes",
		api.BlameUnknown: "not known"}[i.Steelyard]
	if i.Because != "" {
		blame += ": " + i.Because
	}
	line("Steelyard?", blame)
	line("do", i.Next)
	if i.Command != "" {
		fmt.Fprintf(w, "  %-10s %s\n", "command", table.Printable(i.Command))
	}
}

func overrideText(o api.Override) string {
	if o.Kind == api.OverridePin {
		return "pinned to " + percent(o.Share)
	}
	return "drained"
}

// endsIn is how long an override lasts from now on.
func endsIn(o api.Override, now time.Time) string {
	return seconds(api.Seconds(max(0, o.Until.Sub(now))))
}
