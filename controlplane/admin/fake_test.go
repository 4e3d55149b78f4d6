package admin

import (
	"fmt"
	"math"
	"time"

	"steelyard/controlplane/admin/history"
	"steelyard/internal/api"
	"steelyard/weighting"
)

// noon is when the fixed pictures of the tests are taken.
var noon = time.Date(2026, 3, 14, 12, 0, 0, 250e6, time.UTC)

// fixed is a Source that never changes.
type fixed struct {
	clusters []api.Cluster
	clients  []api.Client
	others   []api.OtherEnvoy
	status   api.Status
}

func (f fixed) Clusters() []api.Cluster { return f.clusters }
func (f fixed) Clients() []api.Client   { return f.clients }
func (f fixed) Status() api.Status      { return f.status }

func (f fixed) Elsewhere() []api.OtherEnvoy { return f.others }

func (f fixed) Matrix(name string) (api.Matrix, bool) {
	c, ok := f.Cluster(name)
	if !ok {
		return api.Matrix{}, false
	}
	m := api.Matrix{Cluster: name}
	row := api.MatrixRow{NodeID: "edge-1", Host: "127.0.0.1", Source: api.SourceAccessLog}
	for i, e := range c.Endpoints {
		m.Endpoints, row.InFlight = append(m.Endpoints, e.Address), append(row.InFlight, i)
	}
	m.Envoys = append(m.Envoys, row)
	return m, true
}

func (f fixed) Shadow(name string) (api.Shadow, bool) {
	c, ok := f.Cluster(name)
	s := api.Shadow{Cluster: name, Began: api.At(noon), Seconds: api.Num(600), Requests: 90, Arrivals: []uint32{40, 50},
		AnswerP50: api.Num(1), AnswerP99: api.Num(2), Envoys: []api.ShadowEnvoy{{NodeID: "edge-1", Requests: 90}},
		Service: []api.Number{api.Num(1)}}
	for _, e := range c.Endpoints {
		s.Endpoints = append(s.Endpoints, api.ShadowEndpoint{Address: e.Address, Requests: 30, InFlight: api.Num(0.1),
			AnswerP99: api.Num(2), Slots: api.Num(4), ServiceSeconds: api.Num(1)})
	}
	return s, ok
}

func (f fixed) Cluster(name string) (api.Cluster, bool) {
	for _, c := range f.clusters {
		if c.Name == name {
			return c, true
		}
	}
	return api.Cluster{}, false
}

