package gateways

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"steelyard/e2e/rig/proc"
)

// contour cannot change the clusters of its Envoys: its routes name Services of Envoys that follow Steelyard, one for
// each pool.
type contour struct {
	followers []*proc.Envoy
}

func (*contour) title() string { return "Contour 1.33.8" }

func (*contour) leaves(name string) bool {
	return slices.Contains([]string{listenersCase, rulesCase, namespacesCase, policyCase, pickerCase, moduleCase,
		strictCase}, name)
}

func (*contour) definitions() []definitions {
	return []definitions{{"contour", "github.com/projectcontour/contour", []string{"examples/contour/01-crds.yaml"}}}
}

func (*contour) pool(name string, weight int) string {
	return fmt.Sprintf("{name: %s-followers, port: 80, weight: %d}", name, weight)
}

func (*contour) routeKind() (version, kind string) { return "projectcontour.io/v1", "HTTPProxy" }

// A contourService is a backend of a route.
type contourService struct {
	Name   string `json:"name"`
	Port   int    `json:"port"`
	Weight int    `json:"weight"`
}

// route changes the Services of a route in three steps, each when the Envoy has the one before it: Contour sends
// clusters and routes in no order, and what leads to a cluster that is not there yet, or is gone, is answered with 503.
// So a Service comes with no weight, and leaves when it has none.
func (c *contour) route(r *rig, name, backends string) {
	r.t.Helper()
	var services []contourService
	r.must(yaml.Unmarshal([]byte("["+backends+"]"), &services))
	if had := c.services(r, name); len(had) > 0 {
		c.write(r, name, withoutWeight(had, services))
		c.write(r, name, withoutWeight(services, had))
	}
	c.write(r, name, services)
}

// services returns those of a route, none where there is no such route.
func (c *contour) services(r *rig, name string) (services []contourService) {
	r.t.Helper()
	version, kind := c.routeKind()
	o, err := r.find(version, kind, "models", name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	r.must(err)
	routes, _, err := unstructured.NestedSlice(o.Object, "spec", "routes")
	r.must(err)
	text, err := json.Marshal(routes[0].(map[string]any)["services"])
	r.must(err)
	r.must(json.Unmarshal(text, &services))
	return services
}

// withoutWeight adds the others that are not among the services, with no weight.
func withoutWeight(services, others []contourService) (all []contourService) {
	known := map[string]bool{}
	for _, s := range services {
		known[s.Name] = true
		all = append(all, s)
	}
	for _, s := range others {
		if !known[s.Name] {
			all = append(all, contourService{Name: s.Name, Port: s.Port})
		}
	}
	return all
}

// write writes a route, and waits until the Envoy has it, with the clusters that it leads to.
func (c *contour) write(r *rig, name string, services []contourService) {
	r.t.Helper()
	backends, err := json.Marshal(services)
	r.must(err)
	r.apply(`
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: "%[1]s", namespace: models}
spec:
  virtualhost: {fqdn: "%[1]s.example.com"}
  routes:
  - conditions: [{prefix: "/%[1]s"}]
    services: %[2]s
    timeoutPolicy: {response: infinity, idle: 10m}
    retryPolicy: {count: -1}
`, name, backends)
	want := map[string]int{}
	for _, s := range services {
		want[fmt.Sprintf("models/%s/%d", s.Name, s.Port)] = s.Weight
	}
	r.eventually("the Envoy has the route "+name, func() error {
		got, err := c.leads(r, name)
		if err == nil && !maps.Equal(got, want) {
			err = fmt.Errorf("it leads to %v, want %v", got, want)
		}
		return err
	})
}

// leads returns the weights of the clusters that the Envoy's route leads to, without the hashes at the ends of their
// names. It is an error if one is not there.
func (*contour) leads(r *rig, name string) (map[string]int, error) {
	text, err := r.ask("/config_dump?resource=dynamic_route_configs")
	if err != nil {
		return nil, err
	}
	type cluster struct {
		Name   string `json:"name"`
		Weight int    `json:"weight"`
	}
	var dump struct {
		Configs []struct {
			Config struct {
				Hosts []struct {
					Name   string `json:"name"`
					Routes []struct {
						Route struct {
							Cluster  string `json:"cluster"`
							Weighted struct {
								Clusters []cluster `json:"clusters"`
							} `json:"weighted_clusters"`
						} `json:"route"`
					} `json:"routes"`
				} `json:"virtual_hosts"`
			} `json:"route_config"`
		} `json:"configs"`
	}
	if err := json.Unmarshal([]byte(text), &dump); err != nil {
		return nil, err
	}
	var clusters []cluster
	for _, c := range dump.Configs {
		for _, h := range c.Config.Hosts {
			if h.Name != name+".example.com" {
				continue
			}
			to := h.Routes[0].Route
			clusters = to.Weighted.Clusters
			if to.Cluster != "" {
				clusters = []cluster{{to.Cluster, 1}}
			}
		}
	}
	weights := map[string]int{}
	for _, c := range clusters {
		there, err := r.hasCluster(c.Name)
		if err == nil && !there {
			err = errors.New("the Envoy has no cluster " + c.Name)
		}
		if err != nil {
			return nil, err
		}
		weights[c.Name[:strings.LastIndex(c.Name, "/")]] = c.Weight
	}
	return weights, nil
}

func (c *contour) start(r *rig) {
	r.t.Helper()
	r.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: projectcontour}\n")
	c.runPlane(r)
	c.runProxy(r)
}

