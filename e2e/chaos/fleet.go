package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"steelyard/e2e/rig/link"
	"steelyard/e2e/rig/proc"
)

const (
	cluster  = "llama"
	redisKey = "inflight:" + cluster
)

// addresses are the addresses of the parts of a fleet, host:port. They stay the same when a process is restarted.
type addresses struct {
	xds, admin, redis string
	servers, envoys   []string
	// The links' own.
	toRedis        string
	toXDS, metrics []string
}

func newAddresses() (addresses, error) {
	all, err := proc.FreeAddresses(4 + 2*servers + 2*envoys)
	if err != nil {
		return addresses{}, err
	}
	take := func(n int) []string {
		taken := all[:n]
		all = all[n:]
		return taken
	}
	one := take(4)
	return addresses{
		xds: one[0], admin: one[1], redis: one[2], toRedis: one[3],
		servers: take(servers), metrics: take(servers), envoys: take(envoys), toXDS: take(envoys),
	}, nil
}

// A fleet has all parts, and the means to make faults.
type fleet struct {
	*journal
	dir      string
	binary   string // steelyard
	self     string // this program, which the environment makes a model server
	at       addresses
	api      caller
	certs    *certificates
	config   *configFile
	reader   *logReader
	rotation *rotation
	watch    *watch
	seed     uint64 // of the load
	queue    bool   // the cluster has one
	account  Account

	bootstraps [envoys][]byte

	units    map[string]*unit
	links    map[string]*link.Link
	watching sync.WaitGroup
	unwatch  context.CancelFunc
}

// startFleet starts everything, and returns when every Envoy carries requests. A
// fleet that did not start is closed already.
func startFleet(ctx context.Context, o Options, j *journal) (*fleet, error) {
	f := &fleet{
		journal: j, dir: o.Dir, seed: o.Seed, queue: o.Queue, rotation: newRotation(envoys),
		units: make(map[string]*unit), links: make(map[string]*link.Link),
	}
	if err := f.startAll(ctx); err != nil {
		f.close()
		return nil, err
	}
	watching, unwatch := context.WithCancel(context.Background())
	f.unwatch = unwatch
	f.watching.Go(func() { f.watch.run(watching) })
	return f, nil
}

func (f *fleet) startAll(ctx context.Context) error {
	if err := f.prepare(); err != nil {
		return err
	}
	for i := range f.bootstraps {
		var err error
		if f.bootstraps[i], err = f.bootstrap(ctx, i); err != nil {
			return err
		}
	}
	if err := f.openLinks(); err != nil {
		return err
	}
	for _, u := range f.parts() {
		f.units[u.name] = u
		if err := u.up(ctx); err != nil {
			return err
		}
	}
	return nil
}

// prepare makes the files and addresses of the parts, without starting any.
func (f *fleet) prepare() error {
	built, err := proc.BuildSteelyard()
	if err != nil {
		return err
	}
	// A copy: Steelyard is started all through the run, and another build must not change it.
	f.binary = filepath.Join(f.dir, "steelyard")
	if err := copyProgram(f.binary, built); err != nil {
		return err
	}
	if f.self, err = os.Executable(); err != nil {
		return err
	}
	if f.at, err = newAddresses(); err != nil {
		return err
	}
	if f.certs, err = newCertificates(filepath.Join(f.dir, "tls")); err != nil {
		return fmt.Errorf("making certificates: %w", err)
	}
	f.api = caller{address: f.at.admin, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	f.watch = &watch{api: f.api, journal: f.journal}
	f.reader = &logReader{path: filepath.Join(f.dir, "steelyard-stderr.log")}
	f.config = newConfigFile(filepath.Join(f.dir, "steelyard.yaml"), f.at, f.certs)
	if f.queue {
		f.config.queue = fmt.Sprintf("queue: {max_in_flight: %d}", places)
	}
	return f.config.write()
}

func copyProgram(to, from string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o700)
}

func (f *fleet) openLinks() error {
	ends := map[string][2]string{partRedisLink: {f.at.toRedis, f.at.redis}}
	for i := range envoys {
		ends[xdsLink(i)] = [2]string{f.at.toXDS[i], f.at.xds}
	}
	for i := range servers {
		ends[metricsLink(i)] = [2]string{f.at.metrics[i], f.at.servers[i]}
	}
	for name, end := range ends {
		l, err := link.Open(end[0], end[1])
		if err != nil {
			return fmt.Errorf("opening %s: %w", name, err)
		}
		f.links[name] = l
	}
	return nil
}

