package weighting

// shed settles the share of requests to refuse.
func (l *Law) shed(p *pool, d *Decision) {
	if p.free() {
		l.drop = 0
	}
	l.dropAt = p.now
	d.DropFraction = min(max(0, l.drop), max(0, l.params.Shedding.MaxDrop), 1)
}
