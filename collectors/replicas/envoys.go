package replicas

import (
	"time"

	"steelyard/collectors/replicas/merge"
	"steelyard/internal/api"
	"steelyard/internal/envoyid"
)

// Bounds on the list of Envoys. It goes into one message.
const (
	listEvery   = time.Second     // between two looks at the Envoys
	listAgain   = 5 * time.Second // between two messages with a list that has not changed
	maxList     = 192 << 10       // bytes
	maxFollowed = 20              // clusters of an Envoy
	maxName     = 128             // bytes of a name or an address of one
)

// A listing remembers what was sent of the Envoys.
type listing struct {
	sent   *merge.Envoys
	at     time.Time // of that
	looked time.Time
}

// next returns the list if it is to be sent: with a whole state, if it changed, or was not sent for some time, as a
// message may get lost and times go on.
func (l *listing) next(now time.Time, whole bool, look func() []merge.Envoy) *merge.Envoys {
	if !whole && now.Sub(l.looked) < listEvery {
		return nil
	}
	l.looked = now
	list := bounded(look())
	if !whole && l.sent != nil && now.Sub(l.at) < listAgain && list.Same(l.sent) {
		return nil
	}
	l.sent, l.at = list, now
	return list
}

// bounded returns a list that fits into a message.
func bounded(all []merge.Envoy) *merge.Envoys {
	const anEnvoy, aCluster = 48, 3 // bytes at most, without texts
	e, bytes := &merge.Envoys{}, 0
	for i := range all {
		v := all[i]
		v.Name, v.Address = envoyid.Clip(v.Name, maxName), envoyid.Clip(v.Address, maxName)
		v.Clusters = nil
		bytes += anEnvoy + len(v.Name) + len(v.Address) + len(v.State) + len(v.Kind)
		for _, c := range all[i].Clusters[:min(len(all[i].Clusters), maxFollowed)] {
			v.Clusters = append(v.Clusters, envoyid.Clip(c, maxName))
			bytes += aCluster + min(len(c), maxName)
		}
		switch {
		case bytes <= maxList && len(e.List) < merge.MaxEnvoys:
			e.List = append(e.List, v)
		case v.Kind == api.FollowerEnvoy:
			e.LeftOut++
		}
	}
	return e
}
