package admin

import (
	"fmt"
	"math"
	"time"

	"steelyard/controlplane/view"
	"steelyard/internal/stat"
	"steelyard/weighting"
)

// noon is when the fixed pictures of the tests are taken.
var noon = time.Date(2026, 3, 14, 12, 0, 0, 250e6, time.UTC)

// fixed is a Source that never changes.
type fixed struct {
	clusters []view.Cluster
	clients  []Client
	status   Status
}

func (f fixed) Clusters() []view.Cluster { return f.clusters }
func (f fixed) Clients() []Client        { return f.clients }
func (f fixed) Status() Status           { return f.status }

func (f fixed) Matrix(name string) (view.Matrix, bool) {
	c, ok := f.Cluster(name)
	if !ok {
		return view.Matrix{}, false
	}
	m := view.Matrix{Cluster: name}
	row := view.MatrixRow{NodeID: "edge-1", Host: "127.0.0.1", Source: view.SourceAccessLog}
	for i, e := range c.Endpoints {
		m.Endpoints, row.InFlight = append(m.Endpoints, e.Address), append(row.InFlight, i)
	}
	m.Envoys = append(m.Envoys, row)
	return m, true
}

func (f fixed) Cluster(name string) (view.Cluster, bool) {
	for _, c := range f.clusters {
		if c.Name == name {
			return c, true
		}
	}
	return view.Cluster{}, false
}

