package envoybootstrap

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	grpclogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/priority/previous_priorities/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"steelyard/e2e/rig/golden"
)

// shipped are the files of this folder and how each is rendered.
var shipped = map[string]func() ([]byte, error){
	"failsafe.yaml": func() ([]byte, error) { return Render(llama(ModeFailsafe)) },
	"shedding.yaml": func() ([]byte, error) { return Render(llama(ModeShedding)) },
	"attach.yaml":   func() ([]byte, error) { return RenderAttach(llama(ModeFailsafe)) },
}

// llama are the options of the shipped files: what the command takes no flags for.
func llama(m Mode) Options {
	return Options{Cluster: "llama", XDS: "127.0.0.1:18000", Mode: m}
}

func TestShippedFilesAreWhatTheCommandPrints(t *testing.T) {
	for file, render := range shipped {
		t.Run(file, func(t *testing.T) {
			got, err := render()
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, file, string(got))
		})
	}
}

// decode reads a bootstrap as Envoy does: unknown fields are errors, and every
// extension's config is checked against its rules.
func decode(t *testing.T, text []byte) *bootstrapv3.Bootstrap {
	t.Helper()
	var tree any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	asJSON, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	b := new(bootstrapv3.Bootstrap)
	if err := protojson.Unmarshal(asJSON, b); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if err := b.ValidateAll(); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return b
}

func rendered(t *testing.T, o Options) *bootstrapv3.Bootstrap {
	t.Helper()
	text, err := Render(o)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, text)
}

// clusters of a bootstrap by name.
func clusters(b *bootstrapv3.Bootstrap) map[string]*clusterv3.Cluster {
	all := make(map[string]*clusterv3.Cluster)
	for _, c := range b.GetStaticResources().GetClusters() {
		all[c.GetName()] = c
	}
	return all
}

func unpack[M proto.Message](t *testing.T, a *anypb.Any, m M) M {
	t.Helper()
	if err := a.UnmarshalTo(m); err != nil {
		t.Fatal(err)
	}
	return m
}

// route is what the listener does with a request, and the listener's settings.
func route(t *testing.T, b *bootstrapv3.Bootstrap) *hcmv3.HttpConnectionManager {
	t.Helper()
	filter := b.GetStaticResources().GetListeners()[0].GetFilterChains()[0].GetFilters()[0]
	return unpack(t, filter.GetTypedConfig(), new(hcmv3.HttpConnectionManager))
}

// router is the router filter's settings.
func router(t *testing.T, b *bootstrapv3.Bootstrap) *routerv3.Router {
	t.Helper()
	return unpack(t, route(t, b).GetHttpFilters()[0].GetTypedConfig(), new(routerv3.Router))
}

