package console

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"steelyard/e2e/rig/golden"
	"steelyard/internal/api"
	"steelyard/internal/credentials"
)

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

func before(d time.Duration) api.Time { return api.At(noon.Add(-d)) }

// someStatus is a fleet in trouble.
func someStatus() *Status {
	drained := api.Override{Cluster: "llama-70b", Address: "10.20.1.13:8000", Kind: api.OverrideDrain,
		Since: before(time.Minute), Until: api.At(noon.Add(29 * time.Minute)), By: "anna", Reason: "new driver"}
	pinned := drained
	pinned.Address, pinned.Kind, pinned.Share, pinned.Reason = "10.20.1.14:8000", api.OverridePin, api.Num(0.05), ""
	s := &Status{
		Process: api.Status{Version: "0.1.0", Now: api.At(noon), UptimeSeconds: api.Num(3 * 3600), Ready: true,
			ConfigGeneration: 4, LastReload: api.Reload{At: before(40 * time.Minute), OK: true},
			Pickers: api.Pickers{Connected: 102, List: []api.Picker{
				{Name: "gateway-7f9c\x1b[31m", Address: "10.0.9.4:50122", Clusters: []string{"llama-70b"},
					Since: before(time.Hour)},
				{Name: "gateway-x2x4", Address: "10.0.9.5:40990", Since: before(20 * time.Minute)}}},
			Replicas: api.Replicas{Enabled: true, Name: "steelyard-0", Connected: true, Since: before(3 * time.Hour),
				Others: []api.Replica{
					{ID: "b", Name: "steelyard-1", State: api.ReplicaLive, Since: before(3 * time.Hour), Envoys: 2003,
						LeftOut: 2001, AgeSeconds: api.Num(0.041)},
					{ID: "c", Name: "steelyard-2", State: api.ReplicaGone, Since: before(12 * time.Second), Envoys: 1,
						AgeSeconds: api.Num(12.5)}}}},
		State: api.StateError,
		Clusters: []api.Cluster{{Name: "llama-70b", State: api.StateError, Ready: true,
			Counts:   api.EndpointCounts{Total: 12, Overloaded: 1, Failing: 2},
			Decision: api.Decision{ArrivalRate: api.Num(123.4)},
			Use:      api.Use{CapacityUsed: api.Num(0.934), ToSpare: api.Num(0)},
			Sources: []api.SourceStatus{{Name: "scrape", State: api.SourceStale},
				{Name: "access_log", State: api.SourceOK},
				{Name: "discovery", State: api.SourcePartly, Omitted: api.Omissions{Count: 21, First: []api.Omission{
					{Object: "steelyard.dev/capacity of Pod small\x1b[31m",
						Reason: `it is "eight": write a number of slots above 0, at most 1000000`},
					{Address: "10.4.0.2", Object: "EndpointSlice llama-b, Pod y",
						Reason: "it has no port 8000: its ports, which are those of the Pods, are http 8080"}}}}},
		}, {Name: "embeddings"}},
		Envoys: []EnvoyStatus{
			{NodeID: "edge-2", Resource: "llama-70b", State: api.EnvoyRefuses, VersionSent: "a1b2.tox.1520",
				VersionAcked: "a1b2.tox.1410", LagSeconds: api.Num(64), Nacks: 3, Nack: "weight\x1b[31m is\n0",
				Signals: "events"},
			{NodeID: "edge-3", Resource: "llama-70b", State: api.EnvoyBehind, VersionSent: "a1b2.tox.1520",
				VersionAcked: "a1b2.tox.1499", LagSeconds: api.Num(14), Signals: "silent"},
			{NodeID: "edge-4", Resource: "lama-70b", State: api.EnvoyUnknown, Signals: "none",
				Note: "Envoy edge-4 subscribes to lama-70b, which is not configured here: It gets no endpoints for " +
					"that name, and answers its requests with 503. Did its configuration mean llama-70b?"},
			{NodeID: "edge-1", Resource: "llama-70b/failsafe", State: api.EnvoyFollows, VersionSent: "a1b2.tox.1520",
				VersionAcked: "a1b2.tox.1520", LagSeconds: api.Num(0.0018), Signals: "batched"},
		},
		Left: []api.LeftEnvoy{
			{Node: api.Node{NodeID: "edge-5"}, Clusters: []string{"llama-70b"}, LeftAt: before(3 * time.Minute),
				LeftReason: "keepalive pings were not answered", Vanished: true, Silent: true,
				State: api.EnvoyBehind},
			{Node: api.Node{NodeID: "edge-6"}, Clusters: []string{"llama-70b"}, LeftAt: before(4 * time.Minute),
				LeftReason: "the connection was reset", Vanished: true, State: api.EnvoyGone}},
		Overrides: []api.Override{drained, pinned},
		Incidents: []api.Incident{{Severity: api.SeverityError, Since: before(31 * time.Second),
			Title: "10.20.1.11:8000 takes requests and answers none",
			Why: "Stalled since 11:59:25Z: none of 11 requests in flight ends, and one takes 0.145 s on average. " +
				"Envoys are asked to prefer others.", Steelyard: api.BlameNo,
			Because: "It is its answers that do not come.", Next: "See whether it is alive.",
			Command: "curl -i -m 2 http://10.20.1.11:8000/health"}},
		LeftOut: 2,
	}
	for i := range s.Left {
		s.Envoys = append(s.Envoys, left(&s.Left[i])...)
	}
	clients := api.ClientList{Elsewhere: []api.OtherEnvoy{
		{Kind: api.FollowerEnvoy, NodeID: "edge-7", Replica: "steelyard-1", State: api.EnvoyFollows,
			Clusters: []string{"llama-70b", "embeddings"}, HeardAt: before(41 * time.Millisecond)},
		{Kind: api.FollowerEnvoy, NodeID: "edge-8\x1b[31m", Replica: "steelyard-1", State: api.EnvoyUnknown,
			Clusters: []string{"lama-70b"}, HeardAt: before(41 * time.Millisecond)},
		{Kind: api.FollowerEnvoy, NodeID: "edge-9", Replica: "steelyard-2", State: api.EnvoyUnheard,
			Clusters: []string{"llama-70b"}, HeardAt: before(12500 * time.Millisecond)},
		{Kind: api.FollowerPicker, NodeID: "gateway-y", Address: "10.0.9.6:40990", Replica: "steelyard-1",
			State: api.EnvoyFollows, ConnectedAt: before(time.Minute)}}}
	s.take(&clients)
	return s
}

