package sim

// An edf is Envoy's scheduler for unequal weights: the entry with the earliest
// deadline is picked and put back with the deadline now + 1/weight, where now is
// the deadline of the entry picked last. Entries of one deadline take turns in the
// order in which they were put in.
type edf struct {
	now     float64
	entries []entry // a binary heap
	order   uint32  // of the next entry put in
}

type entry struct {
	deadline float64
	order    uint32
	host     int32 // pod
}

func (a *entry) before(b *entry) bool {
	return a.deadline < b.deadline || a.deadline == b.deadline && a.order < b.order
}

// start sets the scheduler up as if that many picks had been made from it, which
// is how Envoy gives the schedulers of its workers different phases: the number
// is drawn once for each worker and used in every rebuild. Most of those picks are
// accounted for by whole rounds of each entry; the rest are made.
//
// weights are by pod.
func (s *edf) start(hosts []int32, weights []float64, picks uint32) {
	const most, hair = 429_496_729, 1e-13 // as Envoy has them: a tenth of the largest uint32; against ties of multiples
	picks %= most
	var sum float64
	for _, host := range hosts {
		sum += weights[host] + hair
	}
	s.entries, s.now, s.order = s.entries[:0], 0, uint32(len(hosts))
	made := uint32(0)
	for i, host := range hosts {
		weight := weights[host] + hair
		rounds := uint32(weight * float64(picks) / sum)
		if rounds > 0 && float64(rounds)/weight >= float64(picks)/sum {
			rounds-- // rounding must not make more of them than there were
		}
		s.now = max(s.now, float64(rounds)/weight)
		s.entries = append(s.entries, entry{float64(rounds+1) / weight, uint32(i), host})
		made += rounds
	}
	for i := len(s.entries)/2 - 1; i >= 0; i-- {
		s.down(i)
	}
	for ; made < picks; made++ {
		s.putBack(weights[s.pick()])
	}
}

// pick returns the host whose turn it is; putBack must follow.
func (s *edf) pick() int32 {
	s.now = s.entries[0].deadline
	return s.entries[0].host
}

// putBack gives the host picked last its next turn.
func (s *edf) putBack(weight float64) {
	s.entries[0].deadline = s.now + 1/weight
	s.entries[0].order = s.order
	s.order++
	s.down(0)
}

func (s *edf) down(i int) {
	e, n := s.entries[i], len(s.entries)
	for {
		child := 2*i + 1
		if child >= n {
			break
		}
		if child+1 < n && s.entries[child+1].before(&s.entries[child]) {
			child++
		}
		if !s.entries[child].before(&e) {
			break
		}
		s.entries[i] = s.entries[child]
		i = child
	}
	s.entries[i] = e
}
