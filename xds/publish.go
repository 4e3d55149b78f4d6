package xds

import (
	"cmp"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"steelyard/weighting/push"
	"steelyard/xds/assignment"
)

// kept has the verdict of the latest call of Publish.
type kept struct {
	number  uint64 // of the call
	verdict push.Verdict
}

// Publish pushes a decision under all names of the cluster that have subscribers and for which the verdict says that it
// is due, and returns the version of the weights. Envoys with a fallback drop the endpoints if they get no assignment
// for StaleAfter; 0 is never. The server keeps the decision until the next call, so the caller must not change it. If
// an assignment cannot be built, Publish returns the reason, and the Envoys keep the previous one.
func (s *Server) Publish(cluster string, v push.Verdict) (version string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	latest := kept{s.kept[cluster].number + 1, v}
	s.kept[cluster] = latest
	failsafe := s.tracker.subscribed(cluster + failsafeSuffix)
	if failsafe {
		err = s.publishVariant(cluster+failsafeSuffix, latest)
		version = s.clusters[cluster+failsafeSuffix].version()
	}
	if !failsafe || s.tracker.subscribed(cluster) {
		err = cmp.Or(err, s.publishVariant(cluster, latest))
		version = s.clusters[cluster].version()
	}
	for _, suffix := range []string{fallbackSuffix, membersSuffix} {
		name := cluster + suffix
		if s.tracker.subscribed(name) && (v.Members || s.clusters[name].version() == "") {
			err = cmp.Or(err, s.publishVariant(name, latest))
		}
	}
	return version, err
}

// Remove stops serving a cluster under all its names. Envoys that have an assignment keep it: as long as the cluster is
// in Envoy's configuration, the last known assignment is better than none. An Envoy that subscribes afterwards waits.
// (With endpoint_stale_after, Envoy drops the endpoints when that time has passed.)
func (s *Server) Remove(cluster string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.kept, cluster)
	for _, suffix := range []string{"", failsafeSuffix, fallbackSuffix, membersSuffix} {
		s.remove(cluster + suffix)
	}
}

// publishVariant publishes the assignment of one name.
func (s *Server) publishVariant(name string, latest kept) error {
	v := latest.verdict
	if !strings.HasSuffix(name, failsafeSuffix) {
		v.StaleAfter = 0
	}
	switch {
	case strings.HasSuffix(name, failsafeSuffix):
		v.Decision.DropFraction = 0
	case strings.HasSuffix(name, fallbackSuffix):
		v.Decision = fallback(v.Decision)
	case strings.HasSuffix(name, membersSuffix):
		v.Decision = members(v.Decision)
	}
	return s.publish(name, latest.number, &v)
}

// firstSubscriber publishes the latest decision under a name that has its first subscriber, if it is the name of a
// cluster: an assignment that was built under it before may be old.
func (s *Server) firstSubscriber(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	latest, ok := s.kept[BaseName(name)]
	if last := s.clusters[name].latest(); ok && (last == nil || last.number != latest.number) {
		_ = s.publishVariant(name, latest) // the error is logged, and the next Publish returns it
	}
}

// Weights returns the weights of the latest push of a cluster, under either name that carries weights, by address.
func (s *Server) Weights(cluster string) map[string]uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := newer(s.clusters[cluster].latest(), s.clusters[cluster+failsafeSuffix].latest())
	if last == nil {
		return nil
	}
	weights := make(map[string]uint32, last.endpoints)
	for _, l := range last.message.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			a := e.GetEndpoint().GetAddress().GetSocketAddress()
			address := netip.AddrPortFrom(netip.MustParseAddr(a.GetAddress()), uint16(a.GetPortValue()))
			weights[address.String()] = e.GetLoadBalancingWeight().GetValue()
		}
	}
	return weights
}

// newer returns the later of two pushes, a if they have the same time; either may be nil.
func newer(a, b *pushed) *pushed {
	if a == nil || b != nil && b.at.After(a.at) {
		return b
	}
	return a
}

// A cluster is the state of one name.
type cluster struct {
	last    *pushed // nil before the first push
	builder assignment.Builder
	failing bool // the last assignment could not be built
}

// A pushed is the latest assignment pushed under a name.
type pushed struct {
	at        time.Time
	number    uint64 // of the Publish that it came from
	version   string
	endpoints int
	message   *endpointv3.ClusterLoadAssignment
}

// publish builds the assignment of a name and wakes its watches. If it cannot be built, Envoys keep the previous one.
func (s *Server) publish(name string, number uint64, v *push.Verdict) error {
	c := s.clusters[name]
	if c == nil {
		c = &cluster{}
		s.clusters[name] = c
	}
	options := assignment.Options{EndpointStaleAfter: v.StaleAfter, Previous: c.message(),
		Unweighted: strings.HasSuffix(name, membersSuffix)}
	message, err := c.builder.Build(name, v.Decision, options, s.dither)
	if err != nil {
		return s.failed(name, c, err)
	}
	next := &pushed{at: s.now(), number: number, endpoints: len(v.Decision.Endpoints), message: message}
	if err := s.push(name, next, v.ProxyTime); err != nil {
		return s.failed(name, c, err)
	}
	s.succeeded(name, c, next)
	return nil
}

// push updates the cache, which wakes the watches of the cluster.
func (s *Server) push(name string, p *pushed, proxyTime time.Duration) error {
	s.seq++
	p.version = s.prefix + strconv.FormatUint(s.seq, 10)
	// The tracker comes first, because a stream may send the new version before set returns.
	s.tracker.published(name, s.seq, p.at, proxyTime)
	return s.cache.set(name, p.message)
}

func (s *Server) succeeded(name string, c *cluster, next *pushed) {
	switch {
	case c.last == nil:
		s.mu.logLater(slog.LevelInfo, "cluster is served",
			"cluster", name, "endpoints", next.endpoints, "version", next.version)
	case c.failing:
		s.mu.logLater(slog.LevelInfo, "assignment can be built again", "cluster", name, "version", next.version)
	}
	c.last, c.failing = next, false
}

// failed logs an assignment that could not be pushed, at level Error only if the one before succeeded.
func (s *Server) failed(name string, c *cluster, err error) error {
	level := slog.LevelDebug
	if !c.failing {
		level = slog.LevelError
	}
	c.failing = true
	s.mu.logLater(level, "assignment not pushed, the previous one stays", "cluster", name, "error", err)
	return err
}

// latest returns the latest push under a name; nil if there is none.
func (c *cluster) latest() *pushed {
	if c == nil {
		return nil
	}
	return c.last
}

func (c *cluster) version() string {
	if last := c.latest(); last != nil {
		return last.version
	}
	return ""
}

func (c *cluster) message() *endpointv3.ClusterLoadAssignment {
	if last := c.latest(); last != nil {
		return last.message
	}
	return nil
}

func (s *Server) remove(name string) {
	c := s.clusters[name]
	if c == nil {
		return
	}
	delete(s.clusters, name)
	if c.last == nil {
		return
	}
	s.tracker.removed(name)
	s.seq++ // the cache counts removals too
	if err := s.cache.drop(name); err != nil {
		s.mu.logLater(slog.LevelError, "removing a cluster from the cache", "cluster", name, "error", err)
	}
	s.mu.logLater(slog.LevelInfo, "cluster is no longer served", "cluster", name)
}