func TestEnvoysReportTheirRequestsToSteelyard(t *testing.T) {
	b := rendered(t, llama(ModeFailsafe))
	r := router(t, b)
	if !r.GetUpstreamLogOptions().GetFlushUpstreamLogOnUpstreamStream() {
		t.Error("no entry when a request begins")
	}
	// The defaults, without a runtime layer: every entry at once.
	for i, want := range []struct {
		key     string
		percent uint32
		bytes   uint32
	}{
		{"steelyard.access_log.immediate", 100, 1},
		{"steelyard.access_log.batched", 0, 2048},
	} {
		log := r.GetUpstreamLog()[i]
		filter := log.GetFilter().GetRuntimeFilter()
		common := unpack(t, log.GetTypedConfig(), new(grpclogv3.HttpGrpcAccessLogConfig)).GetCommonConfig()
		if filter.GetRuntimeKey() != want.key || filter.GetPercentSampled().GetNumerator() != want.percent {
			t.Errorf("log %d is on by %v, want by %s, %d %%", i, filter, want.key, want.percent)
		}
		if common.GetLogName() != "steelyard" ||
			common.GetGrpcService().GetEnvoyGrpc().GetClusterName() != xdsCluster ||
			common.GetTransportApiVersion() != corev3.ApiVersion_V3 ||
			common.GetBufferSizeBytes().GetValue() != want.bytes {
			t.Errorf("log %d is %v, want one of %d bytes to Steelyard", i, common, want.bytes)
		}
	}
	options := clusters(b)[xdsCluster].GetTypedExtensionProtocolOptions()
	steelyard := unpack(t, options["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"],
		new(httpv3.HttpProtocolOptions))
	http2 := steelyard.GetExplicitHttpConfig().GetHttp2ProtocolOptions()
	if window := http2.GetInitialStreamWindowSize().GetValue(); window != 1<<20 {
		t.Errorf("Envoy keeps %d bytes of a log that is not read, want at most 1 MiB", window)
	}
	reports := b.GetClusterManager().GetLoadStatsConfig()
	if reports.GetApiType() != corev3.ApiConfigSource_GRPC ||
		reports.GetTransportApiVersion() != corev3.ApiVersion_V3 ||
		reports.GetGrpcServices()[0].GetEnvoyGrpc().GetClusterName() != xdsCluster {
		t.Errorf("load reports %v, want a gRPC stream to Steelyard", reports)
	}
	layers := b.GetLayeredRuntime().GetLayers()
	if len(layers) != 2 || layers[0].GetRtdsLayer().GetName() != runtimeLayer || layers[1].GetAdminLayer() == nil {
		t.Fatalf("layers %v, want Steelyard's and, over it, the operator's", layers)
	}
	source := layers[0].GetRtdsLayer().GetRtdsConfig()
	if api := source.GetApiConfigSource(); !api.GetSetNodeOnFirstMessageOnly() ||
		api.GetGrpcServices()[0].GetEnvoyGrpc().GetClusterName() != xdsCluster ||
		source.GetInitialFetchTimeout().AsDuration() > time.Second {
		t.Errorf("the layer comes from %v, want from Steelyard, and no start that waits for it", source)
	}
}

func TestReportsOfEnvoysCanBeSwitchedOff(t *testing.T) {
	tests := []struct {
		name                  string
		change                func(*Options)
		logs, reports, layers bool
	}{
		{"no upstream log", func(o *Options) { o.NoUpstreamLog = true }, false, true, true},
		{"no load reports", func(o *Options) { o.NoLoadReports = true }, true, false, true},
		{"no runtime layer", func(o *Options) { o.NoRuntime = true }, true, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := llama(ModeFailsafe)
			tt.change(&o)
			b := rendered(t, o)
			logs, reports, layers := router(t, b).GetUpstreamLog() != nil, b.GetClusterManager() != nil,
				b.GetLayeredRuntime() != nil
			if logs != tt.logs || reports != tt.reports || layers != tt.layers {
				t.Errorf("logs %t, reports %t, layers %t; want %t, %t, %t", logs, reports, layers, tt.logs, tt.reports,
					tt.layers)
			}
		})
	}
}

func TestEveryWeightStreamIsCheapFastAndItsOwn(t *testing.T) {
	for _, mode := range []Mode{ModeFailsafe, ModeShedding} {
		t.Run(string(mode), func(t *testing.T) {
			streams := 0
			for _, c := range clusters(rendered(t, llama(mode))) {
				if c.GetType() != clusterv3.Cluster_EDS {
					continue
				}
				streams++
				source := c.GetEdsClusterConfig().GetEdsConfig()
				api := source.GetApiConfigSource()
				if source.GetResourceApiVersion() != corev3.ApiVersion_V3 ||
					api.GetTransportApiVersion() != corev3.ApiVersion_V3 {
					t.Errorf("%s: not v3: %v", c.GetName(), source)
				}
				if api.GetApiType() != corev3.ApiConfigSource_GRPC {
					t.Errorf("%s: API type %s, want a gRPC stream of its own", c.GetName(), api.GetApiType())
				}
				if !api.GetSetNodeOnFirstMessageOnly() {
					t.Errorf("%s: every ACK repeats the node", c.GetName())
				}
				service := api.GetGrpcServices()[0].GetEnvoyGrpc()
				backOff := service.GetRetryPolicy().GetRetryBackOff()
				if service.GetClusterName() != xdsCluster ||
					backOff.GetBaseInterval().AsDuration() != 200*time.Millisecond ||
					backOff.GetMaxInterval().AsDuration() != time.Second {
					t.Errorf("%s: stream %v, want one to %s with a back-off of 0.2 s to 1 s", c.GetName(), service,
						xdsCluster)
				}
			}
			if want := map[Mode]int{ModeFailsafe: 2, ModeShedding: 1}[mode]; streams != want {
				t.Errorf("%d streams, want %d", streams, want)
			}
		})
	}
}