// The address of Contour's Service.
const (
	contourAddress = "10.244.1.2"
	contourPort    = "28104"
)

// runPlane starts Contour. The address of its Service comes when it is ready, a moment after its xDS server, which
// begins with an empty configuration.
func (*contour) runPlane(r *rig) {
	r.t.Helper()
	ip := func(args ...string) {
		if out, err := exec.CommandContext(r.t.Context(), "ip", args...).CombinedOutput(); err != nil {
			r.t.Fatalf("ip %v: %v\n%s", args, err, out)
		}
	}
	ip("address", "flush", "dev", "lo", "to", contourAddress)
	p, err := proc.StartReady(r.t.Context(), proc.Spec{Name: "contour", Program: proc.ProgramContour, Dir: r.dir,
		Args: []string{"serve", "--kubeconfig", r.path("kubeconfig"), "--insecure", "--disable-leader-election",
			"--xds-address", "0.0.0.0", "--xds-port", contourPort, "--health-address", "127.0.0.1", "--health-port",
			"28100", "--http-address", "127.0.0.1", "--http-port", "28101", "--stats-address", "127.0.0.1",
			"--stats-port", "28102", "--debug-http-port", "28103", "--envoy-service-http-port", "8888",
			"--envoy-http-access-log", os.DevNull}},
		proc.AnswersHTTP("http://127.0.0.1:28100/healthz"))
	r.must(err)
	r.plane = p
	r.whole.Cleanup(func() { _ = p.Kill() })
	r.eventually("Contour has made a configuration", func() error {
		resp, err := http.Get("http://127.0.0.1:28101/metrics")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err == nil && !regexp.MustCompile(`(?m)^contour_dagrebuild_total [1-9]`).Match(text) {
			err = errors.New("it has made none")
		}
		return err
	})
	ip("address", "add", contourAddress+"/32", "dev", "lo")
}

// runProxy starts the Envoys that follow the pools, and Contour's.
func (c *contour) runProxy(r *rig) {
	r.t.Helper()
	c.end(r)
	for i, pool := range []string{"llama", "next"} {
		port := fmt.Sprint(10001 + i)
		bootstrap, err := exec.CommandContext(r.t.Context(), r.binary, "bootstrap", "--cluster", clusterOf(pool),
			"--xds", xdsAddress, "--listen", podAddress+":"+port, "--admin", "127.0.0.1:0",
			"--fallback", serviceName(pool)+":8000").Output()
		r.must(err)
		c.followers = append(c.followers, c.envoy(r, pool, bootstrap))
		r.apply(serviceOf, pool+"-followers", 80, port, endpointsOf([]string{podAddress}), "models")
	}
	program, err := proc.Find(proc.ProgramContour)
	r.must(err)
	cmd := exec.CommandContext(r.t.Context(), program, "bootstrap", r.path("contour.json"), "--xds-address",
		contourAddress, "--xds-port", contourPort)
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("contour bootstrap: %v\n%s", err, out)
	}
	bootstrap, err := os.ReadFile(r.path("contour.json"))
	r.must(err)
	// Contour's admin listener is a socket in a container's file system.
	e := c.envoy(r, "contour", bootstrap, "--config-yaml", fmt.Sprintf(
		"admin: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}", envoyAdmin))
	r.proxy, r.proxyAdmin = e.Process, e.Admin()
	for _, e := range append(c.followers, e) {
		r.must(e.ReadyOrKill(r.t.Context(), e.Ready))
	}
}

func (*contour) envoy(r *rig, name string, bootstrap []byte, args ...string) *proc.Envoy {
	r.t.Helper()
	e, err := proc.LaunchEnvoy(r.t.Context(), proc.EnvoyConfig{Bootstrap: bootstrap, Dir: r.dir, Name: "envoy-" + name,
		Concurrency: 2, Args: append(args, "--service-node", name+"-0", "--service-cluster", name)})
	r.must(err)
	r.whole.Cleanup(func() { _ = e.Kill() })
	return e
}

// end ends the Envoys that follow the pools.
func (c *contour) end(r *rig) {
	r.t.Helper()
	for _, f := range c.followers {
		r.must(f.Kill())
	}
	c.followers = nil
}

// serve has nothing to do: the Envoys of a pool follow it when it is there.
func (*contour) serve(*rig, ...string) {}

// leave has the route name the Service, under load. Then nobody needs the Envoys in between.
func (c *contour) leave(r *rig) {
	r.t.Helper()
	l := r.send("llama")
	l.more(40)
	r.route("llama", ofService("llama", 1))
	c.end(r)
	l.more(80)
	l.end()
}
