package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"steelyard/internal/api"
	"steelyard/internal/extension"
)

// Options have what a Server asks its caller for.
type Options struct {
	// Backends reads those of a rule, as the Kubernetes API has them now.
	Backends func(context.Context, RuleID) ([]Backend, error)
	// Cluster returns the cluster that serves a pool; an error if none does.
	Cluster func(namespace, name string) (string, error)
	// Named is called with the pools that the routes of each Gateway of a translation name. It must not block.
	Named func(map[string][]api.GatewayPool)
	// Members returns the addresses of a cluster, IP:port. It may wait a moment for them.
	Members func(ctx context.Context, cluster string) []string
	// ModuleXDS is HOST:PORT where the module in the Envoys reaches Steelyard; empty: they have none.
	ModuleXDS string
	// ModuleGateways are those, NAMESPACE/NAME, whose Envoys have the module.
	ModuleGateways []string
	Log            *slog.Logger
}

// A Server answers Envoy Gateway.
type Server struct {
	extension.UnimplementedEnvoyGatewayExtensionServer
	options Options
	parts   cache

	mu      sync.Mutex // guards the fields below
	state   api.EnvoyGateway
	pools   map[string][]api.GatewayPool // by Gateway
	ignored map[string][]string          // what of the routes has no effect, by Gateway
	changes changes                      // that Envoy Gateway may not know yet
	failing failures
}

// New makes a server.
func New(o Options) *Server {
	return &Server{options: o, parts: cache{known: map[rendering]madeFor{}}, pools: map[string][]api.GatewayPool{},
		ignored: map[string][]string{}, changes: changes{}, failing: failures{}}
}

// Envoy Gateway sets no deadline and sends no keepalive, and holds the changes of all its Gateways while it waits.
const (
	// answerWithin bounds what an answer waits for: the Kubernetes API, and members.
	answerWithin = 5 * time.Second
	// idleFor is how long a connection is kept without a call. A call on one to a node that has died waits a quarter of
	// an hour for TCP; a new connection goes to a replica that is ready.
	idleFor = time.Second
)

// GRPC makes the gRPC server that answers.
func (s *Server) GRPC(options ...grpc.ServerOption) *grpc.Server {
	g := grpc.NewServer(append(options, grpc.UnaryInterceptor(s.survive),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleFor}))...)
	extension.RegisterEnvoyGatewayExtensionServer(g, s)
	return g
}

// survive bounds the time of an answer, and makes a panic its error: what Envoy Gateway sends is shaped by other
// extensions and by EnvoyPatchPolicies, and this process serves all Envoys.
func (s *Server) survive(ctx context.Context, in any, _ *grpc.UnaryServerInfo, answer grpc.UnaryHandler) (
	out any, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			err = status.Errorf(codes.Internal, "a defect of Steelyard: %v", r)
			err = s.failed(err, in, "stack", string(debug.Stack()))
		}
	}()
	return answer(ctx, in)
}