func TestALostControlPlaneIsNoticed(t *testing.T) {
	c := clusters(rendered(t, llama(ModeFailsafe)))[xdsCluster]
	options := unpack(t, c.GetTypedExtensionProtocolOptions()["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"],
		new(httpv3.HttpProtocolOptions))
	keepalive := options.GetExplicitHttpConfig().GetHttp2ProtocolOptions().GetConnectionKeepalive()
	if keepalive.GetInterval().AsDuration() != 5*time.Second || keepalive.GetTimeout().AsDuration() != 2*time.Second {
		t.Errorf("keep-alive %v, want one every 5 s that waits 2 s", keepalive)
	}
}

// TestAnEnvoyMayAskForManyClusters: each name in EDS is a stream, and Envoy's default is
// 1024 of them.
func TestAnEnvoyMayAskForManyClusters(t *testing.T) {
	const names = 2 * 1000 // of as many clusters as can be configured
	for _, mode := range []Mode{ModeFailsafe, ModeShedding} {
		thresholds := clusters(rendered(t, llama(mode)))[xdsCluster].GetCircuitBreakers().GetThresholds()
		if len(thresholds) != 1 || thresholds[0].GetMaxRequests().GetValue() <= names ||
			thresholds[0].GetMaxPendingRequests().GetValue() <= names {
			t.Errorf("%s: the breakers of Steelyard's cluster are %v, want room for %d streams and more", mode,
				thresholds, names)
		}
	}
}

func TestModesDifferInClustersAndResources(t *testing.T) {
	b := rendered(t, llama(ModeFailsafe))
	all := clusters(b)
	aggregate := unpack(t, all["llama_failsafe"].GetClusterType().GetTypedConfig(), new(aggregatev3.ClusterConfig))
	if got := strings.Join(aggregate.GetClusters(), " "); got != "llama llama_fallback" {
		t.Errorf("aggregate of %s, want the weighted cluster before the fallback", got)
	}
	for cluster, service := range map[string]string{"llama": "llama/failsafe", "llama_fallback": "llama/fallback"} {
		if got := all[cluster].GetEdsClusterConfig().GetServiceName(); got != service {
			t.Errorf("failsafe: %s subscribes to %q, want %q", cluster, got, service)
		}
	}
	if got := target(t, b); got != "llama_failsafe" {
		t.Errorf("failsafe: the route names %s", got)
	}

	b = rendered(t, llama(ModeShedding))
	all = clusters(b)
	if len(all) != 2 || all["llama"].GetEdsClusterConfig().GetServiceName() != "llama" {
		t.Errorf("shedding: clusters %v, want llama, subscribed to llama, and %s", all, xdsCluster)
	}
	if got := target(t, b); got != "llama" {
		t.Errorf("shedding: the route names %s, and behind an aggregate nothing would be shed", got)
	}
}

func target(t *testing.T, b *bootstrapv3.Bootstrap) string {
	t.Helper()
	return route(t, b).GetRouteConfig().GetVirtualHosts()[0].GetRoutes()[0].GetRoute().GetCluster()
}

