package daemon

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"time"

	"steelyard/controlplane/config"
	"steelyard/controlplane/pods"
)

// setCosts keeps the deletion costs up to date. Of several replicas one does, in each namespace.
func (a *podActions) setCosts(ctx context.Context, v *view, now time.Time) (err error) {
	if !a.section.DeletionCost || now.Sub(a.priced) < costInterval {
		return nil
	}
	a.priced = now
	maps.DeleteFunc(a.costs, func(_ string, at time.Time) bool { return now.Sub(at) >= costRest })
	// Of another installation, this one's Pods would have no costs.
	installation := a.client.Namespace() + "/" + cmp.Or(a.d.configuration().Replicas, &config.Replicas{}).Prefix
	mine := map[string]bool{}
	for _, namespace := range namespacesOf(v.clusters) {
		ok, failed := a.client.Claim(ctx, namespace, leaseName("deletion-cost", installation), a.d.replica, costLease)
		mine[namespace], err = ok, errors.Join(err, failed)
	}
	written := map[string]int{}
	for name, p := range v.byName {
		if p.Cost != nil {
			written[name] = *p.Cost
		}
	}
	writes := 0
	for name, cost := range a.work.Update(pods.WorkOf(v.clusters), written, now) {
		p, known := v.byName[name]
		_, resting := a.costs[p.UID]
		if !known || resting || !mine[p.Namespace] || writes == maxCosts || p.Cost != nil && *p.Cost == cost {
			continue
		}
		writes++
		a.costs[p.UID] = now
		err = errors.Join(err, a.client.SetDeletionCost(ctx, p, cost))
	}
	return err
}

// leaseName names a Lease of one kind for anything that has a name.
func leaseName(kind, of string) string {
	return fmt.Sprintf("steelyard-%s-%.10x", kind, sha256.Sum256([]byte(of)))
}
