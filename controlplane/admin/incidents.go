package admin

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"steelyard/controlplane/view"
)

// An observation is everything that was seen at one moment; incidents are found in it.
type observation struct {
	now      time.Time
	status   Status
	stuck    []string
	clusters []view.Cluster // with what the handler adds: Served, Counts
	clients  []Client
	left     []LeftEnvoy
	configs  []Configured    // that were applied, the latest last
	refusing map[string]bool // by cluster: its queue has just refused requests
}

// A Configured is a configuration that was applied.
type Configured struct {
	At         time.Time
	Generation uint64
	Clusters   []string // that it added or changed, sorted
}

// A condition is an incident of this moment only, as an alerting rule evaluates it once.
type condition struct {
	view.Incident
	// began is when it began, where that is known; else it began when it was first found.
	began time.Time
	// pendingFor is how long it has to last before it is shown, keepFor how long it is shown after it was last found.
	pendingFor, keepFor time.Duration
	// rank orders conditions of one id: the title of the highest stays.
	rank int
	// inhibitedBy is the id of the condition that shows the same cause of all its endpoints or Envoys.
	inhibitedBy string
}

// An incidentState is an incident in the memory of evaluate.
type incidentState struct {
	condition
	first, last time.Time // when it was found
}

// The bounds and times of incidents.
const (
	maxIncidents = 200
	// defaultKeepFor is how long an incident stays after its cause was last seen, so that it does not flicker.
	defaultKeepFor = 10 * time.Second
	// afterConfig is how soon after a change of the configuration an incident has to begin to be blamed on it.
	afterConfig = 30 * time.Second
	// several is how many conditions of a kind in one cluster become one incident, until there are fewer than two.
	several = 4
)

// evaluate makes the incidents of a moment of those a second before and of what is seen now. It is pure: all incidents
// of the page, the JSON and the command line come from here.
func evaluate(before []incidentState, p *observation) []incidentState {
	was := make(map[string]*incidentState, len(before))
	for i := range before {
		was[before[i].ID] = &before[i]
	}
	var out []incidentState
	found := map[string]int{} // how severe
	for _, f := range grouped(uninhibited(conditions(p)), was) {
		if found[f.ID] > 0 {
			continue
		}
		found[f.ID] = rank(f.Severity)
		out = append(out, continued(was[f.ID], f, p))
	}
	for _, s := range before {
		over := found[s.ID] > 0 || found[s.inhibitedBy] >= rank(s.Severity) || p.now.Sub(s.last) >= s.keepFor
		if !over && p.now.Sub(s.first) >= s.pendingFor && exists(&s, p) {
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b incidentState) int {
		return cmp.Or(cmp.Compare(rank(b.Severity), rank(a.Severity)), a.Since.Compare(b.Since.Time),
			strings.Compare(a.ID, b.ID))
	})
	return out
}

// uninhibited leaves out what something as severe shows: one cause is one incident.
func uninhibited(all []condition) []condition {
	severe := make(map[string]int, len(all))
	for i := range all {
		severe[all[i].ID] = rank(all[i].Severity)
	}
	return slices.DeleteFunc(all, func(f condition) bool { return severe[f.inhibitedBy] >= rank(f.Severity) })
}

// continued is a condition with what was before: its beginning, and the title and severity of its worst, unless that
// did not last. One that gets worse may have begun earlier than what was found first.
func continued(was *incidentState, f condition, p *observation) incidentState {
	s := incidentState{condition: f, first: p.now, last: p.now}
	s.Since = view.At(p.now)
	if !f.began.IsZero() {
		s.Since = view.At(f.began)
	}
	if was != nil && rank(was.Severity) > rank(f.Severity) && p.now.Sub(was.first) < was.pendingFor {
		was = nil // such as a source that has its first result
	}
	if was != nil {
		s.first = was.first
		if was.rank >= f.rank || f.began.IsZero() || f.began.After(was.Since.Time) {
			s.Since = was.Since
		}
		if was.rank >= f.rank {
			s.Title, s.Severity, s.rank = was.Title, was.Severity, was.rank
			s.pendingFor = min(s.pendingFor, was.pendingFor)
		}
		if f.Kind == kindEndpoint && f.began.Sub(s.Since.Time) >= time.Second {
			s.Why += sprint(" There was trouble before that, since %s.", s.Since.UTC().Format("15:04:05Z"))
		}
		if rank(was.Severity) > rank(s.Severity) {
			s.Severity = was.Severity
		}
		if was.Steelyard == view.BlameInPart && f.Steelyard != view.BlameYes {
			s.Steelyard, s.Because = was.Steelyard, was.Because
			return s
		}
	}
	blameConfig(&s, p)
	return s
}

