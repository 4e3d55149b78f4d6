package daemon

import (
	"time"

	"steelyard/collectors/replicas/merge"
	"steelyard/internal/api"
	"steelyard/xds/loads/loadsv1"
)

// learned tells the other replicas what a picker here has learned, or what an endpoint has lost.
func (d *Daemon) learned(l *loadsv1.Learned) {
	d.link.Learned(routeOf(l))
}

func routeOf(l *loadsv1.Learned) merge.Route {
	return merge.Route{Cluster: l.GetClusters()[0], Endpoint: l.GetEndpoint(), Hashes: l.GetHashes(), Kept: l.GetKept(),
		Age: time.Duration(l.GetAgeSeconds()) * time.Second}
}

// keptRoutes are what this replica keeps of all clusters.
func (d *Daemon) keptRoutes() (routes []merge.Route) {
	for _, l := range d.loads.Kept(time.Now()) {
		routes = append(routes, routeOf(l))
	}
	return routes
}

// takeRoutes takes in what the pickers of other replicas have learned. Once another replica has sent all that it keeps,
// the pickers that came before get it, too.
func (d *Daemon) takeRoutes(routes []merge.Route, given bool) {
	for i := range routes {
		r := &routes[i]
		d.loads.Take(&loadsv1.Learned{Clusters: []string{r.Cluster}, Endpoint: r.Endpoint, Hashes: r.Hashes,
			Kept: r.Kept, AgeSeconds: uint32(r.Age / time.Second)})
	}
	if given {
		d.loads.TellAll()
	}
}

// addRoutes fills in the routes that are kept of a cluster.
func (d *Daemon) addRoutes(c *api.Cluster) { c.Routes = d.loads.Routes(c.Name) }
