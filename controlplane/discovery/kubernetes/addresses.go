package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"

	discoveryv1 "k8s.io/api/discovery/v1"

	"steelyard/internal/loops"
)

// Addresses passes on the addresses of a Service in the process's own namespace whenever they change, host:port, until
// ctx is done: of all Pods, ready or not, as one that is starting or stopping is there, too. Of several ports, port is
// the one that counts. An error is why the API does not answer, or what is wrong with the Service.
func (c *Client) Addresses(ctx context.Context, service, port string, found func(addresses []string, err error)) {
	sub := loops.NewSignal()
	defer c.subscribe(sub)()
	s := ServiceConfig{Namespace: c.namespace, Service: service}
	w, release := c.watch(key{kind: kindSlices, namespace: c.namespace, labels: s.selector()}, sub)
	defer release()
	whenSettled(ctx, sub, func() {
		away := cmp.Or(c.unreachable(), w.failing())
		if !w.informer.HasSynced() {
			found(nil, cmp.Or(away, errWaiting))
			return
		}
		addresses, err := addressesOf(w.informer.GetStore().List(), s.what(c.namespace), port)
		found(addresses, cmp.Or(away, err))
	})
}

// addressesOf returns the addresses of EndpointSlices, of IPv6 only where there is none of IPv4.
func addressesOf(all []any, what, port string) (addresses []string, err error) {
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no EndpointSlice: check its name and the namespace", what)
	}
	of := make(map[discoveryv1.AddressType][]string)
	for _, object := range all {
		slice := object.(*discoveryv1.EndpointSlice)
		number, wrong := pick(slice.Ports, "", "", false)
		if wrong != nil {
			number, wrong = pick(slice.Ports, port, "", false)
		}
		if wrong != nil && len(slice.Endpoints) > 0 {
			err = fmt.Errorf("%s, EndpointSlice %s: it has not exactly one TCP port, and none is %s, as in xds.listen",
				what, slice.Name, port)
			continue
		}
		for i := range slice.Endpoints {
			if a := slice.Endpoints[i].Addresses; len(a) > 0 {
				of[slice.AddressType] = append(of[slice.AddressType], net.JoinHostPort(a[0], strconv.Itoa(number)))
			}
		}
	}
	addresses = of[discoveryv1.AddressTypeIPv4]
	if len(addresses) == 0 {
		addresses = of[discoveryv1.AddressTypeIPv6]
	}
	slices.Sort(addresses)
	return slices.Compact(addresses), err
}
