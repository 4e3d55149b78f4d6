package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"steelyard/e2e/bench/placement/extension"
	"steelyard/e2e/rig/link"
	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
)

// startTimeout bounds the start of a row, with the arrival of its weights.
const startTimeout = 2 * time.Minute

// startsAtOnce bounds how many Envoys start together: a start is all CPU.
const startsAtOnce = 4

// A Fleet is a row that runs.
type Fleet struct {
	Policy Policy
	Size   Size

	binary   string // steelyard
	dir      string
	servers  []*modelsim.Server
	replicas []*replica   // of Steelyard
	ways     []*link.Link // between replicas that are to be cut off
	envoys   []*proc.Envoy
	pickers  []picker // one for each Envoy; empty where the policy has none
	urls     []string // where requests go: of the Envoys' listeners, or of the servers

	extension *extension.Picker // of all Envoys; nil where the policy has none

	redis   *proc.Redis
	client  *redis.Client
	stop    context.CancelFunc // of the counting in Redis
	counted sync.WaitGroup
}

// A replica is a Steelyard of a row.
type replica struct {
	name       string
	xds, admin string   // host:port
	peers      []string // where it finds the others
	process    *proc.Process
}

// A picker is next to an Envoy of a row.
type picker struct {
	name               string
	xds, listen, admin string // host:port; xds of its Steelyard
	process            *proc.Process
}

// A Place is where rows live.
type Place struct {
	Dir    string // an existing folder for the files of the processes
	Binary string // steelyard; that of the checkout, built, when empty
}

// Start starts a row, with its files in a new folder of the place, and returns
// when every Envoy has all endpoints. The caller must Close; a row whose start
// failed is closed already.
func Start(ctx context.Context, at Place, p Policy, s Size) (*Fleet, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	f := &Fleet{Policy: p, Size: s, binary: at.Binary}
	if err := f.start(ctx, at.Dir); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the row %s: %w", p.Name, err), f.Close())
	}
	return f, nil
}

// StartAll starts a row for each policy, one after the other: their ports are looked for and then taken, and a start
// uses all cores anyway. With an error it returns those that are started.
func StartAll(ctx context.Context, at Place, policies []Policy, s Size) ([]*Fleet, error) {
	var all []*Fleet
	for _, p := range policies {
		f, err := Start(ctx, at, p, s)
		if err != nil {
			return all, err
		}
		all = append(all, f)
	}
	return all, nil
}

// CloseAll closes rows at the same time.
func CloseAll(all []*Fleet) error {
	var group errgroup.Group
	for _, f := range all {
		group.Go(f.Close)
	}
	return group.Wait()
}

func (f *Fleet) start(ctx context.Context, dir string) error {
	var err error
	if f.dir, err = os.MkdirTemp(dir, f.Policy.Name+"-"); err != nil {
		return err
	}
	if f.binary != "" {
		// The processes have a folder of their own, in which a relative path leads nowhere.
		if f.binary, err = filepath.Abs(f.binary); err != nil {
			return err
		}
	}
	observer, err := f.startRedis(ctx)
	if err != nil {
		return err
	}
	if err := f.startServers(observer); err != nil {
		return err
	}
	if f.Policy.Direct {
		for _, s := range f.servers {
			f.urls = append(f.urls, urlOf(s.Address()))
		}
		return nil
	}
	if err := f.startControl(ctx); err != nil {
		return err
	}
	if err := f.startEnvoys(ctx); err != nil {
		return err
	}
	if err := f.connect(ctx); err != nil {
		return err
	}
	return f.standBack()
}

func urlOf(address string) string { return "http://" + address + "/v1/completions" }

// startRedis starts a Redis and the counting in it, where the policy has one.
func (f *Fleet) startRedis(ctx context.Context) (modelsim.Observer, error) {
	c := f.Policy.Control
	if c == nil || c.Redis == 0 {
		return nil, nil
	}
	var err error
	if f.redis, err = proc.StartRedis(ctx, proc.RedisConfig{Dir: f.dir}); err != nil {
		return nil, err
	}
	f.client = redis.NewClient(&redis.Options{Addr: f.redis.Address()})
	counter := modelsim.NewCounter(f.client, "inflight:"+clusterName, slog.New(slog.DiscardHandler))
	running, stop := context.WithCancel(context.Background())
	f.stop = stop
	f.counted.Go(func() { _ = counter.Run(running) })
	return counter, nil
}

