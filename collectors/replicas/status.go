package replicas

import (
	"cmp"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/grpc/status"

	"steelyard/internal/api"
)

// judge finds out whether there are replicas that this one does not hear. It reports whether that changed. The caller
// holds the lock.
func (l *Link) judge(now time.Time) (changed bool) { return l.peers.SetCut(now, l.apart() != "") }

// apart says why the counts of other replicas may be missing here; empty where none are.
func (l *Link) apart() string {
	switch {
	case !l.settings.Enabled:
		return ""
	case !l.found && l.lookup != nil:
		return "looking for the other replicas: " + l.lookup.Error()
	case !l.found:
		return "looking for the other replicas"
	}
	for _, address := range l.addresses() {
		if t := l.targets[address]; !t.same && !t.gone && !l.peers.Live(t.id) {
			return address + ": " + t.why()
		}
	}
	for _, f := range l.followers {
		if !l.follows(f) {
			return cmp.Or(f.name, string(f.id)) + ": " + notNamed
		}
	}
	return ""
}

const notNamed = "it follows this replica, and is at none of the addresses that this one knows"

// follows reports whether this replica follows one that follows it.
func (l *Link) follows(f *follower) bool {
	for _, t := range l.targets {
		if t.id == f.id {
			return true
		}
	}
	return false
}

// why says why no messages come from a target.
func (t *target) why() string {
	switch {
	case t.err == nil && t.id == "":
		return "connecting"
	case t.err == nil:
		return errSilent.Error()
	}
	if s, ok := status.FromError(t.err); ok {
		return s.Message()
	}
	return t.err.Error()
}

// Status returns the state of the link.
func (l *Link) Status() api.Replicas {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.settings.Enabled {
		return api.Replicas{}
	}
	cut, since := l.peers.Cut()
	s := api.Replicas{Enabled: true, ID: string(l.id), Name: l.settings.Name, Connected: !cut, Since: api.At(since),
		Error: l.apart(), Messages: l.peers.Messages, Others: l.replicas()}
	if l.lookup != nil && l.found {
		s.Lookup = l.lookup.Error()
	}
	return s
}

// replicas returns the other replicas: those heard of, those at an address where a connection was tried, and those that
// follow this one.
func (l *Link) replicas() []api.Replica {
	all := l.peers.Status()
	find := func(id string) *api.Replica {
		if i := slices.IndexFunc(all, func(r api.Replica) bool { return r.ID == id }); i >= 0 && id != "" {
			return &all[i]
		}
		all = append(all, api.Replica{ID: id, State: api.ReplicaUnreachable})
		return &all[len(all)-1]
	}
	for _, address := range l.addresses() {
		t := l.targets[address]
		if t.same || t.id == "" && t.err == nil {
			continue
		}
		r := find(string(t.id))
		r.Address, r.Name = address, cmp.Or(r.Name, t.name)
		if r.State != api.ReplicaLive {
			r.Error = t.why()
			if r.Since.IsZero() {
				r.Since = api.At(t.since)
			}
			if t.gone {
				r.State = api.ReplicaGone
			}
		}
	}
	for id, f := range l.followers {
		r := find(string(id))
		r.Follows, r.Name = true, cmp.Or(r.Name, f.name)
		if !l.follows(f) {
			r.State, r.Error, r.Since = api.ReplicaUnreachable, notNamed, api.At(f.since)
		}
	}
	slices.SortFunc(all, func(a, b api.Replica) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Address, b.Address), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// A line is a line of the log.
type line struct {
	level slog.Level
	text  string
	args  []any
}

// news returns the changes since the last check, as lines of the log.
func (l *Link) news(now time.Time) (lines []line) {
	cut, since := l.peers.Cut()
	switch {
	case cut && !l.warned && now.Sub(since) >= settled:
		l.warned = true
		lines = append(lines, line{slog.LevelWarn, "counts of other replicas are missing", []any{"error", l.apart()}})
	case !cut && l.warned:
		l.warned = false
		lines = append(lines, line{slog.LevelInfo, "the messages of all replicas arrive", nil})
	}
	seen := make(map[string]api.ReplicaState)
	for _, r := range l.replicas() {
		key := cmp.Or(r.ID, r.Address)
		if seen[key] = r.State; l.states[key] != r.State {
			lines = append(lines, line{slog.LevelInfo, "another replica is " + string(r.State),
				[]any{"replica", r.Name, "address", r.Address, "id", r.ID, "error", r.Error}})
		}
	}
	l.states = seen
	return lines
}
