package gateways

import (
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"steelyard/e2e/rig/certs"
	"steelyard/e2e/rig/modelsim"
)

// twoListeners adds the listener at secureAddress, and takes it away.
func (r *rig) twoListeners() {
	l := r.send("llama")
	l.more(20)
	pair := certs.New("gateway", r.authority, func(c *x509.Certificate) { c.DNSNames = []string{"*.example.com"} })
	r.apply(`
apiVersion: v1
kind: Secret
metadata: {name: eg, namespace: models}
type: kubernetes.io/tls
data: {tls.crt: %s, tls.key: %s}
`, base64.StdEncoding.EncodeToString(pair.CertPEM()), base64.StdEncoding.EncodeToString(pair.KeyPEM()))
	gateway := r.get("gateway.networking.k8s.io/v1", "Gateway", "models", "eg")
	class, _, err := unstructured.NestedString(gateway.Object, "spec", "gatewayClassName")
	r.must(err)
	r.listeners(class, "{name: https, port: 8999, protocol: HTTPS, tls: {certificateRefs: [{name: eg}]}}")
	r.answersAt(secureAddress, "llama")
	before, earlier := r.entries(), l.total()
	secure := r.sendTo(secureAddress, "llama")
	r.follows(l, "llama", servers[0])
	r.follows(secure, "llama", servers[1])
	sent := l.total() - earlier + secure.end()
	r.logged(before, sent)
	r.listeners(class)
	l.more(80)
	r.follows(l, "llama", servers[2])
	l.end()
}

// An httpRouter is a gateway whose routes are HTTPRoutes.
type httpRouter interface {
	rules(r *rig, name string, rules ...string)
}

// severalRules sends a request to each rule. Envoy Gateway names clusters by the number of the rule, so that a rule
// before the others changes what each of these clusters has.
func (r *rig) severalRules() {
	r.pool("next")
	r.gateway.serve(r, "llama", "next")
	llama, next := r.gateway.pool("llama", 1), r.gateway.pool("next", 1)
	rules := []string{
		fmt.Sprintf("{matches: [{path: {value: /rules/llama}, headers: [{name: content-type, value: "+
			"application/json}]}, {path: {value: /rules/too}, method: POST}], backendRefs: [%s]}", llama),
		fmt.Sprintf("{matches: [{path: {value: /rules/both}}], backendRefs: [%s, %s]}", llama, next),
		fmt.Sprintf("{matches: [{path: {value: /rules/shop}}], backendRefs: [%s]}", ofService("shop", 1)),
		fmt.Sprintf("{matches: [{path: {value: /rules}}], backendRefs: [%s]}", next),
	}
	route := r.gateway.(httpRouter)
	route.rules(r, "rules", rules...)
	loads := map[string]*load{}
	for _, path := range []string{"llama", "too", "both", "shop", "rest"} {
		r.answers("rules/" + path)
		loads[path] = r.send("rules/" + path)
	}
	proven := func() {
		r.follows(loads["too"], "llama", servers[0])
		r.follows(loads["rest"], "next", servers[3])
		r.divides(loads["llama"], 1, servers[:3]...)
		r.divides(loads["shop"], 1, servers[5])
		r.divides(loads["both"], 0.5, servers[:3]...)
	}
	proven()
	first := fmt.Sprintf("{matches: [{path: {value: /rules/first}}], backendRefs: [%s]}", ofService("shop", 1))
	route.rules(r, "rules", append([]string{first}, rules...)...)
	loads["first"] = r.send("rules/first")
	r.reaches(loads["first"], servers[5])
	proven()
	for _, l := range loads {
		l.end()
	}
	r.removeRoute("rules")
	r.endPool("next")
}

