package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"steelyard/controlplane/discovery"
	source "steelyard/controlplane/discovery/kubernetes"
	"steelyard/e2e/rig/kube"
	"steelyard/e2e/rig/output"
	"steelyard/e2e/rig/proc/proctest"
)

// requests counts the requests to an API server, by resource, verb and result.
type requests struct {
	mu    sync.Mutex
	count map[string]int
}

func (r *requests) done(resource, verb, result string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count == nil {
		r.count = make(map[string]int)
	}
	r.count[resource+" "+verb+" "+result]++
}

func (r *requests) of(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count[what]
}

// A connection is a client of the product on an API server, that runs.
type connection struct {
	*source.Client
	requests requests
	log      output.Buffer // without level debug
}

// tokenFile writes a token of the service account, and returns its path.
func (r room) tokenFile(s *kube.Server) string {
	r.t.Helper()
	token, err := s.Token(r.t.Context(), r.name, "steelyard", time.Hour)
	r.must(err)
	path := filepath.Join(r.t.TempDir(), "token")
	r.must(os.WriteFile(path, []byte(token), 0o600))
	return path
}

// connect runs a client with the token in a file; with none, it may do everything. server may be empty.
func connect(t testing.TB, s *kube.Server, server, tokenFile string) *connection {
	t.Helper()
	path := filepath.Join(proctest.Dir(t), "kubeconfig")
	if err := s.WriteKubeconfig(path, server, tokenFile); err != nil {
		t.Fatal(err)
	}
	return connectWith(t, path)
}

// connectWith runs a client with a kubeconfig.
func connectWith(t testing.TB, path string) *connection {
	t.Helper()
	c := &connection{}
	var err error
	c.Client, err = source.New(source.Options{
		Kubeconfig: path, Requested: c.requests.done, Log: slog.New(slog.NewTextHandler(&c.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	inBackground(t, func(ctx context.Context) { _ = c.Run(ctx) })
	return c
}

// inBackground runs f until the test's end, and waits for it.
func inBackground(t testing.TB, f func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// Watching is what a source has sent and reported.
type watching struct {
	t testing.TB

	mu    sync.Mutex
	set   []discovery.Endpoint // the latest; nil before the first
	sets  int
	fewer int // the least endpoints that a set ever had; -1 before the first
	err   error
}

func (v *watching) report(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.err = err
}

// follow runs a source that a function of a connection makes.
func follow(t testing.TB, c *connection,
	make_ func(report func(error), log *slog.Logger) discovery.Discoverer) *watching {
	t.Helper()
	v := &watching{t: t, fewer: -1}
	d := make_(v.report, slog.New(slog.NewTextHandler(&c.log, nil)))
	up := make(chan []discovery.Endpoint)
	inBackground(t, func(ctx context.Context) {
		if err := d.Run(ctx, up); err != nil {
			v.report(err)
		}
	})
	inBackground(t, func(ctx context.Context) {
		for {
			select {
			case <-ctx.Done():
				return
			case set := <-up:
				v.mu.Lock()
				v.set, v.sets = set, v.sets+1
				if v.fewer < 0 || len(set) < v.fewer {
					v.fewer = len(set)
				}
				v.mu.Unlock()
			}
		}
	})
	return v
}

func service(t testing.TB, c *connection, s source.ServiceConfig) *watching {
	t.Helper()
	return follow(t, c, func(report func(error), log *slog.Logger) discovery.Discoverer {
		return c.Service(s, report, log)
	})
}

func pool(t testing.TB, c *connection, p source.PoolConfig) *watching {
	t.Helper()
	return follow(t, c, func(report func(error), log *slog.Logger) discovery.Discoverer {
		return c.Pool(p, report, log)
	})
}

// now returns the latest set and state.
func (v *watching) now() (set []discovery.Endpoint, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.set, v.err
}

// shown describes the endpoints of a set: their addresses, with a minus where they terminate.
func shown(set []discovery.Endpoint) string {
	var all []string
	for _, e := range set {
		text := e.Address
		if e.Terminating {
			text = "-" + text
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// becomes waits for a set, as shown describes it, without a fault.
func (v *watching) becomes(want ...string) {
	v.t.Helper()
	want = slices.Sorted(slices.Values(want))
	eventually(v.t, fmt.Sprintf("the endpoints are %v", want), func() error {
		set, err := v.now()
		if set == nil || shown(set) != strings.Join(want, " ") {
			return fmt.Errorf("they are %v (%w)", shown(set), cmp.Or(err, errors.New("no fault")))
		}
		return err
	})
}

// has waits for a set, whatever fault there is: it is reported before the set is passed on.
func (v *watching) has(want string) {
	v.t.Helper()
	eventually(v.t, "the endpoints are "+want, func() error {
		if set, _ := v.now(); shown(set) != want {
			return fmt.Errorf("they are %q", shown(set))
		}
		return nil
	})
}

// faulty waits for a fault with all these texts.
func (v *watching) faulty(texts ...string) {
	v.t.Helper()
	eventually(v.t, fmt.Sprintf("there is a fault with %q", texts), func() error {
		_, err := v.now()
		if err == nil {
			return fmt.Errorf("there is none")
		}
		for _, text := range texts {
			if !strings.Contains(err.Error(), text) {
				return fmt.Errorf("it is %w", err)
			}
		}
		return nil
	})
}

// one returns the endpoint at an address.
func (v *watching) one(address string) discovery.Endpoint {
	v.t.Helper()
	set, _ := v.now()
	i := slices.IndexFunc(set, func(e discovery.Endpoint) bool { return e.Address == address })
	if i < 0 {
		v.t.Fatalf("there is no endpoint %s: %s", address, shown(set))
	}
	return set[i]
}
