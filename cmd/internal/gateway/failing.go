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

// failures are by the name of a cluster.
type failures map[string]failure

// note notes a question about a cluster that was answered by an error.
func (all failures) note(in *extension.PostClusterModifyRequest, err error) {
	name := in.GetCluster().GetName()
	if f, ok := all[name]; ok || len(all) < maxPools {
		all[name] = failure{status.Convert(err).Message(), f.gateway, time.Now()}
	}
}

// still returns the Gateways, of those that a message is about, whose configuration Envoy Gateway does not send,
// and forgets failures that have passed.
func (all failures) still(in *extension.PostTranslateModifyRequest, about map[string][]api.GatewayPool) []string {
	has := map[string]bool{}
	for _, c := range in.Clusters {
		has[c.Name] = true
	}
	var out []string
	users := all.users(in)
	for _, name := range slices.Collect(maps.Keys(all)) {
		f := all[name]
		_, asked := about[f.gateway]
		switch {
		case len(users[name]) > 0 && !has[name]:
			f.gateway = users[name][0]
			all[name] = f
			out = append(out, users[name]...)
		case has[name], asked && f.gateway != "", f.gateway == "" && time.Since(f.at) > unseenFor:
			delete(all, name)
		}
	}
	return out
}

// users returns the Gateways whose routes name each cluster that fails.
func (all failures) users(in *extension.PostTranslateModifyRequest) map[string][]string {
	out := map[string][]string{}
	for _, list := range in.Routes {
		for _, host := range list.VirtualHosts {
			for _, r := range host.Routes {
				for _, to := range targets(r.GetRoute()) {
					if _, fails := all[to.Name]; fails {
						out[to.Name] = append(out[to.Name], gatewayOfHosts(list, host))
					}
				}
			}
		}
	}
	return out
}
