package merge

import (
	"hash/fnv"
	"io"
	"time"

	"steelyard/weighting"
)

// Mine reports whether this replica has to scrape an endpoint: it owns the endpoint, or another replica's report of it
// is overdue.
func (p *Peers) Mine(now time.Time, name, address string, interval time.Duration) bool {
	if len(p.live) == 1 || owner(p.live, name, address) == p.self {
		return true
	}
	const late = 250 * time.Millisecond
	c := p.clusters[name]
	return c == nil || c.members[address] == nil || now.Sub(c.members[address].reported) > interval*3/2+late
}

// owner returns the replica with the highest hash.
func owner(all []ID, name, address string) (highest ID) {
	most := uint64(0)
	for _, id := range all {
		h := fnv.New64a()
		for _, s := range []string{string(id), name, address} {
			_, _ = io.WriteString(h, s) // a hash takes everything
			_, _ = h.Write([]byte{0})
		}
		if n := spread(h.Sum64()); highest == "" || n > most {
			highest, most = id, n
		}
	}
	return highest
}

// spread mixes the bits of a hash: FNV's high bits hardly depend on the last bytes.
func spread(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// A Server joins the reports of one server by several replicas. The zero Server is ready for use.
type Server struct {
	source      ID
	last        weighting.ServerReport
	at          time.Time
	offsets     [sums]float64
	restarts    int // added to those of the source
	implausible int
}

// sums is the number of a report's cumulative fields.
const sums = 8

// cumulative returns those fields; nil for one that is unknown.
func cumulative(r *weighting.ServerReport) (all [sums]*float64) {
	for i, f := range []*weighting.Reading{&r.Completions, &r.QueueSeconds, &r.BusySeconds} {
		if f.Known() {
			all[i] = &f.Value
		}
	}
	if t := &r.Tokens; !t.At.IsZero() {
		copy(all[3:], []*float64{&t.Prompt, &t.Cached, &t.Generated, &t.First, &t.Iterations})
	}
	return all
}

// Take takes in a replica's report made at that time. It returns the report with sums that continue from the previous
// ones; false if a newer report was taken before.
func (s *Server) Take(from ID, at time.Time, r weighting.ServerReport) (weighting.ServerReport, bool) {
	if !at.After(s.at) {
		return weighting.ServerReport{}, false
	}
	changed := s.source != "" && from != s.source
	broken := false
	last := cumulative(&s.last)
	for i, v := range cumulative(&r) {
		if v == nil {
			continue
		}
		*v += s.offsets[i]
		if last[i] == nil {
			continue
		}
		if risen := *v - *last[i]; risen < 0 || changed && !weighting.Possible(risen, at.Sub(s.at)) {
			s.offsets[i] -= risen
			*v = *last[i]
			broken = true
		}
	}
	if changed {
		s.restarts, s.implausible = s.last.Restarts-r.Restarts, s.last.Implausible-r.Implausible
	}
	if broken {
		s.restarts++ // nothing is known of the time between
	}
	r.Restarts += s.restarts
	r.Implausible += s.implausible
	s.source, s.at = from, at
	s.keep(&r)
	return r, true
}

// keep remembers a report. A field that is left out stays as it was.
func (s *Server) keep(r *weighting.ServerReport) {
	before := s.last
	s.last = *r
	for _, f := range []struct{ now, before *weighting.Reading }{
		{&s.last.Completions, &before.Completions}, {&s.last.QueueSeconds, &before.QueueSeconds},
		{&s.last.BusySeconds, &before.BusySeconds},
	} {
		if !f.now.Known() {
			*f.now = *f.before
		}
	}
	if s.last.Tokens.At.IsZero() {
		s.last.Tokens = before.Tokens
	}
}
