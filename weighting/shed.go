package weighting

import "time"

// shedder is what refusing goes by.
type shedder struct {
	drop float64   // share refused
	at   time.Time // of the last step
}

// tally is what was last counted of an endpoint.
type tally struct{}

// shed settles the share of requests to refuse.
func (l *Law) shed(p *pool, d *Decision, _ Snapshot) {
	s := &l.shedder
	if p.free() {
		s.drop = 0
	}
	s.at = p.now
	d.DropFraction = min(max(0, s.drop), max(0, l.params.Shedding.MaxDrop), 1)
}
