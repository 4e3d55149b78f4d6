package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"steelyard/controlplane/discovery/kubernetes"
	"steelyard/controlplane/pods"
	"steelyard/internal/api"
)

// hangs says what is the matter with a Pod.
func hangs(m member) string {
	return fmt.Sprintf("Its engine takes requests and has answered none since %s, while its metrics page is answered.",
		m.OutlierSince.UTC().Format(time.RFC3339))
}

// warn writes an Event about a Pod, once in warnRest.
func (a *podActions) warn(ctx context.Context, m member, followed bool, now time.Time) error {
	maps.DeleteFunc(a.warned, func(_ string, at time.Time) bool { return now.Sub(at) >= warnRest })
	if _, warned := a.warned[m.UID]; !a.section.Wedged.Event || warned {
		return nil
	}
	text := hangs(m)
	if followed {
		text += " Steelyard sends it next to nothing."
	}
	err := a.client.Warn(ctx, m.at, "EngineHangs", text)
	if err == nil {
		a.warned[m.UID] = now
	}
	return err
}

// evict evicts at most one of the Pods of a cluster that hang, and returns what became of each, by UID.
func (a *podActions) evict(ctx context.Context, c *api.Cluster, found []member, followed bool, now time.Time) (
	became map[string]string, err error) {
	if !a.section.Wedged.Evict {
		return nil, nil
	}
	became = map[string]string{}
	var wedged []pods.Pod
	for _, m := range found {
		wedged = append(wedged, m.Pod)
		became[m.UID] = cmp.Or(a.hung.Kept(&m.Pod, now), "not evicted: another has hung for longer, or none is well")
		if !followed {
			became[m.UID] = "not evicted: no Envoy follows the weights here"
		}
	}
	first, due := pods.Evictable(c, wedged, &a.hung, now)
	if !followed || !due {
		return became, nil
	}
	i := slices.IndexFunc(found, func(m member) bool { return m.UID == first.UID })
	became[first.UID], err = a.evictOne(ctx, c, found[i])
	return became, err
}

// evictOne evicts a Pod, if that is allowed and none of its clusters lost another one in ten minutes, by any replica.
func (a *podActions) evictOne(ctx context.Context, c *api.Cluster, m member) (result string, err error) {
	if err := a.client.Evict(ctx, m.at, true); err != nil {
		return notEvicted(err)
	}
	for _, name := range slices.Sorted(slices.Values(a.in[m.UID])) { // the same order for all, so that one gets them
		ok, err := a.client.Claim(ctx, m.Namespace, leaseName("eviction", name), m.UID, evictionRest)
		if err != nil {
			return notEvicted(err)
		}
		if !ok {
			return "another Pod of its cluster was evicted in the last ten minutes", nil
		}
	}
	if err := a.client.Evict(ctx, m.at, false); err != nil {
		return notEvicted(err)
	}
	a.d.options.Log.Warn("Pod evicted, because its engine hangs", "cluster", c.Name, "namespace", m.Namespace,
		"pod", m.Endpoint.Pod, "since", m.OutlierSince.Time)
	return "evicted", nil
}

// notEvicted is what became of an eviction that failed, and the error, unless that is no fault.
func notEvicted(err error) (string, error) {
	if errors.Is(err, kubernetes.ErrDisrupted) || errors.Is(err, kubernetes.ErrGone) {
		return err.Error(), nil
	}
	return "failed", err
}

// conditions writes the condition of Pods that hang, that hung, and whose readiness gate waits for it.
func (a *podActions) conditions(ctx context.Context, known []kubernetes.Pod, wedged []member, now time.Time) (
	err error) {
	if !a.section.Wedged.Condition {
		return nil
	}
	why := map[string]string{}
	for _, m := range wedged {
		why[m.UID] = hangs(m)
	}
	for _, p := range known {
		serving, write := pods.Condition{Wedged: why[p.UID] != "", Gated: p.Gated, Status: p.Serving,
			Since: p.ServingSince, Started: p.Started}.Next(now)
		if !write {
			continue
		}
		reason := "EngineHangs"
		if serving {
			reason = "NoFault"
		}
		err = errors.Join(err, a.client.SetServing(ctx, p, serving, reason, why[p.UID]))
	}
	return err
}
