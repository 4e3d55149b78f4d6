package admin

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"steelyard/controlplane/admin/conditions"
	"steelyard/controlplane/admin/current"
	"steelyard/controlplane/admin/metrics"
	"steelyard/internal/api"
)

// used are metrics in which every method was called once.
func used() *metrics.Metrics {
	m := metrics.NewMetrics("1.2.3")
	m.ScrapeDone("llama", "ok", 4*time.Millisecond, 60000)
	m.ScrapeDone("llama", "timeout", 200*time.Millisecond, -1)
	m.Polled(true, time.Millisecond)
	m.Polled(false, 80*time.Millisecond)
	m.KubernetesRequested("endpointslices", "watch", "ok")
	m.KubernetesRequested("pods", "list", "forbidden")
	m.Ignored("llama", 3)
	m.Stepped("llama", 100*time.Microsecond)
	m.OverloadChanged("llama", true)
	m.OverloadChanged("llama", false)
	m.Pushed("llama", "changed")
	m.Suppressed("llama", "deadband")
	m.Acked("llama", 5*time.Millisecond)
	m.Nacked("llama")
	m.Waited("llama", "batch", "granted", 3*time.Millisecond)
	m.Waited("llama", "batch", "released", time.Second)
	m.Waited("llama", "batch", "full", 0)
	m.Waited("llama", "batch", "timeout", time.Minute)
	m.Left("llama", "batch")
	m.Reloaded(true)
	m.Reloaded(false)
	return m
}

func TestEveryMethodIsCounted(t *testing.T) {
	want := `
# HELP steelyard_acks_total Assignments that Envoys accepted.
# TYPE steelyard_acks_total counter
steelyard_acks_total{envoy_cluster_name="llama"} 1
# HELP steelyard_build_info Always 1; the label is the version of Steelyard.
# TYPE steelyard_build_info gauge
steelyard_build_info{version="1.2.3"} 1
# HELP steelyard_config_last_reload_successful 1 if the latest configuration was applied.
# TYPE steelyard_config_last_reload_successful gauge
steelyard_config_last_reload_successful 0
# HELP steelyard_config_reloads_total Attempts to apply a configuration.
# TYPE steelyard_config_reloads_total counter
steelyard_config_reloads_total{result="error"} 1
steelyard_config_reloads_total{result="ok"} 1
# HELP steelyard_decisions_total Steps of the weighting law.
# TYPE steelyard_decisions_total counter
steelyard_decisions_total{envoy_cluster_name="llama"} 1
# HELP steelyard_inflight_ignored_members Members of the in-flight set that are no endpoints.
# TYPE steelyard_inflight_ignored_members gauge
steelyard_inflight_ignored_members{envoy_cluster_name="llama"} 3
# HELP steelyard_nacks_total Assignments that Envoys refused.
# TYPE steelyard_nacks_total counter
steelyard_nacks_total{envoy_cluster_name="llama"} 1
# HELP steelyard_overload_changes_total Endpoints that entered or left the overload flag.
# TYPE steelyard_overload_changes_total counter
steelyard_overload_changes_total{change="entered",envoy_cluster_name="llama"} 1
steelyard_overload_changes_total{change="left",envoy_cluster_name="llama"} 1
# HELP steelyard_pushes_total Assignments handed to the streams, by what caused them.
# TYPE steelyard_pushes_total counter
steelyard_pushes_total{envoy_cluster_name="llama",reason="changed"} 1
# HELP steelyard_redis_polls_total Reads of the in-flight counts.
# TYPE steelyard_redis_polls_total counter
steelyard_redis_polls_total{result="error"} 1
steelyard_redis_polls_total{result="ok"} 1
# HELP steelyard_scrapes_total Scrapes of model servers.
# TYPE steelyard_scrapes_total counter
steelyard_scrapes_total{envoy_cluster_name="llama",result="ok"} 1
steelyard_scrapes_total{envoy_cluster_name="llama",result="timeout"} 1
# HELP steelyard_suppressed_pushes_total Decisions that were not pushed.
# TYPE steelyard_suppressed_pushes_total counter
steelyard_suppressed_pushes_total{envoy_cluster_name="llama",reason="deadband"} 1
`
	var names []string
	for _, m := range regexp.MustCompile(`# TYPE (\S+)`).FindAllStringSubmatch(want, -1) {
		names = append(names, m[1])
	}
	if err := testutil.GatherAndCompare(used().Registry(), strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

// histogram returns how many values a histogram has seen, and their sum.
func histogram(t *testing.T, g prometheus.Gatherer, name string) (uint64, float64) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			h := f.GetMetric()[0].GetHistogram()
			return h.GetSampleCount(), h.GetSampleSum()
		}
	}
	t.Fatalf("no histogram %s", name)
	return 0, 0
}

