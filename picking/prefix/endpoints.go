package prefix

import (
	"iter"
	"maps"
)

// SetEndpoints replaces the endpoints, with the number of times that the server of each was seen to restart. Routes of
// those that left, and of those whose number rose, are forgotten: the cache of a process that restarted is empty. It
// returns the latter.
func (t *Table) SetEndpoints(all iter.Seq2[string, int]) (restarted []string) {
	t.setting.Lock()
	defer t.setting.Unlock()
	n, same := 0, true
	for address, restarts := range all {
		before, known := t.known[address]
		n, same = n+1, same && known && before == restarts
		if known && restarts > before {
			restarted = append(restarted, address)
		}
	}
	if same && n == len(t.known) {
		return nil
	}
	known := maps.Collect(all)
	t.mu.Lock()
	t.known = known
	t.mu.Unlock()
	for _, address := range restarted {
		t.Remove(address)
	}
	t.Keep(func(address string) bool {
		_, is := known[address]
		return is
	})
	return restarted
}
