package ledger

import "steelyard/weighting/flight"

// A Row has the requests in flight of one Envoy at each endpoint of a cluster.
type Row struct {
	Envoy    Envoy
	ByLog    bool  // counted by its access log; otherwise by its load reports
	InFlight []int // in the order of Addresses
}

// A Matrix has the requests in flight of a cluster by Envoy and endpoint. They add up to the cluster's counts, except
// that it includes contradicted ones.
type Matrix struct {
	Addresses []string // in the order given to SetMembers
	Rows      []Row    // of the Envoys that are counted, in any order
}

// Matrix returns the requests in flight of a cluster, and false where there is no such cluster.
func (l *Ledger) Matrix(name string) (Matrix, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	c := l.clusters[name]
	if c == nil {
		return Matrix{}, false
	}
	m := Matrix{Addresses: make([]string, len(c.members))}
	for i, s := range c.members {
		m.Addresses[i] = s.address
	}
	for _, e := range l.countedBy(c).envoys {
		row := Row{Envoy: e.node, ByLog: e.basis() == flight.ByLog, InFlight: make([]int, len(c.members))}
		for i, s := range c.members {
			if a := e.account(s); a != nil && a.watched {
				row.InFlight[i] = int(a.count.InFlight())
			}
		}
		m.Rows = append(m.Rows, row)
	}
	return m, true
}