// typical is a process with one healthy pool in which single endpoints are in
// trouble, one pool that is not ready, and three Envoys.
func typical(now time.Time) fixed {
	return fixed{
		clusters: []api.Cluster{llama(now), mixtral()},
		clients:  envoys(now),
		others:   others(now),
		status: api.Status{
			StartedAt:        api.At(now.Add(-3 * time.Hour)),
			ConfigFile:       "/etc/steelyard/steelyard.yaml",
			ConfigGeneration: 4,
			LastReload:       api.Reload{At: api.At(now.Add(-40 * time.Minute)), OK: true},
			Signals: api.SignalTotals{
				AccessLog: true, LoadReports: true,
				Entries: api.Entries{Received: 183_204, Ignored: 12, Unpaired: 7, Reconciled: 3}, Reports: 10_741,
				Envoys: map[api.SignalMode]int{api.ModeEvents: 1, api.ModeReports: 1}, Silent: 1,
				ReportIntervalsSeconds: map[string]api.Number{api.SourceAccessLog: api.Num(1),
					api.SourceLoadReports: api.Num(0.1)},
				Streams: map[string]api.SignalStreams{api.SourceAccessLog: {Open: 4, Refused: 1},
					api.SourceLoadReports: {Open: 2, Broken: 3}},
			},
			XDSAccess: api.XDSAccess{TLS: true, ClientCertificates: true, Rules: 2, Denied: []api.DeniedClients{
				{Kind: "report"}, {Kind: "stream", Count: 2, LastAt: api.At(now.Add(-time.Hour)),
					LastClient: "spiffe://prod/ns/other/sa/envoy", LastPeer: "10.0.9.4:40100"},
				{Kind: "watch", Count: 7, LastAt: api.At(now.Add(-2 * time.Minute)),
					LastClient: "spiffe://prod/ns/edge/sa/envoy", LastPeer: "10.0.9.3:51230", LastCluster: "mixtral"},
			}},
			XDSPort: api.Port{
				AdminPort: api.AdminPort{
					Connections: api.Bound{Used: 9, Limit: 765, Displaced: 3,
						LastDisplaced: api.At(now.Add(-40 * time.Minute))},
					ConnectionsPerAddress: api.Bound{Used: 9, Limit: 573},
				},
				Streams: api.Bound{Used: 24, Limit: 131_072},
				Subscriptions: api.Bound{Used: 4, Limit: 262_144, Refused: 2,
					LastRefused: api.At(now.Add(-time.Hour))},
				UnreadBytes: api.Bound{Used: 700, Limit: 268_435_456, Displaced: 1,
					LastDisplaced: api.At(now.Add(-2 * time.Hour))},
				SilentStreams: 5, LastSilentStreamAt: api.At(now.Add(-2 * time.Hour)),
				OpenFilesLimit: api.Num(1024),
				AcceptErrors:   1, LastAcceptError: "accept4: too many open files",
				LastAcceptErrorAt: api.At(now.Add(-2 * time.Hour)),
			},
			AdminPort: api.AdminPort{
				Connections: api.Bound{Used: 3, Limit: 128},
				ConnectionsPerAddress: api.Bound{Used: 2, Limit: 96, Displaced: 1,
					LastDisplaced: api.At(now.Add(-3 * time.Hour))},
			},
			Certificates: []api.Certificate{
				{Use: api.UseXDS, File: "/etc/steelyard/tls/xds.pem", Subject: "CN=steelyard",
					NotAfter: api.At(now.Add(13 * 24 * time.Hour))},
				{Use: api.UseXDSClientCA, File: "/etc/steelyard/tls/envoys.pem", Subject: "CN=fleet",
					NotAfter: api.At(now.Add(900 * 24 * time.Hour))},
				{Use: api.UseScrapeClient, File: "/etc/steelyard/tls/scrape.pem", Error: "no such file"},
			},
			RefusedHandshakes: []api.RefusedHandshake{
				{Reason: "expired"},
				{Reason: "no_certificate", Count: 812, LastAt: api.At(now.Add(-2 * time.Second)),
					LastPeer: "10.0.9.3:51234", LastError: "tls: client didn't provide a certificate"},
			},
			Replicas: api.Replicas{Enabled: true, ID: "MF2XK3DJNZTSA43UMVSWY6LBOJSA", Name: "steelyard-0",
				Connected: true,
				Since:     api.At(now.Add(-2 * time.Hour)),
				Messages: api.ReplicaMessages{Sent: 90_211, Failed: 2, Received: 88_120, Lost: 1, Stale: 3, Foreign: 4,
					Invalid: 5, Refused: 6, LastForeign: api.At(now.Add(-time.Hour)),
					Prompts: api.SharedPrompts{Sent: 4_100, LeftOut: 7}},
				Others: []api.Replica{
					{ID: "ON2GKZLMPFQXEZBNGEWXG5DFMVWG", Name: "steelyard-1", Address: "10.0.8.2:18000",
						State: "live", Follows: true, Envoys: 3, LeftOut: 1,
						Since:       api.At(now.Add(-2 * time.Hour)),
						LastMessage: api.At(now.Add(-40 * time.Millisecond))},
				}},
			GoneEnvoys: []api.GoneEnvoy{{NodeID: "edge-9", Address: "10.0.9.9:40112",
				Since: api.At(now.Add(-42 * time.Second)), Cause: "the connection was reset"}},
			Pickers: api.Pickers{SharedPrompts: api.SharedPrompts{Sent: 5_120, LeftOut: 33}, List: []api.Picker{
				{Name: "gateway-7f9c", Address: "10.0.9.4:50122", Clusters: []string{"llama"},
					Since: api.At(now.Add(-time.Hour))},
				{Name: "gateway-x2x4", Address: "10.0.9.5:40990", Since: api.At(now.Add(-20 * time.Minute))}}},
			Log: api.LogStatus{DroppedLines: 17, LastDrop: api.At(now.Add(-time.Hour))},
		},
	}
}