// typical is a process with one healthy pool in which single endpoints are in
// trouble, one pool that is not ready, and three Envoys.
func typical(now time.Time) fixed {
	return fixed{
		clusters: []view.Cluster{llama(now), mixtral()},
		clients:  envoys(now),
		status: Status{
			StartedAt:        view.At(now.Add(-3 * time.Hour)),
			ConfigFile:       "/etc/steelyard/steelyard.yaml",
			ConfigGeneration: 4,
			LastReload:       Reload{At: view.At(now.Add(-40 * time.Minute)), OK: true},
			Signals: SignalTotals{
				AccessLog: true, LoadReports: true,
				Entries: stat.Entries{Received: 183_204, Ignored: 12, Unpaired: 7, Reconciled: 3}, Reports: 10_741,
				Envoys: map[SignalMode]int{ModeEvents: 1, ModeReports: 1}, Silent: 1,
				ReportIntervalsSeconds: map[string]view.Number{view.SourceAccessLog: view.Num(1),
					view.SourceLoadReports: view.Num(0.1)},
				Streams: map[string]stat.SignalStreams{view.SourceAccessLog: {Open: 4, Refused: 1},
					view.SourceLoadReports: {Open: 2, Broken: 3}},
			},
			XDSAccess: XDSAccess{TLS: true, ClientCertificates: true, Rules: 2, Denied: []stat.DeniedClients{
				{Kind: "report"}, {Kind: "stream", Count: 2, LastAt: view.At(now.Add(-time.Hour)),
					LastClient: "spiffe://prod/ns/other/sa/envoy", LastPeer: "10.0.9.4:40100"},
				{Kind: "watch", Count: 7, LastAt: view.At(now.Add(-2 * time.Minute)),
					LastClient: "spiffe://prod/ns/edge/sa/envoy", LastPeer: "10.0.9.3:51230", LastCluster: "mixtral"},
			}},
			XDSPort: stat.Port{
				AdminPort: stat.AdminPort{
					Connections: stat.Bound{Used: 9, Limit: 765, Displaced: 3,
						LastDisplaced: view.At(now.Add(-40 * time.Minute))},
					ConnectionsPerAddress: stat.Bound{Used: 9, Limit: 573},
				},
				Streams: stat.Bound{Used: 24, Limit: 131_072},
				Subscriptions: stat.Bound{Used: 4, Limit: 262_144, Refused: 2,
					LastRefused: view.At(now.Add(-time.Hour))},
				UnreadBytes: stat.Bound{Used: 700, Limit: 268_435_456, Displaced: 1,
					LastDisplaced: view.At(now.Add(-2 * time.Hour))},
				SilentStreams: 5, LastSilentStreamAt: view.At(now.Add(-2 * time.Hour)),
				OpenFilesLimit: view.Num(1024),
				AcceptErrors:   1, LastAcceptError: "accept4: too many open files",
				LastAcceptErrorAt: view.At(now.Add(-2 * time.Hour)),
			},
			AdminPort: stat.AdminPort{
				Connections: stat.Bound{Used: 3, Limit: 128},
				ConnectionsPerAddress: stat.Bound{Used: 2, Limit: 96, Displaced: 1,
					LastDisplaced: view.At(now.Add(-3 * time.Hour))},
			},
			Certificates: []Certificate{
				{Use: UseXDS, File: "/etc/steelyard/tls/xds.pem", Subject: "CN=steelyard",
					NotAfter: view.At(now.Add(13 * 24 * time.Hour))},
				{Use: UseXDSClientCA, File: "/etc/steelyard/tls/envoys.pem", Subject: "CN=fleet",
					NotAfter: view.At(now.Add(900 * 24 * time.Hour))},
				{Use: UseScrapeClient, File: "/etc/steelyard/tls/scrape.pem", Error: "no such file"},
			},
			RefusedHandshakes: []stat.RefusedHandshake{
				{Reason: "expired"},
				{Reason: "no_certificate", Count: 812, LastAt: view.At(now.Add(-2 * time.Second)),
					LastPeer: "10.0.9.3:51234", LastError: "tls: client didn't provide a certificate"},
			},
			Replicas: stat.Replicas{Enabled: true, ID: "MF2XK3DJNZTSA43UMVSWY6LBOJSA", Name: "steelyard-0",
				Connected: true,
				Since:     view.At(now.Add(-2 * time.Hour)), Scraping: view.Num(2),
				Messages: stat.ReplicaMessages{Sent: 90_211, Failed: 2, Received: 88_120, Lost: 1, Stale: 3, Foreign: 4,
					Invalid: 5, Refused: 6, LastForeign: view.At(now.Add(-time.Hour))},
				Others: []stat.Replica{
					{ID: "ON2GKZLMPFQXEZBNGEWXG5DFMVWG", Name: "steelyard-1", State: "live", Envoys: 3,
						Since:       view.At(now.Add(-2 * time.Hour)),
						LastMessage: view.At(now.Add(-40 * time.Millisecond))},
				}},
			GoneEnvoys: []stat.GoneEnvoy{{NodeID: "edge-9", Address: "10.0.9.9:40112",
				Since: view.At(now.Add(-42 * time.Second)), Cause: "the connection was reset"}},
			Pickers: Pickers{SharedPrompts: stat.SharedPrompts{Sent: 5_120, LeftOut: 33}, List: []stat.Picker{
				{Name: "gateway-7f9c", Address: "10.0.9.4:50122", Clusters: []string{"llama"},
					Since: view.At(now.Add(-time.Hour))},
				{Name: "gateway-x2x4", Address: "10.0.9.5:40990", Since: view.At(now.Add(-20 * time.Minute))}}},
			Tracing: stat.Tracing{Enabled: true, Skipped: 3, Exported: 4_096, Failed: 12},
			Log:     stat.LogStatus{DroppedLines: 17, LastDrop: view.At(now.Add(-time.Hour))},
		},
	}
}

