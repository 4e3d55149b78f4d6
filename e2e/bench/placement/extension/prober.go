package extension

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"steelyard/e2e/rig/kube"
)

// The Pods of the model servers.
const (
	namespace  = "models"
	labelKey   = "app"
	labelValue = "model"
)

// probePeriod is how often a readiness probe asks, and how long it waits for the answer.
const probePeriod = time.Second

// A prober does the part of a kubelet that the picker sees: it has Pods for the servers, and keeps their condition
// Ready up to date.
type prober struct {
	pods  typed.PodInterface
	http  *http.Client
	end   context.CancelFunc
	loops *errgroup.Group
}

// startProber writes the Pods, which are ready, and begins to probe. ctx bounds the start only.
func startProber(ctx context.Context, api *kube.Server, servers []string) (*prober, error) {
	client, err := api.Client()
	if err != nil {
		return nil, err
	}
	p := &prober{
		pods: client.CoreV1().Pods(namespace), loops: new(errgroup.Group),
		http: &http.Client{Timeout: probePeriod, Transport: &http.Transport{DisableKeepAlives: true}},
	}
	written, err := p.write(ctx, client, servers)
	if err != nil {
		return nil, err
	}
	running, end := context.WithCancel(context.Background())
	p.end = end
	for i, pod := range written {
		p.loops.Go(func() error { return p.watch(running, pod, "http://"+servers[i]+"/health") })
	}
	return p, nil
}

// write makes a ready Pod for each server.
func (p *prober) write(ctx context.Context, client kubernetes.Interface, servers []string) ([]*core.Pod, error) {
	_, err := client.CoreV1().Namespaces().Create(ctx, &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: namespace}},
		meta.CreateOptions{})
	if err != nil {
		return nil, err
	}
	var all []*core.Pod
	for i, s := range servers {
		ip, _, err := net.SplitHostPort(s)
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("server-%d", i+1)
		pod, err := p.pods.Create(ctx, &core.Pod{
			ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{labelKey: labelValue}},
			Spec:       core.PodSpec{Containers: []core.Container{{Name: "server", Image: "vllm"}}},
		}, meta.CreateOptions{})
		if err != nil {
			return nil, err
		}
		pod.Status = core.PodStatus{Phase: core.PodRunning, PodIP: ip, PodIPs: []core.PodIP{{IP: ip}}}
		if pod, err = p.set(ctx, pod, true); err != nil {
			return nil, err
		}
		all = append(all, pod)
	}
	return all, nil
}

// watch keeps the condition of a Pod up to date until the context ends.
func (p *prober) watch(ctx context.Context, pod *core.Pod, url string) error {
	tick := time.NewTicker(probePeriod)
	defer tick.Stop()
	for ready := true; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := p.healthy(ctx, url)
		if ctx.Err() != nil {
			return nil
		}
		if now == ready {
			continue
		}
		written, err := p.set(ctx, pod, now)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("setting the condition of Pod %s: %w", pod.Name, err)
		}
		pod, ready = written, now
	}
}

// healthy reports whether a readiness probe succeeds.
func (p *prober) healthy(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// set writes the condition Ready of a Pod.
func (p *prober) set(ctx context.Context, pod *core.Pod, ready bool) (*core.Pod, error) {
	pod = pod.DeepCopy()
	status := core.ConditionFalse
	if ready {
		status = core.ConditionTrue
	}
	pod.Status.Conditions = []core.PodCondition{{Type: core.PodReady, Status: status}}
	return p.pods.UpdateStatus(ctx, pod, meta.UpdateOptions{})
}

// stop ends the loops, and returns the first error of one.
func (p *prober) stop() error {
	p.end()
	return p.loops.Wait()
}