// parts returns the units in the order of their start.
func (f *fleet) parts() []*unit {
	all := []*unit{{name: partRedis, journal: f.journal, start: f.startRedis}}
	for i := range servers {
		all = append(all, &unit{name: serverName(i), journal: f.journal, start: f.startServer(i)})
	}
	all = append(all, &unit{name: partSteelyard, journal: f.journal, start: f.startSteelyard, hooks: hooks{
		out:    func() { f.watch.expect(false) },
		paused: func(paused bool) { f.watch.expect(!paused) },

		endsWithin: 5 * time.Second, // whatever its peers and its log reader do
	}})
	for i := range envoys {
		all = append(all, &unit{name: envoyName(i), journal: f.journal, start: f.startEnvoy(i), hooks: hooks{
			out:   func() { f.rotation.leave(i) },
			drain: func(ctx context.Context) error { return f.rotation.drained(ctx, i) },
		}})
	}
	return all
}

func (f *fleet) startRedis(ctx context.Context) (process, error) {
	return proc.StartRedis(ctx, proc.RedisConfig{Dir: f.dir, Address: f.at.redis})
}

func (f *fleet) startServer(i int) func(context.Context) (process, error) {
	return func(ctx context.Context) (process, error) {
		env := asServer + "=" + f.at.servers[i] + "," + f.at.redis
		spec := proc.Spec{Name: serverName(i), Path: f.self, Dir: f.dir, Env: []string{env}}
		return proc.StartReady(ctx, spec, answers(f.at.servers[i], "/health"))
	}
}

// startSteelyard returns when Steelyard is ready: it publishes.
func (f *fleet) startSteelyard(ctx context.Context) (process, error) {
	var p *proc.Process
	err := f.config.whileValid(func() error {
		f.certs.files.RLock()
		defer f.certs.files.RUnlock()
		return f.reader.run(func(stderr *os.File) (err error) {
			p, err = proc.StartSteelyard(ctx, proc.SteelyardConfig{
				Path: f.binary, Config: f.config.path, Admin: f.at.admin, Dir: f.dir,
				Stderr: stderr, Args: []string{"--log-level", "debug"},
			})
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	f.watch.expect(true)
	return p, p.ReadyOrKill(ctx, answers(f.at.admin, "/readyz"))
}

// startEnvoy returns when the Envoy carries requests, has a fallback, and is in rotation. An Envoy that starts while
// Steelyard comes and goes may have got the weights and not yet the members of its fallback. It would have no endpoints
// when the weights are stale: README.md documents that, and the remedy (--fallback).
func (f *fleet) startEnvoy(i int) func(context.Context) (process, error) {
	return func(ctx context.Context) (process, error) {
		e, err := f.launch(ctx, proc.EnvoyConfig{
			Bootstrap: f.bootstraps[i], Dir: f.dir, Name: envoyName(i),
			Args: []string{"--file-flush-interval-msec", "20"}, // of the access log
		})
		if err != nil {
			return nil, err
		}
		if err := e.ReadyOrKill(ctx, answers(f.at.envoys[i], "/health")); err != nil {
			return nil, err
		}
		if err := wait(ctx, patience, func(ctx context.Context) error { return hasFallback(ctx, e) }); err != nil {
			return nil, errors.Join(err, e.Kill())
		}
		f.rotation.join(i)
		return e, nil
	}
}

func answers(address, path string) func(context.Context) error {
	return proc.AnswersHTTP("http://" + address + path)
}

func hasFallback(ctx context.Context, e *proc.Envoy) error {
	clusters, err := e.Clusters(ctx)
	if err == nil && len(clusters[cluster+"_fallback"]) == 0 {
		err = errors.New("it has no fallback")
	}
	return err
}

// launch returns when the Envoy has read its files.
func (f *fleet) launch(ctx context.Context, c proc.EnvoyConfig) (*proc.Envoy, error) {
	f.certs.files.RLock()
	defer f.certs.files.RUnlock()
	return proc.LaunchEnvoy(ctx, c)
}

// bootstrap returns the output of `steelyard bootstrap` for an Envoy, in mode failsafe, the default. The last Envoy
// has a static fallback, the others have Steelyard's.
func (f *fleet) bootstrap(ctx context.Context, i int) ([]byte, error) {
	args := []string{"bootstrap", "--cluster", cluster, "--node-id", envoyName(i), "--access-log",
		"--listen", f.at.envoys[i], "--admin", "127.0.0.1:0", "--xds", f.at.toXDS[i],
		"--xds-ca-file", f.certs.ca(),
		"--xds-cert-file", f.certs.cert(envoyCert), "--xds-key-file", f.certs.keyOf(envoyCert)}
	if f.queue {
		args = append(args, "--module")
	}
	if i == envoys-1 {
		for _, a := range f.at.servers {
			args = append(args, "--fallback", a)
		}
	}
	out, err := exec.CommandContext(ctx, f.binary, args...).Output()
	if err != nil {
		return nil, fmt.Errorf("steelyard %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

// close ends all parts.
func (f *fleet) close() {
	if f.unwatch != nil {
		f.unwatch()
		f.watching.Wait()
	}
	for _, u := range f.units {
		u.close()
	}
	for _, l := range f.links {
		l.Close()
	}
	if f.reader != nil {
		f.reader.reading.Wait() // its processes have ended
	}
}