// others are what another replica has: two Envoys that it lists, and a picker.
func others(now time.Time) []api.OtherEnvoy {
	other := func(kind api.FollowerKind, name string, state api.EnvoyState) api.OtherEnvoy {
		return api.OtherEnvoy{Kind: kind, NodeID: name, Address: "10.0.9.20:40000", Replica: "steelyard-1",
			ReplicaID: "ON2GKZLMPFQXEZBNGEWXG5DFMVWG", State: state, Clusters: []string{"llama"},
			ConnectedAt: api.At(now.Add(-time.Hour)), LastAck: api.At(now.Add(-time.Second)),
			HeardAt: api.At(now.Add(-40 * time.Millisecond))}
	}
	return []api.OtherEnvoy{other(api.FollowerEnvoy, "edge-7", api.EnvoyFollows),
		other(api.FollowerEnvoy, "edge-8", api.EnvoyFollows), other(api.FollowerPicker, "gateway-y", api.EnvoyFollows)}
}

func llama(now time.Time) api.Cluster {
	decision, endpoints := api.FromDecision(llamaDecision(now), now)
	for i := range endpoints {
		e := &endpoints[i]
		e.Engine = "vllm"
		e.Weight = api.Num(math.Round(e.Share.Or(0) * 1e6))
		e.LastScrape = api.Scrape{At: api.At(now.Add(-120 * time.Millisecond)),
			DurationSeconds: api.Seconds(time.Duration(3+i) * time.Millisecond)}
	}
	for i := range endpoints[:4] {
		e := &endpoints[i]
		e.InFlightSource, e.FailedRequests, e.ErrorRequests = api.SourceAccessLog, api.Num(float64(2*i)),
			api.Num(float64(3*i))
		if i != 4 { // which nobody was sent to yet
			e.ResponseBytes, e.ResponseBytesAgeSeconds = api.Num(float64(1500+100*i)), api.Num(0.4)
			e.FailedShare, e.FailedShareAgeSeconds = api.Num(0.01*float64(i)), api.Num(0.2)
		}
	}
	for i := range endpoints[:4] {
		e := &endpoints[i]
		e.Requests, e.CompletedRequests = api.Num(float64(9000+100*i)), api.Num(float64(9100+100*i))
		e.HashedRequests = api.Num(float64(800 + i))
		e.FirstToken = api.FirstToken{FirstTokenMean: api.Num(0.21), FirstTokenP99: api.Num(0.9),
			FirstTokenP99Low: api.Num(0.75), FirstTokenP99High: api.Num(1)}
		e.AnswerP99Seconds = api.Num(4.2)
	}
	for i := range endpoints[:2] { // of the others nobody knows
		endpoints[i].ImplausibleReadings = api.Num(float64(2 * i))
	}
	endpoints[1].WrongCounters = "vllm:prompt_tokens_total rose by more than any server can count"
	endpoints[1].LastWrongCounters = api.At(now.Add(-7 * time.Minute))
	endpoints[2].LastScrape.Error = "get http://10.0.0.3:8000/metrics: no answer within 200ms"
	endpoints[4].LastScrape = api.Scrape{}
	return api.Cluster{
		Name: "llama", Engine: "vllm", Ready: true, Decision: decision, Endpoints: endpoints,
		Sources: []api.SourceStatus{
			{Name: "scrape", State: api.SourceOK, LastSuccess: api.At(now.Add(-90 * time.Millisecond)),
				LastError: "7 of 8 endpoints answer"},
			{Name: "redis", State: api.SourceDown, LastSuccess: api.At(now.Add(-42 * time.Second)),
				LastError: "reading inflight:llama: dial tcp 127.0.0.1:6379: connection refused"},
			{Name: "discovery", State: api.SourcePartly, LastSuccess: api.At(now.Add(-20 * time.Minute)),
				Omitted: api.Omissions{Count: 21, First: []api.Omission{
					{Object: "steelyard.dev/capacity of Pod small", Reason: `it is "eight": write a number of slots`},
					{Address: "gpu1.example.net", Object: "EndpointSlice llama-x",
						Reason: "it has addresses of type FQDN"},
				}}},
			{Name: api.SourceAccessLog, State: api.SourcePartial,
				LastSuccess: api.At(now.Add(-4 * time.Millisecond)),
				Envoys: api.Reporting{Expected: api.Num(3), Reporting: api.Num(1), Idle: api.Num(0),
					Missing: []string{"edge-2", "edge-3"}}},
			{Name: api.SourceLoadReports, State: api.SourceOK, LastSuccess: api.At(now.Add(-400 * time.Millisecond)),
				Envoys: api.Reporting{Expected: api.Num(3), Reporting: api.Num(3), Idle: api.Num(0)}},
		},
		LastPush: api.Push{At: api.At(now.Add(-80 * time.Millisecond)), Version: "a81f-1842", Reason: "changed"},
		Disputes: []api.Dispute{
			{Kind: api.DisputeInFlight, NodeID: "edge-2", Host: "127.0.0.1",
				Endpoints: []string{"10.0.0.1:8000", "10.0.0.2:8000"}, Requests: api.Num(2000),
				Since: api.At(now.Add(-7 * time.Minute))},
			{Kind: api.DisputeFailures, NodeID: "edge-3", Host: "127.0.0.1", Endpoints: []string{"10.0.0.7:8000"},
				Since: api.At(now.Add(-12 * time.Second))},
		},
		Routes: &api.Routes{Here: 700, Elsewhere: 300, Evicted: 12, LastMinute: 40, LastTenMinutes: 250,
			LastHour: 1000},
		Queue: &api.Queue{MaxInFlight: new(4), InFlight: api.Num(29), Envoys: 3, Here: 3, Owner: api.QueueOwner{
			State: api.QueueGrants, Lease: "none"}, Classes: []api.QueueClass{
			{Name: "interactive", Weight: 3, MaxWaiting: 200, MaxWaitSeconds: api.Num(10), Waiting: 2, Tenants: 1,
				OldestAt: api.At(now.Add(-300 * time.Millisecond)), Granted: 9031, Left: 4},
			{Name: "batch", Weight: 1, MaxWaiting: 1000, MaxWaitSeconds: api.Num(600), Waiting: 41, Tenants: 7,
				OldestAt: api.At(now.Add(-75 * time.Second)), Granted: 2987, Released: 12, Left: 1, RefusedFull: 5,
				RefusedTimeout: 6},
		}},
		Pushes: 1842, SuppressedPushes: 30991, MinIntervalSeconds: api.Num(0.05), MinIntervalReason: "cpu",
		DroppedRequests: api.Num(17), Requests: api.Num(36_600), AnswerP99Seconds: api.Num(4.3),
		FirstToken: api.FirstToken{FirstTokenMean: api.Num(0.22), FirstTokenP99: api.Num(3),
			FirstTokenP99Low: api.Num(2.5)},
	}
}