// PostClusterModify answers what clusterOf does.
func (s *Server) PostClusterModify(ctx context.Context, in *extension.PostClusterModifyRequest) (
	*extension.PostClusterModifyResponse, error) {
	name := in.GetCluster().GetName()
	out, err := s.clusterOf(ctx, in)
	if err != nil {
		return nil, s.failed(err, in)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if name != "" { // without a name it may be another one
		delete(s.failing, name)
	}
	return out, nil
}

// clusterOf notes the backends of a rule with pools in its cluster. The cluster of nothing but pools that are
// served gets their members: no route stays with it, but Envoy has it before the route, and requests of one that moves
// from a Service to a pool would find none. An answer without the cluster would mean "unchanged" only to a single
// extension: Envoy Gateway passes each answer on to the next one.
func (s *Server) clusterOf(ctx context.Context, in *extension.PostClusterModifyRequest) (
	*extension.PostClusterModifyResponse, error) {
	out := &extension.PostClusterModifyResponse{Cluster: in.Cluster}
	pools, err := poolsOf(in.GetPostClusterContext().GetBackendExtensionResources())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	id, ok := ruleOf(in.GetCluster().GetName())
	if len(pools) > 0 && in.Cluster == nil {
		return nil, status.Error(codes.InvalidArgument, "an extension before Steelyard in extensionManagers "+
			"answers PostClusterModify without the cluster, so its pools cannot be served: remove its hook Cluster")
	}
	if !ok || len(pools) == 0 {
		s.mayCatchUp(id, nil, false)
		return out, nil
	}
	if id.Kind == grpcRoute {
		n := note{}
		for _, name := range slices.Sorted(maps.Keys(pools)) {
			n.Pools = append(n.Pools, s.servingGRPC(pools[name]))
		}
		return out, n.write(in.Cluster)
	}
	backends, err := s.options.Backends(ctx, id)
	if err != nil { // Envoy Gateway tries again, and then keeps what its Envoys have
		return nil, status.Errorf(codes.Unavailable, "reading the weights of %s: %v", id, err)
	}
	n := s.noteOf(id, backends, pools)
	served := slices.ContainsFunc(n.Shares, func(s share) bool { return s.Cluster != "" })
	rest := slices.ContainsFunc(n.Shares, func(s share) bool { return s.Cluster == "" })
	past := pastOf(backends, pools)
	behind := past != "" && (rest || !served)
	switch {
	case s.mayCatchUp(id, backends, behind):
		return nil, status.Errorf(codes.Unavailable, "%s has just changed: the InferencePool %s gets none of "+
			"its requests any more", id, past)
	case behind:
		n.Ignored = append(n.Ignored, fmt.Sprintf("%s: Envoy Gateway has the InferencePool %s for it, which is none "+
			"of its backends, so it gets no requests: see what else of the route names it", id, past))
	}
	before, _ := readNote(in.Cluster)
	switch {
	case !served && before.Shares != nil: // of another installation, which serves them
		return out, nil
	case len(backends) == 0: // the rule is gone, and Envoy Gateway may no longer answer for its endpoints
		setMembers(in.Cluster, nil)
	case !served:
		n.Shares = nil
	case !rest:
		var members []string
		for _, share := range n.Shares {
			members = append(members, s.options.Members(ctx, share.Cluster)...)
		}
		setMembers(in.Cluster, members)
	}
	if err := n.write(in.Cluster); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return out, nil
}

// PostTranslateModify replaces the noted clusters.
func (s *Server) PostTranslateModify(ctx context.Context, in *extension.PostTranslateModifyRequest) (
	*extension.PostTranslateModifyResponse, error) {
	named := poolsByGateway(in)
	s.leaveOut(in, named)
	out, ignored, err := Translate(in, Surroundings{ModuleXDS: s.options.ModuleXDS,
		ModuleGateways: s.options.ModuleGateways, cache: &s.parts,
		Members: func(cluster string) []string { return s.options.Members(ctx, cluster) }})
	if err != nil {
		return nil, s.failed(status.Error(codes.Internal, err.Error()), in)
	}
	s.translated(named, ignored)
	return out, nil
}

// leaveOut deletes the Gateways whose Envoys keep what they have.
func (s *Server) leaveOut(in *extension.PostTranslateModifyRequest, named map[string][]api.GatewayPool) {
	s.mu.Lock()
	defer s.mu.Unlock() // after a panic, too
	for _, gateway := range s.failing.still(in, named) {
		delete(named, gateway)
	}
}

// A pool is an InferencePool as Envoy Gateway passes it on.
type pool struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		AppProtocol string `json:"appProtocol"`
		Picker      *struct {
			Name string `json:"name"`
		} `json:"endpointPickerRef"`
	} `json:"spec"`
}

// poolsOf returns the pools among resources, by namespace/name.
func poolsOf(resources []*extension.ExtensionResource) (map[string]pool, error) {
	out := map[string]pool{}
	for _, r := range resources {
		var p pool
		if err := json.Unmarshal(r.UnstructuredBytes, &p); err != nil {
			return nil, fmt.Errorf("a backend resource cannot be read: %w", err)
		}
		if p.Kind == "InferencePool" && strings.HasPrefix(p.APIVersion, "inference.networking.k8s.io/") {
			out[p.Metadata.Namespace+"/"+p.Metadata.Name] = p
		}
	}
	return out, nil
}

// pastOf returns a pool that Envoy Gateway still has for a rule, and the Kubernetes API no longer; empty if there is
// none. What such a rule leaves to Envoy Gateway's own cluster would find it empty, because that is made for the pool.
// Envoy Gateway passes no pool of weight 0 on. A rule without backends, or that is gone, answers no requests.
func pastOf(backends []Backend, pools map[string]pool) string {
	if len(backends) == 0 {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		if !slices.ContainsFunc(backends, func(b Backend) bool {
			return b.Pool && (b.Weight > 0 || b.ByFilter) && b.Namespace+"/"+b.Name == name
		}) {
			return name
		}
	}
	return ""
}

// mayCatchUp reports whether a rule that Envoy Gateway is behind with is to be refused.
func (s *Server) mayCatchUp(id RuleID, backends []Backend, behind bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !behind {
		delete(s.changes, id)
	}
	return behind && s.changes.mayCatchUp(id, backends)
}

// noteOf returns the part of each cluster of a rule, its pools, and what has no effect on them.
func (s *Server) noteOf(id RuleID, backends []Backend, pools map[string]pool) (n note) {
	var rest uint32
	for _, b := range backends {
		p, found := pools[b.Namespace+"/"+b.Name]
		switch {
		case b.ByFilter && b.Pool && found:
			n.Ignored = append(n.Ignored, fmt.Sprintf("%s: its filter ExtensionRef to the InferencePool %s/%s has no "+
				"effect: name the pool in backendRefs, or remove the filter", id, b.Namespace, b.Name))
		case b.Weight == 0 || b.Pool && !found: // one that does not exist is Envoy Gateway's to refuse
		case !b.Pool:
			rest += b.Weight
		default:
			seen := s.serving(b, p)
			n.Pools = append(n.Pools, seen)
			if seen.Cluster == "" {
				rest += b.Weight
				continue
			}
			n.Shares = append(n.Shares, share{seen.Cluster, b.Weight})
			n.Ignored = append(n.Ignored, ignoredOf(id, b)...)
		}
	}
	if rest > 0 {
		n.Shares = append(n.Shares, share{Weight: rest})
	}
	return n
}