func TestDurationsAndSizesAreHistogramsInBaseUnits(t *testing.T) {
	m := used()
	for name, want := range map[string]struct {
		CountEndpoints uint64
		sum            float64
	}{
		"steelyard_scrape_duration_seconds":     {2, 0.204},
		"steelyard_scrape_body_bytes":           {1, 60000},
		"steelyard_redis_poll_duration_seconds": {2, 0.081},
		"steelyard_step_duration_seconds":       {1, 0.0001},
		"steelyard_ack_delay_seconds":           {1, 0.005},
	} {
		count, sum := histogram(t, m.Registry(), name)
		if count != want.CountEndpoints || fmt.Sprintf("%.6g", sum) != fmt.Sprintf("%.6g", want.sum) {
			t.Errorf("%s: %d values, sum %v, want %d and %v", name, count, sum, want.CountEndpoints, want.sum)
		}
	}
}

// gauge is the value of a gauge without labels.
func gauge(t *testing.T, m *metrics.Metrics, name string) float64 {
	t.Helper()
	families, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}

func TestAReloadThatWorkedIsDated(t *testing.T) {
	m := metrics.NewMetrics("")
	if got := gauge(t, m, "steelyard_config_last_reload_success_timestamp_seconds"); got != 0 {
		t.Errorf("before the first: %v", got)
	}
	before := time.Now()
	m.Reloaded(true)
	at := gauge(t, m, "steelyard_config_last_reload_success_timestamp_seconds")
	if at < float64(before.Unix()) || at > float64(time.Now().Unix()+1) {
		t.Errorf("dated %v", at)
	}
	m.Reloaded(false)
	if got := gauge(t, m, "steelyard_config_last_reload_success_timestamp_seconds"); got != at {
		t.Errorf("a failure moved the date of the success to %v", got)
	}
	if got := gauge(t, m, "steelyard_config_last_reload_successful"); got != 0 {
		t.Errorf("successful is %v after a failure", got)
	}
}

func TestForgetDropsEverySeriesOfACluster(t *testing.T) {
	m := used()
	m.Stepped("other", time.Millisecond)
	m.Forget("llama")
	families, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var others int
	for _, f := range families {
		for _, s := range f.GetMetric() {
			for _, l := range s.GetLabel() {
				if l.GetName() == "envoy_cluster_name" && l.GetValue() == "llama" {
					t.Errorf("%s is still there", f.GetName())
				}
				if l.GetValue() == "other" {
					others++
				}
			}
		}
	}
	if others != 2 {
		t.Errorf("%d series of the other cluster, want 2", others)
	}
}

// state collects the series about a source.
func state(f fixed, maxSeries int) *prometheus.Registry {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(&metrics.Collector{MaxSeries: maxSeries, State: func() *current.Snapshot {
		return &current.Snapshot{Source: f, Seen: conditions.Observation{Now: noon, Clients: f.clients}}
	}})
	return r
}