func mixtral() api.Cluster {
	return api.Cluster{
		Name: "mixtral", Engine: "triton", NotReadyReason: "first reports are missing from 2 of 2 endpoints",
		Endpoints: []api.Endpoint{{Address: "10.0.1.1:8000", Reason: "blackout"},
			{Address: "10.0.1.2:8000", Reason: "blackout"}},
		Sources: []api.SourceStatus{{Name: "scrape", State: api.SourceDown,
			LastError: "get http://10.0.1.1:8002/metrics: connection refused"}},
	}
}

// llamaDecision has an endpoint for every reason.
func llamaDecision(now time.Time) weighting.Decision {
	reasons := []weighting.Reason{
		weighting.ReasonFill, weighting.ReasonFloor, weighting.ReasonNeutral, weighting.ReasonDecay,
		weighting.ReasonBlackout, weighting.ReasonRamp, weighting.ReasonFill, weighting.ReasonFill,
	}
	shares := []float64{0.19, 0.012, 0.14, 0.1, 0.02, 0.048, 0.23, 0.26}
	d := weighting.Decision{
		At: now.Add(-30 * time.Millisecond), ArrivalRate: 41.7, ArrivalRateSource: weighting.RateCompletions,
		Horizon: 310 * time.Millisecond, Arrivals: 12.9, WaterLevel: 1.13, MedianLoad: 0.94,
		Work: &weighting.Work{
			PromptTokens: 1012, OutputTokens: 211, Cached: 0.43, Requests: 2480, Engines: 8,
			CountedAt:     now.Add(-140 * time.Millisecond),
			TokensPerByte: 0.238, SizedAt: now.Add(-time.Second), BySize: true,
			PrefillRate: 12_300, Iteration: 0.021, RatedAt: now.Add(-2 * time.Second),
		},
	}
	for i, reason := range reasons {
		d.Endpoints = append(d.Endpoints, endpointDecision(now, i, reason, shares[i]))
	}
	d.Endpoints[1].Overloaded, d.Endpoints[1].OverloadReason = true, "queue 5.2 per slot >= 4"
	return d
}