func TestRequestsMayBeLongAndAreNotGeneratedTwice(t *testing.T) {
	o := llama(ModeFailsafe)
	o.IdleTimeout = 90 * time.Second
	hcm := route(t, rendered(t, o))
	if got := hcm.GetStreamIdleTimeout().AsDuration(); got != 90*time.Second {
		t.Errorf("idle timeout %s, want 90s", got)
	}
	action := hcm.GetRouteConfig().GetVirtualHosts()[0].GetRoutes()[0].GetRoute()
	if timeout := action.GetTimeout(); timeout == nil || timeout.AsDuration() != 0 {
		t.Errorf("route timeout %v, want 0 (none), set explicitly: the default is 15 s", timeout)
	}
	if got := action.GetRetryPolicy().GetRetryOn(); got != "connect-failure,refused-stream,reset-before-request" {
		t.Errorf("retries on %q", got)
	}
}

// TestTheModuleKnowsTheNameInTheCertificate: it gets it where the name is another one than the host.
func TestTheModuleKnowsTheNameInTheCertificate(t *testing.T) {
	const key = `\"server_name\"`
	for name, want := range map[string]bool{"steelyard.internal": true, "10.0.0.5": false, "": false} {
		out, err := Render(Options{Cluster: "llama", XDS: "10.0.0.5:18000", Module: true,
			TLS: TLS{CAFile: "/pki/ca.pem", ServerName: name}})
		if err != nil {
			t.Fatal(err)
		}
		told := strings.Contains(string(out), key+`:\"`+name+`\"`)
		if told != want || strings.Contains(string(out), key) != want {
			t.Errorf("with the name %q: the module gets it: %t, want %t", name, told, want)
		}
	}
}

func TestOptionsReachTheBootstrap(t *testing.T) {
	b := rendered(t, Options{
		Cluster: "chat", XDS: "steelyard.svc:18443", Mode: ModeFailsafe, Listen: "[::]:8080", Admin: "127.0.0.1:0",
		NodeID: "edge-1", Zone: "eu-1a", Policy: PolicyRoundRobin, Fallback: []string{"10.0.0.1:8000", "chat.svc:8001"},
		TLS: TLS{CAFile: "/pki/ca.pem", CertFile: "/pki/cert.pem", KeyFile: "/pki/key.pem"}, AccessLog: true,
	})
	if n := b.GetNode(); n.GetId() != "edge-1" || n.GetCluster() != "chat" || n.GetLocality().GetZone() != "eu-1a" {
		t.Errorf("node %v", n)
	}
	if got := address(b.GetStaticResources().GetListeners()[0].GetAddress()); got != ":: 8080" {
		t.Errorf("listens on %s", got)
	}
	if got := address(b.GetAdmin().GetAddress()); got != "127.0.0.1 0" {
		t.Errorf("admin on %s", got)
	}
	if got := len(route(t, b).GetAccessLog()); got != 1 {
		t.Errorf("%d access logs", got)
	}
	all := clusters(b)
	if got := all["chat"].GetLbPolicy(); got != clusterv3.Cluster_ROUND_ROBIN ||
		all["chat"].GetLeastRequestLbConfig() != nil {
		t.Errorf("policy %s", got)
	}
	if xds := all[xdsCluster]; xds.GetType() != clusterv3.Cluster_STRICT_DNS ||
		members(xds) != "steelyard.svc 18443 UNKNOWN" ||
		xds.GetTransportSocket().GetName() != "envoy.transport_sockets.tls" {
		t.Errorf("connection to Steelyard: %v", xds)
	}
	if fb := all["chat_fallback"]; fb.GetType() != clusterv3.Cluster_STRICT_DNS ||
		members(fb) != "10.0.0.1 8000 DEGRADED, chat.svc 8001 DEGRADED" {
		t.Errorf("fallback: %v", fb)
	}
}

