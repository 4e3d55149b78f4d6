package picking

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/e2e/rig/testbed"
)

// commented returns the YAML that a comment of `bootstrap --attach` has after a heading, indented by so many spaces.
func commented(t *testing.T, text, heading string, spaces int) string {
	t.Helper()
	_, rest, found := strings.Cut(text, "# "+heading+"\n#\n")
	if !found {
		t.Fatalf("the output has no %q:\n%s", heading, text)
	}
	var b strings.Builder
	for line := range strings.Lines(rest) {
		yaml, found := strings.CutPrefix(line, "#     ")
		if !found && line != "#\n" {
			break
		}
		if found {
			b.WriteString(strings.Repeat(" ", spaces) + yaml)
		}
	}
	return b.String()
}

// TestTheModuleNamesEndpointsOfSeveralClustersOfOneEnvoy, to which they are attached. A client names none.
func TestTheModuleNamesEndpointsOfSeveralClustersOfOneEnvoy(t *testing.T) {
	t.Parallel()
	testbed.WithModule(t)
	pool := testbed.Pool(t, 4)
	endpoints := func(a, b int) string {
		return fmt.Sprintf("endpoints: {static: [{address: %s}, {address: %s}]}\n", pool[a].Address(),
			pool[b].Address())
	}
	f := withoutEnvoys(t, testbed.Plan{Servers: pool, Cluster: endpoints(0, 1),
		More: "- name: " + testbed.SecondCluster + "\n  engine: vllm\n  " + endpoints(2, 3)})
	text := string(testbed.Run(t, "bootstrap", "--attach", "--cluster", testbed.Cluster,
		"--cluster", testbed.SecondCluster, "--xds", f.XDS,
		"--module"))
	var routes strings.Builder
	for _, name := range []string{testbed.Cluster, testbed.SecondCluster} {
		match := "prefix: /" + name
		_, line, _ := strings.Cut(text, `typed_per_filter_config: {"steelyard.`+name+`"`)
		line, _, _ = strings.Cut(line, "\n")
		fmt.Fprintf(&routes, `            - match:
                %s
                headers: [{name: x-gateway-destination-endpoint, present_match: true}]
              route: {cluster: %s_picked, timeout: 0s}
            - match: {%s}
              route: {cluster: %s_failsafe, timeout: 0s}
              typed_per_filter_config: {"steelyard.%s"%s
`, match, name, match, name, name, line)
	}
	bootstrap := proctest.Existing + text + proctest.Listener +
		commented(t, text, "And next to these filters:", 10) + `          http_filters:
` + commented(t, text, "Add to the filters of that listener, before the router:", 10) +
		proctest.RouterFilter +
		commented(t, text, `Add to the router filter of the listener with these routes, next to its "@type":`, 14) +
		`          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
` + strings.ReplaceAll(routes.String(), "            ", "              ")
	e := proctest.Envoy(t, proc.EnvoyConfig{Bootstrap: []byte(bootstrap), Dir: f.Dir, Name: "envoy-0"})
	listener, err := e.Listener(t.Context(), "ingress")
	if err != nil {
		t.Fatal(err)
	}
	f.Envoys, f.URLs = append(f.Envoys, e), append(f.URLs, "http://"+listener+"/")
	for i, name := range []string{testbed.Cluster, testbed.SecondCluster} {
		named := func() float64 { return f.EnvoyStat("cluster." + name + "_picked.upstream_rq_total") }
		send := func() error {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.URLs[0]+name, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("x-gateway-destination-endpoint", pool[2-2*i].Address()) // of the other cluster
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("%s is answered with %d", name, resp.StatusCode)
			}
			return nil
		}
		f.Eventually("the module has the loads of "+name, func() error {
			if err := send(); err != nil || named() > 0 {
				return err
			}
			return errors.New("no request was named an endpoint")
		})
		before, others := named(), pool[2-2*i].Served()+pool[3-2*i].Served()
		const requests = 20
		for range requests {
			if err := send(); err != nil {
				t.Error(err)
			}
		}
		if n := named() - before; n != requests {
			t.Errorf("%v of %d requests of %s were named an endpoint", n, requests, name)
		}
		if n := pool[2-2*i].Served() + pool[3-2*i].Served() - others; n > 0 {
			t.Errorf("%d requests of %s went to endpoints of the other cluster", n, name)
		}
	}
}
