package console

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"steelyard/cmd/internal/table"
	"steelyard/controlplane/admin/conditions"
	"steelyard/internal/api"
)

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
	Replica      string         `json:"replica"`     // that it follows; empty where there is only one
	HeardAt      api.Time       `json:"heard_at"`    // when another replica was last heard of
}

// A PickerStatus is a picker, at any replica.
type PickerStatus struct {
	api.Picker
	Replica string   `json:"replica"`  // that it follows; empty where there is only one
	HeardAt api.Time `json:"heard_at"` // when another replica was last heard of
}

// take adds the Envoys and pickers of all replicas.
func (s *Status) take(clients *api.ClientList) {
	for i := range clients.Clients {
		s.Envoys = append(s.Envoys, envoys(&clients.Clients[i], s.Process.Now.Time)...)
	}
	for i := range clients.Left {
		s.Envoys = append(s.Envoys, left(&clients.Left[i])...)
	}
	for i := range s.Envoys {
		s.Envoys[i].Replica = s.Process.Replicas.Name
	}
	for _, p := range s.Process.Pickers.List {
		s.Pickers = append(s.Pickers, PickerStatus{Picker: p, Replica: s.Process.Replicas.Name})
	}
	for i := range clients.Elsewhere {
		s.elsewhere(&clients.Elsewhere[i])
	}
	s.Envoys, s.Pickers = api.OrEmpty(s.Envoys), api.OrEmpty(s.Pickers)
	worstFirst(s.Envoys)
}

// elsewhere adds an Envoy, with a row for each name, or a picker of another replica.
func (s *Status) elsewhere(e *api.OtherEnvoy) {
	if e.Kind == api.FollowerPicker {
		s.Pickers = append(s.Pickers, PickerStatus{Replica: e.Replica, HeardAt: e.HeardAt,
			Picker: api.Picker{Name: e.NodeID, Address: e.Address, Clusters: e.Clusters, Since: e.ConnectedAt}})
		return
	}
	s.Envoys = append(s.Envoys, each(EnvoyStatus{NodeID: e.NodeID, Address: e.Address, State: e.State,
		Replica: e.Replica, HeardAt: e.HeardAt}, e.Clusters)...)
}

func worstFirst(envoys []EnvoyStatus) {
	slices.SortStableFunc(envoys, func(a, b EnvoyStatus) int {
		return cmp.Or(cmp.Compare(a.State.Rank(), b.State.Rank()), cmp.Compare(a.NodeID, b.NodeID),
			cmp.Compare(a.Resource, b.Resource))
	})
}

// left has a row for each name that an Envoy asked for that is not connected any more.
func left(l *api.LeftEnvoy) []EnvoyStatus {
	base := EnvoyStatus{NodeID: l.NodeID, Address: l.Address, State: l.State, LeftAt: l.LeftAt,
		LeftReason: l.LeftReason}
	return each(base, l.Clusters)
}

// each has a row for each name that an Envoy asks for; one where it asks for none.
func each(base EnvoyStatus, names []string) []EnvoyStatus {
	if len(names) == 0 {
		return []EnvoyStatus{base}
	}
	var out []EnvoyStatus
	for _, name := range names {
		e := base
		e.Resource = name
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

func (s *Status) envoys(w io.Writer, width int) {
	if len(s.Envoys) == 0 {
		fmt.Fprintln(w, "No Envoy is connected.")
		return
	}
	t := table.New(s.withReplica("REPLICA", "ENVOY", "ASKS FOR", "STATE", "VERSION", "ACKED", ">LAG", ">NACKS",
		"REPORTS BY")...)
	for _, e := range s.Envoys {
		row := []string{e.NodeID, cmp.Or(e.Resource, unknown)}
		switch {
		case !e.LeftAt.IsZero():
			row = append(row, leftText(&e, s.Process.Now.Time), unknown, unknown, unknown, unknown, e.LeftReason)
		case !e.HeardAt.IsZero():
			row = append(row, heardText(&e, s.Process.Now.Time), unknown, unknown, unknown, unknown, unknown)
		default:
			row = append(row, string(e.State), short(e.VersionSent), short(e.VersionAcked), seconds(e.LagSeconds),
				fmt.Sprint(e.Nacks), e.Signals)
		}
		t.Add(s.withReplica(e.Replica, row...)...)
	}
	t.Write(w, width)
	s.leftOut(w)
	for _, e := range s.Envoys {
		switch e.State {
		case api.EnvoyRefuses:
			fmt.Fprintln(w, table.Printable(fmt.Sprintf("%s refuses %s: %s", e.NodeID, e.Resource, e.Nack)))
		case api.EnvoyUnknown:
			fmt.Fprintln(w, table.Printable(cmp.Or(e.Note, "Ask replica "+e.Replica+" about "+e.NodeID+".")))
		}
	}
}

// withReplica adds the replica to a row, behind the name, where there are several.
func (s *Status) withReplica(replica string, row ...string) []string {
	if s.Process.Replicas.Enabled {
		row = slices.Insert(row, 1, cmp.Or(replica, unknown))
	}
	return row
}

// heardText is the state of an Envoy at another replica, and how old that is while its replica is silent.
func heardText(e *EnvoyStatus, now time.Time) string {
	if e.State == api.EnvoyUnheard {
		return string(e.State) + " for " + ago(e.HeardAt, now)
	}
	return string(e.State)
}

// leftOut says how many Envoys other replicas have that they do not list.
func (s *Status) leftOut(w io.Writer) {
	for _, o := range s.Process.Replicas.Others {
		if o.LeftOut > 0 {
			fmt.Fprintf(w, "and %s more at replica %s\n", table.Count(o.LeftOut, "Envoy"), table.Printable(o.Name))
		}
	}
}

// replicas lists this replica and the others.
func (s *Status) replicas(w io.Writer, width int) {
	r, now := &s.Process.Replicas, s.Process.Now.Time
	here := make(map[string]bool)
	for _, e := range s.Envoys {
		if e.Replica == r.Name && e.HeardAt.IsZero() && e.LeftAt.IsZero() {
			here[e.NodeID+" "+e.Address] = true
		}
	}
	state := "connected"
	if !r.Connected {
		state = "cut off: " + r.Error
	}
	t := table.New("REPLICA", ">ENVOYS", "FOR", "LAST MESSAGE", "STATE")
	t.Add(r.Name+" (this one)", fmt.Sprint(len(here)), ago(r.Since, now), unknown, state)
	for _, o := range r.Others {
		t.Add(o.Name, fmt.Sprint(o.Envoys), ago(o.Since, now), seconds(o.AgeSeconds)+" ago", string(o.State))
	}
	t.Write(w, width)
}

// leftText is the state of an Envoy that is not connected any more, and since when.
func leftText(e *EnvoyStatus, now time.Time) string {
	if e.State == api.EnvoyBehind {
		return "behind for " + ago(e.LeftAt, now)
	}
	return string(e.State) + " " + ago(e.LeftAt, now) + " ago"
}

func (s *Status) pickers(w io.Writer, width int) {
	t := table.New(s.withReplica("REPLICA", "PICKER", "FOLLOWS", "FOR", "ADDRESS")...)
	for _, p := range s.Pickers {
		t.Add(s.withReplica(p.Replica, p.Name, cmp.Or(strings.Join(p.Clusters, ","), "all clusters"),
			ago(p.Since, s.Process.Now.Time), p.Address)...)
	}
	t.Write(w, width)
	if more := s.Process.Pickers.Connected - len(s.Process.Pickers.List); more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
	}
}
