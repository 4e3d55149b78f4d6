package gateway

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/status"

	"steelyard/internal/api"
	"steelyard/internal/extension"
)

// A failure is the last answer about a cluster, which was an error. Envoy Gateway leaves such a cluster out, and asks
// about the whole of the Gateway all the same, for a configuration that it then does not send.
type failure struct {
	text    string
	gateway string // whose routes name the cluster, as far as is known
	at      time.Time
}

// unseenFor is how long a failure is kept whose cluster is in no message.
const unseenFor = time.Minute

// clusterFailed notes a question about a cluster that was answered by an error.
func (s *Server) clusterFailed(in *extension.PostClusterModifyRequest, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := in.GetCluster().GetName()
	if f, ok := s.failing[name]; ok || len(s.failing) < maxPools {
		s.failing[name] = failure{status.Convert(err).Message(), f.gateway, time.Now()}
	}
}

// clusterAnswered forgets its failure.
func (s *Server) clusterAnswered(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name != "" { // without a name it may be another one
		delete(s.failing, name)
	}
}

// stillFailing returns the Gateways, of those that a message is about, whose configuration Envoy Gateway does not send,
// and forgets failures that have passed.
func (s *Server) stillFailing(in *extension.PostTranslateModifyRequest, about map[string][]api.GatewayPool) []string {
	has := map[string]bool{}
	for _, c := range in.Clusters {
		has[c.Name] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	users := s.usersOfFailing(in)
	for _, name := range slices.Collect(maps.Keys(s.failing)) {
		f := s.failing[name]
		_, asked := about[f.gateway]
		switch {
		case len(users[name]) > 0 && !has[name]:
			f.gateway = users[name][0]
			s.failing[name] = f
			out = append(out, users[name]...)
		case has[name], asked && f.gateway != "", f.gateway == "" && time.Since(f.at) > unseenFor:
			delete(s.failing, name)
		}
	}
	return out
}

// usersOfFailing returns the Gateways whose routes name each cluster that fails.
func (s *Server) usersOfFailing(in *extension.PostTranslateModifyRequest) map[string][]string {
	out := map[string][]string{}
	for _, list := range in.Routes {
		for _, host := range list.VirtualHosts {
			for _, r := range host.Routes {
				for _, to := range targets(r.GetRoute()) {
					if _, fails := s.failing[to.Name]; fails {
						out[to.Name] = append(out[to.Name], gatewayOfHosts(list, host))
					}
				}
			}
		}
	}
	return out
}
