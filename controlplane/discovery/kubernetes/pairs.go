package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A PairedPool is an InferencePool without a picker, and the ports of Services that lead to its Pods.
type PairedPool struct {
	FoundPool
	Services []ServicePort
}

// A ServicePort is the port of a Service, in the pool's namespace.
type ServicePort struct {
	Service string
	Port    int32
}

// PairedPools returns the InferencePools of a namespace that have no picker. Their Services have the same selector, and
// a port of the pool as the target of theirs; by its number, as a name stands for one port in each Pod.
func (c *Client) PairedPools(ctx context.Context, namespace string) ([]PairedPool, error) {
	pools, err := c.dynamic.Resource(resources[kindPools]).Namespace(namespace).List(ctx, meta.ListOptions{})
	c.requested("inferencepools", "list", resultOf(err))
	if err != nil {
		return nil, fmt.Errorf("listing inferencepools in namespace %s: %w", namespace, err)
	}
	var services core.ServiceList
	err = c.core.Get().Namespace(namespace).Resource("services").Do(ctx).Into(&services)
	c.requested("services", "list", resultOf(err))
	if err != nil {
		return nil, fmt.Errorf("listing services in namespace %s: %w", namespace, err)
	}
	var paired []PairedPool
	for i := range pools.Items {
		pool := &pools.Items[i]
		found := foundPool(pool)
		if found.Picker {
			continue
		}
		s, err := specOf(pool)
		if err != nil {
			return nil, fmt.Errorf("InferencePool %s/%s: %w", namespace, pool.GetName(), err)
		}
		paired = append(paired, PairedPool{found, s.services(services.Items)})
	}
	slices.SortFunc(paired, func(a, b PairedPool) int { return strings.Compare(a.Name, b.Name) })
	return paired, nil
}

// services returns the ports that lead to the Pods of a pool.
func (s spec) services(all []core.Service) (found []ServicePort) {
	for i := range all {
		service := &all[i]
		if !maps.Equal(service.Spec.Selector, s.Selector.MatchLabels) {
			continue
		}
		for _, p := range service.Spec.Ports {
			if cmp.Or(p.Protocol, core.ProtocolTCP) == core.ProtocolTCP && s.targets(p.TargetPort) {
				found = append(found, ServicePort{service.Name, p.Port})
			}
		}
	}
	return found
}

func (s spec) targets(port intstr.IntOrString) bool {
	for _, p := range s.TargetPorts {
		if port.Type == intstr.Int && port.IntVal == p.Number {
			return true
		}
	}
	return false
}
