package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/klog/v2"

	"steelyard/internal/files"
	"steelyard/internal/loops"
)

const (
	// probeEvery and probeTimeout bound how long an API server that hangs goes
	// unnoticed; the connections of the watches say nothing for minutes.
	probeEvery   = 5 * time.Second
	probeTimeout = 5 * time.Second
	// notReadyPatience is how often in a row the API server may say that it is not
	// ready before that counts: one that restarts says so for a moment.
	notReadyPatience = 3
	dialTimeout      = 5 * time.Second

	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// Options say which API server to use, and how.
type Options struct {
	// Kubeconfig is the path of a kubeconfig; empty for the service account of the
	// Pod that this process runs in.
	Kubeconfig string
	// Requested is called after every request to the API server, with the resource,
	// the verb (list, watch) and how it ended: one of a small fixed set. It must not
	// block.
	Requested func(resource, verb, result string)
	Log       *slog.Logger
}

// A Client watches one API server for any number of clusters. Its methods are
// safe for concurrent use.
type Client struct {
	core         rest.Interface // of Pods
	discovery    rest.Interface // of EndpointSlices
	coordination rest.Interface // of Leases
	metadata     metadata.Interface
	dynamic      dynamic.Interface
	dialer       *connrotation.Dialer
	// authentication and authorization have no credentials: a question is asked with the token that it is about.
	authentication, authorization rest.Interface
	own                           rest.Interface // of authorization, with Steelyard's credentials
	server                        string         // URL, for messages
	namespace                     string         // of this process
	requested                     func(resource, verb, result string)
	log                           *slog.Logger

	mu      sync.Mutex
	watched map[key]*watched
	leased  bool  // a lease is kept, too
	away    error // why the API server does not answer; nil while it does
	subs    map[loops.Signal]struct{}
}

// ErrNoConfiguration is the error of a process outside Kubernetes without a kubeconfig.
var ErrNoConfiguration = errors.New("this process runs in no Pod with a service account, so it cannot find the " +
	"Kubernetes API: write kubernetes: {kubeconfig: FILE}")

// ErrNoToken is the error of a Pod without a token.
var ErrNoToken = errors.New("this Pod has no token of a service account for the Kubernetes API: write " +
	"automountServiceAccountToken: true into its spec")

// New makes a client. It reads the kubeconfig, and connects to nothing.
func New(o Options) (*Client, error) {
	c := &Client{
		requested: o.Requested, log: o.Log,
		watched: make(map[key]*watched), subs: make(map[loops.Signal]struct{}),
	}
	config, namespace, err := load(context.Background(), o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	quietly(c.log)
	c.dialer = connrotation.NewDialer((&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext)
	config.Dial = c.dialer.DialContext
	config.UserAgent = "steelyard"
	// A few watches and a probe: a limit of the client's own would only delay the first of a thousand clusters.
	config.QPS = -1
	rereadToken(config)
	c.server, c.namespace = config.Host, namespace
	return c, c.connect(config)
}

// connect makes the clients, over the same connections. client-go's own set of clients has all types of all API groups,
// which doubles the size of the binary.
func (c *Client) connect(config *rest.Config) error {
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("connecting to the Kubernetes API: %w", err)
	}
	anonymous := rest.AnonymousClientConfig(config)
	stranger, err := rest.HTTPClientFor(anonymous)
	if err != nil {
		return fmt.Errorf("connecting to the Kubernetes API: %w", err)
	}
	var errs [8]error
	c.core, errs[0] = typed(config, shared, "/api", core.SchemeGroupVersion)
	c.discovery, errs[1] = typed(config, shared, "/apis", discoveryv1.SchemeGroupVersion)
	c.coordination, errs[7] = typed(config, shared, "/apis", coordination.SchemeGroupVersion)
	c.metadata, errs[2] = metadata.NewForConfigAndClient(config, shared)
	c.dynamic, errs[3] = dynamic.NewForConfigAndClient(config, shared)
	c.authentication, errs[4] = typed(anonymous, stranger, "/apis", authentication.SchemeGroupVersion)
	c.authorization, errs[5] = typed(anonymous, stranger, "/apis", authorization.SchemeGroupVersion)
	c.own, errs[6] = typed(config, shared, "/apis", authorization.SchemeGroupVersion)
	if err := errors.Join(errs[:]...); err != nil {
		return fmt.Errorf("connecting to the Kubernetes API: %w", err)
	}
	return nil
}

// InPod reports whether this process runs in a Pod, with a token of a service account or without.
func InPod() bool {
	return os.Getenv("KUBERNETES_SERVICE_HOST") != "" && os.Getenv("KUBERNETES_SERVICE_PORT") != ""
}

// CheckPod reports why this process, in a Pod, has no access to the Kubernetes API.
func CheckPod(ctx context.Context) error {
	_, _, err := load(ctx, "")
	return err
}

// Server is host:port of the API server.
func (c *Client) Server() string {
	u, err := url.Parse(c.server)
	if err != nil {
		return c.server
	}
	if u.Port() == "" {
		return net.JoinHostPort(u.Hostname(), "443")
	}
	return u.Host
}

// load reads where the API server is, and the namespace that names without one are in.
func load(ctx context.Context, kubeconfig string) (*rest.Config, string, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, "", ErrNoConfiguration
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil, "", ErrNoToken
		}
		if err != nil {
			return nil, "", fmt.Errorf("reading the Pod's service account: %w", err)
		}
		namespace, err := files.ReadAll(ctx, namespaceFile, maxFile)
		if err != nil {
			return nil, "", fmt.Errorf("reading the Pod's namespace: %w", err)
		}
		return config, strings.TrimSpace(string(namespace)), nil
	}
	config, namespace, err := fromFile(ctx, kubeconfig)
	if err != nil {
		return nil, "", fmt.Errorf("reading kubeconfig %s: %w", kubeconfig, err)
	}
	return config, namespace, nil
}