func llama(now time.Time) view.Cluster {
	decision, endpoints := view.FromDecision(llamaDecision(now), now)
	for i := range endpoints {
		e := &endpoints[i]
		e.Engine = "vllm"
		e.Weight = view.Num(math.Round(e.Share.Or(0) * 1e6))
		e.LastScrape = view.Scrape{At: view.At(now.Add(-120 * time.Millisecond)),
			DurationSeconds: view.Seconds(time.Duration(3+i) * time.Millisecond)}
	}
	for i := range endpoints[:4] {
		e := &endpoints[i]
		e.InFlightSource, e.FailedRequests, e.ErrorRequests = view.SourceAccessLog, view.Num(float64(2*i)),
			view.Num(float64(3*i))
		if i != 4 { // which nobody was sent to yet
			e.ResponseBytes, e.ResponseBytesAgeSeconds = view.Num(float64(1500+100*i)), view.Num(0.4)
			e.FailedShare, e.FailedShareAgeSeconds = view.Num(0.01*float64(i)), view.Num(0.2)
		}
	}
	for i := range endpoints[:4] {
		e := &endpoints[i]
		e.Requests, e.CompletedRequests = view.Num(float64(9000+100*i)), view.Num(float64(9100+100*i))
		e.HashedRequests = view.Num(float64(800 + i))
		e.FirstToken = view.FirstToken{FirstTokenMean: view.Num(0.21), FirstTokenP99: view.Num(0.9),
			FirstTokenP99Low: view.Num(0.75), FirstTokenP99High: view.Num(1)}
		e.AnswerP99Seconds = view.Num(4.2)
	}
	for i := range endpoints[:2] { // of the others nobody knows
		endpoints[i].ImplausibleReadings = view.Num(float64(2 * i))
	}
	endpoints[1].WrongCounters = "vllm:prompt_tokens_total rose by more than any server can count"
	endpoints[1].LastWrongCounters = view.At(now.Add(-7 * time.Minute))
	endpoints[2].LastScrape.Error = "get http://10.0.0.3:8000/metrics: no answer within 200ms"
	endpoints[4].LastScrape = view.Scrape{}
	return view.Cluster{
		Name: "llama", Engine: "vllm", Ready: true, Decision: decision, Endpoints: endpoints,
		Sources: []view.SourceStatus{
			{Name: "scrape", State: view.SourceOK, LastSuccess: view.At(now.Add(-90 * time.Millisecond)),
				LastError: "7 of 8 endpoints answer"},
			{Name: "redis", State: view.SourceDown, LastSuccess: view.At(now.Add(-42 * time.Second)),
				LastError: "reading inflight:llama: dial tcp 127.0.0.1:6379: connection refused"},
			{Name: "discovery", State: view.SourcePartly, LastSuccess: view.At(now.Add(-20 * time.Minute)),
				Omitted: view.Omissions{Count: 21, First: []stat.Omission{
					{Object: "steelyard.dev/capacity of Pod small", Reason: `it is "eight": write a number of slots`},
					{Address: "gpu1.example.net", Object: "EndpointSlice llama-x",
						Reason: "it has addresses of type FQDN"},
				}}},
			{Name: view.SourceAccessLog, State: view.SourcePartial,
				LastSuccess: view.At(now.Add(-4 * time.Millisecond)),
				Envoys: view.Reporting{Expected: view.Num(3), Reporting: view.Num(1), Idle: view.Num(0),
					Missing: []string{"edge-2", "edge-3"}}},
			{Name: view.SourceLoadReports, State: view.SourceOK, LastSuccess: view.At(now.Add(-400 * time.Millisecond)),
				Envoys: view.Reporting{Expected: view.Num(3), Reporting: view.Num(3), Idle: view.Num(0)}},
		},
		LastPush: view.Push{At: view.At(now.Add(-80 * time.Millisecond)), Version: "a81f-1842", Reason: "changed"},
		Disputes: []view.Dispute{
			{Kind: stat.DisputeInFlight, NodeID: "edge-2", Host: "127.0.0.1",
				Endpoints: []string{"10.0.0.1:8000", "10.0.0.2:8000"}, Requests: view.Num(2000),
				Since: view.At(now.Add(-7 * time.Minute))},
			{Kind: stat.DisputeFailures, NodeID: "edge-3", Host: "127.0.0.1", Endpoints: []string{"10.0.0.7:8000"},
				Since: view.At(now.Add(-12 * time.Second))},
		},
		Queue: &stat.Queue{MaxInFlight: new(4), InFlight: 29, Envoys: 3, Classes: []stat.QueueClass{
			{Name: "interactive", Weight: 3, MaxWaiting: 200, MaxWaitSeconds: view.Num(10), Waiting: 2, Tenants: 1,
				OldestAt: view.At(now.Add(-300 * time.Millisecond)), Granted: 9031, Left: 4},
			{Name: "batch", Weight: 1, MaxWaiting: 1000, MaxWaitSeconds: view.Num(600), Waiting: 41, Tenants: 7,
				OldestAt: view.At(now.Add(-75 * time.Second)), Granted: 2987, Released: 12, Left: 1, RefusedFull: 5,
				RefusedTimeout: 6},
		}},
		Pushes: 1842, SuppressedPushes: 30991, MinIntervalSeconds: view.Num(0.05), MinIntervalReason: "cpu",
		DroppedRequests: view.Num(17), Requests: view.Num(36_600), AnswerP99Seconds: view.Num(4.3),
		FirstToken: view.FirstToken{FirstTokenMean: view.Num(0.22), FirstTokenP99: view.Num(3),
			FirstTokenP99Low: view.Num(2.5)},
	}
}