func someCluster() *api.Cluster {
	endpoint := func(address string, state api.EndpointState, served, capacity float64) api.Endpoint {
		return api.Endpoint{Address: address, State: state, ServedShare1m: api.Num(served),
			ServedShare10s: api.Num(served / 2), CapacityShare: api.Num(capacity), LoadPerSlot: api.Num(1.25),
			LatencySeconds: api.Num(0.52), FailedShare: api.Num(0), HeardSeconds: api.Num(0.13),
			Inputs: []api.Input{{Field: "in_flight", Value: api.Num(11), State: "fresh"},
				{Field: "utilization", Value: api.Num(0.8), State: "hold"}}}
	}
	c := &api.Cluster{Name: "llama-70b", State: api.StateWarning, Ready: true,
		Counts:    api.EndpointCounts{Total: 5},
		Decision:  api.Decision{ArrivalRate: api.Num(52.1), DropFraction: api.Num(0.02)},
		Endpoints: []api.Endpoint{endpoint("10.20.1.11:8000", api.EndpointOutlier, 0.0002, 0.25)}}
	c.Use.CapacityUsed = api.Num(0.94)
	c.Endpoints = append(c.Endpoints, endpoint("10.20.1.12:8000", api.EndpointAboveLevel, 0.51, 0.25),
		endpoint("10.20.1.13:8000", "", 0.24, 0.25),
		api.Endpoint{Address: "[2001:db8::14]:8000", State: api.EndpointBlind})
	c.Endpoints[2].Override, c.Endpoints[2].Reason = &api.Override{Kind: api.OverrideDrain}, "drained"
	return c
}

