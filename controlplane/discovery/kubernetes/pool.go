package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"steelyard/controlplane/discovery"
	"steelyard/internal/loops"
)

// A PoolConfig says which InferencePool selects the endpoints.
type PoolConfig struct {
	// Namespace is where the InferencePool and its Pods are; empty for the one that this process runs in.
	Namespace string
	Name      string
	// MetricsPort is the port of the metrics page; 0 for the serving port.
	MetricsPort int
	// Family is IPv4 or IPv6; empty for IPv4 with IPv6 where a Pod has nothing else.
	Family string
}

type poolSource struct {
	PoolConfig
	source
}

// Pool returns the source of the endpoints of an InferencePool: each of its target ports on each of its Pods. report is
// called with the state of the source, as with Service.
func (c *Client) Pool(p PoolConfig, report func(error), log *slog.Logger) discovery.Discoverer {
	p.Namespace = c.orOwn(p.Namespace)
	return &poolSource{p, source{c, report, log.With("source", "inferencePool", "namespace", p.Namespace)}}
}

// spec is what endpoints are made of, as in inference.networking.k8s.io/v1.
type spec struct {
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	TargetPorts []struct {
		Number int32 `json:"number"`
	} `json:"targetPorts"`
}

func (p *poolSource) Run(ctx context.Context, sets chan<- []discovery.Endpoint) error {
	sub := loops.NewSignal()
	name := fields.OneTermEqualSelector("metadata.name", p.Name).String()
	pool, release := p.client.watch(key{kind: kindPools, namespace: p.Namespace, field: name}, sub)
	defer release()
	selected := selection{client: p.client, namespace: p.Namespace, sub: sub}
	defer selected.close()
	p.follow(ctx, sets, sub, func() ([]discovery.Endpoint, error) {
		away := cmp.Or(p.client.unreachable(), pool.failing())
		if !pool.informer.HasSynced() {
			return nil, cmp.Or(away, errWaiting)
		}
		object, exists, _ := pool.informer.GetStore().GetByKey(p.Namespace + "/" + p.Name)
		if !exists {
			return []discovery.Endpoint{}, cmp.Or(away, fmt.Errorf("there is no %s: check the name and the namespace",
				p.what()))
		}
		s, err := specOf(object.(*unstructured.Unstructured))
		if err != nil {
			return nil, cmp.Or(away, fmt.Errorf("%s: %w", p.what(), err))
		}
		pods := selected.pods(s.Selector.MatchLabels)
		away = cmp.Or(away, pods.failing())
		if !pods.informer.HasSynced() {
			return nil, cmp.Or(away, errWaiting)
		}
		set, err := p.endpoints(s, pods.informer.GetStore())
		return set, discovery.Both(away, err)
	})
	return nil
}

func (p *poolSource) what() string { return fmt.Sprintf("InferencePool %s/%s", p.Namespace, p.Name) }

func specOf(object *unstructured.Unstructured) (s spec, err error) {
	content, found, err := unstructured.NestedMap(object.Object, "spec")
	if err == nil && found {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(content, &s)
	}
	switch {
	case err != nil:
		return s, fmt.Errorf("its spec cannot be read: %w", err)
	case len(s.Selector.MatchLabels) == 0:
		return s, fmt.Errorf("its spec.selector is empty, which would select every Pod of the namespace")
	case len(s.TargetPorts) == 0:
		return s, fmt.Errorf("its spec.targetPorts is empty: write the serving port of its Pods")
	}
	return s, nil
}

// endpoints returns the endpoints of the Pods in the store.
func (p *poolSource) endpoints(s spec, pods cache.Store) ([]discovery.Endpoint, error) {
	m := merger{family: p.Family, what: p.what()}
	all := pods.List()
	if len(all) == 0 {
		return []discovery.Endpoint{}, fmt.Errorf("%s: no Pod has the labels of its selector, %s", m.what,
			labels.Set(s.Selector.MatchLabels))
	}
	for _, object := range all {
		p.addPod(&m, s, object.(*core.Pod))
	}
	return m.result()
}

func (p *poolSource) addPod(m *merger, s spec, pod *core.Pod) {
	if pod.Status.Phase == core.PodFailed || pod.Status.Phase == core.PodSucceeded {
		return
	}
	ready := false
	for _, c := range pod.Status.Conditions {
		ready = ready || c.Type == core.PodReady && c.Status == core.ConditionTrue
	}
	c := candidate{owner: string(pod.UID), object: "Pod " + pod.Name, serving: ready,
		terminating: pod.DeletionTimestamp != nil}
	c.ready = ready && !c.terminating
	c.ID, c.Namespace, c.Pod, c.Node = string(pod.UID), pod.Namespace, pod.Name, pod.Spec.NodeName
	c.Zone, c.MetricsPort = pod.Labels[core.LabelTopologyZone], p.MetricsPort
	c.address = pod.Status.PodIP // that names the Pod
	m.hint(&c, pod.ObjectMeta)
	if c.ready && len(pod.Status.PodIPs) == 0 {
		m.omit(c, "it is ready, and has no IP")
	}
	for _, ip := range pod.Status.PodIPs {
		c.address, c.family = ip.IP, IPv4
		if a, err := netip.ParseAddr(ip.IP); err == nil && a.Is6() {
			c.family = IPv6
		}
		for _, port := range s.TargetPorts {
			if c.port = int(port.Number); !active(pod, c.port) {
				continue
			}
			m.add(c)
		}
	}
}

// activePorts are the annotations in which a Pod lists those of its pool's target ports that it serves, the newer
// first:
// github.com/kubernetes-sigs/gateway-api-inference-extension/pull/2256.
var activePorts = []string{"llm-d.ai/active-ports", "inference.networking.k8s.io/active-ports"}

// active reports whether a Pod serves a port of its pool: all, unless it lists them.
func active(pod *core.Pod, port int) bool {
	for _, name := range activePorts {
		if listed, ok := pod.Annotations[name]; ok {
			return slices.ContainsFunc(strings.Split(listed, ","), func(s string) bool {
				n, err := strconv.Atoi(strings.TrimSpace(s))
				return err == nil && n == port
			})
		}
	}
	return true
}

// A selection is the Pods that a selector selects, which may change.
type selection struct {
	client    *Client
	namespace string
	sub       loops.Signal

	selector string
	current  *watched
	release  func()
}

func (s *selection) pods(wanted map[string]string) *watched {
	selector := labels.SelectorFromSet(wanted).String()
	if s.current == nil || selector != s.selector {
		s.close()
		s.selector = selector
		s.current, s.release = s.client.watch(key{kind: kindPods, namespace: s.namespace, labels: selector}, s.sub)
	}
	return s.current
}

func (s *selection) close() {
	if s.current != nil {
		s.release()
		s.current = nil
	}
}
