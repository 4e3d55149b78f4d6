package xds

import (
	"context"
	"sync"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A holdingCache answers with assignments only, and holds every other request:
// it leaves the watch open and silent.
type holdingCache struct {
	linear *cachev3.LinearCache
	served *nameSet
	prefix string

	// mu keeps watches from being opened between the two steps of set and of drop.
	mu sync.RWMutex
}

// set serves an assignment, which wakes the watches of its cluster. The name is
// shown last: one that is shown and not in the cache is a removal.
func (c *holdingCache) set(name string, m *endpointv3.ClusterLoadAssignment) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.linear.UpdateResource(name, m); err != nil {
		return err
	}
	c.served.add(name)
	return nil
}

// drop takes an assignment back and wakes nobody. The name is hidden first, so that
// no stream sees it go.
func (c *holdingCache) drop(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served.remove(name)
	return c.linear.DeleteResource(name)
}

var _ cachev3.Cache = (*holdingCache)(nil)

// CreateWatch opens a state-of-the-world watch. The request that LinearCache sees
// carries this process's version prefix, whatever Envoy sent, because otherwise it
// would be answered at once, with nothing when there is nothing. What the stream
// already has is in the subscription, which go-control-plane keeps.
func (c *holdingCache) CreateWatch(r *cachev3.Request, sub cachev3.Subscription, out chan cachev3.Response) (func(), error) {
	if r.GetTypeUrl() != resource.EndpointType {
		return nil, nil
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	// The copy is kept for as long as the watch is open: without node and names it is small.
	follower := &discoveryv3.DiscoveryRequest{TypeUrl: resource.EndpointType, VersionInfo: c.prefix}
	return c.linear.CreateWatch(follower, view{sub, c.served}, out)
}

// CreateDeltaWatch opens a delta watch.
func (c *holdingCache) CreateDeltaWatch(r *cachev3.DeltaRequest, sub cachev3.Subscription, out chan cachev3.DeltaResponse) (func(), error) {
	if r.GetTypeUrl() != resource.EndpointType {
		return nil, nil
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	follower := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType}
	return c.linear.CreateDeltaWatch(follower, view{sub, c.served}, out)
}

// Fetch refuses polling over REST: weights that are polled are late.
func (c *holdingCache) Fetch(context.Context, *cachev3.Request) (cachev3.Response, error) {
	return nil, status.Error(codes.Unimplemented, "polling is not served; use a gRPC stream")
}

// A view is a subscription as LinearCache is to see it: by name only, and with
// no memory of clusters that are not served. What it remembered would be
// reported to a delta stream as removed, though it may be known from before a
// restart and only not be ready yet.
type view struct {
	cachev3.Subscription
	served *nameSet
}

func (v view) IsWildcard() bool { return false }

// ReturnedResources is asked for again on every update, so it follows what is served.
func (v view) ReturnedResources() map[string]string {
	returned := v.Subscription.ReturnedResources()
	subscribed := v.SubscribedResources()
	hidden := 0
	for name := range returned {
		if !v.shows(name, subscribed) {
			hidden++
		}
	}
	if hidden == 0 {
		return returned
	}
	shown := make(map[string]string, len(returned)-hidden)
	for name, version := range returned {
		if v.shows(name, subscribed) {
			shown[name] = version
		}
	}
	return shown
}

func (v view) shows(name string, subscribed map[string]struct{}) bool {
	_, ok := subscribed[name]
	return ok && v.served.has(name)
}

// A nameSet is the set of clusters in the cache, readable while the cache is locked.
type nameSet struct {
	mu    sync.RWMutex
	names map[string]struct{}
}

func newNameSet() *nameSet { return &nameSet{names: make(map[string]struct{})} }

func (s *nameSet) has(name string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, ok := s.names[name]
	return ok
}

func (s *nameSet) add(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names[name] = struct{}{}
}

func (s *nameSet) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.names, name)
}