func someExplanation() *Explanation {
	e := someCluster().Endpoints[1]
	e.Why = "It gets 34.6 % of this decision's requests, and is 10.8 % of the capacity: it has a load of 3 (requests " +
		"waiting and running), a level of 0.75 for each slot; 1.04 more, expected within 22 ms, fill the pool up to " +
		"0.915."
	e.Share, e.Reason, e.Weight = api.Num(0.346), "fill", api.Num(3_460_112)
	e.Load, e.Slots, e.LoadSource = api.Num(3), api.Num(4), "fused"
	e.Inputs = []api.Input{{Field: "queue", Value: api.Num(0), AgeSeconds: api.Num(0.12), State: "fresh"},
		{Field: "running", State: "unknown"},
		{Field: "in_flight", Value: api.Num(3), AgeSeconds: api.Num(0.004), State: "fresh"}}
	e.Problems = []api.Problem{{Severity: api.SeverityWarning, Message: "latest scrape failed: timeout"}}
	e.Override = &api.Override{Kind: api.OverridePin, Share: api.Num(0.05), By: "anna", Until: api.At(noon),
		Reason: "canary"}
	return &Explanation{Cluster: "llama-70b", At: api.At(noon), Endpoint: e, KeptSeconds: api.Num(900),
		StepSeconds: api.Num(1), Decision: api.Decision{Arrivals: api.Num(1.04), HorizonSeconds: api.Num(0.022),
			WaterLevel: api.Num(0.915), MedianLoad: api.Num(1.5)}}
}

// engineExplanation is one of an engine that counts tokens.
func engineExplanation() *Explanation {
	x := someExplanation()
	x.Endpoint.Work = api.EndpointWork{PromptTokens: api.Num(1834), Source: "sizes", AgeSeconds: api.Num(0.004),
		CountedAgeSeconds: api.Num(0.12), Requests: api.Num(1.9), Seconds: api.Num(0.24),
		PrefillRate: api.Num(12_300), PrefillRateSource: "measured", PrefillRateAgeSeconds: api.Num(2)}
	x.Decision.Work = api.Work{PromptTokens: api.Num(1012), OutputTokens: api.Num(211), Engines: 5,
		CachedShare:       api.Num(0.43),
		CountedAgeSeconds: api.Num(0.03), TokensPerByte: api.Num(0.24), TokensPerByteAgeSeconds: api.Num(1),
		BySize: true, PrefillRate: api.Num(11_800), PrefillRateAgeSeconds: api.Num(2)}
	return x
}

func someDiff() *api.Diff {
	part := func(share, slots float64) api.Part {
		return api.Part{CapacityShare: api.Num(share), Slots: api.Num(slots)}
	}
	flagged := part(0.2, 4)
	flagged.Overloaded = true
	return &api.Diff{Restart: []string{"xds"}, Redis: true, Added: []string{"embeddings"},
		Removed: []string{"mistral"}, Clusters: []api.ClusterDiff{{Name: "llama-70b",
			Keys: []api.KeyDiff{{Path: "endpoints.static[10.20.1.11:8000].capacity", Before: "4", After: "8"},
				{Path: "endpoints.static[10.20.1.15:8000]", After: "10.20.1.15:8000"},
				{Path: "endpoints.static[10.20.1.14:8000]", Before: "10.20.1.14:8000"}},
			CapacityBefore: api.Num(16), CapacityAfter: api.Num(20), CapacityUsed: api.Num(0.9),
			CapacityUsedAfter: api.Num(0.72),
			Endpoints: []api.EndpointDiff{
				{Address: "10.20.1.11:8000", Before: part(0.25, 4), After: part(0.4, 8), ServedShare1m: api.Num(0.24)},
				{Address: "10.20.1.12:8000", Before: part(0.25, 4), After: flagged, ServedShare1m: api.Num(0.26)},
				{Address: "10.20.1.13:8000", Before: part(0.25, 4), After: part(0.25, 4),
					ServedShare1m: api.Num(0.26)},
				{Address: "10.20.1.14:8000", Before: part(0.25, 4), Change: "leaves", ServedShare1m: api.Num(0.26)},
				{Address: "10.20.1.15:8000", After: part(0.2, 4), Change: "joins"},
			}}, {Name: "gemma", Note: "the cluster has not decided yet"}}}
}