// ignoredOf says what a rule has for a pool, and Envoy Gateway passes on to no extension.
func ignoredOf(id RuleID, b Backend) (ignored []string) {
	if b.Filters {
		ignored = append(ignored, fmt.Sprintf("%s: filters of its backendRef to the InferencePool %s/%s have no "+
			"effect: write them as filters of the rule", id, b.Namespace, b.Name))
	}
	if b.TLSPolicy != "" {
		ignored = append(ignored, fmt.Sprintf("%s: the BackendTLSPolicy %s of the InferencePool %s/%s has no effect, "+
			"so requests are sent in plain text: remove it, or name a Service of the same Pods", id, b.TLSPolicy,
			b.Namespace, b.Name))
	}
	return ignored
}

// serving says which cluster serves a pool, or why none does.
func (s *Server) serving(b Backend, p pool) api.GatewayPool {
	out := api.GatewayPool{Namespace: b.Namespace, Name: b.Name}
	if p.Spec.Picker != nil {
		out.Picker = cmp.Or(p.Spec.Picker.Name, "unnamed")
		return out
	}
	if protocol := p.Spec.AppProtocol; protocol != "" && protocol != "http" {
		out.Reason = fmt.Sprintf("its appProtocol is %s, and only http is served", protocol)
		return out
	}
	var err error
	if out.Cluster, err = s.options.Cluster(b.Namespace, b.Name); err != nil {
		out.Reason = err.Error()
	}
	return out
}

// servingGRPC says why no cluster serves a pool of a GRPCRoute: those speak HTTP/1.1.
func (s *Server) servingGRPC(p pool) api.GatewayPool {
	out := s.serving(Backend{Namespace: p.Metadata.Namespace, Name: p.Metadata.Name}, p)
	if out.Cluster != "" {
		out.Cluster, out.Reason = "", "a GRPCRoute names it: only HTTPRoutes are supported"
	}
	return out
}

// translated notes the pools of the Gateways of a translation, and what of their routes has no effect.
func (s *Server) translated(named map[string][]api.GatewayPool, ignored []string) {
	s.mu.Lock()
	s.state.Calls++
	s.state.LastCallAt = api.At(time.Now())
	s.state.LastError = ""
	changed := map[string][]api.GatewayPool{}
	for gateway, now := range named {
		before := s.pools[gateway]
		if !slices.Equal(before, now) {
			changed[gateway] = now
		}
		delete(s.ignored, gateway)
		if len(now) == 0 {
			delete(s.pools, gateway)
		} else if len(s.pools) < maxPools || before != nil {
			s.pools[gateway] = now
		}
		if len(ignored) > 0 && len(s.ignored) < maxPools {
			s.ignored[gateway] = api.Limit(ignored, maxPools)
		}
	}
	s.mu.Unlock()
	s.options.Named(named)
	for gateway, now := range changed {
		for _, p := range now {
			s.options.Log.Info("InferencePool of a Gateway", "gateway", gateway, "namespace", p.Namespace,
				"pool", p.Name, "cluster", p.Cluster, "left_to", p.Picker, "not_served", p.Reason)
		}
	}
}

// Gateways returns those of which something is known.
func (s *Server) Gateways() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.AppendSeq(slices.Collect(maps.Keys(s.pools)), maps.Keys(s.ignored))
}

// Forget drops the pools of a Gateway that is gone: Envoy Gateway asks no more about it.
func (s *Server) Forget(gateway string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pools, gateway)
	delete(s.ignored, gateway)
	maps.DeleteFunc(s.failing, func(_ string, f failure) bool { return f.gateway == gateway })
}

// failed notes an answer that is an error.
func (s *Server) failed(err error, in any, details ...any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q, ok := in.(*extension.PostClusterModifyRequest); ok {
		s.failing.note(q, err)
	}
	s.state.Failures++
	s.state.LastError, s.state.LastErrorAt = status.Convert(err).Message(), api.At(time.Now())
	s.options.Log.Warn("Envoy Gateway was refused, and keeps the configuration that its Envoys have",
		append([]any{"error", err}, details...)...)
	return err
}

// State is what the gateway has asked, and which pools it names.
func (s *Server) State() api.EnvoyGateway {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.state
	if names := slices.Sorted(maps.Keys(s.failing)); out.LastError == "" && len(names) > 0 {
		out.LastError = s.failing[names[0]].text
	}
	out.Enabled, out.Pools, out.Ignored = true, []api.GatewayPool{}, []string{}
	for _, name := range slices.Sorted(maps.Keys(s.ignored)) {
		out.Ignored = append(out.Ignored, s.ignored[name]...)
	}
	slices.Sort(out.Ignored) // merged Gateways have them in common
	out.Ignored = slices.Compact(out.Ignored)
	for name, pools := range s.pools {
		for _, p := range pools {
			p.Gateway = name
			out.Pools = append(out.Pools, p)
		}
	}
	slices.SortFunc(out.Pools, byName)
	return out
}
