package picking

import (
	"math"
	"slices"
)

// poured returns what a request adds to the arrivals: the least that it costs, less what the cache saves there. With
// the whole least cost, requests would sometimes go elsewhere although they cost less there; with nothing, requests of
// which little is cached would not gather by their keys.
func poured(whole, least float64) float64 {
	const some = 0.01 // of the least cost: rooms of nothing have no order
	return max(least-(whole-least), some*least)
}

// cost computes what a request costs at each endpoint: of what its prompt costs, only the part that is not cached
// there. It adds to the load of each candidate what the request costs more there than at the cheapest one, so that the
// fill compares what a request would wait for and add. whole is the cost without a cache, least that at the cheapest
// candidate.
func (p *Picker) cost(r Request) (whole, least float64) {
	c := p.update.Cost
	whole = c.of(r)
	if r.Key != 0 || len(r.Cached) > 0 {
		whole = c.uncached(whole)
	}
	p.costs = slices.Grow(p.costs[:0], len(p.update.Endpoints))[:len(p.update.Endpoints)]
	for i := range p.costs {
		p.costs[i] = whole
	}
	for _, cached := range r.Cached {
		if i, ok := p.index[cached.Address]; ok && whole > c.Base && cached.Share > 0 {
			p.costs[i] = whole - (whole-c.Base)*min(1, cached.Share)
		}
	}
	least = whole
	for _, i := range p.indexes {
		least = min(least, p.costs[i])
	}
	for k, i := range p.indexes {
		p.vessels[k].Load += p.costs[i] - least
	}
	return whole, least
}

// overrideFactor is how many times the median of the loads are too many for a longest match.
const overrideFactor = 2

// longest is the candidate with the most of a prompt in its cache, of several the one with the least load; or that with
// the least load of all, where the former has too much to do. Those with a share of their own do not count: they have
// that. It reports false without a match, and for the other strategy.
func (p *Picker) longest(cached []Cached) (picked int, reason Reason, ok bool) {
	if !p.update.LongestMatch {
		return 0, "", false
	}
	loads := make([]float64, len(p.indexes))
	var sorted []float64
	for k, i := range p.indexes {
		e := &p.update.Endpoints[i]
		loads[k] = p.loads[i].load / (e.Slots * e.Speed)
		if e.Share > 0 {
			loads[k] = math.Inf(1)
			continue
		}
		sorted = append(sorted, loads[k])
	}
	most := 0.
	for _, c := range cached {
		i, known := p.index[c.Address]
		k, candidate := slices.BinarySearch(p.indexes, i)
		if known && candidate && !math.IsInf(loads[k], 1) &&
			(c.Share > most || ok && c.Share == most && loads[k] < loads[picked]) {
			picked, most, ok = k, c.Share, true
		}
	}
	slices.Sort(sorted)
	if ok && loads[picked] > overrideFactor*sorted[len(sorted)/2] {
		return slices.Index(loads, sorted[0]), ReasonOverride, true
	}
	return picked, ReasonPrefix, ok
}

// drawBy returns the index of a candidate with a chance in proportion to its room over all keys, and always the same
// for one key: by weighted rendezvous hashing, where a change of one room moves only those keys that it has to. All
// pickers draw alike, so that prompts that none of them knows gather where they will be cached.
func (p *Picker) drawBy(key uint64) int {
	best, most := 0, math.Inf(-1)
	for k, room := range p.rooms {
		// -room/ln(u) with u uniform in 0..1
		u := uniform(key, p.update.Endpoints[p.indexes[k]].Address)
		if score := -room / math.Log(u); room > 0 && score > most {
			best, most = k, score
		}
	}
	return best
}

// uniform returns a number above 0 and below 1, from the hash of a key and an address (FNV-1a and the finalizer of
// MurmurHash3).
func uniform(key uint64, address string) float64 {
	h := key ^ 0xcbf29ce484222325
	for i := range len(address) {
		h = (h ^ uint64(address[i])) * 0x100000001b3
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return (float64(h>>12) + 0.5) / (1 << 52)
}