func mixtral() view.Cluster {
	return view.Cluster{
		Name: "mixtral", Engine: "triton", NotReadyReason: "first reports are missing from 2 of 2 endpoints",
		Endpoints: []view.Endpoint{{Address: "10.0.1.1:8000", Reason: "blackout"},
			{Address: "10.0.1.2:8000", Reason: "blackout"}},
		Sources: []view.SourceStatus{{Name: "scrape", State: view.SourceDown,
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

func envoys(now time.Time) []Client {
	sub := stat.Subscription{
		Resource: "llama", Cluster: "llama", Known: true, VersionSent: "a81f-1842", VersionAcked: "a81f-1842",
		InSync:   true,
		LastSent: view.At(now.Add(-80 * time.Millisecond)), LastAck: view.At(now.Add(-76 * time.Millisecond)),
		AckDelaySeconds: view.Num(0.0041), Acks: 1842,
	}
	refused := sub
	refused.VersionAcked, refused.InSync, refused.Nacks = "a81f-1790", false, 52
	refused.Nack = stat.Nack{
		Message: "ClusterLoadAssignment.Endpoints[0]: load_balancing_weight: value must be greater than or equal to 1",
		At:      view.At(now.Add(-70 * time.Millisecond)), Current: true,
	}
	strange := stat.Subscription{Resource: "lama", Cluster: "lama", Known: false}
	node := func(i int, subs ...stat.Subscription) Client {
		return Client{Client: stat.Client{
			Node: stat.Node{NodeID: fmt.Sprintf("edge-%d", i), NodeCluster: "edge", Version: "1.40.0",
				Locality: "eu-1/a"},
			Address: fmt.Sprintf("127.0.0.1:5%04d", i), ConnectedAt: view.At(now.Add(-time.Hour)),
			Transport: "EDS delta", Subscriptions: subs,
		}}
	}
	clients := []Client{node(1, sub), node(2, refused), node(3, sub, strange)}
	clients[0].Signals = Signals{
		State: SignalOK, Mode: ModeEvents, RequestRate: view.Num(41.26), OpenRequests: view.Num(33), Streams: 2,
		ReportStreams: 1,
		Entries:       stat.Entries{Received: 182_900, Ignored: 0, Unpaired: 7, Reconciled: 3},
		LastEntry:     view.At(now.Add(-4 * time.Millisecond)), LastReport: view.At(now.Add(-400 * time.Millisecond)),
		ReportIntervalSeconds: view.Num(1),
		Runtime:               stat.Runtime{Subscribed: true, InSync: true},
	}
	clients[1].Signals = Signals{
		State: SignalSilent, Mode: ModeReports, RequestRate: view.Num(0), OpenRequests: view.Num(0),
		Entries: stat.Entries{Received: 304, Ignored: 12}, LastReport: view.At(now.Add(-8 * time.Second)),
		ReportIntervalSeconds: view.Num(1),
		Runtime:               stat.Runtime{Subscribed: true, Nack: "unexpected runtime value"},
	}
	return clients
}

// recent fills a history with five minutes that end at now.
func recent(now time.Time, clusters ...view.Cluster) *History {
	h := NewHistory()
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
func filledWith(shares []float64) func(*row) {
	return func(r *row) {
		for i, share := range shares {
			for field, v := range [fineFields]float64{fieldShare: share, fieldServed: share, fieldLatency: share,
				fieldLoad: 10 * share, fieldInFlight: 100 * share} {
				r.set(field, i, v)
			}
			r.states()[i] = stateCode(view.EndpointOK)
		}
		r.pool = [poolFields]float32{40, 0.9, 3, 1.1, 100, 0.2, 4, 0.7, 0}
	}
}

// wavy are the shares of the endpoints s seconds ago, with some movement.
func wavy(endpoints []view.Endpoint, s int) ([]string, []float64) {
	var addresses []string
	var shares []float64
	for i, e := range endpoints {
		if e.Reason == reasonBlackout && s > 20 {
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
func large(now time.Time, n int) view.Cluster {
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
	decision, endpoints := view.FromDecision(d, now)
	return view.Cluster{Name: "wide", Engine: "vllm", Ready: true, Decision: decision, Endpoints: endpoints,
		MinIntervalSeconds: view.Num(1)}
}
