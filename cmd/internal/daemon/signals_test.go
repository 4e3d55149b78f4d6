package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"strings"
	"testing"
	"time"

	"steelyard/internal/api"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	accessdatav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"

	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"

	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"steelyard/collectors/ledger"
	"steelyard/collectors/replicas"
	"steelyard/controlplane/discovery"
	"steelyard/e2e/rig/grpctest"
	"steelyard/xds"
)

const pool = `
clusters:
- name: llama
  endpoints: {static: [{address: 10.0.0.1:80}, {address: 10.0.0.2:80}]}
  scrape: {disabled: true}
`

// subscribe has an Envoy follow a cluster.
func subscribe(t *testing.T, address, node, cluster string) {
	t.Helper()
	client := endpointservice.NewEndpointDiscoveryServiceClient(grpctest.Connect(t, address))
	stream, err := client.StreamEndpoints(t.Context())
	if err == nil {
		err = stream.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: node}, TypeUrl: resource.EndpointType,
			ResourceNames: []string{cluster}})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// watch has Envoys follow the cluster, and waits until the ledger knows of them.
func watch(t *testing.T, d *Daemon, nodes ...string) {
	t.Helper()
	before := d.signals.ledger.Cluster("llama", time.Now()).Watching
	for _, node := range nodes {
		subscribe(t, d.XDSAddress(), node, "llama")
	}
	eventually(t, "they watch", func() error {
		if got := d.signals.ledger.Cluster("llama", time.Now()).Watching; got != before+len(nodes) {
			return fmt.Errorf("%d watch", got)
		}
		return nil
	})
}