// TestAPickerMayHoldRequestsButNotWhenItHangs: e2e tests show what Envoy does with it.
func TestAPickerMayHoldRequestsButNotWhenItHangs(t *testing.T) {
	for what, render := range map[string]func(Options) ([]byte, error){"whole": Render, "attached": RenderAttach} {
		o := llama(ModeFailsafe)
		o.Picker = "127.0.0.1:18002"
		text, err := render(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"failure_mode_allow: true", "message_timeout: 0.1s", "max_message_timeout: 3600s",
			"allow_mode_override: true", "connection_keepalive: {interval: 1s, timeout: 2s}"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: no %q", what, want)
			}
		}
	}
}

func TestUnderTheWeightsEnvoyLooksAtWhatItHasOpen(t *testing.T) {
	c := clusters(rendered(t, llama(ModeFailsafe)))["llama"]
	bias := c.GetLeastRequestLbConfig().GetActiveRequestBias().GetDefaultValue()
	if c.GetLbPolicy() != clusterv3.Cluster_LEAST_REQUEST || bias != 2 {
		t.Errorf("policy %s with a bias of %v, want LEAST_REQUEST and 2", c.GetLbPolicy(), bias)
	}
}

func address(a *corev3.Address) string {
	return fmt.Sprint(a.GetSocketAddress().GetAddress(), " ", a.GetSocketAddress().GetPortValue())
}

// members are the endpoints of a cluster that has them in the bootstrap.
func members(c *clusterv3.Cluster) string {
	var all []string
	for _, locality := range c.GetLoadAssignment().GetEndpoints() {
		for _, e := range locality.GetLbEndpoints() {
			all = append(all, address(e.GetEndpoint().GetAddress())+" "+e.GetHealthStatus().String())
		}
	}
	return strings.Join(all, ", ")
}