func TestStateIsReadFromTheSource(t *testing.T) {
	want := `
# HELP steelyard_cluster_endpoints Endpoints, by the main cause of their share.
# TYPE steelyard_cluster_endpoints gauge
steelyard_cluster_endpoints{envoy_cluster_name="llama",reason="blackout"} 1
steelyard_cluster_endpoints{envoy_cluster_name="llama",reason="decay"} 1
steelyard_cluster_endpoints{envoy_cluster_name="llama",reason="fill"} 3
steelyard_cluster_endpoints{envoy_cluster_name="llama",reason="floor"} 1
steelyard_cluster_endpoints{envoy_cluster_name="llama",reason="neutral"} 1
steelyard_cluster_endpoints{envoy_cluster_name="llama",reason="ramp"} 1
steelyard_cluster_endpoints{envoy_cluster_name="mixtral",reason="blackout"} 2
# HELP steelyard_cluster_ready 1 when the cluster has weights to push, or no endpoints.
# TYPE steelyard_cluster_ready gauge
steelyard_cluster_ready{envoy_cluster_name="llama"} 1
steelyard_cluster_ready{envoy_cluster_name="mixtral"} 0
# HELP steelyard_source_up 0 when the source is down, else 1.
# TYPE steelyard_source_up gauge
steelyard_source_up{envoy_cluster_name="llama",source="access_log"} 1
steelyard_source_up{envoy_cluster_name="llama",source="discovery"} 1
steelyard_source_up{envoy_cluster_name="llama",source="load_reports"} 1
steelyard_source_up{envoy_cluster_name="llama",source="redis"} 0
steelyard_source_up{envoy_cluster_name="llama",source="scrape"} 1
steelyard_source_up{envoy_cluster_name="mixtral",source="scrape"} 0
# HELP steelyard_arrival_requests_per_second Requests per second expected at the cluster.
# TYPE steelyard_arrival_requests_per_second gauge
steelyard_arrival_requests_per_second{envoy_cluster_name="llama"} 41.7
# HELP steelyard_horizon_seconds Time that a decision looks ahead.
# TYPE steelyard_horizon_seconds gauge
steelyard_horizon_seconds{envoy_cluster_name="llama"} 0.31
# HELP steelyard_water_level Level up to which endpoints are filled.
# TYPE steelyard_water_level gauge
steelyard_water_level{envoy_cluster_name="llama"} 1.13
# HELP steelyard_drop_ratio Part of the requests that Envoys have to refuse.
# TYPE steelyard_drop_ratio gauge
steelyard_drop_ratio{envoy_cluster_name="llama"} 0
# HELP steelyard_report_age_seconds Age of the oldest value of a field.
# TYPE steelyard_report_age_seconds gauge
steelyard_report_age_seconds{envoy_cluster_name="llama",field="in_flight"} 42.03
steelyard_report_age_seconds{envoy_cluster_name="llama",field="queue"} 14.03
steelyard_report_age_seconds{envoy_cluster_name="llama",field="running"} 14.03
steelyard_report_age_seconds{envoy_cluster_name="llama",field="utilization"} 14.03
# HELP steelyard_connected_envoys Envoys with an open stream.
# TYPE steelyard_connected_envoys gauge
steelyard_connected_envoys 3
# HELP steelyard_envoy_subscriptions Envoys that subscribe to the cluster.
# TYPE steelyard_envoy_subscriptions gauge
steelyard_envoy_subscriptions{envoy_cluster_name="llama"} 3
steelyard_envoy_subscriptions{envoy_cluster_name="mixtral"} 0
# HELP steelyard_envoy_subscriptions_in_sync Envoys that accepted the latest version.
# TYPE steelyard_envoy_subscriptions_in_sync gauge
steelyard_envoy_subscriptions_in_sync{envoy_cluster_name="llama"} 2
steelyard_envoy_subscriptions_in_sync{envoy_cluster_name="mixtral"} 0
# HELP steelyard_envoy_subscriptions_refused Envoys that refused the latest version.
# TYPE steelyard_envoy_subscriptions_refused gauge
steelyard_envoy_subscriptions_refused{envoy_cluster_name="llama"} 1
steelyard_envoy_subscriptions_refused{envoy_cluster_name="mixtral"} 0
# HELP steelyard_disputed_endpoints Endpoints about which the reports of one Envoy contradict all others.
# TYPE steelyard_disputed_endpoints gauge
steelyard_disputed_endpoints{envoy_cluster_name="llama",kind="failures"} 1
steelyard_disputed_endpoints{envoy_cluster_name="llama",kind="in_flight"} 2
steelyard_disputed_endpoints{envoy_cluster_name="llama",kind="issued"} 0
steelyard_disputed_endpoints{envoy_cluster_name="mixtral",kind="failures"} 0
steelyard_disputed_endpoints{envoy_cluster_name="mixtral",kind="in_flight"} 0
steelyard_disputed_endpoints{envoy_cluster_name="mixtral",kind="issued"} 0
# HELP steelyard_source_envoys Envoys that watch the cluster: reporting, idle or missing.
# TYPE steelyard_source_envoys gauge
steelyard_source_envoys{envoy_cluster_name="llama",source="access_log",state="idle"} 0
steelyard_source_envoys{envoy_cluster_name="llama",source="access_log",state="missing"} 2
steelyard_source_envoys{envoy_cluster_name="llama",source="access_log",state="reporting"} 1
steelyard_source_envoys{envoy_cluster_name="llama",source="load_reports",state="idle"} 0
steelyard_source_envoys{envoy_cluster_name="llama",source="load_reports",state="missing"} 0
steelyard_source_envoys{envoy_cluster_name="llama",source="load_reports",state="reporting"} 3
# HELP steelyard_min_push_interval_seconds Time between two pushes, by what sets it: floor, bytes or cpu.
# TYPE steelyard_min_push_interval_seconds gauge
steelyard_min_push_interval_seconds{envoy_cluster_name="llama",reason="cpu"} 0.05
# HELP steelyard_dropped_requests_total Requests refused because of the drop ratio.
# TYPE steelyard_dropped_requests_total counter
steelyard_dropped_requests_total{envoy_cluster_name="llama"} 17
# HELP steelyard_xds_port_used Use of the limits of the xDS port.
# TYPE steelyard_xds_port_used gauge
steelyard_xds_port_used{bound="connections"} 9
steelyard_xds_port_used{bound="connections_per_address"} 9
steelyard_xds_port_used{bound="streams"} 24
steelyard_xds_port_used{bound="subscriptions"} 4
steelyard_xds_port_used{bound="unread_bytes"} 700
# HELP steelyard_xds_port_limit Limit of the same.
# TYPE steelyard_xds_port_limit gauge
steelyard_xds_port_limit{bound="connections"} 765
steelyard_xds_port_limit{bound="connections_per_address"} 573
steelyard_xds_port_limit{bound="streams"} 131072
steelyard_xds_port_limit{bound="subscriptions"} 262144
steelyard_xds_port_limit{bound="unread_bytes"} 2.68435456e+08
# HELP steelyard_xds_port_refused_total New ones refused, or connections displaced, at the limit.
# TYPE steelyard_xds_port_refused_total counter
steelyard_xds_port_refused_total{bound="connections",result="displaced"} 3
steelyard_xds_port_refused_total{bound="connections",result="refused"} 0
steelyard_xds_port_refused_total{bound="connections_per_address",result="displaced"} 0
steelyard_xds_port_refused_total{bound="connections_per_address",result="refused"} 0
steelyard_xds_port_refused_total{bound="streams",result="displaced"} 0
steelyard_xds_port_refused_total{bound="streams",result="refused"} 0
steelyard_xds_port_refused_total{bound="subscriptions",result="displaced"} 0
steelyard_xds_port_refused_total{bound="subscriptions",result="refused"} 2
steelyard_xds_port_refused_total{bound="unread_bytes",result="displaced"} 1
steelyard_xds_port_refused_total{bound="unread_bytes",result="refused"} 0
# HELP steelyard_admin_port_used Connections to the admin listener.
# TYPE steelyard_admin_port_used gauge
steelyard_admin_port_used{bound="connections"} 3
steelyard_admin_port_used{bound="connections_per_address"} 2
# HELP steelyard_admin_port_limit Limit of the same.
# TYPE steelyard_admin_port_limit gauge
steelyard_admin_port_limit{bound="connections"} 128
steelyard_admin_port_limit{bound="connections_per_address"} 96
# HELP steelyard_admin_port_refused_total Connections refused or displaced at the limit.
# TYPE steelyard_admin_port_refused_total counter
steelyard_admin_port_refused_total{bound="connections",result="displaced"} 0
steelyard_admin_port_refused_total{bound="connections",result="refused"} 0
steelyard_admin_port_refused_total{bound="connections_per_address",result="displaced"} 1
steelyard_admin_port_refused_total{bound="connections_per_address",result="refused"} 0
# HELP steelyard_xds_port_silent_streams_total Streams ended because their first message came too late.
# TYPE steelyard_xds_port_silent_streams_total counter
steelyard_xds_port_silent_streams_total 5
# HELP steelyard_xds_port_accept_errors_total Failed attempts to accept a connection.
# TYPE steelyard_xds_port_accept_errors_total counter
steelyard_xds_port_accept_errors_total 1
# HELP steelyard_access_log_entries_total Access log entries, by result: counted, ignored (not watched by the Envoy) or unpaired.
# TYPE steelyard_access_log_entries_total counter
steelyard_access_log_entries_total{result="counted"} 183185
steelyard_access_log_entries_total{result="ignored"} 12
steelyard_access_log_entries_total{result="unpaired"} 7
# HELP steelyard_reconciled_requests_total Requests that load reports added or removed.
# TYPE steelyard_reconciled_requests_total counter
steelyard_reconciled_requests_total 3
# HELP steelyard_access_log_envoys Envoys that ever reported, by mode.
# TYPE steelyard_access_log_envoys gauge
steelyard_access_log_envoys{mode="batched"} 0
steelyard_access_log_envoys{mode="events"} 1
steelyard_access_log_envoys{mode="reports"} 1
# HELP steelyard_silent_envoys Envoys whose counts are not used because they stopped reporting.
# TYPE steelyard_silent_envoys gauge
steelyard_silent_envoys 1
# HELP steelyard_load_reports_total Load reports received.
# TYPE steelyard_load_reports_total counter
steelyard_load_reports_total 10741
# HELP steelyard_load_report_interval_seconds Time between two load reports, by what counts the requests.
# TYPE steelyard_load_report_interval_seconds gauge
steelyard_load_report_interval_seconds{counted_by="access_log"} 1
steelyard_load_report_interval_seconds{counted_by="load_reports"} 0.1
# HELP steelyard_log_lines_dropped_total Lines of the log that were not written.
# TYPE steelyard_log_lines_dropped_total counter
steelyard_log_lines_dropped_total 17
# HELP steelyard_signal_streams Open streams over which Envoys report their requests.
# TYPE steelyard_signal_streams gauge
steelyard_signal_streams{source="access_log"} 4
steelyard_signal_streams{source="load_reports"} 2
# HELP steelyard_signal_streams_ended_total Streams of Envoys' reports that were refused or broken.
# TYPE steelyard_signal_streams_ended_total counter
steelyard_signal_streams_ended_total{result="broken",source="access_log"} 0
steelyard_signal_streams_ended_total{result="broken",source="load_reports"} 3
steelyard_signal_streams_ended_total{result="refused",source="access_log"} 1
steelyard_signal_streams_ended_total{result="refused",source="load_reports"} 0
`
	var names []string
	for _, m := range regexp.MustCompile(`# TYPE (\S+)`).FindAllStringSubmatch(want, -1) {
		names = append(names, m[1])
	}
	if err := testutil.GatherAndCompare(state(typical(noon), 100), strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

func TestSignalsThatAreNotTakenInHaveNoSeries(t *testing.T) {
	for name, c := range map[string]struct {
		totals api.SignalTotals
		series []string
	}{
		"neither": {api.SignalTotals{}, nil},
		"access log": {api.SignalTotals{AccessLog: true},
			[]string{"steelyard_access_log_entries_total", "steelyard_access_log_envoys", "steelyard_silent_envoys"}},
		"load reports": {api.SignalTotals{LoadReports: true},
			[]string{"steelyard_access_log_envoys", "steelyard_load_reports_total", "steelyard_silent_envoys"}},
	} {
		t.Run(name, func(t *testing.T) {
			families, err := state(fixed{status: api.Status{Signals: c.totals}}, 0).Gather()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			always := []string{"steelyard_connected_envoys", "steelyard_gone_envoys",
				"steelyard_admin_denied_requests_total", "steelyard_admin_refused_requests_total",
				"steelyard_log_lines_dropped_total", "steelyard_pickers",
				"steelyard_picker_shared_prompts_total", "steelyard_envoy_series_dropped"}
			for _, f := range families {
				if name := f.GetName(); !slices.Contains(always, name) &&
					!strings.HasPrefix(name, "steelyard_xds_port_") &&
					!strings.HasPrefix(name, "steelyard_admin_port_") {
					got = append(got, f.GetName())
				}
			}
			if diff := cmp.Diff(c.series, got); diff != "" {
				t.Errorf("series (-want +got):\n%s", diff)
			}
		})
	}
}

// seriesOf returns "name value" of all series with that endpoint.
func seriesOf(t *testing.T, g prometheus.Gatherer, endpoint string) []string {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, f := range families {
		for _, s := range f.GetMetric() {
			for _, l := range s.GetLabel() {
				if l.GetName() == "endpoint" && l.GetValue() == endpoint {
					out = append(out, fmt.Sprintf("%s %.6g", f.GetName(),
						s.GetGauge().GetValue()+s.GetCounter().GetValue()))
				}
			}
		}
	}
	return out
}

func TestEndpointSeriesLeaveOutWhatIsUnknown(t *testing.T) {
	for endpoint, want := range map[string][]string{
		"10.0.0.2:8000": {
			"steelyard_endpoint_capacity 8", "steelyard_endpoint_capacity_ratio 0.125",
			"steelyard_endpoint_completed_requests_total 9200",
			"steelyard_endpoint_error_requests_total 3", "steelyard_endpoint_failed_requests_total 2",
			"steelyard_endpoint_failed_share_age_seconds 0.2", "steelyard_endpoint_failed_share_ratio 0.01",
			"steelyard_endpoint_hashed_requests_total 801",
			"steelyard_endpoint_implausible_readings_total 2", "steelyard_endpoint_in_flight 50",
			"steelyard_endpoint_latency_age_seconds 0.03", "steelyard_endpoint_latency_seconds 0.91",
			"steelyard_endpoint_load 50", "steelyard_endpoint_load_per_slot 6.25", "steelyard_endpoint_outlier 0",
			"steelyard_endpoint_overloaded 1", "steelyard_endpoint_probed 0", "steelyard_endpoint_prompt_tokens 700",
			"steelyard_endpoint_queue 42", "steelyard_endpoint_relative_speed_ratio 0.95",
			"steelyard_endpoint_report_age_seconds 42.03", "steelyard_endpoint_requests_total 9100",
			"steelyard_endpoint_response_bytes 1600",
			"steelyard_endpoint_response_bytes_age_seconds 0.4",
			"steelyard_endpoint_share_ratio 0.012", "steelyard_endpoint_weight 12000",
			"steelyard_endpoint_work_seconds 0.59375",
		},
		"10.0.0.5:8000": {"steelyard_endpoint_capacity 8", "steelyard_endpoint_capacity_ratio 0.125",
			"steelyard_endpoint_load 9", "steelyard_endpoint_load_per_slot 1.125",
			"steelyard_endpoint_outlier 0", "steelyard_endpoint_overloaded 0", "steelyard_endpoint_probed 0",
			"steelyard_endpoint_prompt_tokens 2800", "steelyard_endpoint_relative_speed_ratio 1",
			"steelyard_endpoint_share_ratio 0.02",
			"steelyard_endpoint_weight 20000",
			"steelyard_endpoint_work_seconds 0.106875"},
		"10.0.1.1:8000": {
			"steelyard_endpoint_outlier 0", "steelyard_endpoint_overloaded 0", "steelyard_endpoint_probed 0",
		},
		"10.9.9.9:8000": {},
	} {
		if diff := cmp.Diff(want, seriesOf(t, state(typical(noon), 100), endpoint)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", endpoint, diff)
		}
	}
}

func TestSeriesOfAVanishedEndpointVanish(t *testing.T) {
	f := typical(noon)
	r := state(f, 100)
	if got := seriesOf(t, r, "10.0.0.8:8000"); len(got) == 0 {
		t.Fatal("no series at first")
	}
	f.clusters[0].Endpoints = f.clusters[0].Endpoints[:7] // the same array that the registry reads
	if got := seriesOf(t, r, "10.0.0.8:8000"); len(got) != 0 {
		t.Errorf("still there: %v", got)
	}
}

func TestEndpointSeriesAreBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		max            int
		llama, mixtral int // dropped
		series         int // of steelyard_endpoint_overloaded
	}{
		"room for all":        {10, 0, 0, 10},
		"room for one less":   {9, 1, 0, 9},
		"room for a few":      {3, 7, 0, 3},
		"room for none":       {0, 8, 2, 0},
		"room for more":       {1000, 0, 0, 10},
		"exactly one cluster": {2, 8, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := state(typical(noon), tc.max)
			want := fmt.Sprintf(`
# HELP steelyard_endpoint_series_dropped Endpoints without series, because there are too many.
# TYPE steelyard_endpoint_series_dropped gauge
steelyard_endpoint_series_dropped{envoy_cluster_name="llama"} %d
steelyard_endpoint_series_dropped{envoy_cluster_name="mixtral"} %d
`, tc.llama, tc.mixtral)
			if err := testutil.GatherAndCompare(r, strings.NewReader(want),
				"steelyard_endpoint_series_dropped"); err != nil {
				t.Error(err)
			}
			if n, err := testutil.GatherAndCount(r, "steelyard_endpoint_overloaded"); err != nil || n != tc.series {
				t.Errorf("%d series, %v, want %d", n, err, tc.series)
			}
		})
	}
}