func socket(ip string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

type httpEntries = accesslogv3.StreamAccessLogsMessage_HTTPAccessLogEntries

// begin has an Envoy report a request that began at an endpoint.
func begin(t *testing.T, address, node, endpoint string, port uint32) {
	t.Helper()
	stream, err := accesslogv3.NewAccessLogServiceClient(grpctest.Connect(t, address)).StreamAccessLogs(t.Context())
	if err == nil {
		err = stream.Send(&accesslogv3.StreamAccessLogsMessage{
			Identifier: &accesslogv3.StreamAccessLogsMessage_Identifier{Node: &corev3.Node{Id: node},
				LogName: "steelyard"},
			LogEntries: &accesslogv3.StreamAccessLogsMessage_HttpLogs{HttpLogs: &httpEntries{
				LogEntry: []*accessdatav3.HTTPAccessLogEntry{{CommonProperties: &accessdatav3.AccessLogCommon{
					AccessLogType:         accessdatav3.AccessLogType_UpstreamPoolReady,
					UpstreamRemoteAddress: socket(endpoint, port),
				}}},
			}},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestAnEnvoyIsTheSameOnAllItsStreams: the subscriber and the sender of the access log are one Envoy, whatever its name
// and its address look like.
func TestAnEnvoyIsTheSameOnAllItsStreams(t *testing.T) {
	for listen, hosts := range map[string][]string{
		"127.0.0.1:0": {"127.0.0.1"},
		"[::]:0":      {"127.0.0.1", "::1"}, // the first comes as ::ffff:127.0.0.1
	} {
		cfg := parse(t, pool)
		cfg.XDS.Listen = listen
		d, _ := serve(t, cfg)
		_, port, err := net.SplitHostPort(d.XDSAddress())
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the endpoints are known", func() error { // entries about others are ignored
			if c := d.signals.Counts("llama", time.Now(), nil); len(c.Endpoints) == 0 {
				return errors.New("no endpoints yet")
			}
			return nil
		})
		count := 0.0
		for _, host := range hosts {
			for i, node := range []string{
				"envoy-1", " ", "ä/ö ü", "a\x00b\x7f\n", "\u200b", "\ufffd", "::ffff:10.0.0.1",
				strings.Repeat("x", 256), strings.Repeat("y", 300), "é" + strings.Repeat("€", 300),
				strings.Repeat("z", 255) + "日本",
			} {
				t.Run(fmt.Sprint(listen, " ", host, " ", i), func(t *testing.T) {
					address := net.JoinHostPort(host, port)
					subscribe(t, address, node, "llama/failsafe")
					begin(t, address, node, "10.0.0.1", 80)
					count++
					eventually(t, "the request counts", func() error {
						c := d.signals.Counts("llama", time.Now(), nil)
						if len(c.Endpoints) == 0 {
							return errors.New("no endpoints yet")
						}
						got := c.Endpoints[0].InFlight.Value
						if got != 1 || c.Subscribers.Proxies != 1 || c.Reporting != 1 {
							return fmt.Errorf("%v in flight of %d subscribers, %d report", got, c.Subscribers.Proxies,
								c.Reporting)
						}
						return nil
					})
					if w := d.streams.Watchers("llama"); len(w) != 1 || w[0].Host != host {
						t.Errorf("watched by %q, want one at %s", w, host)
					}
				})
				eventually(t, "it is gone", func() error {
					if n := len(d.streams.Watchers("llama")) + len(d.signals.ledger.Envoys(time.Now())); n > 0 {
						return fmt.Errorf("%d are left", n)
					}
					return nil
				})
			}
		}
	}
}

// layer is the runtime layer that an Envoy is sent at its start.
func layer(t *testing.T, address, node string) map[string]float64 {
	t.Helper()
	stream, err := runtimev3.NewRuntimeDiscoveryServiceClient(grpctest.Connect(t, address)).StreamRuntime(t.Context())
	if err == nil {
		err = stream.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: node},
			ResourceNames: []string{xds.RuntimeLayer}})
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var m runtimev3.Runtime
	if err := r.GetResources()[0].UnmarshalTo(&m); err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for key, v := range m.GetLayer().GetFields() {
		values[key] = v.GetNumberValue()
	}
	return values
}

// reportOften reports 300 requests a second of an Envoy to the ledger, until the ledger has it batch its log.
func reportOften(d *Daemon, envoy ledger.Envoy) error {
	now := time.Now()
	r := d.signals.ledger.Reporting(envoy, time.Second, now)
	for i := range 10 {
		r.Report(now.Add(time.Duration(i)*time.Second), []ledger.ClusterLoad{{
			Cluster: "llama", Endpoints: []ledger.EndpointLoad{{Address: "10.0.0.1:80", Issued: 300}},
		}})
	}
	if _, modes := d.signals.ledger.Modes(); modes[envoy] != ledger.ModeBatched {
		return fmt.Errorf("it is in mode %v", modes[envoy])
	}
	return nil
}

// TestWithoutTheAccessLogEnvoysSendNone: also a busy one, which would batch it.
func TestWithoutTheAccessLogEnvoysSendNone(t *testing.T) {
	for _, disabled := range []bool{false, true} {
		cfg := parse(t, pool)
		cfg.XDS.AccessLog.Disabled = disabled
		d, _ := serve(t, cfg)
		want := map[string]float64{xds.RuntimeImmediate: 100, xds.RuntimeBatched: 0}
		if disabled {
			want[xds.RuntimeImmediate] = 0
		}
		if got := layer(t, d.XDSAddress(), "early"); !maps.Equal(got, want) {
			t.Errorf("disabled %t: the layer is %v, want %v", disabled, got, want)
		}
		if !disabled {
			want = map[string]float64{xds.RuntimeImmediate: 0, xds.RuntimeBatched: 100}
		}
		eventually(t, "it has a mode", func() error {
			return reportOften(d,
				ledger.Envoy{NodeID: "busy", Host: "127.0.0.1"})
		})
		d.signals.tick(time.Now())
		if got := layer(t, d.XDSAddress(), "busy"); !maps.Equal(got, want) {
			t.Errorf("disabled %t: the layer of a busy one is %v, want %v", disabled, got, want)
		}
	}
}

// TestAnEnvoyWithTrafficAndNoLogIsMissed: load reports do not stand in for the access log. Without requests there is
// nothing to report.
func TestAnEnvoyWithTrafficAndNoLogIsMissed(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		status       ledger.EnvoyStatus
		log, reports reportState
	}{
		"nothing at all":      {ledger.EnvoyStatus{}, idle, missing},
		"reports, no traffic": {ledger.EnvoyStatus{LastReport: now}, reporting, reporting},
		"reports, traffic":    {ledger.EnvoyStatus{LastReport: now, RequestRate: 20}, missing, reporting},
		"in mode reports": {ledger.EnvoyStatus{LastReport: now, RequestRate: 900, Mode: ledger.ModeReports},
			reporting, reporting},
		"a log and traffic": {ledger.EnvoyStatus{LastEvent: now, RequestRate: 20, Streams: 2}, reporting, missing},
		"a log, it was a while": {ledger.EnvoyStatus{LastEvent: now.Add(-time.Hour), LastReport: now}, reporting,
			reporting},
		"a log that broke, traffic": {ledger.EnvoyStatus{LastEvent: now.Add(-time.Minute), LastReport: now,
			RequestRate: 20}, missing, reporting},
		"silent": {ledger.EnvoyStatus{LastEvent: now, LastReport: now, Streams: 1, Silent: true},
			missing, missing},
	} {
		log, _ := logState(c.status)
		reports, _ := loadReportState(c.status)
		if log != c.log || reports != c.reports {
			t.Errorf("%s: log %v, reports %v; want %v and %v", name, log, reports, c.log, c.reports)
		}
	}
}