// twoNamespaces has a pool of the same name in another namespace. A route moves to it from a Service, too.
func (r *rig) twoNamespaces() {
	l := r.send("llama")
	r.pods("team/llama", servers[3:5]...)
	r.pool("team/llama")
	r.route("team/own", r.gateway.pool("team/llama", 1))
	r.answers("team/own")
	own := r.send("team/own")
	own.more(20)
	r.gateway.serve(r, "llama", "team/llama")
	r.follows(own, "team/llama", servers[3])
	r.route("across", r.gateway.pool("team/llama", 1))
	r.refused("across")
	r.apply(grant)
	r.answers("across")
	across := r.send("across")
	r.route("across", ofService("shop", 1))
	r.reaches(across, servers[5])
	r.route("across", r.gateway.pool("team/llama", 1))
	r.follows(across, "team/llama", servers[4])
	r.route("across", r.gateway.pool("llama", 3), r.gateway.pool("team/llama", 1))
	r.reaches(across, servers[:3]...)
	r.divides(across, 0.25, servers[3:5]...)
	r.follows(across, "llama", servers[0])
	r.divides(l, 1, servers[:3]...)
	r.divides(own, 1, servers[3:5]...)
	for _, l := range []*load{l, own, across} {
		l.end()
	}
	r.removeRoute("across")
	r.removeRoute("team/own")
	r.endPool("team/llama")
	r.removePods("team/llama", servers[3:5]...)
}

// grant permits routes of the namespace models to name what the namespace team has.
const grant = `
apiVersion: gateway.networking.k8s.io/v1
kind: ReferenceGrant
metadata: {name: models, namespace: team}
spec:
  from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: models}]
  to: [{group: inference.networking.k8s.io, kind: InferencePool}, {group: "", kind: Service}]
`

// refused waits until the gateway says that a route needs a ReferenceGrant: its requests then get an answer, and reach
// no server.
func (r *rig) refused(route string) {
	r.t.Helper()
	r.eventually("the route "+route+" needs a ReferenceGrant", func() error {
		o, err := r.find("gateway.networking.k8s.io/v1", "HTTPRoute", "models", route)
		if err != nil {
			return err
		}
		if text := fmt.Sprint(o.Object["status"]); !strings.Contains(text, "RefNotPermitted") {
			return errors.New("its status is " + text)
		}
		resp, err := http.DefaultClient.Do(to(gatewayAddress, route))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusInternalServerError {
			return errors.New("it is answered with " + resp.Status)
		}
		return nil
	})
}

// policy has timeout and retries of a route to a pool by a BackendTrafficPolicy.
func (r *rig) policy() {
	r.pool("next")
	r.route("policy", r.gateway.pool("next", 1))
	r.answers("policy")
	r.apply(`
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: policy, namespace: models}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: policy}]
  timeout: {http: {requestTimeout: 2s}}
  retry: {numRetries: 10, retryOn: {triggers: [retriable-status-codes], httpStatusCodes: [500]}}
`)
	r.eventually("a request that takes too long is ended", func() error {
		return r.long("policy", http.StatusGatewayTimeout)
	})
	l := r.send("policy")
	r.follows(l, "next", servers[3])
	r.models[servers[4]].SetServingFault(modelsim.ServingFailing)
	r.eventually("requests are sent again", func() error {
		l.more(20)
		stats, err := r.ask("/stats?filter=upstream_rq_retry_success")
		if err == nil && !regexp.MustCompile(`next.*: [1-9]`).MatchString(stats) {
			err = fmt.Errorf("the statistics are %q", stats)
		}
		return err
	})
	r.models[servers[4]].SetServingFault(modelsim.ServingHealthy)
	r.remove("gateway.envoyproxy.io/v1alpha1", "BackendTrafficPolicy", "policy")
	r.eventually("a request may take long again", func() error { return r.long("policy", http.StatusOK) })
	l.end()
	r.removeRoute("policy")
	r.endPool("next")
}

// long sends a request that takes five seconds, and wants this answer.
func (r *rig) long(route string, want int) error {
	req := to(gatewayAddress, route)
	req.Header.Set(modelsim.HeaderService, "5")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != want {
		return errors.New("it is answered with " + resp.Status)
	}
	return nil
}