func TestNamesAreQuoted(t *testing.T) {
	for _, name := range []string{"true", "123", "1e3", "#x", "a:b", `"`, `\`, "{{.XDS}}", "llama-3.1_70b", "模型"} {
		o := llama(ModeFailsafe)
		o.Cluster, o.NodeID, o.Zone = name, name, name
		b := rendered(t, o)
		if got := b.GetNode(); got.GetId() != name || got.GetCluster() != name || got.GetLocality().GetZone() != name {
			t.Errorf("%q becomes node %v", name, got)
		}
		if clusters(b)[name] == nil {
			t.Errorf("%q is no cluster", name)
		}
	}
}

func TestWrongOptionsAreRefusedWithWhatToWriteInstead(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"no cluster", func(o *Options) { o.Cluster = "" }, "cluster: no name given"},
		{"slash in cluster", func(o *Options) { o.Cluster = "a/b" }, `cluster "a/b": a slash is not allowed`},
		{"space in cluster", func(o *Options) { o.Cluster = "a b" },
			`cluster "a b": want printable characters without spaces`},
		{"line break in cluster", func(o *Options) { o.Cluster = "a\nb" }, `cluster "a\nb": want printable`},
		{"cluster of ours", func(o *Options) { o.Cluster = "steelyard_xds" }, "want another name"},
		{"no xds", func(o *Options) { o.XDS = "" }, `xds "": want HOST:PORT, such as 127.0.0.1:18000`},
		{"xds without port", func(o *Options) { o.XDS = "steelyard.svc" }, `xds "steelyard.svc": want HOST:PORT`},
		{"xds without host", func(o *Options) { o.XDS = ":18000" }, `xds ":18000": want HOST:PORT`},
		{"xds with port 0", func(o *Options) { o.XDS = "a:0" }, `xds "a:0": want a port from 1 to 65535`},
		{"xds with a bad port", func(o *Options) { o.XDS = "a:65536" }, `xds "a:65536": want a port from 1 to 65535`},
		{"xds at the address of a listener", func(o *Options) { o.XDS = "0.0.0.0:18000" },
			`xds "0.0.0.0:18000": one can listen there, and not connect to it`},
		{"xds at that of IPv6", func(o *Options) { o.XDS = "[::]:18000" },
			`xds "[::]:18000": one can listen there, and not connect to it`},
		{"xds as URL", func(o *Options) { o.XDS = "http://a:1" }, `xds "http://a:1": want HOST:PORT`},
		{"mode", func(o *Options) { o.Mode = "both" }, `mode "both": want failsafe or shedding`},
		{"policy", func(o *Options) { o.Policy = "random" }, `lb-policy "random": want least_request or round_robin`},
		{"listen on a name", func(o *Options) { o.Listen = "localhost:80" },
			`listen "localhost:80": want IP:PORT, such as 127.0.0.1:10000`},
		{"admin without port", func(o *Options) { o.Admin = "127.0.0.1" },
			`admin "127.0.0.1": want IP:PORT, such as 127.0.0.1:9901`},
		{"one port for two", func(o *Options) { o.Admin = DefaultListen }, "listen and admin are both 127.0.0.1:10000"},
		{"node id", func(o *Options) { o.NodeID = "a b" }, `node id "a b": want printable`},
		{"zone", func(o *Options) { o.Zone = "\x00" }, `zone "\x00": want printable`},
		{"fallback", func(o *Options) { o.Fallback = []string{"a:1", "b"} }, `fallback "b": want HOST:PORT`},
		{"fallback while shedding", func(o *Options) { o.Mode, o.Fallback = ModeShedding, []string{"a:1"} },
			"fallback: mode shedding has none"},
		{"idle timeout", func(o *Options) { o.IdleTimeout = -time.Second }, "idle timeout -1s: want at least 1s"},
		{"prefix without a picker", func(o *Options) { o.Prefix = true },
			"prefix: bodies are for a picker or the module"},
		{"shadow with a fallback", func(o *Options) { o.Shadow, o.Fallback = true, []string{"10.0.0.1:8000"} },
			"shadow: no request goes through clusters of Steelyard: want no mode, fallback,"},
		{"shadow without the log", func(o *Options) { o.Shadow, o.NoUpstreamLog = true, true },
			"shadow: the times of answers come with the upstream log"},
		{"affinity to no header", func(o *Options) { o.Affinity = "X Y" },
			`affinity "X Y": want the name of a header in lower case`},
		{"affinity to what HTTP sets", func(o *Options) { o.Affinity = "host" },
			`affinity "host": no conversation is named by this header`},
		{"affinity to what differs with each request", func(o *Options) { o.Affinity = "x-request-id" },
			"which HTTP or Envoy sets: want one of your clients, such as x-conversation-id"},
		{"affinity to a header of Envoy", func(o *Options) { o.Affinity = "x-envoy-original-path" },
			`affinity "x-envoy-original-path": no conversation`},
		{"affinity while shedding", func(o *Options) { o.Affinity, o.Mode = "x-conversation", ModeShedding },
			"affinity: in mode shedding requests with the header would never be refused"},
		{"affinity and a picker", func(o *Options) { o.Affinity, o.Module = "x-conversation", true },
			"both choose the endpoint of a request"},
		{"tls without CA", func(o *Options) { o.TLS.ServerName = "a" }, "tls: no CA file given"},
		{"tls without key", func(o *Options) { o.TLS = TLS{CAFile: "ca", CertFile: "cert"} },
			"tls: want both a certificate file and a key file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := llama(ModeFailsafe)
			tt.change(&o)
			for name, render := range map[string]func(Options) ([]byte, error){"Render": Render,
				"RenderAttach": RenderAttach} {
				out, err := render(o)
				if err == nil || !strings.Contains(err.Error(), tt.want) || out != nil {
					t.Errorf("%s: %d bytes and error %v, want one with %q", name, len(out), err, tt.want)
				}
			}
		})
	}
}

func TestAllMistakesAreReportedAtOnce(t *testing.T) {
	_, err := Render(Options{Mode: "both", Listen: "x"})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"cluster:", "xds ", "mode ", "listen "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
}