// TestOnlyWhatWorkedIsDown: an Envoy without requests, or without the configuration to report them, raises no alert;
// one with requests that does not report is shown.
func TestOnlyWhatWorkedIsDown(t *testing.T) {
	now := time.Now()
	quiet, loud := ledger.EnvoyStatus{}, ledger.EnvoyStatus{LastReport: now, RequestRate: 20}
	logs := ledger.EnvoyStatus{LastEvent: now, LastReport: now, RequestRate: 20, Streams: 1}
	broke := ledger.EnvoyStatus{LastEvent: now, LastReport: now, RequestRate: 20}
	silent := ledger.EnvoyStatus{LastReport: now, Silent: true}
	for name, c := range map[string]struct {
		envoys                 []ledger.EnvoyStatus
		log, reports           api.SourceState
		logIdle, reportMissing int
	}{
		"no watcher": {nil, api.SourceOK, api.SourceOK, 0, 0},
		"no requests, no load reports": {[]ledger.EnvoyStatus{quiet, quiet}, api.SourceIdle, api.SourceOff, 2,
			2},
		"requests, and no log": {[]ledger.EnvoyStatus{loud, loud}, api.SourceOff, api.SourceOK, 0, 0},
		"requests, and no log; and idle": {[]ledger.EnvoyStatus{loud, quiet}, api.SourceOff, api.SourcePartial,
			1, 1},
		"one has a log, and one has not": {[]ledger.EnvoyStatus{loud, logs}, api.SourcePartial, api.SourceOK, 0,
			0},
		"one has a log, and one is idle": {[]ledger.EnvoyStatus{quiet, logs}, api.SourceOK, api.SourcePartial,
			1, 1},
		"all logs broke, and requests go on": {[]ledger.EnvoyStatus{broke, broke}, api.SourceDown, api.SourceOK, 0,
			0},
		"all are silent": {[]ledger.EnvoyStatus{silent, silent}, api.SourceDown, api.SourceDown,
			0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var watchers []ledger.Envoy
			known := make(map[ledger.Envoy]ledger.EnvoyStatus)
			for i, e := range c.envoys {
				id := ledger.Envoy{NodeID: fmt.Sprint(i)}
				watchers, known[id] = append(watchers, id), e
			}
			log := source(api.SourceAccessLog, watchers, known, logState)
			reports := source(api.SourceLoadReports, watchers, known, loadReportState)
			if log.State != c.log || reports.State != c.reports {
				t.Errorf("log %v, reports %v; want %v and %v", log.State, reports.State, c.log, c.reports)
			}
			if int(log.Envoys.Idle.Or(-1)) != c.logIdle || len(reports.Envoys.Missing) != c.reportMissing {
				t.Errorf("%+v and %+v", log.Envoys, reports.Envoys)
			}
		})
	}
}