func TestHostileLabelsDoNotBreakTheScrape(t *testing.T) {
	m := used()
	m.ScrapeDone(hostile, hostile, time.Second, 1)
	h := New(Options{Source: hostileSource(), Metrics: m, Version: hostile})
	a := ask(t, h, http.MethodGet, "/metrics")
	if a.code != 200 || !strings.Contains(a.body, `steelyard_endpoint_weight{envoy_cluster_name="mixtral"`) &&
		!strings.Contains(a.body, "steelyard_cluster_ready") {
		t.Fatalf("got %d:\n%.2000s", a.code, a.body)
	}
	problems, err := promlint.New(strings.NewReader(a.body)).Lint()
	if err != nil {
		t.Errorf("the text cannot be read back: %v", err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestASeriesTwiceDoesNotBlindTheOthers(t *testing.T) {
	f := typical(noon)
	f.clusters[0].Endpoints[1].Address = f.clusters[0].Endpoints[0].Address
	a := ask(t, handlerOf(f), http.MethodGet, "/metrics")
	if a.code != 200 || !strings.Contains(a.body, "steelyard_connected_envoys 3") ||
		!strings.Contains(a.body, "go_goroutines") {
		t.Fatalf("got %d:\n%.500s", a.code, a.body)
	}
}

// metricsText is /metrics with every series that there is.
func metricsText(t *testing.T) string {
	t.Helper()
	source := typical(noon)
	e := &source.clusters[0].Endpoints[0]
	e.Override = &api.Override{Kind: api.OverrideDrain, Until: api.At(noon)}
	e.Namespace, e.Pod, e.Node = "models", "vllm-0", "gpu-1"
	owner := &source.clusters[0].Queue.Owner
	owner.Epoch, owner.Since = api.Num(2), api.At(noon)
	o := optionsOf(source)
	o.Metrics = used()
	a := ask(t, New(o), http.MethodGet, "/metrics")
	if a.code != 200 {
		t.Fatalf("got %d: %s", a.code, a.body)
	}
	return a.body
}

func TestMetricsAreLintClean(t *testing.T) {
	problems, err := promlint.New(strings.NewReader(metricsText(t))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// promtool finds the real one, as make tools installs it.
func promtool(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("PROMTOOL"); path != "" {
		return path
	}
	path, err := filepath.Abs("../../.tools/bin/promtool")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		return path
	}
	path, err = exec.LookPath("promtool")
	if err != nil {
		t.Fatal("promtool is missing: run `make tools`, or set PROMTOOL to one")
	}
	return path
}

func TestPromtoolAcceptsTheMetrics(t *testing.T) {
	check := exec.CommandContext(t.Context(), promtool(t), "check", "metrics")
	check.Stdin = strings.NewReader(metricsText(t))
	var out bytes.Buffer
	check.Stdout, check.Stderr = &out, &out
	if err := check.Run(); err != nil || out.Len() > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out.String())
	}
}

func TestOpenMetricsIsOffered(t *testing.T) {
	h := handlerOf(typical(noon))
	a := askWith(h, "/metrics", "Accept", "application/openmetrics-text; version=1.0.0")
	if !strings.HasPrefix(a.header.Get("Content-Type"), "application/openmetrics-text") ||
		!strings.HasSuffix(a.body, "# EOF\n") {
		t.Errorf("got %s", a.header.Get("Content-Type"))
	}
}

func TestMetricsAreSafeForConcurrentUse(t *testing.T) {
	m := used()
	h := New(Options{Source: typical(noon), Metrics: m})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 20 {
				m.ScrapeDone(fmt.Sprint(i), "ok", time.Millisecond, 1)
				m.Forget(fmt.Sprint((i + 1) % 4))
				askWith(h, "/metrics", "Accept", "text/plain")
				askWith(h, "/", "Accept", "text/html")
			}
		})
	}
	wg.Wait()
}
