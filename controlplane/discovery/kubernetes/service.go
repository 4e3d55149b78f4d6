package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
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
		away := cmp.Or(s.client.unreachable(), found.failing())
		labelled := pods.informer.HasSynced()
		if !found.informer.HasSynced() || !labelled && pods.failing() == nil && time.Now().Before(patience) {
			return nil, cmp.Or(away, errWaiting)
		}
		set, err := s.endpoints(found.informer.GetStore(), pods.informer.GetStore(), pods.failing())
		return set, discovery.Both(away, err)
	})
	return nil
}

// endpoints returns the endpoints of the slices in the store. unlabelled is why the Pods' labels are not known.
func (s *serviceSource) endpoints(found, pods cache.Store, unlabelled error) ([]discovery.Endpoint, error) {
	m := merger{family: s.Family, what: s.what(s.Namespace)}
	if unlabelled != nil {
		m.leaveOut("", "Pods of namespace "+s.Namespace, "capacity and engine of Pods are not known: %v", unlabelled)
	}
	all := found.List()
	if len(all) == 0 {
		return []discovery.Endpoint{}, fmt.Errorf("%s: it has no EndpointSlice: check the name and the namespace",
			m.what)
	}
	ported := make(map[string]bool) // by Service
	for _, object := range all {
		slice := object.(*discoveryv1.EndpointSlice)
		ported[serviceOf(slice)] = ported[serviceOf(slice)] || numbered(slice)
	}
	for _, object := range all {
		slice := object.(*discoveryv1.EndpointSlice)
		s.addSlice(&m, slice, ported[serviceOf(slice)], pods)
	}
	return m.result()
}

// serviceOf returns the Service of a slice; a slice of none stands for itself.
func serviceOf(slice *discoveryv1.EndpointSlice) string {
	if name := slice.Labels[discoveryv1.LabelServiceName]; name != "" {
		return name
	}
	return "slice/" + slice.Name
}

func (s *serviceSource) addSlice(m *merger, slice *discoveryv1.EndpointSlice, ported bool, pods cache.Store) {
	found := s.candidates(m, slice, pods)
	port, metrics, err := s.ports(slice, ported)
	if slice.AddressType != discoveryv1.AddressTypeIPv4 && slice.AddressType != discoveryv1.AddressTypeIPv6 {
		err = fmt.Errorf("it has addresses of type %s, and Envoys are sent IPs", slice.AddressType)
	}
	fault := ""
	if err != nil {
		fault = err.Error()
	}
	// An empty slice has no ports either. Of one in which no endpoint is ready, the fault is known before one is.
	if err != nil && len(found) > 0 && !slices.ContainsFunc(found, candidate.counts) {
		m.leaveOut("", "EndpointSlice "+slice.Name, "%s", fault)
	}
	for _, c := range found {
		c.port, c.MetricsPort, c.fault = port, metrics, fault
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
		c.owner, c.object = c.address, "EndpointSlice "+slice.Name
		if e.TargetRef != nil {
			s.refer(m, &c, e.TargetRef, pods)
		}
		found = append(found, c)
	}
	return found
}

// refer adds what a candidate's target says, which is a Pod, or another server that has addresses.
func (s *serviceSource) refer(m *merger, c *candidate, ref *core.ObjectReference, pods cache.Store) {
	namespace := cmp.Or(ref.Namespace, s.Namespace)
	name := strings.Join([]string{ref.Kind, namespace, ref.Name}, "/")
	c.owner, c.ID = cmp.Or(string(ref.UID), name), string(ref.UID)
	c.object += ", " + ref.Kind + " " + ref.Name
	if ref.Kind != "Pod" {
		return
	}
	c.Namespace, c.Pod = namespace, ref.Name
	object, ok, _ := pods.GetByKey(namespace + "/" + ref.Name)
	if !ok {
		return
	}
	if pod := object.(*meta.PartialObjectMetadata); ref.UID == "" || ref.UID == pod.UID {
		m.hint(c, pod.ObjectMeta)
	}
}

func orTrue(b *bool) bool { return b == nil || *b }

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