// What is not known stands in JSON with the number that Steelyard goes on with.
func TestWhatIsNotKnownIsNoNumber(t *testing.T) {
	c := someCluster()
	c.Decision.ArrivalRate, c.Decision.ArrivalRateSource = api.Num(0), "unknown"
	c.Endpoints = c.Endpoints[:1]
	e := &c.Endpoints[0]
	row := func() string {
		var out bytes.Buffer
		if err := PrintCluster(Output{W: &out}, c, noon); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "  - requests/s") {
			t.Errorf("the rate is not known:\n%s", &out)
		}
		lines := strings.Split(out.String(), "\n")
		return strings.Join(strings.Fields(lines[3])[4:], " ")
	}
	e.LatencyAgeSeconds, e.FailedShareAgeSeconds = api.Num(9), api.Num(9)
	if got := row(); got != "<0.1% <0.1% 25.0% 1.25 11 0.52s 0.0% 80.0% 0.13s" {
		t.Errorf("all is known: %s", got)
	}
	e.LatencyAgeSeconds, e.FailedShareAgeSeconds = api.Num(517), api.Num(517)
	e.LoadSource, e.Inputs[0].State = "median", "neutral"
	if got := row(); got != "<0.1% <0.1% 25.0% - - - - 80.0% 0.13s" {
		t.Errorf("no load, no answer since 517 s: %s", got)
	}
	s := Status{Clusters: []api.Cluster{*c}}
	var out bytes.Buffer
	s.clusters(&out, 0)
	if got := strings.Fields(strings.Split(out.String(), "\n")[1]); got[5] != "-" {
		t.Errorf("the rate of status is %q", got[5])
	}
}

func TestTopSaysThatRequestsFollowNoWeights(t *testing.T) {
	c := someCluster()
	c.ShadowEnvoys = 2
	var out bytes.Buffer
	if err := PrintCluster(Output{W: &out}, c, noon); err != nil {
		t.Fatal(err)
	}
	if want := "SHADOW: no request of 2 Envoys follows these weights\n"; !strings.Contains(out.String(), want) {
		t.Errorf("%q is not in\n%s", want, &out)
	}
}

// It is copied in a hurry, by someone who drained the wrong endpoint.
func TestUndoIsACommandThatRunsWhereTheDrainDid(t *testing.T) {
	drain := api.Override{Cluster: "llama", Address: "10.20.1.13:8000", Kind: api.OverrideDrain}
	pod := api.OwnPod{Namespace: "models", Name: "steelyard-7c9d4b6f8-fghjk"}
	for want, on := range map[string]api.OwnPod{
		"undo: steelyard undrain llama 10.20.1.13:8000\n":                                                      {},
		"undo: kubectl -n models exec steelyard-7c9d4b6f8-fghjk -- /steelyard undrain llama 10.20.1.13:8000\n": pod,
	} {
		var out strings.Builder
		err := PrintOverride(Output{W: &out}, drain, nil, on.Program())
		if err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%v: %q, want %q", err, out.String(), want)
		}
	}
}

// A drain by one person is not to end the drain of another unnoticed.
func TestADrainThatReplacesAnotherSaysWhose(t *testing.T) {
	before := api.Override{Kind: api.OverrideDrain, By: "alice", Reason: "bad fan", Until: api.At(noon)}
	var out strings.Builder
	err := PrintOverride(Output{W: &out}, api.Override{Kind: api.OverrideDrain}, &before, "steelyard")
	want := "This replaces what alice decided: drained until " + until(before) + ": bad fan\n"
	if err != nil || !strings.Contains(out.String(), want) {
		t.Errorf("%v: %q, want %q", err, out.String(), want)
	}
}

