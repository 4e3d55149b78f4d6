package weighting

// Shares that do not follow from the fill: of those that are out, tried, or not used; see overload.go and override.go

// excludedLevel is far above that of members that are filled.
const excludedLevel = 1e6

// excludeFromFill fills up the members that are ejected or asleep, so that they get only their floor, and those that
// get a fixed share instead of a fill.
func (p *pool) excludeFromFill(vessels []Vessel) {
	for i := range p.members {
		if v, m := &vessels[i], &p.members[i]; m.out() || m.fixed(p) > 0 || m.health.Tried > 0 || m.overridden() {
			v.Load = max(v.Load, v.holds(excludedLevel))
		}
	}
}

// Fixed returns the share that the endpoint with this index gets whatever its load; 0 where that follows from the load,
// and for an endpoint that stalls or fails. It is a part of what endpoints without a flag get.
func (d *Decision) Fixed(i int) float64 {
	e := &d.Endpoints[i]
	if e.Failing || e.Overloaded || d.vessels[i].level() < excludedLevel/2 {
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

// giveTrials gives the members that are tried their share of what those get that proxies send requests to.
func (p *pool) giveTrials(d *Decision) {
	others, tried := 0.0, 0.0
	spared := p.flaggedGetNothing(p.unflagged)
	for i := range p.members {
		if m := &p.members[i]; m.health.Tried > 0 {
			tried += m.health.Tried
		} else if !m.flagged || !spared {
			others += d.Endpoints[i].Share
		}
	}
	if tried == 0 || others == 0 {
		return
	}
	whole := 0.0
	for i := range p.members {
		if m := &p.members[i]; m.health.Tried > 0 {
			d.Endpoints[i].Share = m.health.Tried * others
		}
		whole += d.Endpoints[i].Share
	}
	for i := range d.Endpoints {
		d.Endpoints[i].Share /= whole
	}
}