// startControl starts `steelyard serve`, or the extension's picker, where the policy has one.
func (f *Fleet) startControl(ctx context.Context) error {
	if f.Policy.Extension {
		var err error
		f.extension, err = extension.Start(ctx, f.dir, f.addresses())
		return err
	}
	if f.Policy.Control == nil {
		return nil
	}
	if f.binary == "" {
		built, err := proc.BuildSteelyard()
		if err != nil {
			return err
		}
		f.binary = built
	}
	n := max(1, f.Policy.Control.Replicas)
	ports, err := proc.FreeAddresses(2 * n)
	if err != nil {
		return err
	}
	for i := range n {
		f.replicas = append(f.replicas, &replica{name: fmt.Sprintf("steelyard-%d", i+1), xds: ports[2*i],
			admin: ports[2*i+1]})
	}
	if err := f.introduce(); err != nil {
		return err
	}
	for _, r := range f.replicas {
		if err := r.run(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// introduce says to each replica where it finds the others.
func (f *Fleet) introduce() error {
	for _, r := range f.replicas {
		for _, other := range f.replicas {
			address := other.xds
			if other == r {
				continue
			}
			if f.Policy.Control.Cut {
				way, err := link.Open("127.0.0.1:0", address)
				if err != nil {
					return err
				}
				f.ways, address = append(f.ways, way), way.Address()
			}
			r.peers = append(r.peers, address)
		}
	}
	return nil
}

// run starts the replica's process.
func (r *replica) run(ctx context.Context, f *Fleet) error {
	config := filepath.Join(f.dir, r.name+".yaml")
	if err := os.WriteFile(config, []byte(f.config(r, r.name)), 0o600); err != nil {
		return err
	}
	var err error
	r.process, err = proc.StartSteelyard(ctx,
		proc.SteelyardConfig{Path: f.binary, Config: config, Admin: r.admin, Dir: f.dir, Name: r.name})
	return err
}

// connect waits until all replicas follow each other, and then cuts them off if the policy does.
func (f *Fleet) connect(ctx context.Context) error {
	if len(f.replicas) < 2 {
		return nil
	}
	if err := f.eachFollows(ctx, len(f.replicas)-1); err != nil || !f.Policy.Control.Cut {
		return err
	}
	for _, way := range f.ways {
		way.Hang(true)
	}
	return f.eachFollows(ctx, 0)
}

// eachFollows waits until each replica follows this many others.
func (f *Fleet) eachFollows(ctx context.Context, others int) error {
	for _, r := range f.replicas {
		err := r.process.WaitReady(ctx, func(ctx context.Context) error {
			n, err := r.follows(ctx)
			if err == nil && n != others {
				err = fmt.Errorf("it follows %d other replicas, want %d", n, others)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// config returns the text of a replica's configuration for this row.
func (f *Fleet) config(r *replica, name string) string {
	c := f.Policy.Control
	var b strings.Builder
	fmt.Fprintf(&b, "xds:\n  listen: %s\n", r.xds)
	if !c.Default {
		fmt.Fprintf(&b, "  access_log: {disabled: %t}\n  load_reports: {disabled: %t}\n", !c.AccessLog, !c.LoadReports)
	}
	fmt.Fprintf(&b, "admin: {listen: %s}\n", r.admin)
	if f.redis != nil {
		fmt.Fprintf(&b, "redis: {addresses: [%q], interval: %s}\n", f.redis.Address(), c.Redis)
	}
	if c.Replicas > 1 {
		fmt.Fprintf(&b, "replicas: {name: %s, address: %s, peers: [%s]}\n", name, r.xds, strings.Join(r.peers, ", "))
	}
	fmt.Fprintf(&b, "clusters:\n- name: %s\n  engine: vllm\n", clusterName)
	if f.Size.Slots > 0 {
		fmt.Fprintf(&b, "  capacity: %d\n", f.Size.Slots)
	}
	switch {
	case c.Scrape > 0:
		fmt.Fprintf(&b, "  scrape: {interval: %s}\n", c.Scrape)
	case !c.Default:
		b.WriteString("  scrape: {disabled: true}\n")
	}
	if c.Redis > 0 {
		b.WriteString("  inflight: {redis_key: \"inflight:{cluster}\"}\n")
	}
	if c.TargetWait > 0 {
		fmt.Fprintf(&b, "  shedding: {enabled: true, target_wait: %s}\n", c.TargetWait)
	}
	if c.Queue {
		fmt.Fprintf(&b, "  queue: {max_in_flight: %d%s}\n", f.Size.places(), c.classes())
	}
	if len(c.Push) > 0 {
		fmt.Fprintf(&b, "  push: {%s}\n", strings.Join(c.Push, ", "))
	}
	b.WriteString("  endpoints:\n    static:\n")
	for _, a := range f.addresses() {
		fmt.Fprintf(&b, "    - {address: %q}\n", a)
	}
	return b.String()
}

func (f *Fleet) startEnvoys(ctx context.Context) error {
	if err := f.withModule(); err != nil {
		return err
	}
	f.envoys, f.pickers = make([]*proc.Envoy, f.Size.Envoys), make([]picker, f.Size.Envoys)
	f.urls = make([]string, f.Size.Envoys)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(startsAtOnce)
	for i := range f.envoys {
		group.Go(func() error { return f.startEnvoy(ctx, i) })
	}
	return group.Wait()
}

// withModule makes Envoys find the module, if the policy has one.
func (f *Fleet) withModule() error {
	if c := f.Policy.Control; c == nil || !c.Module {
		return nil
	}
	folder, err := proc.BuildModule()
	if err != nil {
		return err
	}
	return os.Setenv(proc.ModulePath, folder)
}

func (f *Fleet) startEnvoy(ctx context.Context, i int) error {
	name := fmt.Sprintf("envoy-%d", i+1)
	xds := ""
	if n := len(f.replicas); n > 0 {
		xds = f.replicas[i%n].xds
	}
	picker := ""
	if f.extension != nil {
		picker = f.extension.Address()
	}
	if c := f.Policy.Control; c != nil && c.Picker {
		var err error
		if picker, err = f.startPicker(ctx, i, xds); err != nil {
			return err
		}
	}
	text, err := f.Policy.bootstrap(name, xds, picker, f.addresses())
	if err != nil {
		return fmt.Errorf("making the bootstrap of %s: %w", name, err)
	}
	e, err := proc.StartEnvoy(ctx, proc.EnvoyConfig{Bootstrap: text, Dir: f.dir, Name: name,
		Concurrency: f.Size.Workers})
	if err != nil {
		return err
	}
	f.envoys[i] = e
	listener, err := e.Listener(ctx, listenerName)
	if err != nil {
		return err
	}
	f.urls[i] = urlOf(listener)
	return e.WaitReady(ctx, func(ctx context.Context) error {
		hosts, err := f.Hosts(ctx, i)
		if err == nil && len(hosts) != f.Size.Servers {
			err = fmt.Errorf("%s has %d of %d endpoints", name, len(hosts), f.Size.Servers)
		}
		return err
	})
}

// startPicker starts the picker of Envoy i, and returns its address.
func (f *Fleet) startPicker(ctx context.Context, i int, xds string) (address string, err error) {
	ports, err := proc.FreeAddresses(2)
	if err != nil {
		return "", err
	}
	f.pickers[i] = picker{name: fmt.Sprintf("picker-%d", i+1), xds: xds, listen: ports[0], admin: ports[1]}
	return ports[0], f.pickers[i].run(ctx, f)
}

// run starts the picker's process, and waits until it has the loads.
func (p *picker) run(ctx context.Context, f *Fleet) error {
	args := []string{"picker", "--steelyard", p.xds, "--cluster", clusterName, "--listen", p.listen, "--admin", p.admin}
	if f.Policy.Control.Prefix {
		args = append(args, "--prefix")
	}
	process, err := proc.Start(proc.Spec{Name: p.name, Path: f.binary, Dir: f.dir, Args: args})
	if err != nil {
		return err
	}
	p.process = process
	return process.WaitReady(ctx, proc.AnswersHTTP("http://"+p.admin+"/readyz"))
}

// Hosts returns the endpoints as Envoy i has them.
func (f *Fleet) Hosts(ctx context.Context, i int) ([]proc.Host, error) {
	clusters, err := f.envoys[i].Clusters(ctx)
	return clusters[clusterName], err
}

// Queue returns the number of requests that wait in the servers, all together.
func (f *Fleet) Queue() int {
	n := 0
	for _, s := range f.servers {
		n += s.Queue()
	}
	return n
}

// Plan returns the load p on this row: with its targets, or with the generator's own
// choice among the servers.
func (f *Fleet) Plan(p load.Plan) load.Plan {
	p.Targets = slices.Clone(f.urls)
	if f.Policy.Direct {
		p.Picker = load.NewLeastLoaded(f.Size.capacities(), p.Seed)
		return p
	}
	p.Shares = f.Size.shares()
	return p
}

// Close ends everything that the row started and removes its files.
func (f *Fleet) Close() error {
	var group errgroup.Group
	for _, e := range f.envoys {
		if e != nil {
			group.Go(e.Stop)
		}
	}
	errs := []error{group.Wait()}
	for _, p := range f.pickers {
		if p.process != nil {
			errs = append(errs, p.process.Stop())
		}
	}
	if f.extension != nil {
		errs = append(errs, f.extension.Close())
	}
	for _, r := range f.replicas {
		if r.process != nil {
			errs = append(errs, r.process.Stop())
		}
	}
	for _, way := range f.ways {
		way.Close()
	}
	for _, s := range f.servers {
		errs = append(errs, s.Close())
	}
	if f.stop != nil {
		f.stop()
		f.counted.Wait()
		errs = append(errs, f.client.Close())
	}
	if f.redis != nil {
		errs = append(errs, f.redis.Stop())
	}
	if f.dir != "" {
		errs = append(errs, os.RemoveAll(f.dir))
	}
	return errors.Join(errs...)
}
