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
	"steelyard/controlplane/admin/conditions"
	"steelyard/internal/api"
)

// A Status is what steelyard status prints.
type Status struct {
	Process   api.Status      `json:"process"`
	State     api.State       `json:"state"` // the worst of all
	Clusters  []api.Cluster   `json:"clusters"`
	Envoys    []EnvoyStatus   `json:"envoys"`
	Left      []api.LeftEnvoy `json:"left"` // in the last hour, and not back
	Overrides []api.Override  `json:"overrides"`
	Incidents []api.Incident  `json:"incidents"`
	LeftOut   int             `json:"incidents_left_out"`
}

// An EnvoyStatus is one name that an Envoy asks for, or asked for if it left in the last hour.
type EnvoyStatus struct {
	NodeID       string         `json:"node_id"`
	Address      string         `json:"address"`
	Resource     string         `json:"resource"` // empty: it asks for nothing
	State        api.EnvoyState `json:"state"`
	VersionSent  string         `json:"version_sent"`
	VersionAcked string         `json:"version_acked"`
	LagSeconds   api.Number     `json:"lag_seconds"` // from a push to its ACK; while there is none, since the push
	Nacks        uint64         `json:"nacks"`
	Nack         string         `json:"nack"` // of a refusal that stands
	Note         string         `json:"note"` // why it is unknown, in the words of the API; empty otherwise
	Signals      string         `json:"signals"`
	LeftAt       api.Time       `json:"left_at"`     // of one that is not connected any more
	LeftReason   string         `json:"left_reason"` // likewise
}

// Status asks for everything that is shown.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	var s Status
	var clusters api.ClusterList
	var clients api.ClientList
	var incidents api.IncidentList
	var overrides api.OverrideList
	err := errors.Join(
		c.get(ctx, &s.Process, []string{"status"}),
		c.get(ctx, &clusters, []string{"clusters"}),
		c.get(ctx, &clients, []string{"clients"}),
		c.get(ctx, &incidents, []string{"incidents"}),
		c.get(ctx, &overrides, []string{"overrides"}))
	if err != nil {
		return nil, firstOf(err)
	}
	s.Clusters, s.Left, s.Overrides = clusters.Clusters, clients.Left, overrides.Overrides
	s.Incidents, s.LeftOut, s.State = incidents.Incidents, incidents.LeftOut, incidents.State
	s.Envoys = []EnvoyStatus{}
	for i := range clients.Clients {
		s.Envoys = append(s.Envoys, envoys(&clients.Clients[i], s.Process.Now.Time)...)
	}
	for i := range clients.Left {
		s.Envoys = append(s.Envoys, left(&clients.Left[i])...)
	}
	worstFirst(s.Envoys)
	return &s, nil
}

func worstFirst(envoys []EnvoyStatus) {
	slices.SortStableFunc(envoys, func(a, b EnvoyStatus) int {
		return cmp.Or(cmp.Compare(rank(a.State), rank(b.State)), cmp.Compare(a.NodeID, b.NodeID),
			cmp.Compare(a.Resource, b.Resource))
	})
}

// firstOf is the first of several errors: those of one Steelyard that does not answer are alike.
func firstOf(err error) error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return all.Unwrap()[0]
	}
	return err
}

// rank is low for the worst.
func rank(s api.EnvoyState) int {
	return slices.Index([]api.EnvoyState{api.EnvoyRefuses, api.EnvoyBehind, api.EnvoyGone, api.EnvoyUnknown,
		api.EnvoyIdle, api.EnvoyShadow, api.EnvoyFollows, api.EnvoyLeft}, s)
}

// left has a row for each name that an Envoy asked for that is not connected any more.
func left(l *api.LeftEnvoy) []EnvoyStatus {
	base := EnvoyStatus{NodeID: l.NodeID, Address: l.Address, State: l.State, LeftAt: l.LeftAt,
		LeftReason: l.LeftReason}
	if len(l.Clusters) == 0 {
		return []EnvoyStatus{base}
	}
	var out []EnvoyStatus
	for _, cluster := range l.Clusters {
		e := base
		e.Resource = cluster
		out = append(out, e)
	}
	return out
}