// CheckKubeconfig reports what New would refuse of a kubeconfig.
func CheckKubeconfig(ctx context.Context, path string) error {
	config, _, err := load(ctx, path)
	if err != nil {
		return err
	}
	if _, err := rest.TLSConfigFor(config); err != nil {
		return fmt.Errorf("reading kubeconfig %s: %w", path, err)
	}
	return nil
}

// quietly sends client-go's own log, of the process, to log at level debug: what matters of it is reported by
// the sources.
var quietly = func() func(*slog.Logger) {
	var once sync.Once
	return func(log *slog.Logger) {
		once.Do(func() { klog.SetSlogLogger(slog.New(debugOnly{log.Handler()})) })
	}
}()

// debugOnly makes every record one of level debug.
type debugOnly struct{ slog.Handler }

func (h debugOnly) Enabled(ctx context.Context, _ slog.Level) bool {
	return h.Handler.Enabled(ctx, slog.LevelDebug)
}

func (h debugOnly) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return h.Handler.Handle(ctx, r)
}

func (h debugOnly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return debugOnly{h.Handler.WithAttrs(attrs)}
}
func (h debugOnly) WithGroup(name string) slog.Handler { return debugOnly{h.Handler.WithGroup(name)} }

// Run asks the API server from time to time whether it is there, until ctx is done. The first question replaces
// connections on which nothing is answered any more.
func (c *Client) Run(ctx context.Context) error {
	timer := time.NewTimer(probeEvery)
	defer timer.Stop()
	var failures, notReady int
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if !c.inUse() {
			timer.Reset(probeEvery)
			continue
		}
		ready, err := c.probe(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if failures%3 == 0 { // the first time, and again where that did not help
				c.dialer.CloseAll()
			}
			failures++
			c.setAway(fmt.Errorf("the Kubernetes API server %s does not answer: %w", c.server, err))
		case !ready:
			if failures, notReady = 0, notReady+1; notReady >= notReadyPatience {
				c.setAway(fmt.Errorf("the Kubernetes API server %s is not ready: its /readyz says so", c.server))
			}
		default:
			failures, notReady = 0, 0
			c.setAway(nil)
		}
		timer.Reset(probeEvery)
	}
}

// probe asks once. Any answer will do, also one that refuses; only the API server's own word makes it not ready.
func (c *Client) probe(ctx context.Context) (ready bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err = c.core.Get().AbsPath("/readyz").MaxRetries(0).Do(ctx).Error()
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		c.requested("readyz", "get", resultOf(err))
		return status.Status().Code < 500, nil
	}
	c.requested("readyz", "get", resultOf(err))
	return err == nil, err
}

func (c *Client) inUse() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.watched) > 0 || c.leased
}

func (c *Client) setAway(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = err
	for sub := range c.subs {
		sub.Set()
	}
}

// subscribe makes sub be set when the API server was asked.
func (c *Client) subscribe(sub loops.Signal) (unsubscribe func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subs[sub] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.subs, sub)
	}
}

// unreachable is why the API server does not answer; nil while it does.
func (c *Client) unreachable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.away
}

// Namespace is the one that this process runs in.
func (c *Client) Namespace() string { return c.namespace }

func (c *Client) orOwn(namespace string) string {
	if namespace == "" {
		return c.namespace
	}
	return namespace
}
