package gateways

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// module has the endpoints of a route's requests named in the Envoy.
func (r *rig) module() {
	l := r.send("llama")
	l.more(40)
	annotate := func(value string) {
		r.apply(`
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: llama, namespace: models, annotations: {gateway.envoyproxy.io/steelyard-module: "%s"}}
spec:
  parentRefs: [{name: eg}]
  rules:
  - matches: [{path: {type: PathPrefix, value: /llama}}]
    backendRefs: [%s]
`, value, r.gateway.pool("llama", 1))
	}
	annotate("true")
	r.counts(l, "picker_choices_fill")
	r.follows(l, "llama", servers[1])
	annotate("prefix")
	r.counts(l, "picker_prefix_routes")
	annotate("maybe")
	r.eventually("Steelyard says why the annotation has no effect", func() error {
		s, err := r.status()
		if text := fmt.Sprint(s.EnvoyGateway.Ignored); err == nil && !strings.Contains(text, `"maybe"`) {
			err = fmt.Errorf("without effect are %s", text)
		}
		return err
	})
	r.eventually("no route has the module", func() error {
		routes, err := r.ask("/config_dump?resource=dynamic_route_configs")
		if err == nil && strings.Contains(routes, "models.llama_picked") {
			err = errors.New("a route leads to models.llama_picked")
		}
		return err
	})
	r.route("llama", r.gateway.pool("llama", 1))
	r.follows(l, "llama", servers[0])
	l.end()
}

// counts waits until the module has counted something in the Envoy.
func (r *rig) counts(l *load, what string) {
	r.t.Helper()
	r.eventually("the module counts "+what, func() error {
		l.more(20)
		stats, err := r.ask("/stats?filter=" + what)
		if err == nil && !regexp.MustCompile(`: [1-9]`).MatchString(stats) {
			err = fmt.Errorf("the statistics are %q", stats)
		}
		return err
	})
}