func envoys(c *api.Client, now time.Time) []EnvoyStatus {
	base := EnvoyStatus{NodeID: c.NodeID, Address: c.Address, State: api.EnvoyIdle, Signals: signals(c)}
	if len(c.Subscriptions) == 0 {
		return []EnvoyStatus{base}
	}
	var out []EnvoyStatus
	for i := range c.Subscriptions {
		sub, e := &c.Subscriptions[i], base
		e.Resource, e.VersionSent, e.VersionAcked = sub.Resource, sub.VersionSent, sub.VersionAcked
		e.LagSeconds, e.Nacks, e.State = sub.AckDelaySeconds, sub.Nacks, conditions.SubscriptionState(sub, now)
		if e.State == api.EnvoyFollows && c.State == api.EnvoyShadow {
			e.State = c.State
		}
		switch e.State {
		case api.EnvoyRefuses:
			e.Nack, e.LagSeconds = sub.Nack.Message, sub.LastAck.Age(now)
		case api.EnvoyBehind:
			e.LagSeconds = sub.LastSent.Age(now)
		case api.EnvoyUnknown:
			e.Note = "Envoy " + c.NodeID + " has nothing to be sent yet for " + sub.Resource
			for _, p := range c.Problems {
				if strings.Contains(p.Message, "subscribes to "+sub.Resource+",") {
					e.Note = p.Message
				}
			}
		}
		out = append(out, e)
	}
	return out
}

// short is the number at the end of a version: what comes before is of the process.
func short(version string) string {
	return cmp.Or(version[strings.LastIndexByte(version, '.')+1:], unknown)
}

// signals is how an Envoy reports its requests.
func signals(c *api.Client) string {
	switch {
	case c.Signals.State == api.SignalSilent:
		return "silent"
	case c.Signals.Mode == "":
		return "none"
	}
	return string(c.Signals.Mode)
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
		if len(s.Process.Pickers.List) > 0 {
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

func (s *Status) envoys(w io.Writer, width int) {
	if len(s.Envoys) == 0 {
		fmt.Fprintln(w, "No Envoy is connected.")
		return
	}
	t := table.New("ENVOY", "ASKS FOR", "STATE", "VERSION", "ACKED", ">LAG", ">NACKS", "REPORTS BY")
	for _, e := range s.Envoys {
		if !e.LeftAt.IsZero() {
			t.Add(e.NodeID, cmp.Or(e.Resource, unknown), leftText(&e, s.Process.Now.Time), unknown, unknown, unknown,
				unknown, e.LeftReason)
			continue
		}
		t.Add(e.NodeID, cmp.Or(e.Resource, unknown), string(e.State), short(e.VersionSent),
			short(e.VersionAcked), seconds(e.LagSeconds), fmt.Sprint(e.Nacks), e.Signals)
	}
	t.Write(w, width)
	for _, e := range s.Envoys {
		switch e.State {
		case api.EnvoyRefuses:
			fmt.Fprintln(w, table.Printable(fmt.Sprintf("%s refuses %s: %s", e.NodeID, e.Resource, e.Nack)))
		case api.EnvoyUnknown:
			fmt.Fprintln(w, table.Printable(e.Note))
		}
	}
}

// leftText is the state of an Envoy that is not connected any more, and since when.
func leftText(e *EnvoyStatus, now time.Time) string {
	if e.State == api.EnvoyBehind {
		return "behind for " + ago(e.LeftAt, now)
	}
	return string(e.State) + " " + ago(e.LeftAt, now) + " ago"
}

func (s *Status) pickers(w io.Writer, width int) {
	t := table.New("PICKER", "FOLLOWS", "FOR", "ADDRESS")
	for _, p := range s.Process.Pickers.List {
		t.Add(p.Name, cmp.Or(strings.Join(p.Clusters, ","), "all clusters"), ago(p.Since, s.Process.Now.Time),
			p.Address)
	}
	t.Write(w, width)
	if more := s.Process.Pickers.Connected - len(s.Process.Pickers.List); more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
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