// Goldens are what a terminal of 80 and of 120 columns shows, and a pipe.
func TestTablesFitTheTerminal(t *testing.T) {
	for name, print := range map[string]func(Output) error{
		"status":  func(o Output) error { return someStatus().Print(o, "http://127.0.0.1:19000") },
		"top":     func(o Output) error { return PrintCluster(o, someCluster(), noon) },
		"explain": func(o Output) error { return someExplanation().Print(o) },
		"engine":  func(o Output) error { return engineExplanation().Print(o) },
		"work":    func(o Output) error { return engineExplanation().PrintWork(o) },
		"diff":    func(o Output) error { return PrintDiff(o, someDiff()) },
		"events": func(o Output) error {
			return PrintEvents(o, []api.Event{{ID: 7, At: api.At(noon), Kind: api.EventFlagged, Cluster: "llama-70b",
				Text: "llama-70b: endpoint 10.20.1.11:8000 was flagged: stalled since 11:59:25Z: none of 11 requests " +
					"in flight ends, and one takes 0.145 s on average"}})
		},
	} {
		for _, width := range []int{0, 80, 120} {
			var out bytes.Buffer
			if err := print(Output{W: &out, Format: FormatTable, Width: width}); err != nil {
				t.Fatal(err)
			}
			if strings.ContainsRune(out.String(), '\x1b') {
				t.Errorf("%s: a control character of others reaches the terminal", name)
			}
			for line := range strings.Lines(out.String()) {
				n := utf8.RuneCountInString(strings.TrimRight(line, "\n"))
				isCommand := strings.HasPrefix(line, "  command") || strings.Contains(line, "refuses") ||
					strings.Contains(line, "subscribes to")
				if width > 0 && n > width && !isCommand && name != "status" {
					t.Errorf("%s: %d columns in a terminal of %d: %q", name, n, width, line)
				}
			}
			golden.Check(t, fmt.Sprintf("testdata/%s-%d.txt", name, width), out.String())
		}
	}
}

