package conditions

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"steelyard/internal/api"
)

func TestEndpointProblems(t *testing.T) {
	failed := api.Scrape{Error: "timeout"}
	for name, tc := range map[string]struct {
		in   api.Endpoint
		want []api.Problem
	}{
		"healthy":      {api.Endpoint{Reason: "fill"}, []api.Problem{}},
		"fully loaded": {api.Endpoint{Reason: "floor"}, []api.Problem{}},
		"one scrape lost": {api.Endpoint{Reason: "fill", LastScrape: failed,
			Inputs: []api.Input{{Field: "queue", State: "stuck"}, {Field: "running", State: "hold"}}},
			[]api.Problem{}},
		"scrapes fail": {api.Endpoint{Reason: "fill", LastScrape: failed,
			Inputs: []api.Input{{Field: "queue", State: "unknown"}, {Field: "in_flight", State: "fresh"}}},
			[]api.Problem{warning("latest scrape failed: timeout")}},
		"going stale": {api.Endpoint{Reason: "decay", LastScrape: failed},
			[]api.Problem{warning("report is going stale: moving to the pool's median: timeout")}},
		"stale": {api.Endpoint{Reason: "neutral"},
			[]api.Problem{failure("No usable metrics for a:1: It is treated as a median endpoint.")}},
		"stale, and its scrapes fail": {api.Endpoint{Reason: "neutral", LastScrape: failed},
			[]api.Problem{failure("No usable metrics for a:1: It is treated as a median endpoint: timeout.")}},
		"unreadable": {api.Endpoint{Reason: "decay", LastScrape: failed, LoadSource: "fused",
			Inputs: []api.Input{{Field: "queue", State: "decay"}}},
			[]api.Problem{warning("The metrics of a:1 cannot be read: Timeout. The Envoys' in-flight counts are " +
				"used instead.")}},
		"unused": {api.Endpoint{Reason: "unused"},
			[]api.Problem{warning("Envoys send nothing to a:1: They send it nothing, whatever its weight.")}},
		"new": {api.Endpoint{Reason: "blackout"}, []api.Problem{warning("new, and no report yet")}},
		"new, unreachable": {api.Endpoint{Reason: "blackout", LastScrape: failed},
			[]api.Problem{warning("new, and no report yet: timeout")}},
		"overloaded": {
			api.Endpoint{Reason: "floor", Overloaded: true, OverloadReason: "queue 5 per slot"},
			[]api.Problem{warning("overloaded: queue 5 per slot")},
		},
		"asleep": {
			api.Endpoint{Reason: "asleep", Overloaded: true, OverloadReason: "asleep: its metrics show it"},
			[]api.Problem{warning("asleep: its metrics show it")},
		},
		"an outlier": {
			api.Endpoint{Reason: "failing", Outlier: true, Overloaded: true, OverloadReason: "failing: 3 of 4"},
			[]api.Problem{failure("a:1 fails its requests: Failing: 3 of 4. Envoys are asked to prefer others, and " +
				"it is tried again by itself.")},
		},
		"a number in doubt": {
			api.Endpoint{Reason: "fill", LastScrape: api.Scrape{Doubt: "app_queue occurs twice"}},
			[]api.Problem{warning("a number of its metrics is unknown: app_queue occurs twice")},
		},
		"a wrong counter": {
			api.Endpoint{Reason: "fill", WrongCounters: "vllm:x_total fell, and the server has not restarted",
				LastWrongCounters: api.At(noon.Add(-59 * time.Second))},
			[]api.Problem{warning("A counter of a:1 is wrong: Of its metrics page, vllm:x_total fell, and the " +
				"server has not restarted. It is unknown until it goes on from where it was, for ten seconds at " +
				"most; " +
				"everything else of that page is used.")},
		},
		"a wrong counter long ago": {api.Endpoint{Reason: "fill", WrongCounters: "x fell",
			LastWrongCounters: api.At(noon.Add(-time.Minute))}, []api.Problem{}},
		"several servers behind one address": {
			api.Endpoint{Reason: "fill", CountersGoBack: true, WrongCounters: "x fell",
				LastWrongCounters: api.At(noon)},
			[]api.Problem{warning("Several servers seem to answer at a:1: The counters of its metrics go back again " +
				"and again, all of them at once; its counts of tokens are not used.")},
		},
		"overloaded and stale": {
			api.Endpoint{Reason: "neutral", Overloaded: true},
			[]api.Problem{failure("No usable metrics for a:1: It is treated as a median endpoint."),
				warning("overloaded")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.in.Address = "a:1"
			seen := following("llama")
			seen.Now = noon
			got := EndpointProblems(seen, &api.Cluster{Name: "llama"}, &tc.in)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestClusterProblems(t *testing.T) {
	healthy := api.Cluster{Name: "llama", Ready: true, Counts: api.EndpointCounts{Total: 8},
		Decision: api.Decision{At: api.At(noon)}}
	with := func(change func(*api.Cluster)) api.Cluster {
		c := healthy
		change(&c)
		return c
	}
	for name, tc := range map[string]struct {
		in   api.Cluster
		want []api.Problem
	}{
		"healthy": {healthy, []api.Problem{}},
		"not ready": {with(func(c *api.Cluster) { c.Ready, c.NotReadyReason = false, "warming up" }),
			[]api.Problem{failure("Cluster llama is not ready: warming up")}},
		"not ready, without a word": {
			with(func(c *api.Cluster) { c.Ready = false }), []api.Problem{failure("Cluster llama is not ready: no " +
				"reason given")},
		},
		"empty": {with(func(c *api.Cluster) { c.Counts.Total = 0 }),
			[]api.Problem{failure("Cluster llama has no endpoints: Discovery has found none, so Envoys have nowhere " +
				"to send its requests.")}},
		"stuck": {with(func(c *api.Cluster) { c.Decision.At = api.At(noon.Add(-6 * time.Second)) }),
			[]api.Problem{failure("Cluster llama gets no new decisions: The latest decision was made at 11:59:54 " +
				"UTC.")}},
		"slow by choice": {
			with(func(c *api.Cluster) {
				c.Decision.At, c.MinIntervalSeconds = api.At(noon.Add(-6*time.Second)), api.Num(3)
			}), []api.Problem{},
		},
		"shedding": {with(func(c *api.Cluster) { c.Decision.DropFraction = api.Num(0.123) }),
			[]api.Problem{failure("Cluster llama refuses requests: The whole pool is saturated: 12.3 % of the " +
				"requests are refused, and the others are expected to wait –.")}},
		"source down": {
			with(func(c *api.Cluster) {
				c.Sources = []api.SourceStatus{{Name: "redis", State: api.SourceDown, LastError: "refused"}}
			}),
			[]api.Problem{failure("Source redis of llama is lost: It is down, and has never worked: refused.")},
		},
		"source stale": {
			with(func(c *api.Cluster) {
				c.Sources = []api.SourceStatus{{Name: "dns", State: api.SourceStale,
					LastSuccess: api.At(noon.Add(-90 * time.Second)), LastError: "no answer"}}
			}),
			[]api.Problem{warning("Source dns of llama is lost: It fails, last worked 2 min ago: no answer. Its " +
				"last values are still in use.")},
		},
		"some Envoys do not report": {
			with(func(c *api.Cluster) {
				c.Sources = []api.SourceStatus{{Name: api.SourceAccessLog, State: api.SourcePartial,
					Envoys: api.Reporting{Expected: api.Num(3), Reporting: api.Num(2), Missing: []string{"edge-3"}}}}
			}),
			[]api.Problem{warning("Some Envoys do not report to access_log about llama: Envoys that report: 2 of 3, " +
				"without edge-3.")},
		},
		"idle Envoys": {
			with(func(c *api.Cluster) {
				c.Sources = []api.SourceStatus{{Name: api.SourceAccessLog, State: api.SourceIdle,
					Envoys: api.Reporting{Expected: api.Num(3), Reporting: api.Num(0), Idle: api.Num(3)}}}
			}),
			[]api.Problem{},
		},
		"no Envoy ever reported": {
			with(func(c *api.Cluster) {
				c.Sources = []api.SourceStatus{{Name: api.SourceAccessLog, State: api.SourceOff,
					Envoys: api.Reporting{Expected: api.Num(3), Reporting: api.Num(0)}}}
			}),
			[]api.Problem{warning("source access_log: none of 3 Envoys is configured for it")},
		},
		"no Envoy reports any more": {
			with(func(c *api.Cluster) {
				c.Sources = []api.SourceStatus{{Name: api.SourceLoadReports, State: api.SourceDown,
					LastSuccess: api.At(noon.Add(-8 * time.Second)),
					Envoys:      api.Reporting{Expected: api.Num(3), Reporting: api.Num(0)}}}
			}),
			[]api.Problem{failure("Source load_reports of llama is lost: It is down, last worked 8.0 s ago.")},
		},
		"ignored members": {
			with(func(c *api.Cluster) {
				c.Sources = []api.SourceStatus{{Name: "redis", State: api.SourceOK, IgnoredMembers: 3}}
			}),
			[]api.Problem{warning("source redis: 3 members are not endpoints of this cluster and are ignored")},
		},
		"one Envoy against all": {
			with(func(c *api.Cluster) {
				c.Disputes = []api.Dispute{
					{Kind: api.DisputeInFlight, NodeID: "edge-3", Host: "10.0.0.9",
						Endpoints: []string{"10.0.0.1:8000", "10.0.0.2:8000"}, Requests: api.Num(2000),
						Since: api.At(noon.Add(-8 * time.Second))},
					{Kind: api.DisputeIssued, NodeID: "edge-5", Host: "10.0.0.9",
						Endpoints: []string{"10.0.0.1:8000"}, Requests: api.Num(100_000_000),
						Since: api.At(noon.Add(-3 * time.Second))},
					{Kind: api.DisputeFailures, NodeID: "edge-4", Host: "10.0.0.9",
						Endpoints: []string{"10.0.0.1:8000"}, Since: api.At(noon.Add(-90 * time.Second))},
				}
			}),
			[]api.Problem{
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
			with(func(c *api.Cluster) {
				c.Disputes = []api.Dispute{{Kind: api.DisputeFailures, NodeID: "edge-4", Host: "10.0.0.9",
					Endpoints: []string{"10.0.0.1:8000"}, Since: api.At(noon.Add(-90 * time.Second))}}
				c.Endpoints = []api.Endpoint{{Address: "10.0.0.1:8000", Overloaded: true}, {Address: "10.0.0.2:8000"}}
			}),
			[]api.Problem{
				warning("Reports of Envoy edge-4 conflict with all others: Envoy edge-4 at 10.0.0.9 has reported, " +
					"for 2 min, that its requests to 10.0.0.1:8000 fail. At least as many other Envoys get responses " +
					"there; 1 of these endpoints are flagged, for what others report or for failures before that."),
			},
		},
		"half of the endpoints": {
			with(func(c *api.Cluster) {
				c.Endpoints = []api.Endpoint{{Address: "a:1", Overloaded: true, OverloadReason: "queue 5 per slot"},
					{}}
				c.Counts.Total = 2
			}),
			[]api.Problem{failure("50 % or more of llama is overloaded: 1 of 2 endpoints are. The first, a:1: queue " +
				"5 per slot.")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, ClusterProblems(&Observation{Now: noon}, &tc.in)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestEnvoysWhoseRequestsDoNotWaitAreAProblem(t *testing.T) {
	of := func(clusters ...string) (c api.Client) {
		for _, name := range clusters {
			c.Subscriptions = append(c.Subscriptions, api.Subscription{Cluster: name})
		}
		return c
	}
	clients := []api.Client{of("llama", "llama"), of("llama"), of("mixtral")}
	grants := api.QueueOwner{State: api.QueueGrants}
	const nobody = "No replica grants the places of llama to the Envoys here: "
	for name, tc := range map[string]struct {
		queue *api.Queue
		want  []api.Problem
	}{
		"no queue":           {nil, []api.Problem{}},
		"all of the cluster": {&api.Queue{Owner: grants, Envoys: 2, Here: 2}, []api.Problem{}},
		"a picker for both":  {&api.Queue{Owner: grants, Envoys: 1, Here: 1, Shared: true}, []api.Problem{}},
		"one without": {&api.Queue{Owner: grants, Envoys: 2, Here: 1}, []api.Problem{
			warning("Not all requests of llama wait in its queue: Requests of 1 of its 2 Envoys do not.")}},
		"another replica grants": {
			&api.Queue{Owner: api.QueueOwner{State: api.QueueFollows}, Here: 2}, []api.Problem{}},
		"it cannot be reached": {&api.Queue{Owner: api.QueueOwner{State: api.QueueFollows, Error: "refused"}, Here: 2},
			[]api.Problem{failure(nobody + "refused")}},
		"none is known": {&api.Queue{Owner: api.QueueOwner{State: api.QueueUnknown}, Here: 2},
			[]api.Problem{failure(nobody + "The lease has no owner.")}},
		"the lease is lost": {&api.Queue{Owner: api.QueueOwner{State: api.QueueStopped, Error: "timeout"}, Here: 2},
			[]api.Problem{failure(nobody + "timeout")}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &api.Cluster{Name: "llama", Ready: true, Counts: api.EndpointCounts{Total: 1}, Queue: tc.queue}
			if diff := cmp.Diff(tc.want, ClusterProblems(&Observation{Now: noon, Clients: clients}, c)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestClientProblems(t *testing.T) {
	inSync := api.Subscription{Resource: "llama", Cluster: "llama", Known: true, InSync: true, VersionSent: "v2",
		VersionAcked: "v2", LastSent: api.At(noon.Add(-time.Hour))}
	with := func(change func(*api.Subscription)) api.Client {
		s := inSync
		change(&s)
		return api.Client{Connection: api.Connection{Subscriptions: []api.Subscription{s}}}
	}
	for name, tc := range map[string]struct {
		in   api.Client
		want []api.Problem
	}{
		"in sync": {with(func(*api.Subscription) {}), []api.Problem{}},
		"refuses": {
			with(func(s *api.Subscription) {
				s.InSync, s.Nack = false, api.Nack{Message: "bad weight", Current: true}
			}),
			[]api.Problem{failure("Envoy edge-1 refuses the weights of llama: Its answer: bad weight")},
		},
		"refused once": {with(func(s *api.Subscription) { s.Nack = api.Nack{Message: "bad weight"} }),
			[]api.Problem{}},
		"silent": {
			with(func(s *api.Subscription) {
				s.InSync, s.VersionAcked, s.LastSent = false, "v1", api.At(noon.Add(-7*time.Second))
			}),
			[]api.Problem{failure("Envoy edge-1 does not answer: It was last sent an assignment of llama 7.0 s ago, " +
				"and last accepted one never.")},
		},
		"about to answer": {
			with(func(s *api.Subscription) {
				s.InSync, s.VersionAcked, s.LastSent = false, "v1", api.At(noon.Add(-time.Second))
			}), []api.Problem{},
		},
		"about to be sent the next": {with(func(s *api.Subscription) { s.InSync = false }), []api.Problem{}},
		"asks for a stranger": {with(func(s *api.Subscription) {
			s.Resource, s.Cluster, s.Known = "lama", "lama",
				false
		}), []api.Problem{warning("Envoy edge-1 subscribes to lama, which is not configured here: It gets no " +
			"endpoints for that name, and answers its requests with 503. Did its configuration mean llama?")}},
		"asks before it is ready": {with(func(s *api.Subscription) { s.Known = false }), []api.Problem{}},
		"gave no sign of requests": {
			api.Client{Signals: api.Signals{State: api.SignalSilent, LastReport: api.At(noon.Add(-8 * time.Second))}},
			[]api.Problem{warning("Envoy edge-1 does not report its requests: Latest access log entry: never. " +
				"Latest load report: 8.0 s ago.")},
		},
		"shares its name in load reports": {
			api.Client{Signals: api.Signals{State: api.SignalOK, ReportStreams: 2}},
			[]api.Problem{warning("2 processes report load under this node id from this address, and are added up: " +
				"a hot restart, which passes, or Envoys that cannot be distinguished: give each its own node id")},
		},
		"refuses its runtime": {
			api.Client{Signals: api.Signals{Runtime: api.Runtime{Subscribed: true, Nack: "bad value"}}},
			[]api.Problem{warning("Envoy edge-1 refuses the runtime values that switch its access log: Its answer: " +
				"bad value")},
		},
		"cannot be told from others": {api.Client{Connection: api.Connection{Duplicates: 2}},
			[]api.Problem{warning("2 other connections use the same node id: two Envoys that cannot be " +
				"distinguished, or one that reconnected")}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.in.NodeID = "edge-1"
			p := &Observation{Now: noon, Clusters: []api.Cluster{{Name: "llama"}}}
			if diff := cmp.Diff(tc.want, ClientProblems(p, &tc.in)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestStatusProblems(t *testing.T) {
	for name, tc := range map[string]struct {
		in      api.Status
		clients int
		want    []api.Problem
	}{
		"well": {api.Status{ConfigGeneration: 1}, 1, []api.Problem{}},
		"draining": {api.Status{ConfigGeneration: 1, Draining: true}, 1,
			[]api.Problem{warning("draining: the process is shutting down")}},
		"no config": {api.Status{}, 1, []api.Problem{failure("No configuration has been applied yet: Steelyard " +
			"serves " +
			"nothing before it has one.")}},
		"no Envoys": {api.Status{ConfigGeneration: 1}, 0, []api.Problem{warning("No Envoy is connected: Nothing " +
			"follows " +
			"the weights.")}},
		"file is polled": {
			api.Status{ConfigGeneration: 1, ConfigWatchError: "no watches left"}, 1,
			[]api.Problem{warning("changes of the config are found by polling only: no watches left")},
		},
		"log is being written": {api.Status{ConfigGeneration: 1,
			Log: api.LogStatus{StalledSeconds: api.Num(0.9), DroppedLines: 4}}, 1, []api.Problem{}},
		"log is not read": {
			api.Status{ConfigGeneration: 1, Log: api.LogStatus{StalledSeconds: api.Num(12), DroppedLines: 4,
				LastDrop: api.At(noon)}}, 1,
			[]api.Problem{warning("the log has not been read for 12.0 s; 4 lines were dropped since the start: " +
				"check the reader of standard error")},
		},
		"log cannot be written": {
			api.Status{ConfigGeneration: 1,
				Log: api.LogStatus{Error: "broken pipe", DroppedLines: 4, LastDrop: api.At(noon)}},
			1,
			[]api.Problem{warning("the log cannot be written, 4 lines were dropped since the start: broken pipe")},
		},
		"log lacks lines": {
			api.Status{ConfigGeneration: 1,
				Log: api.LogStatus{DroppedLines: 4, LastDrop: api.At(noon.Add(-9 * time.Minute))}}, 1,
			[]api.Problem{warning("4 log lines were dropped since the start, the latest 9 min ago, because they " +
				"could not be written in time")},
		},
		"log lacked lines": {
			api.Status{ConfigGeneration: 1,
				Log: api.LogStatus{DroppedLines: 4, LastDrop: api.At(noon.Add(-11 * time.Minute))}}, 1,
			[]api.Problem{},
		},
		"bad reload": {
			api.Status{ConfigGeneration: 3, LastReload: api.Reload{Error: "line 4: unknown key"}}, 1,
			[]api.Problem{warning("The latest configuration was refused: line 4: unknown key")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Observation{Now: noon, Status: tc.in, Clients: make([]api.Client, tc.clients)}
			if diff := cmp.Diff(tc.want, StatusProblems(p)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// well is an observation of a process in which nothing else is wrong.
func well(s api.Status) *Observation {
	s.ConfigGeneration = 1
	return &Observation{Now: noon, Status: s, Clients: make([]api.Client, 1)}
}

func TestPortProblems(t *testing.T) {
	before := func(ago time.Duration) api.Time { return api.At(noon.Add(-ago)) }
	port := api.Port{OpenFilesLimit: api.Num(1024)}
	port.Connections = api.Bound{Used: 765, Limit: 765}
	with := func(change func(*api.Port)) api.Port {
		p := port
		change(&p)
		return p
	}
	for name, tc := range map[string]struct {
		in   api.Port
		want []api.Problem
	}{
		"full": {port, nil},
		"refused": {
			with(func(p *api.Port) { p.Connections.Refused, p.Connections.LastRefused = 7, before(3*time.Second) }),
			[]api.Problem{failure("the xDS port has reached its limit of connections: 7 refused so far, the " +
				"latest 3.0 s ago; 765 of 765 are used (xds.limits.connections; 1024 open files are allowed)")},
		},
		"refused long ago": {with(func(p *api.Port) {
			p.Connections.Refused, p.Connections.LastRefused = 7,
				before(time.Hour)
		}), nil},
		"displaced": {
			with(func(p *api.Port) {
				p.OpenFilesLimit = api.Number{}
				p.ConnectionsPerAddress = api.Bound{Used: 20, Limit: 20, Displaced: 1,
					LastDisplaced: before(2 * time.Minute)}
			}),
			[]api.Problem{warning("the xDS port has reached its limit of connections from one address: it closes " +
				"idle connections to make room for new ones, 1 so far, the latest 2 min ago; 20 of 20 are used " +
				"(xds.limits.connections_per_address; – open files are allowed)")},
		},
		"streams and subscriptions": {
			with(func(p *api.Port) {
				p.Streams = api.Bound{Used: 900, Limit: 1000, Refused: 1, LastRefused: before(0)}
				p.Subscriptions = api.Bound{Used: 800, Limit: 1000, Refused: 2, LastRefused: before(0)}
			}),
			[]api.Problem{
				failure("the xDS port has reached its limit of streams: 1 refused so far, the latest < 1 s ago; " +
					"900 of 1000 are used (xds.limits.streams; 1024 open files are allowed)"),
				failure("the xDS port has reached its limit of subscriptions: 2 refused so far, the latest < 1 s " +
					"ago; 800 of 1000 are used (xds.limits.subscriptions; 1024 open files are allowed)"),
			},
		},
		"incomplete requests": {
			with(func(p *api.Port) {
				p.UnreadBytes = api.Bound{Used: 5, Limit: 268_435_456, Displaced: 3,
					LastDisplaced: before(time.Second)}
			}),
			[]api.Problem{failure("the xDS port closed 3 connections, the latest 1.0 s ago, because all peers " +
				"together had sent more than 268435456 bytes of incomplete requests: peers that are not Envoys " +
				"connect, or Steelyard is overloaded")},
		},
		"silent streams": {
			with(func(p *api.Port) { p.SilentStreams, p.LastSilentStreamAt = 5, before(time.Second) }),
			[]api.Problem{warning("the xDS port ended 5 streams whose first message did not arrive in time, " +
				"the latest 1.0 s ago: peers that are not Envoys connect, or cannot send")},
		},
		"accepting fails": {
			with(func(p *api.Port) {
				p.AcceptErrors, p.LastAcceptError, p.LastAcceptErrorAt = 4, "too many open files", before(time.Second)
			}),
			[]api.Problem{failure("the xDS port could not accept connections 4 times, the latest 1.0 s ago: too " +
				"many open files")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := append(portProblems(&tc.in, noon), silentProblems(&tc.in, noon)...)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			status := StatusProblems(well(api.Status{XDSPort: tc.in}))
			if len(status) != len(tc.want) {
				t.Errorf("the status has the problems %v", status)
			}
		})
	}
}

func TestAdminPortProblems(t *testing.T) {
	before := func(ago time.Duration) api.Time { return api.At(noon.Add(-ago)) }
	for name, tc := range map[string]struct {
		in   api.AdminPort
		want []api.Problem
	}{
		"full": {api.AdminPort{Connections: api.Bound{Used: 128, Limit: 128}}, nil},
		"long ago": {api.AdminPort{Connections: api.Bound{Used: 128, Limit: 128, Displaced: 5,
			LastDisplaced: before(time.Hour)}}, nil},
		"refused and displaced": {
			api.AdminPort{
				Connections: api.Bound{Used: 128, Limit: 128, Refused: 2, LastRefused: before(time.Second)},
				ConnectionsPerAddress: api.Bound{Used: 96, Limit: 96, Displaced: 44,
					LastDisplaced: before(2 * time.Minute)},
			},
			[]api.Problem{
				failure("the admin listener has reached its limit of connections: 2 refused so far, the latest " +
					"1.0 s ago; 128 of 128 are used"),
				warning("the admin listener has reached its limit of connections from one address: it closes " +
					"connections to make room for new ones, 44 so far, the latest 2 min ago; 96 of 96 are used"),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			status := StatusProblems(well(api.Status{AdminPort: tc.in}))
			if diff := cmp.Diff(tc.want, status, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWorstFirst(t *testing.T) {
	endpoint := func(address string, perSlot api.Number, problems ...api.Problem) api.Endpoint {
		return api.Endpoint{Address: address, LoadPerSlot: perSlot, Problems: problems}
	}
	endpoints := []api.Endpoint{
		endpoint("unknown load", api.Number{}), endpoint("b", api.Num(1)), endpoint("a", api.Num(1)),
		endpoint("full", api.Num(9)),
		endpoint("warned", api.Num(0), api.Problem{Severity: api.SeverityWarning}),
		endpoint("failed", api.Num(0), api.Problem{Severity: api.SeverityWarning},
			api.Problem{Severity: api.SeverityError}),
	}
	SortWorstFirst(endpoints)
	var got []string
	for _, e := range endpoints {
		got = append(got, e.Address)
	}
	if diff := cmp.Diff([]string{"failed", "warned", "full", "a", "b", "unknown load"}, got); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
}

// A laptop does not reach the address of a Pod.
func TestACommandForAPodGoesByTheAPIServer(t *testing.T) {
	for _, c := range []struct {
		e       api.Endpoint
		command string
	}{
		{api.Endpoint{Address: "10.0.0.1:8000", Engine: "vllm"}, "curl -i -m 2 http://10.0.0.1:8000/health"},
		{api.Endpoint{Address: "[2001:db8::1]:8000", Engine: "vllm", Namespace: "models", Pod: "vllm-0"},
			"kubectl get --raw /api/v1/namespaces/models/pods/vllm-0:8000/proxy/health"},
	} {
		if got := healthCommand(&c.e); got != c.command {
			t.Errorf("%s, want %s", got, c.command)
		}
	}
}

// Who restarts a healthy server because a path that its engine does not have answers 404 makes an outage of a warning.
func TestAnEndpointThatStallsIsAskedForItsHealthAsItsEngineIs(t *testing.T) {
	for engine, want := range map[string]struct{ command, next string }{
		"vllm":         {"curl -i -m 2 http://10.0.0.1:8000/health", "404 says nothing"},
		"sglang":       {"curl -i -m 2 http://10.0.0.1:8000/health", "404 says nothing"},
		"triton":       {"curl -i -m 2 http://10.0.0.1:8000/v2/health/live", "404 says nothing"},
		"tensorrt-llm": {"curl -i -m 2 http://10.0.0.1:8000/health", "404 says nothing"},
		"custom":       {"", "Send it a request by hand."},
	} {
		e := api.Endpoint{Address: "10.0.0.1:8000", Engine: engine, Outlier: true,
			OverloadReason: "stalled since 12:00"}
		got := endpointConditions(following("llama"), &api.Cluster{Name: "llama"}, &e)
		if len(got) != 1 || got[0].Command != want.command || !strings.Contains(got[0].Next, want.next) {
			t.Errorf("%s: %+v, want the command %q and %q", engine, got, want.command, want.next)
		}
	}
}

// following is what is seen while an Envoy follows the weights of a cluster.
func following(cluster string) *Observation {
	return &Observation{Clients: []api.Client{{Connection: api.Connection{Node: api.Node{NodeID: "envoy-1"},
		Subscriptions: []api.Subscription{{Resource: cluster, Cluster: cluster, Known: true}}}}}}
}

// In shadow mode Envoys send requests where their own clusters say, whatever Steelyard thinks of an endpoint.
func TestWhereNobodyFollowsNoSentenceSaysThatWeightsSpareAnEndpoint(t *testing.T) {
	shadow := following("llama")
	shadow.Clients[0].Subscriptions[0].Resource = "llama/members"
	picker := &Observation{Status: api.Status{Pickers: api.Pickers{List: []api.Picker{{Clusters: []string{"llama"}}}}}}
	for name, e := range map[string]api.Endpoint{
		"fails":        {Outlier: true, Overloaded: true, OverloadReason: "failing: 3 of 4"},
		"at its floor": {Outlier: true, OverloadReason: "failing: 3 of 4"},
		"tried again":  {Probed: "stalled since 12:00"},
		"doubted":      {DoubtedSince: api.At(noon)},
	} {
		e.Address, e.Engine = "10.0.0.1:8000", "vllm"
		c := &api.Cluster{Name: "llama", Decision: api.Decision{ArrivalRate: api.Num(1)}}
		for by, p := range map[string]*Observation{"nobody": shadow, "an Envoy": following("llama"),
			"a picker": picker} {
			got := endpointConditions(p, c, &e)
			if len(got) != 1 || strings.HasSuffix(got[0].Why, unsteered) != (by == "nobody") ||
				by == "nobody" && strings.Contains(got[0].Next, "drain") {
				t.Errorf("%s, followed by %s: %+v", name, by, got)
			}
		}
	}
}
