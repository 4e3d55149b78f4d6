package kubernetes

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// A room is a namespace in which a test writes objects, as controllers and kubelets would.
type room struct {
	t      testing.TB
	client kubernetes.Interface
	name   string
}

func newRoom(t testing.TB, client kubernetes.Interface) room {
	return room{t, client, namespace(t, client)}
}

func (r room) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// A pod is a Pod that is written.
type pod struct {
	name        string
	ips         []string
	labels      map[string]string
	annotations map[string]string
	node        string // terminating Pods stay until they are removed, where there is one
	unready     bool
	controlled  bool // by a ReplicaSet
}

// pod writes a Pod and its status, and returns its UID.
func (r room) pod(p pod) types.UID {
	r.t.Helper()
	pods := r.client.CoreV1().Pods(r.name)
	var owners []meta.OwnerReference
	if p.controlled {
		owners = []meta.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "llama", UID: "1",
			Controller: new(true)}}
	}
	made, err := pods.Create(context.Background(), &core.Pod{
		ObjectMeta: meta.ObjectMeta{Name: p.name, Labels: p.labels, Annotations: p.annotations,
			OwnerReferences: owners},
		Spec: core.PodSpec{
			NodeName:   p.node,
			Containers: []core.Container{{Name: "server", Image: "vllm"}},
		},
	}, meta.CreateOptions{})
	r.must(err)
	r.setStatus(made, p)
	return made.UID
}

func (r room) setStatus(made *core.Pod, p pod) {
	r.t.Helper()
	ready := core.ConditionTrue
	if p.unready {
		ready = core.ConditionFalse
	}
	made.Status = core.PodStatus{
		Phase: core.PodRunning, Conditions: []core.PodCondition{{Type: core.PodReady, Status: ready}},
		ContainerStatuses: []core.ContainerStatus{{Name: "server", Ready: !p.unready, State: core.ContainerState{
			Running: &core.ContainerStateRunning{StartedAt: meta.NewTime(time.Now().Add(-time.Hour))}}}},
	}
	for i, ip := range p.ips {
		if i == 0 {
			made.Status.PodIP = ip
		}
		made.Status.PodIPs = append(made.Status.PodIPs, core.PodIP{IP: ip})
	}
	_, err := r.client.CoreV1().Pods(r.name).UpdateStatus(context.Background(), made, meta.UpdateOptions{})
	r.must(err)
}

// terminate deletes a Pod: one on a node stays, as while its kubelet waits for it.
func (r room) terminate(name string) {
	r.t.Helper()
	r.must(r.client.CoreV1().Pods(r.name).Delete(context.Background(), name, meta.DeleteOptions{}))
}

// remove deletes a Pod at once.
func (r room) remove(name string) {
	r.t.Helper()
	var now int64
	r.must(r.client.CoreV1().Pods(r.name).Delete(context.Background(), name,
		meta.DeleteOptions{GracePeriodSeconds: &now}))
}

// entry is an endpoint of a slice.
type entry struct {
	address    string // several of the same endpoint are separated by commas
	pod        string
	uid        types.UID
	zone, node string

	ready, serving, terminating *bool
}

func yes() *bool { return new(true) }
func no() *bool  { return new(false) }

// going returns an entry of a Pod that terminates and still serves.
func going(e entry) entry {
	e.ready, e.serving, e.terminating = no(), yes(), yes()
	return e
}

var httpPort = []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8000))}}

// slice writes an EndpointSlice of a Service, or replaces it.
func (r room) slice(service, name string, ports []discoveryv1.EndpointPort, entries ...entry) {
	r.t.Helper()
	r.sliceOf(discoveryv1.AddressTypeIPv4, service, name, ports, entries...)
}

func (r room) sliceOf(family discoveryv1.AddressType, service, name string, ports []discoveryv1.EndpointPort,
	entries ...entry) {
	r.t.Helper()
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{
			discoveryv1.LabelServiceName: service, "app": service,
		}},
		AddressType: family, Ports: ports, Endpoints: []discoveryv1.Endpoint{},
	}
	for _, e := range entries {
		made := discoveryv1.Endpoint{
			Addresses:  strings.Split(e.address, ","),
			Conditions: discoveryv1.EndpointConditions{Ready: e.ready, Serving: e.serving, Terminating: e.terminating},
		}
		if e.pod != "" {
			made.TargetRef = &core.ObjectReference{Kind: "Pod", Namespace: r.name, Name: e.pod, UID: e.uid}
		}
		if e.zone != "" {
			made.Zone = &e.zone
		}
		if e.node != "" {
			made.NodeName = &e.node
		}
		s.Endpoints = append(s.Endpoints, made)
	}
	slices := r.client.DiscoveryV1().EndpointSlices(r.name)
	_, err := slices.Update(context.Background(), s, meta.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = slices.Create(context.Background(), s, meta.CreateOptions{})
	}
	r.must(err)
}

func (r room) removeSlice(name string) {
	r.t.Helper()
	r.must(r.client.DiscoveryV1().EndpointSlices(r.name).Delete(context.Background(), name, meta.DeleteOptions{}))
}

// entries are n entries of addresses from 10.1.from.0 on, 250 to a third byte.
func entries(from, n int) []entry {
	out := make([]entry, n)
	for i := range out {
		at := from + i
		out[i] = entry{address: fmt.Sprintf("10.1.%d.%d", at/250, 1+at%250), ready: yes()}
	}
	return out
}

// The rights that discovery needs.
var (
	readSlices = rbac.PolicyRule{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"},
		Verbs: []string{"list", "watch"}}
	readPods  = rbac.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: readSlices.Verbs}
	readPools = rbac.PolicyRule{APIGroups: []string{"inference.networking.k8s.io"},
		Resources: []string{"inferencepools"}, Verbs: readSlices.Verbs}
)

// account makes the service account `steelyard` in a namespace.
func (r room) account() {
	r.t.Helper()
	_, err := r.client.CoreV1().ServiceAccounts(r.name).Create(context.Background(),
		&core.ServiceAccount{ObjectMeta: meta.ObjectMeta{Name: "steelyard"}}, meta.CreateOptions{})
	r.must(err)
}

// grant gives the service account of a namespace a Role here, or changes it.
func (r room) grant(accountsNamespace string, rules ...rbac.PolicyRule) {
	r.t.Helper()
	roles := r.client.RbacV1().Roles(r.name)
	role := &rbac.Role{ObjectMeta: meta.ObjectMeta{Name: "steelyard"}, Rules: rules}
	_, err := roles.Create(context.Background(), role, meta.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = roles.Update(context.Background(), role, meta.UpdateOptions{})
		r.must(err)
		return
	}
	r.must(err)
	_, err = r.client.RbacV1().RoleBindings(r.name).Create(context.Background(), &rbac.RoleBinding{
		ObjectMeta: meta.ObjectMeta{Name: "steelyard"},
		RoleRef:    rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "Role", Name: "steelyard"},
		Subjects: []rbac.Subject{{Kind: rbac.ServiceAccountKind, Namespace: accountsNamespace,
			Name: "steelyard"}},
	}, meta.CreateOptions{})
	r.must(err)
}
