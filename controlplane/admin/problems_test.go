package admin

import (
	"strings"
	"testing"
	"time"

	"steelyard/controlplane/view"
	"steelyard/internal/stat"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestEndpointProblems(t *testing.T) {
	failed := view.Scrape{Error: "timeout"}
	for name, tc := range map[string]struct {
		in   view.Endpoint
		want []view.Problem
	}{
		"healthy":      {view.Endpoint{Reason: "fill"}, []view.Problem{}},
		"fully loaded": {view.Endpoint{Reason: "floor"}, []view.Problem{}},
		"one scrape lost": {view.Endpoint{Reason: "fill", LastScrape: failed,
			Inputs: []view.Input{{Field: "queue", State: "stuck"}, {Field: "running", State: "hold"}}},
			[]view.Problem{}},
		"scrapes fail": {view.Endpoint{Reason: "fill", LastScrape: failed,
			Inputs: []view.Input{{Field: "queue", State: "unknown"}, {Field: "in_flight", State: "fresh"}}},
			[]view.Problem{warning("latest scrape failed: timeout")}},
		"going stale": {view.Endpoint{Reason: "decay", LastScrape: failed},
			[]view.Problem{warning("report is going stale: moving to the pool's median: timeout")}},
		"stale": {view.Endpoint{Reason: "neutral"},
			[]view.Problem{failure("No usable metrics for a:1: It is treated as a median endpoint.")}},
		"stale, and its scrapes fail": {view.Endpoint{Reason: "neutral", LastScrape: failed},
			[]view.Problem{failure("No usable metrics for a:1: It is treated as a median endpoint: timeout.")}},
		"unreadable": {view.Endpoint{Reason: "decay", LastScrape: failed, LoadSource: "fused",
			Inputs: []view.Input{{Field: "queue", State: "decay"}}},
			[]view.Problem{warning("The metrics of a:1 cannot be read: Timeout. The Envoys' in-flight counts are " +
				"used instead.")}},
		"unused": {view.Endpoint{Reason: "unused"},
			[]view.Problem{warning("Nothing is sent to a:1: Others get requests, by their metrics, and no Envoy here " +
				"asks for llama.")}},
		"new": {view.Endpoint{Reason: "blackout"}, []view.Problem{warning("new, and no report yet")}},
		"new, unreachable": {view.Endpoint{Reason: "blackout", LastScrape: failed},
			[]view.Problem{warning("new, and no report yet: timeout")}},
		"overloaded": {
			view.Endpoint{Reason: "floor", Overloaded: true, OverloadReason: "queue 5 per slot"},
			[]view.Problem{warning("overloaded: queue 5 per slot")},
		},
		"asleep": {
			view.Endpoint{Reason: "asleep", Overloaded: true, OverloadReason: "asleep: its metrics show it"},
			[]view.Problem{warning("asleep: its metrics show it")},
		},
		"an outlier": {
			view.Endpoint{Reason: "failing", Outlier: true, Overloaded: true, OverloadReason: "failing: 3 of 4"},
			[]view.Problem{failure("a:1 fails its requests: Failing: 3 of 4. Envoys are asked to prefer others, and " +
				"it is tried again by itself.")},
		},
		"a number in doubt": {
			view.Endpoint{Reason: "fill", LastScrape: view.Scrape{Doubt: "app_queue occurs twice"}},
			[]view.Problem{warning("a number of its metrics is unknown: app_queue occurs twice")},
		},
		"a wrong counter": {
			view.Endpoint{Reason: "fill", WrongCounters: "vllm:x_total fell, and the server has not restarted",
				LastWrongCounters: view.At(noon.Add(-59 * time.Second))},
			[]view.Problem{warning("A counter of a:1 is wrong: Of its metrics page, vllm:x_total fell, and the " +
				"server has not restarted. It is unknown until it goes on from where it was, for ten seconds at " +
				"most; " +
				"everything else of that page is used.")},
		},
		"a wrong counter long ago": {view.Endpoint{Reason: "fill", WrongCounters: "x fell",
			LastWrongCounters: view.At(noon.Add(-time.Minute))}, []view.Problem{}},
		"several servers behind one address": {
			view.Endpoint{Reason: "fill", CountersGoBack: true, WrongCounters: "x fell",
				LastWrongCounters: view.At(noon)},
			[]view.Problem{warning("Several servers seem to answer at a:1: The counters of its metrics go back again " +
				"and again, all of them at once; its counts of tokens are not used.")},
		},
		"overloaded and stale": {
			view.Endpoint{Reason: "neutral", Overloaded: true},
			[]view.Problem{failure("No usable metrics for a:1: It is treated as a median endpoint."),
				warning("overloaded")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.in.Address = "a:1"
			got := endpointProblems(&observation{now: noon}, &view.Cluster{Name: "llama"}, &tc.in)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestClusterProblems(t *testing.T) {
	healthy := view.Cluster{Name: "llama", Ready: true, Counts: view.EndpointCounts{Total: 8},
		Decision: view.Decision{At: view.At(noon)}}
	with := func(change func(*view.Cluster)) view.Cluster {
		c := healthy
		change(&c)
		return c
	}
	for name, tc := range map[string]struct {
		in   view.Cluster
		want []view.Problem
	}{
		"healthy": {healthy, []view.Problem{}},
		"not ready": {with(func(c *view.Cluster) { c.Ready, c.NotReadyReason = false, "warming up" }),
			[]view.Problem{failure("Cluster llama is not ready: warming up")}},
		"not ready, without a word": {
			with(func(c *view.Cluster) { c.Ready = false }), []view.Problem{failure("Cluster llama is not ready: no " +
				"reason given")},
		},
		"empty": {with(func(c *view.Cluster) { c.Counts.Total = 0 }),
			[]view.Problem{failure("Cluster llama has no endpoints: Discovery has found none, so Envoys have nowhere " +
				"to send its requests.")}},
		"stuck": {with(func(c *view.Cluster) { c.Decision.At = view.At(noon.Add(-6 * time.Second)) }),
			[]view.Problem{failure("Cluster llama gets no new decisions: The latest decision was made at 11:59:54 " +
				"UTC.")}},
		"slow by choice": {
			with(func(c *view.Cluster) {
				c.Decision.At, c.MinIntervalSeconds = view.At(noon.Add(-6*time.Second)), view.Num(3)
			}), []view.Problem{},
		},
		"shedding": {with(func(c *view.Cluster) { c.Decision.DropFraction = view.Num(0.123) }),
			[]view.Problem{failure("Cluster llama refuses requests: The whole pool is saturated: 12.3 % of the " +
				"requests are refused, and the others are expected to wait –.")}},
		"source down": {
			with(func(c *view.Cluster) {
				c.Sources = []view.SourceStatus{{Name: "redis", State: view.SourceDown, LastError: "refused"}}
			}),
			[]view.Problem{failure("Source redis of llama is lost: It is down, and has never worked: refused.")},
		},
		"source stale": {
			with(func(c *view.Cluster) {
				c.Sources = []view.SourceStatus{{Name: "dns", State: view.SourceStale,
					LastSuccess: view.At(noon.Add(-90 * time.Second)), LastError: "no answer"}}
			}),
			[]view.Problem{warning("Source dns of llama is lost: It fails, last worked 2 min ago: no answer. Its " +
				"last values are still in use.")},
		},
		"some Envoys do not report": {
			with(func(c *view.Cluster) {
				c.Sources = []view.SourceStatus{{Name: view.SourceAccessLog, State: view.SourcePartial,
					Envoys: view.Reporting{Expected: view.Num(3), Reporting: view.Num(2), Missing: []string{"edge-3"}}}}
			}),
			[]view.Problem{warning("Some Envoys do not report to access_log about llama: Envoys that report: 2 of 3, " +
				"without edge-3.")},
		},
		"idle Envoys": {
			with(func(c *view.Cluster) {
				c.Sources = []view.SourceStatus{{Name: view.SourceAccessLog, State: view.SourceIdle,
					Envoys: view.Reporting{Expected: view.Num(3), Reporting: view.Num(0), Idle: view.Num(3)}}}
			}),
			[]view.Problem{},
		},
		"no Envoy ever reported": {
			with(func(c *view.Cluster) {
				c.Sources = []view.SourceStatus{{Name: view.SourceAccessLog, State: view.SourceOff,
					Envoys: view.Reporting{Expected: view.Num(3), Reporting: view.Num(0)}}}
			}),
			[]view.Problem{warning("source access_log: none of 3 Envoys is configured for it")},
		},
		"no Envoy reports any more": {
			with(func(c *view.Cluster) {
				c.Sources = []view.SourceStatus{{Name: view.SourceLoadReports, State: view.SourceDown,
					LastSuccess: view.At(noon.Add(-8 * time.Second)),
					Envoys:      view.Reporting{Expected: view.Num(3), Reporting: view.Num(0)}}}
			}),
			[]view.Problem{failure("Source load_reports of llama is lost: It is down, last worked 8.0 s ago.")},
		},
		"ignored members": {
			with(func(c *view.Cluster) {
				c.Sources = []view.SourceStatus{{Name: "redis", State: view.SourceOK, IgnoredMembers: 3}}
			}),
			[]view.Problem{warning("source redis: 3 members are not endpoints of this cluster and are ignored")},
		},
		"one Envoy against all": {
			with(func(c *view.Cluster) {
				c.Disputes = []view.Dispute{
					{Kind: stat.DisputeInFlight, NodeID: "edge-3", Host: "10.0.0.9",
						Endpoints: []string{"10.0.0.1:8000", "10.0.0.2:8000"}, Requests: view.Num(2000),
						Since: view.At(noon.Add(-8 * time.Second))},
					{Kind: stat.DisputeIssued, NodeID: "edge-5", Host: "10.0.0.9",
						Endpoints: []string{"10.0.0.1:8000"}, Requests: view.Num(100_000_000),
						Since: view.At(noon.Add(-3 * time.Second))},
					{Kind: stat.DisputeFailures, NodeID: "edge-4", Host: "10.0.0.9",
						Endpoints: []string{"10.0.0.1:8000"}, Since: view.At(noon.Add(-90 * time.Second))},
				}
			}),
			[]view.Problem{
				warning("Reports of Envoy edge-3 conflict with all others: Envoy edge-3 at 10.0.0.9 has reported, " +
					"for 8.0 s, 2000 requests in progress at 2 endpoints (10.0.0.1:8000 and others), but the metrics " +
					"there contradict it: it is wrong, or these are idle streams and uploads."),
				warning("Reports of Envoy edge-5 conflict with all others: Envoy edge-5 at 10.0.0.9 has reported, " +
					"for 3.0 s, more requests to 10.0.0.1:8000 than it can have sent, 100000000 the last time. They " +
					"are not counted."),
				warning("Reports of Envoy edge-4 conflict with all others: Envoy edge-4 at 10.0.0.9 has reported, " +
					"for 2 min, that its requests to 10.0.0.1:8000 fail. At least as many other Envoys get responses " +
					"there, so no endpoint is flagged."),
			},
		},
		"failures that do not count, at an endpoint that is flagged for others": {
			with(func(c *view.Cluster) {
				c.Disputes = []view.Dispute{{Kind: stat.DisputeFailures, NodeID: "edge-4", Host: "10.0.0.9",
					Endpoints: []string{"10.0.0.1:8000"}, Since: view.At(noon.Add(-90 * time.Second))}}
				c.Endpoints = []view.Endpoint{{Address: "10.0.0.1:8000", Overloaded: true}, {Address: "10.0.0.2:8000"}}
			}),
			[]view.Problem{
				warning("Reports of Envoy edge-4 conflict with all others: Envoy edge-4 at 10.0.0.9 has reported, " +
					"for 2 min, that its requests to 10.0.0.1:8000 fail. At least as many other Envoys get responses " +
					"there; 1 of these endpoints are flagged, for what others report or for failures before that."),
			},
		},
		"half of the endpoints": {
			with(func(c *view.Cluster) {
				c.Endpoints = []view.Endpoint{{Address: "a:1", Overloaded: true, OverloadReason: "queue 5 per slot"},
					{}}
				c.Counts.Total = 2
			}),
			[]view.Problem{failure("50 % or more of llama is overloaded: 1 of 2 endpoints are. The first, a:1: queue " +
				"5 per slot.")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, clusterProblems(&observation{now: noon}, &tc.in)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestEnvoysWhoseRequestsDoNotWaitAreAProblem(t *testing.T) {
	of := func(clusters ...string) (c Client) {
		for _, name := range clusters {
			c.Subscriptions = append(c.Subscriptions, stat.Subscription{Cluster: name})
		}
		return c
	}
	clients := []Client{of("llama", "llama"), of("llama"), of("mixtral")}
	for name, tc := range map[string]struct {
		queue *stat.Queue
		want  []view.Problem
	}{
		"no queue":           {nil, []view.Problem{}},
		"all of the cluster": {&stat.Queue{Envoys: 2}, []view.Problem{}},
		"a picker for both":  {&stat.Queue{Envoys: 1, Shared: true}, []view.Problem{}},
		"one without": {&stat.Queue{Envoys: 1}, []view.Problem{warning("Not all requests of llama wait in its queue: " +
			"Requests of 1 of its 2 Envoys do not.")}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &view.Cluster{Name: "llama", Ready: true, Counts: view.EndpointCounts{Total: 1}, Queue: tc.queue}
			if diff := cmp.Diff(tc.want, clusterProblems(&observation{now: noon, clients: clients}, c)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Through the snapshot, because the problem is of a cluster and its Envoys together.
func TestSheddingThatNoEnvoyFollowsIsAProblem(t *testing.T) {
	without := []view.Problem{failure("Shedding of llama has no effect: No connected Envoy subscribes to llama, and " +
		"llama/failsafe carries no drops.")}
	asks := func(resources ...string) Client {
		var c Client
		for _, r := range resources {
			cluster, _, _ := strings.Cut(r, "/")
			c.Subscriptions = append(c.Subscriptions, stat.Subscription{Resource: r, Cluster: cluster})
		}
		return c
	}
	for name, tc := range map[string]struct {
		shedding bool
		clients  []Client
		want     []view.Problem
	}{
		"all in mode failsafe": {true,
			[]Client{asks("llama/fallback", "llama/failsafe"), asks("llama/failsafe", "llama/fallback")}, without},
		"one of another cluster sheds": {true, []Client{asks("llama/failsafe"), asks("mixtral")}, without},
		"one in mode shedding": {true, []Client{asks("llama/failsafe"), asks("llama")},
			[]view.Problem{}},
		"shedding is off":                          {false, []Client{asks("llama/failsafe")}, []view.Problem{}},
		"no Envoy asks for it":                     {true, []Client{asks("mixtral/failsafe")}, []view.Problem{}},
		"no Envoy, which has a problem of its own": {true, nil, []view.Problem{}},
	} {
		t.Run(name, func(t *testing.T) {
			llama := view.Cluster{Name: "llama", Ready: true, Shedding: tc.shedding,
				Endpoints: []view.Endpoint{{Address: "10.0.0.1:8000"}}, Decision: view.Decision{At: view.At(noon)}}
			s := snapshot{source: fixed{clusters: []view.Cluster{llama}},
				seen: observation{now: noon, clients: tc.clients}}
			c, _ := s.cluster("llama")
			if diff := cmp.Diff(tc.want, c.Problems); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestClientProblems(t *testing.T) {
	inSync := stat.Subscription{Resource: "llama", Cluster: "llama", Known: true, InSync: true, VersionSent: "v2",
		VersionAcked: "v2", LastSent: view.At(noon.Add(-time.Hour))}
	with := func(change func(*stat.Subscription)) Client {
		s := inSync
		change(&s)
		return Client{Client: stat.Client{Subscriptions: []stat.Subscription{s}}}
	}
	for name, tc := range map[string]struct {
		in   Client
		want []view.Problem
	}{
		"in sync": {with(func(*stat.Subscription) {}), []view.Problem{}},
		"refuses": {
			with(func(s *stat.Subscription) {
				s.InSync, s.Nack = false, stat.Nack{Message: "bad weight", Current: true}
			}),
			[]view.Problem{failure("Envoy edge-1 refuses the weights of llama: Its answer: bad weight")},
		},
		"refused once": {with(func(s *stat.Subscription) { s.Nack = stat.Nack{Message: "bad weight"} }),
			[]view.Problem{}},
		"silent": {
			with(func(s *stat.Subscription) {
				s.InSync, s.VersionAcked, s.LastSent = false, "v1", view.At(noon.Add(-7*time.Second))
			}),
			[]view.Problem{failure("Envoy edge-1 does not answer: It was last sent an assignment of llama 7.0 s ago, " +
				"and last accepted one never.")},
		},
		"about to answer": {
			with(func(s *stat.Subscription) {
				s.InSync, s.VersionAcked, s.LastSent = false, "v1", view.At(noon.Add(-time.Second))
			}), []view.Problem{},
		},
		"about to be sent the next": {with(func(s *stat.Subscription) { s.InSync = false }), []view.Problem{}},
		"asks for a stranger": {with(func(s *stat.Subscription) {
			s.Resource, s.Cluster, s.Known = "lama", "lama",
				false
		}), []view.Problem{warning("Envoy edge-1 subscribes to lama, which is not configured here: It gets no " +
			"endpoints for that name, and answers its requests with 503. Did its configuration mean llama?")}},
		"asks before it is ready": {with(func(s *stat.Subscription) { s.Known = false }), []view.Problem{}},
		"gave no sign of requests": {
			Client{Signals: Signals{State: SignalSilent, LastReport: view.At(noon.Add(-8 * time.Second))}},
			[]view.Problem{warning("Envoy edge-1 does not report its requests: Latest access log entry: never. " +
				"Latest load report: 8.0 s ago.")},
		},
		"shares its name in load reports": {
			Client{Signals: Signals{State: SignalOK, ReportStreams: 2}},
			[]view.Problem{warning("2 processes report load under this node id from this address, and are added up: " +
				"a hot restart, which passes, or Envoys that cannot be distinguished: give each its own node id")},
		},
		"refuses its runtime": {
			Client{Signals: Signals{Runtime: stat.Runtime{Subscribed: true, Nack: "bad value"}}},
			[]view.Problem{warning("Envoy edge-1 refuses the runtime values that switch its access log: Its answer: " +
				"bad value")},
		},
		"cannot be told from others": {Client{Client: stat.Client{Duplicates: 2}},
			[]view.Problem{warning("2 other connections use the same node id: two Envoys that cannot be " +
				"distinguished, or one that reconnected")}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.in.NodeID = "edge-1"
			p := &observation{now: noon, clusters: []view.Cluster{{Name: "llama"}}}
			if diff := cmp.Diff(tc.want, clientProblems(p, &tc.in)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestStatusProblems(t *testing.T) {
	for name, tc := range map[string]struct {
		in      Status
		clients int
		want    []view.Problem
	}{
		"well": {Status{ConfigGeneration: 1}, 1, []view.Problem{}},
		"draining": {Status{ConfigGeneration: 1, Draining: true}, 1,
			[]view.Problem{warning("draining: the process is shutting down")}},
		"no config": {Status{}, 1, []view.Problem{failure("No configuration has been applied yet: Steelyard serves " +
			"nothing before it has one.")}},
		"no Envoys": {Status{ConfigGeneration: 1}, 0, []view.Problem{warning("No Envoy is connected: Nothing follows " +
			"the weights.")}},
		"file is polled": {
			Status{ConfigGeneration: 1, ConfigWatchError: "no watches left"}, 1,
			[]view.Problem{warning("changes of the config are found by polling only: no watches left")},
		},
		"log is being written": {Status{ConfigGeneration: 1,
			Log: stat.LogStatus{StalledSeconds: view.Num(0.9), DroppedLines: 4}}, 1, []view.Problem{}},
		"log is not read": {
			Status{ConfigGeneration: 1, Log: stat.LogStatus{StalledSeconds: view.Num(12), DroppedLines: 4,
				LastDrop: view.At(noon)}}, 1,
			[]view.Problem{warning("the log has not been read for 12.0 s; 4 lines were dropped since the start: " +
				"check the reader of standard error")},
		},
		"log cannot be written": {
			Status{ConfigGeneration: 1,
				Log: stat.LogStatus{Error: "broken pipe", DroppedLines: 4, LastDrop: view.At(noon)}},
			1,
			[]view.Problem{warning("the log cannot be written, 4 lines were dropped since the start: broken pipe")},
		},
		"log lacks lines": {
			Status{ConfigGeneration: 1,
				Log: stat.LogStatus{DroppedLines: 4, LastDrop: view.At(noon.Add(-9 * time.Minute))}}, 1,
			[]view.Problem{warning("4 log lines were dropped since the start, the latest 9 min ago, because they " +
				"could not be written in time")},
		},
		"log lacked lines": {
			Status{ConfigGeneration: 1,
				Log: stat.LogStatus{DroppedLines: 4, LastDrop: view.At(noon.Add(-11 * time.Minute))}}, 1,
			[]view.Problem{},
		},
		"bad reload": {
			Status{ConfigGeneration: 3, LastReload: Reload{Error: "line 4: unknown key"}}, 1,
			[]view.Problem{warning("The latest configuration was refused: line 4: unknown key")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &observation{now: noon, status: tc.in, clients: make([]Client, tc.clients)}
			if diff := cmp.Diff(tc.want, statusProblems(p)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// well is an observation of a process in which nothing else is wrong.
func well(s Status) *observation {
	s.ConfigGeneration = 1
	return &observation{now: noon, status: s, clients: make([]Client, 1)}
}

func TestPortProblems(t *testing.T) {
	before := func(ago time.Duration) view.Time { return view.At(noon.Add(-ago)) }
	port := stat.Port{OpenFilesLimit: view.Num(1024)}
	port.Connections = stat.Bound{Used: 765, Limit: 765}
	with := func(change func(*stat.Port)) stat.Port {
		p := port
		change(&p)
		return p
	}
	for name, tc := range map[string]struct {
		in   stat.Port
		want []view.Problem
	}{
		"full": {port, nil},
		"refused": {
			with(func(p *stat.Port) { p.Connections.Refused, p.Connections.LastRefused = 7, before(3*time.Second) }),
			[]view.Problem{failure("the xDS port has reached its limit of connections: 7 refused so far, the " +
				"latest 3.0 s ago; 765 of 765 are used (xds.limits.connections; 1024 open files are allowed)")},
		},
		"refused long ago": {with(func(p *stat.Port) {
			p.Connections.Refused, p.Connections.LastRefused = 7,
				before(time.Hour)
		}), nil},
		"displaced": {
			with(func(p *stat.Port) {
				p.OpenFilesLimit = view.Number{}
				p.ConnectionsPerAddress = stat.Bound{Used: 20, Limit: 20, Displaced: 1,
					LastDisplaced: before(2 * time.Minute)}
			}),
			[]view.Problem{warning("the xDS port has reached its limit of connections from one address: it closes " +
				"idle connections to make room for new ones, 1 so far, the latest 2 min ago; 20 of 20 are used " +
				"(xds.limits.connections_per_address; – open files are allowed)")},
		},
		"streams and subscriptions": {
			with(func(p *stat.Port) {
				p.Streams = stat.Bound{Used: 900, Limit: 1000, Refused: 1, LastRefused: before(0)}
				p.Subscriptions = stat.Bound{Used: 800, Limit: 1000, Refused: 2, LastRefused: before(0)}
			}),
			[]view.Problem{
				failure("the xDS port has reached its limit of streams: 1 refused so far, the latest < 1 s ago; " +
					"900 of 1000 are used (xds.limits.streams; 1024 open files are allowed)"),
				failure("the xDS port has reached its limit of subscriptions: 2 refused so far, the latest < 1 s " +
					"ago; 800 of 1000 are used (xds.limits.subscriptions; 1024 open files are allowed)"),
			},
		},
		"incomplete requests": {
			with(func(p *stat.Port) {
				p.UnreadBytes = stat.Bound{Used: 5, Limit: 268_435_456, Displaced: 3,
					LastDisplaced: before(time.Second)}
			}),
			[]view.Problem{failure("the xDS port closed 3 connections, the latest 1.0 s ago, because all peers " +
				"together had sent more than 268435456 bytes of incomplete requests: peers that are not Envoys " +
				"connect, or Steelyard is overloaded")},
		},
		"silent streams": {
			with(func(p *stat.Port) { p.SilentStreams, p.LastSilentStreamAt = 5, before(time.Second) }),
			[]view.Problem{warning("the xDS port ended 5 streams whose first message did not arrive in time, " +
				"the latest 1.0 s ago: peers that are not Envoys connect, or cannot send")},
		},
		"accepting fails": {
			with(func(p *stat.Port) {
				p.AcceptErrors, p.LastAcceptError, p.LastAcceptErrorAt = 4, "too many open files", before(time.Second)
			}),
			[]view.Problem{failure("the xDS port could not accept connections 4 times, the latest 1.0 s ago: too " +
				"many open files")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := append(portProblems(&tc.in, noon), silentProblems(&tc.in, noon)...)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			status := statusProblems(well(Status{XDSPort: tc.in}))
			if len(status) != len(tc.want) {
				t.Errorf("the status has the problems %v", status)
			}
		})
	}
}

func TestAdminPortProblems(t *testing.T) {
	before := func(ago time.Duration) view.Time { return view.At(noon.Add(-ago)) }
	for name, tc := range map[string]struct {
		in   stat.AdminPort
		want []view.Problem
	}{
		"full": {stat.AdminPort{Connections: stat.Bound{Used: 128, Limit: 128}}, nil},
		"long ago": {stat.AdminPort{Connections: stat.Bound{Used: 128, Limit: 128, Displaced: 5,
			LastDisplaced: before(time.Hour)}}, nil},
		"refused and displaced": {
			stat.AdminPort{
				Connections: stat.Bound{Used: 128, Limit: 128, Refused: 2, LastRefused: before(time.Second)},
				ConnectionsPerAddress: stat.Bound{Used: 96, Limit: 96, Displaced: 44,
					LastDisplaced: before(2 * time.Minute)},
			},
			[]view.Problem{
				failure("the admin listener has reached its limit of connections: 2 refused so far, the latest " +
					"1.0 s ago; 128 of 128 are used"),
				warning("the admin listener has reached its limit of connections from one address: it closes " +
					"connections to make room for new ones, 44 so far, the latest 2 min ago; 96 of 96 are used"),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			status := statusProblems(well(Status{AdminPort: tc.in}))
			if diff := cmp.Diff(tc.want, status, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWorstFirst(t *testing.T) {
	endpoint := func(address string, perSlot view.Number, problems ...view.Problem) view.Endpoint {
		return view.Endpoint{Address: address, LoadPerSlot: perSlot, Problems: problems}
	}
	endpoints := []view.Endpoint{
		endpoint("unknown load", view.Number{}), endpoint("b", view.Num(1)), endpoint("a", view.Num(1)),
		endpoint("full", view.Num(9)),
		endpoint("warned", view.Num(0), view.Problem{Severity: view.SeverityWarning}),
		endpoint("failed", view.Num(0), view.Problem{Severity: view.SeverityWarning},
			view.Problem{Severity: view.SeverityError}),
	}
	sortWorstFirst(endpoints)
	var got []string
	for _, e := range endpoints {
		got = append(got, e.Address)
	}
	if diff := cmp.Diff([]string{"failed", "warned", "full", "a", "b", "unknown load"}, got); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
}