func TestTheFormsForProgramsHaveTheKeysOfTheAPI(t *testing.T) {
	var asJSON, asYAML bytes.Buffer
	if err := PrintDiff(Output{W: &asJSON, Format: FormatJSON}, someDiff()); err != nil {
		t.Fatal(err)
	}
	if err := PrintDiff(Output{W: &asYAML, Format: FormatYAML}, someDiff()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"capacity_used_after": 0.72`, `"served_share_1m": null`} {
		if !strings.Contains(asJSON.String(), want) {
			t.Errorf("JSON lacks %s:\n%s", want, &asJSON)
		}
	}
	for _, want := range []string{"capacity_used_after: 0.72\n", "served_share_1m: null\n", "restart:\n"} {
		if !strings.Contains(asYAML.String(), want) {
			t.Errorf("YAML lacks %q:\n%s", want, &asYAML)
		}
	}
}

func TestWhatIsWrongMakesAStatusNotWell(t *testing.T) {
	well := func(change func(*Status)) *Status {
		s := &Status{Process: api.Status{Ready: true}, Envoys: []EnvoyStatus{{State: api.EnvoyFollows}}}
		change(s)
		return s
	}
	warning := func(s *Status) { s.Incidents = []api.Incident{{Severity: api.SeverityWarning}} }
	for name, c := range map[string]struct {
		status           *Status
		well, ignoreWell bool
	}{
		"all is well":             {well(func(*Status) {}), true, true},
		"a warning":               {well(warning), false, true},
		"an error":                {someStatus(), false, false},
		"not ready":               {well(func(s *Status) { s.Process.Ready = false }), false, false},
		"a refused configuration": {well(func(s *Status) { s.Process.LastReload.Error = "x" }), false, false},
		"an Envoy that refuses":   {well(func(s *Status) { s.Envoys[0].State = api.EnvoyRefuses }), false, false},
		"an Envoy behind":         {well(func(s *Status) { s.Envoys[0].State = api.EnvoyBehind }), false, false},
		"an unknown cluster":      {well(func(s *Status) { s.Envoys[0].State = api.EnvoyUnknown }), false, true},
	} {
		if got, ignored := c.status.Well(false), c.status.Well(true); got != c.well || ignored != c.ignoreWell {
			t.Errorf("%s: %v, ignoring warnings %v; want %v, %v", name, got, ignored, c.well, c.ignoreWell)
		}
	}
}

// What the documents select, state != "follows", has every Envoy that is in trouble, whether it is connected or not.
func TestEnvoysThatLeftStandAmongTheOthersTheWorstFirst(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/clients" {
			fmt.Fprint(w, "{}")
			return
		}
		fmt.Fprint(w, `{"clients": [{"node_id": "a", "subscriptions": [{"resource": "llama", "known": true}]},
			{"node_id": "b"}], "left": [{"node_id": "c", "clusters": ["llama"], "state": "left"},
			{"node_id": "d", "clusters": ["llama", "gemma"], "state": "behind", "left_at": "2026-03-14T11:59:00Z"}],
			"elsewhere": [{"kind": "envoy", "node_id": "e", "clusters": ["llama"], "state": "unheard"},
			{"kind": "picker", "node_id": "p", "state": "follows"}]}`)
	}))
	defer s.Close()
	c, err := NewClient(t.Context(), Options{Admins: []string{s.URL}})
	if err != nil {
		t.Fatal(err)
	}
	status, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range status.Envoys {
		got = append(got, fmt.Sprintf("%s %s %s", e.NodeID, e.Resource, e.State))
	}
	want := []string{"d gemma behind", "d llama behind", "e llama unheard", "b  idle", "a llama follows",
		"c llama left"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(status.Pickers) != 1 || status.Pickers[0].Name != "p" {
		t.Errorf("pickers: %+v", status.Pickers)
	}
}

func clientWith(subs ...api.Subscription) *api.Client {
	return &api.Client{Connection: api.Connection{Node: api.Node{NodeID: "a"}, Subscriptions: subs}}
}

func TestAnEnvoyIsBehindOnlyAfterALongSilence(t *testing.T) {
	sub := api.Subscription{Resource: "llama", Known: true, VersionSent: "v.2", VersionAcked: "v.1",
		AckDelaySeconds: api.Num(0.002)}
	for wait, want := range map[time.Duration]api.EnvoyState{
		time.Second: api.EnvoyFollows, 6 * time.Second: api.EnvoyBehind} {
		sub.LastSent = before(wait)
		got := envoys(clientWith(sub), noon)
		if len(got) != 1 || got[0].State != want {
			t.Errorf("after %v: %+v", wait, got)
		}
	}
	refused := sub
	refused.Nack = api.Nack{Message: "no", Current: true}
	none := sub
	none.Known, none.VersionSent, none.VersionAcked = false, "", ""
	client := clientWith(refused, none)
	client.Problems = []api.Problem{{Message: "Envoy a subscribes to llama, did you mean lama?"}}
	got := envoys(client, noon)
	if got[0].State != api.EnvoyRefuses || got[0].Nack != "no" || got[1].State != api.EnvoyUnknown ||
		!strings.HasSuffix(got[1].Note, "did you mean lama?") {
		t.Errorf("%+v", got)
	}
}

func TestTheTokenComesFromAFileOrTheEnvironmentAndIsNeverShown(t *testing.T) {
	const secret = "0123456789abcdef"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+secret {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error": "send a token"}`)
			return
		}
		fmt.Fprint(w, `{"clusters": [{"name": "llama"}]}`)
	}))
	defer s.Close()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	names := func(o Options) ([]string, error) {
		c, err := NewClient(t.Context(), o)
		if err != nil {
			return nil, err
		}
		return c.Clusters(t.Context())
	}
	for what, file := range map[string]string{"alone": write("a", secret+"\n"),
		"a line": write("b", "view bob "+secret)} {
		if got, err := names(Options{Admins: []string{s.URL}, TokenFile: file}); err != nil || len(got) != 1 {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
	t.Setenv(EnvToken, secret)
	t.Setenv(EnvAdmin, s.URL)
	if got, err := names(Options{}); err != nil || len(got) != 1 {
		t.Errorf("by the environment: %v, %v", got, err)
	}
	var refused *RefusedError
	_, err := names(Options{TokenFile: write("c", "wrong-"+secret)})
	if !errors.As(err, &refused) || refused.Code != 401 || strings.Contains(err.Error(), secret) {
		t.Errorf("a wrong one: %v", err)
	}
	_, err = names(Options{TokenFile: write("d", "two words")})
	if err == nil || strings.Contains(err.Error(), "words") {
		t.Errorf("no token: %v", err)
	}
	for _, o := range []Options{{Admins: []string{"ftp://x"}}, {Admins: []string{"http://a:b@x"}},
		{Admins: []string{"http://x"}, TLS: credentials.Client{CAFile: "ca.pem"}},
		{Admins: []string{"https://x"}, TLS: credentials.Client{CertFile: "c.pem"}}} {
		if _, err := NewClient(t.Context(), o); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestAnAnswerOfAnotherProgramIsNamedAsSuch(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "<html>another service</html>")
	}))
	defer s.Close()
	c, err := NewClient(t.Context(), Options{Admins: []string{s.URL}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "is not the admin listener") {
		t.Errorf("%v", err)
	}
}