func endpointDecision(now time.Time, i int, reason weighting.Reason, share float64) weighting.EndpointDecision {
	e := weighting.EndpointDecision{
		Address: fmt.Sprintf("10.0.0.%d:8000", i+1), Zone: string('a' + rune(i%3)), Share: share, Reason: reason,
		Load: 4 + float64(i*3%7), LoadSource: weighting.LoadFused, Capacity: 8, Slots: 8,
		SlotsSource:   weighting.CapacityLearned,
		RelativeSpeed: 1 - 0.05*float64(i%4), Ramp: 1, Unproxied: -0.5,
		CompletionRate: 6.1, MeanQueueTime: 0.042 * float64(i), BusyFraction: 0.83,
		Latency: float64(81+10*i) / 100, // in one step, for the same last digit on all processors
	}
	queue := weighting.Input{Field: weighting.FieldQueue, Value: float64(i * 3 % 7), Age: 140 * time.Millisecond,
		State: weighting.StateFresh}
	switch reason {
	case weighting.ReasonFloor:
		queue.Value, e.Load = 42, 50
	case weighting.ReasonNeutral:
		queue.Age, queue.State = 14*time.Second, weighting.StateNeutral
	case weighting.ReasonDecay:
		queue.Age, queue.State = 6*time.Second, weighting.StateDecay
	case weighting.ReasonBlackout:
		queue = weighting.Input{Field: weighting.FieldQueue, Value: math.NaN(), State: weighting.StateUnknown}
		e.CompletionRate, e.MeanQueueTime, e.BusyFraction, e.Latency, e.Ramp = math.NaN(), math.NaN(), math.NaN(),
			math.NaN(), 0.1
	case weighting.ReasonRamp:
		e.Ramp = 0.4
	}
	running, used, inFlight := queue, queue, queue
	running.Field, used.Field, inFlight.Field = weighting.FieldRunning, weighting.FieldUtilization,
		weighting.FieldInFlight
	if queue.State != weighting.StateUnknown {
		running.Value, used.Value = 8, 0.62
		inFlight.Value, inFlight.Age, inFlight.State = e.Load, 42*time.Second, weighting.StateNeutral
	}
	e.Work = &weighting.EndpointWork{
		PromptTokens: 700 * float64(i), Source: weighting.WorkSizes, ReportedAt: now.Add(-42 * time.Millisecond),
		CountedAt: now.Add(-140 * time.Millisecond), Requests: e.Load / 8, Seconds: e.Load / 8 * 0.095,
		PrefillRate: 12_300 * e.RelativeSpeed, PrefillSource: weighting.PrefillMeasured,
		RatedAt: now.Add(-2 * time.Second),
	}
	e.Inputs = []weighting.Input{queue, running, used, inFlight}
	return e
}