func TestAnEnvoyWithOnlyLoadReportsIsShownAsThat(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		status ledger.EnvoyStatus
		want   api.SignalMode
	}{
		"nothing yet":  {ledger.EnvoyStatus{}, ""},
		"reports only": {ledger.EnvoyStatus{LastReport: now}, api.ModeReports},
		"a log":        {ledger.EnvoyStatus{LastReport: now, Streams: 1}, api.ModeEvents},
		"a busy log":   {ledger.EnvoyStatus{LastReport: now, Streams: 1, Mode: ledger.ModeBatched}, api.ModeBatched},
		"too busy":     {ledger.EnvoyStatus{LastReport: now, Streams: 1, Mode: ledger.ModeReports}, api.ModeReports},
	} {
		if got := viewSignals(c.status).Mode; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// reporter is an Envoy's stream of load reports.
type reporter struct {
	loadstatsv3.LoadReportingService_StreamLoadStatsClient
	t    *testing.T
	node string
}

func openReports(t *testing.T, address, node string) reporter {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	stream, err := loadstatsv3.NewLoadReportingServiceClient(grpctest.Connect(t, address)).StreamLoadStats(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r := reporter{stream, t, node}
	r.report(0)
	return r
}

// report reports requests in progress, and as many issued.
func (r reporter) report(n uint64) {
	r.t.Helper()
	m := &loadstatsv3.LoadStatsRequest{Node: &corev3.Node{Id: r.node}}
	if n > 0 {
		m.ClusterStats = []*endpointv3.ClusterStats{{ClusterName: "llama",
			UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{{
				UpstreamEndpointStats: []*endpointv3.UpstreamEndpointStats{{
					Address: socket("10.0.0.1", 80), TotalRequestsInProgress: n, TotalIssuedRequests: n,
				}},
			}}}}
	}
	if err := r.Send(m); err != nil {
		r.t.Fatal(err)
	}
}

// asked waits for the next response.
func (r reporter) asked() time.Duration {
	r.t.Helper()
	m, err := r.Recv()
	if err != nil {
		r.t.Fatal(err)
	}
	return m.GetLoadReportingInterval().AsDuration()
}

func (r reporter) mustBeAsked(want time.Duration) {
	r.t.Helper()
	if got := r.asked(); got != want {
		r.t.Errorf("asked for a report every %v, want %v", got, want)
	}
}

// TestOnlyAnEnvoyWithoutALogIsAskedForReportsOften: on the open stream, when it turns
// out that it has none, and again when it has one.
func TestOnlyAnEnvoyWithoutALogIsAskedForReportsOften(t *testing.T) {
	cfg := parse(t, pool)
	d, _ := serve(t, cfg)
	address := d.XDSAddress()
	watch(t, d, "logged", "without-log")
	logged, withoutLog := openReports(t, address, "logged"), openReports(t, address, "without-log")
	logged.mustBeAsked(time.Second)
	withoutLog.mustBeAsked(time.Second) // it has no requests yet
	begin(t, address, "logged", "10.0.0.1", 80)
	eventually(t, "the log is open", func() error {
		if got := d.signals.ledger.Totals().Received; got != 1 {
			return fmt.Errorf("%d entries", got)
		}
		return nil
	})
	withoutLog.report(3)
	withoutLog.mustBeAsked(100 * time.Millisecond)
	logged.report(3)
	if got := d.signals.ledger.Reporters(); got != (ledger.Reporters{WithAccessLog: 1, ReportsOnly: 1}) {
		t.Errorf("%+v", got)
	}
	intervals := d.signals.totals(time.Now()).ReportIntervalsSeconds
	if intervals[api.SourceAccessLog].Or(0) != 1 || intervals[api.SourceLoadReports].Or(0) != 0.1 {
		t.Errorf("%v", intervals)
	}
	begin(t, address, "without-log", "10.0.0.1", 80)
	eventually(t, "its log is open", func() error {
		if got := d.signals.ledger.Reporters(); got.ReportsOnly != 0 {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	withoutLog.report(4)
	withoutLog.mustBeAsked(time.Second)
}

// TestAnEnvoyThatWatchesNothingIsAskedForReportsRarelyAndCostsOthersNothing: but at first as if it did, and
// again when it does.
func TestAnEnvoyThatWatchesNothingIsAskedForReportsRarelyAndCostsOthersNothing(t *testing.T) {
	cfg := parse(t, pool)
	cfg.XDS.LoadReports.Budget = 61_000 // one report a second
	d, _ := serve(t, cfg)
	address := d.XDSAddress()
	watch(t, d, "first")
	first := openReports(t, address, "first")
	first.mustBeAsked(time.Second)
	eventually(t, "it is counted", func() error {
		if got := d.signals.ledger.Reporters(); got.WithAccessLog != 1 {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	late := openReports(t, address, "late")
	late.mustBeAsked(2 * time.Second)
	for i := range 8 {
		openReports(t, address, fmt.Sprint("made up ", i)).mustBeAsked(2 * time.Second)
	}
	late.report(0)
	late.mustBeAsked(unwatching)
	watch(t, d, "late")
	for _, r := range []reporter{late, first} { // whose reports are small, and so the mean is
		r.report(0)
		if got := r.asked(); got < 1900*time.Millisecond || got > 2*time.Second {
			t.Errorf("asked for a report every %v, want some 2s", got)
		}
	}
}

// TestLargeReportsAreAskedForLessOften: the budget is one of bytes.
func TestLargeReportsAreAskedForLessOften(t *testing.T) {
	cfg := parse(t, pool)
	cfg.XDS.LoadReports.Budget = 61_000
	d, _ := serve(t, cfg)
	watch(t, d, "envoy")
	r := openReports(t, d.XDSAddress(), "envoy")
	r.mustBeAsked(time.Second)
	large := &loadstatsv3.LoadStatsRequest{Node: &corev3.Node{Id: "envoy", Cluster: strings.Repeat("x", 3*61_000)}}
	for range 300 {
		if err := r.Send(large); err != nil {
			t.Fatal(err)
		}
	}
	for asked := time.Second; asked < 2500*time.Millisecond; {
		asked = r.asked()
	}
}

// TestWithoutTheAccessLogAllAreAskedForReportsOften: from the start.
func TestWithoutTheAccessLogAllAreAskedForReportsOften(t *testing.T) {
	cfg := parse(t, pool)
	cfg.XDS.AccessLog.Disabled = true
	d, _ := serve(t, cfg)
	openReports(t, d.XDSAddress(), "envoy").mustBeAsked(100 * time.Millisecond)
}

// TestSizesOfRequestsReachTheLoop: the sizes that the access log has, and the number of requests that have one.
func TestSizesOfRequestsReachTheLoop(t *testing.T) {
	streams := xds.NewServer(xds.Options{Log: slog.New(slog.DiscardHandler)})
	defer streams.Close()
	s := newSignals(Options{Log: slog.New(slog.DiscardHandler)}, parse(t, pool).XDS, streams, nil, func(string) {})
	s.link = replicas.New("test", replicas.Options{})
	s.setMembers(map[string]membership{"llama": {endpoints: []discovery.Endpoint{{Address: "10.0.0.1:80"}}}})
	now := time.Now()
	s.tick(now) // takes the watchers from the streams, which have none
	who := ledger.Envoy{NodeID: "a", Host: "127.0.0.1"}
	s.ledger.SetWatchers("llama", []ledger.Envoy{who})
	address := []byte("10.0.0.1:80")
	s.ledger.Open(who, now).Events(now, []ledger.Event{
		{Address: address, Body: ledger.Size{Bytes: 700, Known: true}},
		{Address: address, Body: ledger.Size{Bytes: 3, Known: true}}, {Address: address},
	})
	c := s.Counts("llama", now, nil).Endpoints[0]
	if r := c.Proxies; r.Sized.Value != 2 || r.SizedBytes.Value != 703 || r.Issued.Value != 3 || r.Sized.At != now {
		t.Errorf("%+v", c)
	}
}

// TestATickFollowsTheWatchersAndNoReadDoes: and a cluster that was gone and is back has its Envoys again.
func TestATickFollowsTheWatchersAndNoReadDoes(t *testing.T) {
	streams := xds.NewServer(xds.Options{Log: slog.New(slog.DiscardHandler)})
	defer streams.Close()
	address, _ := grpctest.Serve(t, streams.Register)
	s := newSignals(Options{Log: slog.New(slog.DiscardHandler)}, parse(t, pool).XDS, streams, nil, func(string) {})
	s.link = replicas.New("test", replicas.Options{})
	s.setMembers(map[string]membership{"llama": {}, "other": {}})
	subscribe(t, address, "a", "llama")
	subscribe(t, address, "b", "other")
	eventually(t, "two Envoys subscribe", func() error {
		if len(streams.Watchers("llama"))+len(streams.Watchers("other")) < 2 {
			return errors.New("not yet")
		}
		return nil
	})
	expect := func(when string, llama, other int) {
		t.Helper()
		for name, want := range map[string]int{"llama": llama, "other": other} {
			if got := s.ledger.Cluster(name, time.Now()).Watching; got != want {
				t.Errorf("%s: %s is watched by %d, want %d", when, name, got, want)
			}
		}
	}
	s.Counts("llama", time.Now(), nil)
	expect("after a read", 0, 0)
	s.tick(time.Now())
	expect("after a tick", 1, 1)
	s.setMembers(map[string]membership{"llama": {}})
	expect("without the other", 1, 0)
	s.setMembers(map[string]membership{"llama": {}, "other": {}})
	s.Counts("unknown", time.Now(), nil)
	s.tick(time.Now())
	expect("with the other again", 1, 1)
}
