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

// A holdingCache answers requests for assignments, and holds every other request: it leaves the watch open and never
// answers.
type holdingCache struct {
	linear *cachev3.LinearCache
	served *nameSet
	prefix string

	// mu keeps watches from being opened between the two steps of set and of drop.
	mu sync.RWMutex
}

// set serves an assignment, which wakes the watches of its cluster. It shows the name last: a name that is shown but
// not in the cache is a removal.
func (c *holdingCache) set(name string, m *endpointv3.ClusterLoadAssignment) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.linear.UpdateResource(name, m); err != nil {
		return err
	}
	c.served.add(name)
	return nil
}

// drop removes an assignment and wakes no watch. It hides the name first, so that no stream sees the removal.
func (c *holdingCache) drop(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served.remove(name)
	return c.linear.DeleteResource(name)
}

var _ cachev3.Cache = (*holdingCache)(nil)

// CreateWatch opens a state-of-the-world watch. It passes a request with the version prefix of this process to
// LinearCache, whatever Envoy sent: LinearCache would answer any other at once, even if it has nothing to send. What
// the stream already has is in the subscription, which go-control-plane keeps.
func (c *holdingCache) CreateWatch(
	r *cachev3.Request, sub cachev3.Subscription, out chan cachev3.Response,
) (func(), error) {
	if r.GetTypeUrl() != resource.EndpointType {
		return nil, nil
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	// LinearCache keeps the request for as long as the watch is open: without node and names it is small.
	follower := &discoveryv3.DiscoveryRequest{TypeUrl: resource.EndpointType, VersionInfo: c.prefix}
	return c.linear.CreateWatch(follower, view{sub, c.served}, out)
}

// CreateDeltaWatch opens a delta watch.
func (c *holdingCache) CreateDeltaWatch(
	r *cachev3.DeltaRequest, sub cachev3.Subscription, out chan cachev3.DeltaResponse,
) (func(), error) {
	if r.GetTypeUrl() != resource.EndpointType {
		return nil, nil
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	follower := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType}
	return c.linear.CreateDeltaWatch(follower, view{sub, c.served}, out)
}

// Fetch refuses polling over REST: polled weights are late.
func (c *holdingCache) Fetch(context.Context, *cachev3.Request) (cachev3.Response, error) {
	return nil, status.Error(codes.Unimplemented, "polling is not served; use a gRPC stream")
}

// A view is a subscription as LinearCache has to see it: by name only, and without returned resources that are not
// served. LinearCache would report those as removed on a delta stream, although the Envoy may know them from before a
// restart, and they may only not be ready yet.
type view struct {
	cachev3.Subscription
	served *nameSet
}

func (v view) IsWildcard() bool { return false }

// ReturnedResources is called on every update, so it follows what is served.
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

// A nameSet is the set of clusters in the cache. It can be read while the cache is locked.
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
