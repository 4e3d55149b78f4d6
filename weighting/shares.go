package weighting

// The shares: by the fill, and those that do not follow from it, of endpoints that are out, tried, not used, or decided
// by an operator

// A filled endpoint is one with its share.
type filled struct {
	*candidate

	share    float64
	reserved float64 // share of what is left by overrides, whatever the fill
	slow     bool    // above the threshold of latency
	floored  bool    // above the water level
}

// A filling is the shares of a pool.
type filling struct {
	members   []filled
	vessels   []Vessel
	level     float64
	byLatency bool // it is that of least latency
}

// fill shares the arrivals among the endpoints.
func (p *pool) fill(b *buffer[filled], members []candidate, f *forecast, unpinned float64) filling {
	out := filling{members: b.take(len(members))}
	if len(members) == 0 {
		return out
	}
	for i := range members {
		out.members[i].candidate = &members[i]
	}
	out.vessels, out.byLatency = p.vessels(out.members)
	load := orZero(medianOf(p, members, func(m *candidate) (float64, bool) {
		return m.load, m.loadSource != LoadMedian
	}))
	capacity := 0.0
	for i := range members {
		capacity += members[i].holding(0).capacity()
	}
	for i := range out.members {
		v, m := &out.vessels[i], &out.members[i]
		if m.reserved = m.state.Tried; m.reserved == 0 {
			m.reserved = m.fixed(f.counted, load) * m.holding(0).capacity() / capacity
		}
		if m.out() || m.reserved > 0 || m.overridden() {
			v.Load = max(v.Load, v.holds(excludedLevel))
		}
	}
	out.level = fill(out.vessels, f.arrivals*unpinned)
	for i, share := range shares(out.vessels, out.level, p.params.Floor) {
		m := &out.members[i]
		m.share, m.floored = share, out.vessels[i].level() >= out.level
	}
	reserve(out.members, unpinned)
	return out
}

// vessels are the endpoints as they are filled: by their latencies, where that is the policy and some is known, or by
// their loads. Those that are ejected or asleep are full, so that they get only their floor, and so are those that get
// a share instead of a fill.
func (p *pool) vessels(members []filled) (out []Vessel, byLatency bool) {
	if p.params.LeastLatency.Enabled {
		if out = p.leastLatency(members); out != nil {
			return out, true
		}
	}
	out = make([]Vessel, len(members))
	for i := range members {
		out[i] = members[i].holding(members[i].workload)
	}
	return out, false
}

// leastLatency is the endpoints as they are filled by their latencies; none while no latency is known.
func (p *pool) leastLatency(members []filled) []Vessel {
	pool := make([]timed, len(members))
	for i := range members {
		m := &members[i]
		pool[i] = timed{m.load, m.latency.recent(p.now, p.params.Decay), m.latency.at.IsZero(), m.ramp}
	}
	vessels, slow := p.params.LeastLatency.vessels(pool)
	for i := range slow {
		members[i].slow = slow[i]
	}
	return vessels
}

// reserve gives the endpoints with an override what an operator decided, and of what is left those that are tried or
// have a fixed share theirs; the others get the rest, as they were filled.
func reserve(members []filled, unpinned float64) {
	reserved, filled, overridden := 0.0, 0.0, false
	for i := range members {
		switch m := &members[i]; {
		case m.overridden():
			overridden = true
		case m.reserved > 0:
			reserved += m.reserved
		default:
			filled += m.share
		}
	}
	if reserved == 0 && !overridden {
		return
	}
	whole := reserved // what is reserved is relative to what the others get
	if filled > 0 {
		whole++
	}
	for i := range members {
		switch m := &members[i]; {
		case m.overridden():
			m.share = m.inEffect.Share
		case m.reserved > 0:
			m.share = unpinned * m.reserved / whole
		default:
			m.share *= unpinned / (whole * filled)
		}
	}
}

// overridden reports whether an operator decided the share.
func (m *candidate) overridden() bool { return m.inEffect != Override{} }

// unused reports whether the proxies send nothing to the endpoint, whatever its share.
func (m *candidate) unused() bool { return m.state.Unused && !m.flagged }

// fixed is what part of its capacity share an endpoint gets whatever the others hold; 0 for one that is filled. load is
// the median one of the pool.
//
// One that is probed where nothing would show whether it answers each request at once with an error gets a small part.
// One that the proxies do not use gets the whole, so that its use shows when it begins again; until then that goes to
// the others in proportion to theirs. By scrapes only, one that answers each request at once with an error looks the
// same, and proxies that choose by their least requests would send it most of them.
func (m *filled) fixed(counted bool, load float64) float64 {
	switch {
	case m.state.Blind:
		return trickle
	case m.unused() && !counted:
		return max(trickle, againstBias(load))
	case m.unused():
		return 1
	}
	return 0
}

// trickle is the least part of its capacity share that such an endpoint gets, a bound on what may fail there. By
// scrapes only, 1,454 of 13,000 requests failed at one that answers all with an error and got the whole, and 24 with
// this.
const trickle = 0.05

// againstBias is the part of a share of which proxies that choose by their least requests make about the whole, by
// Envoy's default bias, where they have no request in flight and so many are at each of the others. How many proxies
// there are is not known here. With fewer they make more of it, and with more the bias is small.
func againstBias(load float64) float64 {
	const proxies = 10 // a guess, see above
	own := load / proxies
	return 1 / ((own + 1) * (own + 1))
}
