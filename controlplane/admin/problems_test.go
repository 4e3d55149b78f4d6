package admin

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestEndpointProblems(t *testing.T) {
	failed := Scrape{Error: "timeout"}
	for name, tc := range map[string]struct {
		in   Endpoint
		want []Problem
	}{
		"healthy":          {Endpoint{Reason: "fill"}, []Problem{}},
		"fully loaded":     {Endpoint{Reason: "floor"}, []Problem{}},
		"one scrape lost":  {Endpoint{Reason: "fill", LastScrape: failed}, []Problem{{SeverityWarning, "latest scrape failed: timeout"}}},
		"going stale":      {Endpoint{Reason: "decay", LastScrape: failed}, []Problem{{SeverityWarning, "report is going stale: moving to the median: timeout"}}},
		"stale":            {Endpoint{Reason: "neutral"}, []Problem{{SeverityError, "no usable report: weighed as a median endpoint"}}},
		"unused":           {Endpoint{Reason: "unused"}, []Problem{{SeverityWarning, "the Envoys send it nothing, whatever it weighs: look for its health check or outlier ejection there"}}},
		"new":              {Endpoint{Reason: "blackout"}, []Problem{{SeverityWarning, "new, and no report yet"}}},
		"new, unreachable": {Endpoint{Reason: "blackout", LastScrape: failed}, []Problem{{SeverityError, "new, and its scrapes fail: timeout"}}},
		"overloaded": {
			Endpoint{Reason: "floor", Overloaded: true, OverloadReason: "queue 5 per slot"},
			[]Problem{{SeverityWarning, "overloaded: queue 5 per slot"}},
		},
		"a counter leapt": {
			Endpoint{Reason: "fill", ImplausibleReadings: Num(3), LastImplausibleReading: At(noon.Add(-59 * time.Second))},
			[]Problem{{SeverityWarning, "a counter of its metrics rose by more than any server can have made it, 59.0 s ago, and 3 times since the start: that interval does not count"}},
		},
		"a counter leapt long ago": {Endpoint{Reason: "fill", ImplausibleReadings: Num(3), LastImplausibleReading: At(noon.Add(-time.Minute))}, []Problem{}},
		"overloaded and stale": {
			Endpoint{Reason: "neutral", Overloaded: true},
			[]Problem{{SeverityError, "no usable report: weighed as a median endpoint"}, {SeverityWarning, "overloaded"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, endpointProblems(tc.in, noon)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestClusterProblems(t *testing.T) {
	healthy := Cluster{Ready: true, Counts: EndpointCounts{Total: 8}, Decision: Decision{At: At(noon)}}
	with := func(change func(*Cluster)) Cluster {
		c := healthy
		change(&c)
		return c
	}
	for name, tc := range map[string]struct {
		in   Cluster
		want []Problem
	}{
		"healthy":   {healthy, []Problem{}},
		"not ready": {with(func(c *Cluster) { c.Ready, c.NotReadyReason = false, "warming up" }), []Problem{{SeverityError, "not ready: warming up"}}},
		"not ready, without a word": {
			with(func(c *Cluster) { c.Ready = false }), []Problem{{SeverityError, "not ready: no reason given"}},
		},
		"empty": {with(func(c *Cluster) { c.Counts.Total = 0 }), []Problem{{SeverityError, "no endpoints: discovery has found none"}}},
		"stuck": {with(func(c *Cluster) { c.Decision.At = At(noon.Add(-6 * time.Second)) }), []Problem{{SeverityError, "no decision for 6.0 s: the loop is stuck"}}},
		"slow by choice": {
			with(func(c *Cluster) { c.Decision.At, c.MinIntervalSeconds = At(noon.Add(-6*time.Second)), Num(3) }), []Problem{},
		},
		"shedding": {with(func(c *Cluster) { c.Decision.DropFraction = Num(0.123) }), []Problem{{SeverityError, "shedding 12.3 % of the requests: the whole pool is saturated"}}},
		"source down": {
			with(func(c *Cluster) { c.Sources = []SourceStatus{{Name: "redis", State: SourceDown, LastError: "refused"}} }),
			[]Problem{{SeverityError, "source redis is down, and never worked: refused"}},
		},
		"source stale": {
			with(func(c *Cluster) {
				c.Sources = []SourceStatus{{Name: "dns", State: SourceStale, LastSuccess: At(noon.Add(-90 * time.Second)), LastError: "no answer"}}
			}),
			[]Problem{{SeverityWarning, "source dns is stale, last worked 2 min ago: no answer"}},
		},
		"some Envoys do not report": {
			with(func(c *Cluster) {
				c.Sources = []SourceStatus{{Name: SourceAccessLog, State: SourcePartial, Envoys: Reporting{Expected: Num(3), Reporting: Num(2), Missing: []string{"edge-3"}}}}
			}),
			[]Problem{{SeverityWarning, "source access_log is partial, Envoys that report: 2 of 3, without edge-3"}},
		},
		"idle Envoys": {
			with(func(c *Cluster) {
				c.Sources = []SourceStatus{{Name: SourceAccessLog, State: SourceIdle, Envoys: Reporting{Expected: Num(3), Reporting: Num(0), Idle: Num(3)}}}
			}),
			[]Problem{},
		},
		"no Envoy ever reported": {
			with(func(c *Cluster) {
				c.Sources = []SourceStatus{{Name: SourceAccessLog, State: SourceOff, Envoys: Reporting{Expected: Num(3), Reporting: Num(0)}}}
			}),
			[]Problem{{SeverityWarning, "source access_log: none of 3 Envoys has it switched on"}},
		},
		"no Envoy reports any more": {
			with(func(c *Cluster) {
				c.Sources = []SourceStatus{{Name: SourceLoadReports, State: SourceDown, LastSuccess: At(noon.Add(-8 * time.Second)), Envoys: Reporting{Expected: Num(3), Reporting: Num(0)}}}
			}),
			[]Problem{{SeverityError, "source load_reports is down, last worked 8.0 s ago"}},
		},
		"ignored members": {
			with(func(c *Cluster) { c.Sources = []SourceStatus{{Name: "redis", State: SourceOK, IgnoredMembers: 3}} }),
			[]Problem{{SeverityWarning, "source redis: 3 members are no endpoints of this cluster and are ignored"}},
		},
		"one Envoy against all": {
			with(func(c *Cluster) {
				c.Disputes = []Dispute{
					{Kind: DisputeInFlight, NodeID: "edge-3", Host: "10.0.0.9", Endpoints: []string{"10.0.0.1:8000", "10.0.0.2:8000"}, Requests: Num(2000), Since: At(noon.Add(-8 * time.Second))},
					{Kind: DisputeFailures, NodeID: "edge-4", Host: "10.0.0.9", Endpoints: []string{"10.0.0.1:8000"}, Since: At(noon.Add(-90 * time.Second))},
				}
			}),
			[]Problem{
				{SeverityWarning, "Envoy edge-3 at 10.0.0.9 says, for 8.0 s, that it has 2000 requests in progress at 2 endpoints (10.0.0.1:8000 and others); the metrics there deny it, while others are answered, so it is not believed: a wrong report, or many streams and uploads that stand idle"},
				{SeverityWarning, "Envoy edge-4 at 10.0.0.9 alone says, for 2 min, that its requests to 10.0.0.1:8000 fail; others have answers there, so nothing is flagged for that: look at the network between them, and at that Envoy"},
			},
		},
		"some endpoints": {
			with(func(c *Cluster) { c.Counts.Stale, c.Counts.Overloaded, c.Counts.Failing = 1, 3, 2 }),
			[]Problem{
				{SeverityWarning, "1 of 8 endpoints without a fresh report: weighed towards the pool's median"},
				{SeverityWarning, "3 of 8 endpoints overloaded"},
				{SeverityWarning, "2 of 8 endpoints failed their latest scrape"},
			},
		},
		"half of the endpoints": {
			with(func(c *Cluster) { c.Counts.Overloaded = 4 }), []Problem{{SeverityError, "4 of 8 endpoints overloaded"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, clusterProblems(tc.in, noon)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Through the snapshot, because the problem is of a cluster and its Envoys together.
func TestSheddingThatNoEnvoyFollowsIsAProblem(t *testing.T) {
	without := []Problem{{SeverityError, "shedding is enabled and without effect: no connected Envoy asks for llama, and llama/failsafe carries no drops. " +
		"Make the configuration of the Envoys with steelyard bootstrap --mode shedding, or set shedding.enabled to false"}}
	asks := func(resources ...string) Client {
		var c Client
		for _, r := range resources {
			cluster, _, _ := strings.Cut(r, "/")
			c.Subscriptions = append(c.Subscriptions, Subscription{Resource: r, Cluster: cluster})
		}
		return c
	}
	for name, tc := range map[string]struct {
		shedding bool
		clients  []Client
		want     []Problem
	}{
		"all in mode failsafe":              {true, []Client{asks("llama/fallback", "llama/failsafe"), asks("llama/failsafe", "llama/fallback")}, without},
		"one of another cluster sheds":      {true, []Client{asks("llama/failsafe"), asks("mixtral")}, without},
		"one in mode shedding":              {true, []Client{asks("llama/failsafe"), asks("llama")}, []Problem{}},
		"shedding is off":                   {false, []Client{asks("llama/failsafe")}, []Problem{}},
		"nobody asks for it":                {true, []Client{asks("mixtral/failsafe")}, []Problem{}},
		"no Envoy, which is said elsewhere": {true, nil, []Problem{}},
	} {
		t.Run(name, func(t *testing.T) {
			llama := Cluster{Name: "llama", Ready: true, Shedding: tc.shedding, Endpoints: []Endpoint{{Address: "10.0.0.1:8000"}}, Decision: Decision{At: At(noon)}}
			c, _ := snapshot{source: fixed{clusters: []Cluster{llama}, clients: tc.clients}, now: noon}.cluster("llama")
			if diff := cmp.Diff(tc.want, c.Problems); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestClientProblems(t *testing.T) {
	inSync := Subscription{Resource: "llama", Cluster: "llama", Known: true, InSync: true, VersionSent: "v2", VersionAcked: "v2", LastSent: At(noon.Add(-time.Hour))}
	with := func(change func(*Subscription)) Client {
		s := inSync
		change(&s)
		return Client{Subscriptions: []Subscription{s}}
	}
	for name, tc := range map[string]struct {
		in   Client
		want []Problem
	}{
		"in sync": {with(func(*Subscription) {}), []Problem{}},
		"refuses": {
			with(func(s *Subscription) { s.InSync, s.Nack = false, Nack{Message: "bad weight", Current: true} }),
			[]Problem{{SeverityError, "refuses cluster llama: bad weight"}},
		},
		"refused once": {with(func(s *Subscription) { s.Nack = Nack{Message: "bad weight"} }), []Problem{}},
		"silent": {
			with(func(s *Subscription) {
				s.InSync, s.VersionAcked, s.LastSent = false, "v1", At(noon.Add(-7*time.Second))
			}),
			[]Problem{{SeverityError, "has not answered version v2 of cluster llama for 7.0 s"}},
		},
		"about to answer": {
			with(func(s *Subscription) { s.InSync, s.VersionAcked, s.LastSent = false, "v1", At(noon.Add(-time.Second)) }), []Problem{},
		},
		"about to be sent the next": {with(func(s *Subscription) { s.InSync = false }), []Problem{}},
		"asks for a stranger":       {with(func(s *Subscription) { s.Resource, s.Cluster, s.Known = "lama", "lama", false }), []Problem{{SeverityWarning, "asks for cluster lama, which is not configured here"}}},
		"asks before it is ready":   {with(func(s *Subscription) { s.Known = false }), []Problem{}},
		"gave no sign of requests": {
			Client{Signals: Signals{State: SignalSilent, LastReport: At(noon.Add(-8 * time.Second))}},
			[]Problem{{SeverityWarning, "silent: last entry never, last report 8.0 s ago; its requests are not counted"}},
		},
		"shares its name in load reports": {
			Client{Signals: Signals{State: SignalOK, ReportStreams: 2}},
			[]Problem{{SeverityWarning, "2 streams of load reports under this node id from this address: Envoys that cannot be told apart; what they tell is added up, and mended late: give each a node id of its own"}},
		},
		"refuses its runtime": {
			Client{Signals: Signals{Runtime: Runtime{Subscribed: true, Nack: "bad value"}}},
			[]Problem{{SeverityError, "refuses the runtime values that switch its access log: bad value"}},
		},
		"cannot be told from others": {Client{Duplicates: 2}, []Problem{{SeverityWarning, "2 other connections use the same node id: two Envoys that cannot be told apart, or one that came back"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, clientProblems(tc.in, map[string]bool{"llama": true}, noon)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestStatusProblems(t *testing.T) {
	for name, tc := range map[string]struct {
		in      Status
		clients int
		want    []Problem
	}{
		"well":      {Status{ConfigGeneration: 1}, 1, []Problem{}},
		"draining":  {Status{ConfigGeneration: 1, Draining: true}, 1, []Problem{{SeverityWarning, "draining: the process is shutting down"}}},
		"no config": {Status{}, 1, []Problem{{SeverityError, "no config has been applied yet"}}},
		"no Envoys": {Status{ConfigGeneration: 1}, 0, []Problem{{SeverityWarning, "no Envoy is connected"}}},
		"file is polled": {
			Status{ConfigGeneration: 1, ConfigWatchError: "no watches left"}, 1,
			[]Problem{{SeverityWarning, "changes of the config are found by polling only: no watches left"}},
		},
		"log is being written": {Status{ConfigGeneration: 1, Log: LogStatus{StalledSeconds: Num(0.9), DroppedLines: 4}}, 1, []Problem{}},
		"log is not read": {
			Status{ConfigGeneration: 1, Log: LogStatus{StalledSeconds: Num(12), DroppedLines: 4, LastDrop: At(noon)}}, 1,
			[]Problem{{SeverityWarning, "the log has not been read for 12.0 s; 4 lines were dropped since the start: see who reads standard error"}},
		},
		"log cannot be written": {
			Status{ConfigGeneration: 1, Log: LogStatus{Error: "broken pipe", DroppedLines: 4, LastDrop: At(noon)}}, 1,
			[]Problem{{SeverityWarning, "the log cannot be written, 4 lines were dropped since the start: broken pipe"}},
		},
		"log lacks lines": {
			Status{ConfigGeneration: 1, Now: At(noon), Log: LogStatus{DroppedLines: 4, LastDrop: At(noon.Add(-9 * time.Minute))}}, 1,
			[]Problem{{SeverityWarning, "4 log lines were dropped since the start, the latest 9 min ago, because they could not be written in time"}},
		},
		"log lacked lines": {
			Status{ConfigGeneration: 1, Now: At(noon), Log: LogStatus{DroppedLines: 4, LastDrop: At(noon.Add(-11 * time.Minute))}}, 1,
			[]Problem{},
		},
		"bad reload": {
			Status{ConfigGeneration: 3, LastReload: Reload{Error: "line 4: unknown key"}}, 1,
			[]Problem{{SeverityError, "the latest config was refused, generation 3 still runs: line 4: unknown key"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, statusProblems(tc.in, tc.clients)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPortProblems(t *testing.T) {
	before := func(ago time.Duration) Time { return At(noon.Add(-ago)) }
	port := Port{Connections: Bound{Used: 765, Limit: 765}, OpenFilesLimit: Num(1024)}
	with := func(change func(*Port)) Port {
		p := port
		change(&p)
		return p
	}
	for name, tc := range map[string]struct {
		in   Port
		want []Problem
	}{
		"full": {port, nil},
		"refused": {
			with(func(p *Port) { p.Connections.Refused, p.Connections.LastRefused = 7, before(3*time.Second) }),
			[]Problem{{SeverityError, "the xDS port refuses peers, there are too many connections: 7 refused so far, the latest 3.0 s ago; 765 of 765 are used (xds.limits.connections; 1024 open files are allowed)"}},
		},
		"refused long ago": {with(func(p *Port) { p.Connections.Refused, p.Connections.LastRefused = 7, before(time.Hour) }), nil},
		"displaced": {
			with(func(p *Port) {
				p.OpenFilesLimit = Number{}
				p.ConnectionsPerAddress = Bound{Used: 20, Limit: 20, Displaced: 1, LastDisplaced: before(2 * time.Minute)}
			}),
			[]Problem{{SeverityWarning, "the xDS port closes idle connections to make room for new ones, there are too many connections from one address: 1 closed so far, the latest 2 min ago; 20 of 20 are used (xds.limits.connections_per_address; – open files are allowed)"}},
		},
		"streams and subscriptions": {
			with(func(p *Port) {
				p.Streams = Bound{Used: 900, Limit: 1000, Refused: 1, LastRefused: before(0)}
				p.Subscriptions = Bound{Used: 800, Limit: 1000, Refused: 2, LastRefused: before(0)}
			}),
			[]Problem{
				{SeverityError, "the xDS port refuses peers, there are too many streams: 1 refused so far, the latest < 1 s ago; 900 of 1000 are used (xds.limits.streams; 1024 open files are allowed)"},
				{SeverityError, "the xDS port refuses peers, there are too many subscriptions: 2 refused so far, the latest < 1 s ago; 800 of 1000 are used (xds.limits.subscriptions; 1024 open files are allowed)"},
			},
		},
		"silent streams": {
			with(func(p *Port) { p.SilentStreams, p.LastSilentStreamAt = 5, before(time.Second) }),
			[]Problem{{SeverityWarning, "the xDS port ended 5 streams whose first message did not arrive in time, " +
				"the latest 1.0 s ago: peers that are no Envoys connect, or cannot send"}},
		},
		"accepting fails": {
			with(func(p *Port) {
				p.AcceptErrors, p.LastAcceptError, p.LastAcceptErrorAt = 4, "too many open files", before(time.Second)
			}),
			[]Problem{{SeverityError, "the xDS port could not accept connections 4 times, the latest 1.0 s ago: too many open files"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, portProblems(tc.in, noon)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			status := statusProblems(Status{ConfigGeneration: 1, Now: At(noon), XDSPort: tc.in}, 1)
			if len(status) != len(tc.want) {
				t.Errorf("the status has the problems %v", status)
			}
		})
	}
}

func TestWorstFirst(t *testing.T) {
	endpoint := func(address string, perSlot Number, problems ...Problem) Endpoint {
		return Endpoint{Address: address, LoadPerSlot: perSlot, Problems: problems}
	}
	endpoints := []Endpoint{
		endpoint("unknown load", Number{}), endpoint("b", Num(1)), endpoint("a", Num(1)), endpoint("full", Num(9)),
		endpoint("warned", Num(0), Problem{Severity: SeverityWarning}),
		endpoint("failed", Num(0), Problem{Severity: SeverityWarning}, Problem{Severity: SeverityError}),
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