func envoys(now time.Time) []api.Client {
	sub := api.Subscription{
		Resource: "llama", Cluster: "llama", Known: true, VersionSent: "a81f-1842", VersionAcked: "a81f-1842",
		InSync:   true,
		LastSent: api.At(now.Add(-80 * time.Millisecond)), LastAck: api.At(now.Add(-76 * time.Millisecond)),
		AckDelaySeconds: api.Num(0.0041), Acks: 1842,
	}
	refused := sub
	refused.VersionAcked, refused.InSync, refused.Nacks = "a81f-1790", false, 52
	refused.Nack = api.Nack{
		Message: "ClusterLoadAssignment.Endpoints[0]: load_balancing_weight: value must be greater than or equal to 1",
		At:      api.At(now.Add(-70 * time.Millisecond)), Current: true,
	}
	strange := api.Subscription{Resource: "lama", Cluster: "lama", Known: false}
	node := func(i int, subs ...api.Subscription) api.Client {
		return api.Client{Connection: api.Connection{
			Node: api.Node{NodeID: fmt.Sprintf("edge-%d", i), NodeCluster: "edge", Version: "1.40.0",
				Locality: "eu-1/a"},
			Address: fmt.Sprintf("127.0.0.1:5%04d", i), ConnectedAt: api.At(now.Add(-time.Hour)),
			Transport: "EDS delta", Subscriptions: subs,
		}}
	}
	clients := []api.Client{node(1, sub), node(2, refused), node(3, sub, strange)}
	clients[0].Signals = api.Signals{
		State: api.SignalOK, Mode: api.ModeEvents, RequestRate: api.Num(41.26), OpenRequests: api.Num(33), Streams: 2,
		ReportStreams: 1,
		Entries:       api.Entries{Received: 182_900, Ignored: 0, Unpaired: 7, Reconciled: 3},
		LastEntry:     api.At(now.Add(-4 * time.Millisecond)), LastReport: api.At(now.Add(-400 * time.Millisecond)),
		ReportIntervalSeconds: api.Num(1),
		Runtime:               api.Runtime{Subscribed: true, InSync: true},
	}
	clients[1].Signals = api.Signals{
		State: api.SignalSilent, Mode: api.ModeReports, RequestRate: api.Num(0), OpenRequests: api.Num(0),
		Entries: api.Entries{Received: 304, Ignored: 12}, LastReport: api.At(now.Add(-8 * time.Second)),
		ReportIntervalSeconds: api.Num(1),
		Runtime:               api.Runtime{Subscribed: true, Nack: "unexpected runtime value"},
	}
	return clients
}

// recent fills a history with five minutes that end at now.
func recent(now time.Time, clusters ...api.Cluster) *history.History {
	h := history.NewHistory()
	for s := 298; s >= 0; s-- {
		at := now.Add(-time.Duration(s) * time.Second)
		for _, c := range clusters {
			addresses, shares := wavy(c.Endpoints, s)
			h.Add(c.Name, at, addresses, filledWith(shares))
		}
	}
	return h
}

// filledWith writes a sample with these shares; the rest follows from them.
func filledWith(shares []float64) func(*history.Row) {
	return func(r *history.Row) {
		for i, share := range shares {
			for field, v := range [history.FineFields]float64{history.FieldShare: share,
				history.FieldServed: share, history.FieldLatency: share,
				history.FieldLoad: 10 * share, history.FieldInFlight: 100 * share} {
				r.Set(field, i, v)
			}
			r.States()[i] = history.StateCode(api.EndpointOK)
		}
		r.Pool = [history.PoolFields]float32{40, 0.9, 3, 1.1, 100, 0.2, 4, 0.7, 0}
	}
}

// wavy are the shares of the endpoints s seconds ago, with some movement.
func wavy(endpoints []api.Endpoint, s int) ([]string, []float64) {
	var addresses []string
	var shares []float64
	for i, e := range endpoints {
		if e.Reason == "blackout" && s > 20 {
			continue
		}
		swing := 1 + 0.4*math.Sin(float64(s)/15+float64(i))*math.Min(1, float64(s)/60)
		// Some processors multiply and add in one step, which rounds the last digit differently: the goldens must not
		// depend on that.
		swing = math.Round(swing*1e6) / 1e6
		addresses = append(addresses, e.Address)
		shares = append(shares, e.Share.Or(0)*swing)
	}
	return addresses, shares
}

// large is a pool of n endpoints, two of every hundred in trouble.
func large(now time.Time, n int) api.Cluster {
	d := weighting.Decision{At: now, ArrivalRate: 40 * float64(n), ArrivalRateSource: weighting.RateCompletions,
		Horizon: time.Second, WaterLevel: 1, MedianLoad: 0.9}
	for i := range n {
		reason := weighting.ReasonFill
		switch i % 100 {
		case 17:
			reason = weighting.ReasonNeutral
		case 63:
			reason = weighting.ReasonFloor
		}
		e := endpointDecision(now, i, reason, 1/float64(n))
		e.Address = fmt.Sprintf("10.1.%d.%d:8000", i/250, i%250+1)
		d.Endpoints = append(d.Endpoints, e)
	}
	decision, endpoints := api.FromDecision(d, now)
	return api.Cluster{Name: "wide", Engine: "vllm", Ready: true, Decision: decision, Endpoints: endpoints,
		MinIntervalSeconds: api.Num(1)}
}
