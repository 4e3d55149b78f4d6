package weighting

// Shares that do not follow from the fill: of those that are out, tried, not used, or decided by an operator

// excludedLevel is far above that of members that are filled.
const excludedLevel = 1e6

// vessels are the members as they are filled: by their loads or their latencies. Those that are ejected or asleep are
// full, so that they get only their floor, and so are those that get a share instead of a fill.
func (p *pool) vessels() []Vessel {
	var out []Vessel
	if p.params.LeastLatency.Enabled {
		out = p.leastLatency()
	}
	if p.byLatency = out != nil; !p.byLatency {
		out = make([]Vessel, 0, len(p.members))
	}
	capacity := 0.0
	for i := range p.members {
		m := &p.members[i]
		if !p.byLatency {
			out = append(out, m.holding(m.workload))
		}
		capacity += m.holding(0).capacity()
	}
	for i := range p.members {
		v, m := &out[i], &p.members[i]
		if m.reserved = m.health.Tried; m.reserved == 0 {
			m.reserved = m.fixed(p) * m.holding(0).capacity() / capacity
		}
		if m.out() || m.reserved > 0 || m.overridden() {
			v.Load = max(v.Load, v.holds(excludedLevel))
		}
	}
	return out
}

// reserve gives the members with an override what an operator decided, and of what is left those that are tried or have
// a fixed share theirs; the others get the rest, as they were filled.
func (p *pool) reserve(d *Decision) {
	reserved, filled, overridden := 0.0, 0.0, false
	for i := range p.members {
		switch m := &p.members[i]; {
		case m.overridden():
			overridden = true
		case m.reserved > 0:
			reserved += m.reserved
		default:
			filled += d.Endpoints[i].Share
		}
	}
	if reserved == 0 && !overridden {
		return
	}
	whole := reserved // what is reserved is relative to what the others get
	if filled > 0 {
		whole++
	}
	for i := range p.members {
		m, share := &p.members[i], &d.Endpoints[i].Share
		switch {
		case m.overridden():
			*share = m.inEffect.Share
		case m.reserved > 0:
			*share = p.unpinned * m.reserved / whole
		default:
			*share *= p.unpinned / (whole * filled)
		}
	}
}

// Level is how full the endpoint with this index looked when the others were filled, in the unit of WaterLevel, and
// whether its share follows from that. ok is false where no law made the decision.
func (d *Decision) Level(i int) (level float64, filled, ok bool) {
	if len(d.vessels) != len(d.Endpoints) {
		return 0, false, false
	}
	level = d.vessels[i].level()
	return level, level < excludedLevel/2, true
}

// ByLatency reports whether the levels are costs by least latency, and not loads.
func (d *Decision) ByLatency() bool { return d.byLatency }

// Fixed returns the share that the endpoint with this index gets whatever its load; 0 where that follows from the load,
// and for an endpoint that stalls or fails. It is a part of what endpoints without a flag get.
func (d *Decision) Fixed(i int) float64 {
	e := &d.Endpoints[i]
	if _, filled, _ := d.Level(i); e.Failing || e.Overloaded || filled {
		return 0
	}
	flagged := 0.0
	for k := range d.Endpoints {
		if d.Endpoints[k].Overloaded {
			flagged += d.Endpoints[k].Share
		}
	}
	return e.Share / max(e.Share, 1-flagged)
}

// flaggedGetNothing reports whether the proxies send nothing to flagged members, where so many have no flag.
func (p *pool) flaggedGetNothing(unflagged int) bool {
	const tenth = 10
	return unflagged > 0 && unflagged*tenth >= len(p.members)
}

// inUse is the share of the member in force, as the proxies use it; spared says that they send nothing to flagged ones.
func (m *member) inUse(spared bool) float64 {
	if m.shareFlagged && spared {
		return 0
	}
	return m.share
}

// unused reports whether the proxies send nothing to the endpoint, whatever its share.
func (m *member) unused() bool { return m.health.Unused && !m.flagged }

// fixed is what part of its capacity share a member gets whatever the others hold; 0 for one that is filled.
//
// One that is probed where nothing would show whether it answers each request at once with an error gets a small part.
// One that the proxies do not use gets the whole, so that its use shows when it begins again; until then that goes to
// the others in proportion to theirs. By scrapes only, one that answers each request at once with an error looks the
// same, and proxies that choose by their least requests would send it most of them.
func (m *member) fixed(p *pool) float64 {
	const trickle = 0.05
	switch {
	case m.health.Blind:
		return trickle
	case m.unused() && !p.counted:
		return max(trickle, p.againstBias())
	case m.unused():
		return 1
	}
	return 0
}

// againstBias is the part of a share of which proxies that choose by their least requests make about the whole, by
// Envoy's default bias, where they have no request in flight and a median load at the others. How many proxies there
// are is not known here. With fewer they make more of it, and with more the bias is small.
func (p *pool) againstBias() float64 {
	const proxies = 10
	own := orZero(p.median(func(m *member) (float64, bool) { return m.load, m.loadSource != LoadMedian })) / proxies
	return 1 / ((own + 1) * (own + 1))
}