// exists reports whether the subject of an incident is still there: what has been removed is in no trouble.
func exists(s *incidentState, p *observation) bool {
	if s.Subject.Cluster == "" {
		return true
	}
	i := slices.IndexFunc(p.clusters, func(c view.Cluster) bool { return c.Name == s.Subject.Cluster })
	if i < 0 || s.Subject.Kind != view.SubjectEndpoint {
		return i >= 0
	}
	return slices.ContainsFunc(p.clusters[i].Endpoints, func(e view.Endpoint) bool {
		return e.Address == s.Subject.Name
	})
}

// blameConfig blames an incident on a configuration that changed its cluster just before it began.
func blameConfig(s *incidentState, p *observation) {
	if s.Steelyard == view.BlameYes || s.Subject.Cluster == "" {
		return
	}
	for _, c := range p.configs {
		since := s.Since.Sub(c.At)
		if since < 0 || since > afterConfig || !slices.Contains(c.Clusters, s.Subject.Cluster) || c.Generation <= 1 {
			continue
		}
		s.Steelyard = view.BlameInPart
		s.Because = sprint("It began %s after configuration %d was applied, which changed this cluster.",
			formatSeconds(since.Seconds()), c.Generation)
	}
}

// shownOf are the incidents that have lasted long enough, with the reasons as they are at this time.
func shownOf(states []incidentState, now time.Time) []view.Incident {
	out := []view.Incident{}
	for _, s := range states {
		if now.Sub(s.first) >= s.pendingFor {
			out = append(out, s.Incident)
		}
	}
	return out
}

// grouped makes one incident of several conditions of a kind about endpoints or Envoys.
func grouped(all []condition, was map[string]*incidentState) []condition {
	type groupKey struct {
		kind    view.IncidentKind
		cluster string
	}
	groups := map[groupKey][]condition{}
	for _, f := range all {
		if f.Subject.Kind == view.SubjectEndpoint || f.Subject.Kind == view.SubjectEnvoy {
			k := groupKey{f.Kind, f.Subject.Cluster}
			groups[k] = append(groups[k], f)
		}
	}
	joints := map[groupKey]condition{} // once for each group, which may have every endpoint of a large cluster
	for k, members := range groups {
		g := joint(members)
		if len(members) >= several || was[g.ID] != nil && len(members) >= 2 {
			joints[k] = g
		}
	}
	var out []condition
	joined := map[groupKey]bool{}
	for _, f := range all {
		k := groupKey{f.Kind, f.Subject.Cluster}
		g, together := joints[k]
		switch {
		case !together:
			out = append(out, f)
		case !joined[k]:
			joined[k] = true
			out = append(out, g)
		}
	}
	return out
}

// joint is one condition for several of a kind.
func joint(members []condition) condition {
	f := members[0]
	f.rank = 0
	names := make([]string, 0, len(members))
	for _, m := range members {
		names = append(names, m.Subject.Name)
		if rank(m.Severity) > rank(f.Severity) {
			f.Severity = m.Severity
		}
		if !m.began.IsZero() && (f.began.IsZero() || m.began.Before(f.began)) {
			f.began = m.began
		}
	}
	first := slices.MinFunc(members, func(a, b condition) int { return a.began.Compare(b.began) })
	what, where := "Envoys", ""
	if f.Subject.Kind == view.SubjectEndpoint {
		what, where = "endpoints", " of "+f.Subject.Cluster
	}
	f.Subject.Name = ""
	if f.Subject.Kind == view.SubjectEndpoint {
		f.Subject.Kind = view.SubjectCluster
	}
	f.ID = sprint("%s/%s/several", f.Kind, f.Subject.Cluster)
	f.Title = sprint("Several %s%s %s", what, where, groupTitles[f.Kind])
	f.Why = sprint("%d %s: %s. The first: %s", len(members), what, listed(names), first.Why)
	return f
}

// listed names the first of many.
func listed(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return sprint("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// worstState is the state that follows from incidents.
func worstState(incidents []view.Incident) view.State {
	state := view.StateOK
	for i := range incidents {
		if incidents[i].Severity == view.SeverityError {
			return view.StateError
		}
		state = view.StateWarning
	}
	return state
}

// clusterIncidents returns the incidents about a cluster, its endpoints, and Envoys in it.
func clusterIncidents(all []view.Incident, cluster string) []view.Incident {
	out := []view.Incident{}
	for i := range all {
		if all[i].Subject.Cluster == cluster {
			out = append(out, all[i])
		}
	}
	return out
}
