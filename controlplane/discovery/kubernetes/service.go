package kubernetes

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"steelyard/controlplane/discovery"
	"steelyard/internal/loops"
)

const (
	// settle is how long a change waits for others: a rollout writes several objects at once.
	settle = 10 * time.Millisecond
	// metadataPatience is how long the first endpoints wait for the Pods' labels, which say their capacity.
	metadataPatience = 2 * time.Second
)

// Address families of ServiceConfig and PoolConfig.
const (
	IPv4 = string(discoveryv1.AddressTypeIPv4)
	IPv6 = string(discoveryv1.AddressTypeIPv6)
)

// A ServiceConfig says which EndpointSlices hold the endpoints.
type ServiceConfig struct {
	// Namespace is the Service's; empty for the one that this process runs in.
	Namespace string
	// Service is the name of the Service. Selector is a label selector instead, of
	// EndpointSlices, which carry the labels of their Service.
	Service, Selector string
	// Port is the name or the number of the serving port, as the slices have it;
	// empty where they have only one.
	Port string
	// MetricsPort is the name or number of the port of the metrics page; empty for
	// the serving port. A number need not be in the slices.
	MetricsPort string
	// Family is IPv4 or IPv6; empty for IPv4 with IPv6 where a Pod has nothing else.
	Family string
}

// CheckSelector reports what is wrong with the syntax of a label selector.
func CheckSelector(selector string) error {
	_, err := labels.Parse(selector)
	return err
}

func (s ServiceConfig) selector() string {
	if s.Service != "" {
		return labels.Set{discoveryv1.LabelServiceName: s.Service}.String()
	}
	return s.Selector
}

// what names the source in messages.
func (s ServiceConfig) what(namespace string) string {
	if s.Service != "" {
		return fmt.Sprintf("Service %s/%s", namespace, s.Service)
	}
	return fmt.Sprintf("Services with %s in namespace %s", s.Selector, namespace)
}

type serviceSource struct {
	ServiceConfig
	source
}

// Service returns the source of the endpoints of Services. report is called with the state of the source: nil, or
// what is wrong while the endpoints known stay. Both functions of the source are called on the goroutine of Run.
func (c *Client) Service(s ServiceConfig, report func(error), log *slog.Logger) discovery.Discoverer {
	s.Namespace = c.orOwn(s.Namespace)
	return &serviceSource{s, source{c, report, log.With("source", "kubernetes", "namespace", s.Namespace)}}
}

func (s *serviceSource) Run(ctx context.Context, sets chan<- []discovery.Endpoint) error {
	if err := CheckSelector(s.Selector); err != nil {
		return err
	}
	sub := loops.NewSignal()
	found, release := s.client.watch(
		key{kind: kindSlices, namespace: s.Namespace, labels: s.selector()}, sub)
	defer release()
	pods, release := s.client.watch(key{kind: kindPodsMetadata, namespace: s.Namespace}, sub)
	defer release()
	patience := time.Now().Add(metadataPatience)
	s.follow(ctx, sets, sub, func() ([]discovery.Endpoint, error) {
		away := cmpErr(s.client.unreachable(), found.failing())
		labelled := pods.informer.HasSynced()
		if !found.informer.HasSynced() || !labelled && pods.failing() == nil && time.Now().Before(patience) {
			return nil, cmpErr(away, errWaiting)
		}
		set, err := s.endpoints(found.informer.GetStore(), pods.informer.GetStore())
		if failing := pods.failing(); failing != nil {
			failing = fmt.Errorf("capacity and engine of Pods are not known: %w", failing)
			err = cmpErr(failing, err)
		}
		return set, cmpErr(away, err)
	})
	return nil
}

// endpoints returns the endpoints of the slices in the store.
func (s *serviceSource) endpoints(found, pods cache.Store) ([]discovery.Endpoint, error) {
	m := merger{family: s.Family, what: s.what(s.Namespace)}
	for _, object := range found.List() {
		s.addSlice(&m, object.(*discoveryv1.EndpointSlice), pods)
	}
	if m.objects == 0 {
		m.left("it has no EndpointSlice: check the name and the namespace")
	}
	return m.result()
}

func (s *serviceSource) addSlice(m *merger, slice *discoveryv1.EndpointSlice, pods cache.Store) {
	m.objects++
	found := s.candidates(m, slice, pods)
	if len(found) == 0 {
		return // an empty slice has no ports either
	}
	left := m.left
	if slices.ContainsFunc(found, candidate.counts) {
		left = m.missed
	}
	if slice.AddressType != discoveryv1.AddressTypeIPv4 && slice.AddressType != discoveryv1.AddressTypeIPv6 {
		left("EndpointSlice %s has addresses of type %s, and Envoys are sent IPs", slice.Name, slice.AddressType)
		return
	}
	port, metrics, err := s.ports(slice)
	if err != nil {
		left("EndpointSlice %s: %w", slice.Name, err)
		return
	}
	for _, c := range found {
		c.port, c.MetricsPort = port, metrics
		m.add(c)
	}
}

// candidates are the slice's, without ports.
func (s *serviceSource) candidates(m *merger, slice *discoveryv1.EndpointSlice, pods cache.Store) []candidate {
	var found []candidate
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if len(e.Addresses) == 0 {
			continue
		}
		c := candidate{
			// All addresses of an entry are the same endpoint; consumers use the first.
			address: e.Addresses[0], family: string(slice.AddressType),
			// Unknown means ready, by the definition of the API.
			ready:       orTrue(e.Conditions.Ready),
			terminating: e.Conditions.Terminating != nil && *e.Conditions.Terminating,
		}
		c.serving = c.ready
		if e.Conditions.Serving != nil {
			c.serving = *e.Conditions.Serving
		}
		c.Zone, c.Node = deref(e.Zone), deref(e.NodeName)
		if ref := e.TargetRef; ref != nil && ref.Kind == "Pod" {
			c.ID, c.Pod = string(ref.UID), ref.Name
			namespace := ref.Namespace
			if namespace == "" {
				namespace = s.Namespace
			}
			if object, ok, _ := pods.GetByKey(namespace + "/" + ref.Name); ok {
				pod := object.(*meta.PartialObjectMetadata)
				if ref.UID == "" || ref.UID == pod.UID {
					m.hint(&c, pod.ObjectMeta)
				}
			}
		}
		found = append(found, c)
	}
	return found
}

func orTrue(b *bool) bool { return b == nil || *b }

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
