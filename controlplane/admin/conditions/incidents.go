package conditions

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"steelyard/internal/api"
)

// An IncidentState is an incident in the memory of evaluate.
type IncidentState struct {
	condition
	first, last time.Time // when it was found
}

// Evaluate makes the incidents of a moment of those a second before and of what is seen now. It is pure: all incidents
// of the page, the JSON and the command line come from here.
func Evaluate(before []IncidentState, p *Observation) []IncidentState {
	was := make(map[string]*IncidentState, len(before))
	for i := range before {
		was[before[i].ID] = &before[i]
	}
	var out []IncidentState
	found := map[string]int{} // how severe
	for _, f := range grouped(uninhibited(conditions(p)), was) {
		if found[f.ID] > 0 {
			continue
		}
		found[f.ID] = Rank(f.Severity)
		out = append(out, continued(was[f.ID], f, p))
	}
	for _, s := range before {
		over := found[s.ID] > 0 || found[s.inhibitedBy] >= Rank(s.Severity) || p.Now.Sub(s.last) >= s.keepFor
		if !over && p.Now.Sub(s.first) >= s.pendingFor && exists(&s, p) {
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b IncidentState) int {
		return cmp.Or(cmp.Compare(Rank(b.Severity), Rank(a.Severity)), a.Since.Compare(b.Since.Time),
			strings.Compare(a.ID, b.ID))
	})
	return out
}

// uninhibited leaves out what something as severe shows: one cause is one incident.
func uninhibited(all []condition) []condition {
	severe := make(map[string]int, len(all))
	for i := range all {
		severe[all[i].ID] = Rank(all[i].Severity)
	}
	return slices.DeleteFunc(all, func(f condition) bool { return severe[f.inhibitedBy] >= Rank(f.Severity) })
}

// continued is a condition with what was before: its beginning, and the title and severity of its worst, unless that
// did not last. One that gets worse may have begun earlier than what was found first.
func continued(was *IncidentState, f condition, p *Observation) IncidentState {
	s := IncidentState{condition: f, first: p.Now, last: p.Now}
	s.Since = api.At(p.Now)
	if !f.began.IsZero() {
		s.Since = api.At(f.began)
	}
	if was != nil && Rank(was.Severity) > Rank(f.Severity) && p.Now.Sub(was.first) < was.pendingFor {
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
		if Rank(was.Severity) > Rank(s.Severity) {
			s.Severity = was.Severity
		}
		if was.Steelyard == api.BlameInPart && f.Steelyard != api.BlameYes {
			s.Steelyard, s.Because = was.Steelyard, was.Because
			return s
		}
	}
	blameConfig(&s, p)
	return s
}

// exists reports whether the subject of an incident is still there: what has been removed is in no trouble.
func exists(s *IncidentState, p *Observation) bool {
	if s.Subject.Cluster == "" {
		return true
	}
	i := slices.IndexFunc(p.Clusters, func(c api.Cluster) bool { return c.Name == s.Subject.Cluster })
	if i < 0 || s.Subject.Kind != api.SubjectEndpoint {
		return i >= 0
	}
	return slices.ContainsFunc(p.Clusters[i].Endpoints, func(e api.Endpoint) bool {
		return e.Address == s.Subject.Name
	})
}

// blameConfig blames an incident on a configuration that changed its cluster just before it began.
func blameConfig(s *IncidentState, p *Observation) {
	if s.Steelyard == api.BlameYes || s.Subject.Cluster == "" {
		return
	}
	for _, c := range p.Configs {
		since := s.Since.Sub(c.At)
		if since < 0 || since > afterConfig || !slices.Contains(c.Clusters, s.Subject.Cluster) || c.Generation <= 1 {
			continue
		}
		s.Steelyard = api.BlameInPart
		s.Because = sprint("It began %s after configuration %d was applied, which changed this cluster.",
			FormatSeconds(since.Seconds()), c.Generation)
	}
}

// shownOf are the incidents that have lasted long enough, with the reasons as they are at this time.
func Shown(states []IncidentState, now time.Time) []api.Incident {
	out := []api.Incident{}
	for _, s := range states {
		if now.Sub(s.first) >= s.pendingFor {
			out = append(out, s.Incident)
		}
	}
	return out
}

// grouped makes one incident of several conditions of a kind about endpoints or Envoys.
func grouped(all []condition, was map[string]*IncidentState) []condition {
	type groupKey struct {
		kind    api.IncidentKind
		cluster string
	}
	groups := map[groupKey][]condition{}
	for _, f := range all {
		if f.Subject.Kind == api.SubjectEndpoint || f.Subject.Kind == api.SubjectEnvoy {
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
		if Rank(m.Severity) > Rank(f.Severity) {
			f.Severity = m.Severity
		}
		if !m.began.IsZero() && (f.began.IsZero() || m.began.Before(f.began)) {
			f.began = m.began
		}
	}
	first := slices.MinFunc(members, func(a, b condition) int { return a.began.Compare(b.began) })
	what, where := "Envoys", ""
	if f.Subject.Kind == api.SubjectEndpoint {
		what, where = "endpoints", " of "+f.Subject.Cluster
	}
	f.Subject.Name = ""
	if f.Subject.Kind == api.SubjectEndpoint {
		f.Subject.Kind = api.SubjectCluster
	}
	f.ID = sprint("%s/%s/several", f.Kind, f.Subject.Cluster)
	f.Title = sprint("Several %s%s %s", what, where, groupTitles[f.Kind])
	f.Why = sprint("%d %s: %s. The first: %s", len(members), what, Listed(names), first.Why)
	return f
}

// WorstState is the state that follows from incidents.
func WorstState(incidents []api.Incident) api.State {
	state := api.StateOK
	for i := range incidents {
		if incidents[i].Severity == api.SeverityError {
			return api.StateError
		}
		state = api.StateWarning
	}
	return state
}

// ClusterIncidents returns the incidents about a cluster, its endpoints, and Envoys in it.
func ClusterIncidents(all []api.Incident, cluster string) []api.Incident {
	out := []api.Incident{}
	for i := range all {
		if all[i].Subject.Cluster == cluster {
			out = append(out, all[i])
		}
	}
	return out
}
