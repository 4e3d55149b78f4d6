package conditions

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/internal/api"
	"steelyard/internal/api/apitest"
)

// A scene is an observation that a test changes from second to second.
type scene struct {
	Observation
	states []IncidentState
}

func calm() *scene {
	c, clients := apitest.Calm(noon)
	return &scene{Observation: Observation{Now: noon, Clusters: []api.Cluster{c}, Clients: clients,
		Status: api.Status{ConfigGeneration: 3, Now: api.At(noon)}}}
}

// after lets time pass, second by second, and returns the incidents of the last.
func (s *scene) after(d time.Duration) []api.Incident {
	for end := s.Now.Add(d); s.Now.Before(end); {
		s.Now = s.Now.Add(time.Second)
		s.look()
	}
	return Shown(s.states, s.Now)
}

func (s *scene) look() {
	s.Status.Now = api.At(s.Now)
	for i := range s.Clusters {
		if s.Clusters[i].Decision.At.Equal(s.Now.Add(-time.Second)) || s.Now.Equal(noon) {
			s.Clusters[i].Decision.At = api.At(s.Now)
		}
		s.Clusters[i].Counts = CountEndpoints(s.Clusters[i].Endpoints)
	}
	s.states = Evaluate(s.states, &s.Observation)
}

func (s *scene) pool() *api.Cluster { return &s.Clusters[0] }

func (s *scene) endpoint(i int) *api.Endpoint { return &s.Clusters[0].Endpoints[i] }

// only expects one incident, and returns it.
func only(t *testing.T, all []api.Incident) api.Incident {
	t.Helper()
	if len(all) != 1 {
		t.Fatalf("%d incidents, want one: %+v", len(all), all)
	}
	i := all[0]
	for name, part := range map[string]string{"title": i.Title, "why": i.Why, "because": i.Because, "next": i.Next,
		"id": i.ID} {
		if part == "" {
			t.Errorf("%s has no %s", i.ID, name)
		}
	}
	return i
}

func TestAPoolThatIsWellHasNoIncident(t *testing.T) {
	s := calm()
	s.endpoint(0).Overloaded, s.endpoint(0).OverloadReason = true, "queue per slot 5 >= 4"
	s.endpoint(1).Reason = "ramp"
	s.endpoint(2).Reason = "floor"
	if got := s.after(20 * time.Second); len(got) != 0 {
		t.Fatalf("one overloaded endpoint, one that is new and one above the level are %+v", got)
	}
}

// The first look is taken before anything has been scraped, and incidents stay for a while.
func TestWhatHasNotBeenScrapedYetIsNoIncidentOfAStart(t *testing.T) {
	s := calm()
	c := s.pool()
	well, inputs := c.Sources[0], c.Endpoints[0].Inputs
	c.Ready, c.NotReadyReason = false, "scrapes: 0 of 8 endpoints have answered"
	c.Sources[0] = api.SourceStatus{Name: "scrape", State: api.SourceDown}
	for i := range c.Endpoints {
		c.Endpoints[i].Reason, c.Endpoints[i].Inputs = reasonNeutral, nil
	}
	if got := only(t, s.after(2*time.Second)); got.Kind != kindNotReady {
		t.Errorf("before the first scrapes: %+v", got)
	}
	c.Ready, c.NotReadyReason = true, ""
	if got := s.after(passing); len(got) != 2 {
		t.Errorf("a pool that is ready without a single scrape: %+v, want its source and its endpoints", got)
	}

	s = calm()
	c = s.pool()
	c.Ready, c.Sources[0] = false, api.SourceStatus{Name: "scrape", State: api.SourceDown}
	c.Endpoints[0].Reason, c.Endpoints[0].Inputs = reasonNeutral, nil
	s.after(time.Second)
	c.Ready, c.Sources[0] = true, well
	c.Endpoints[0].Reason, c.Endpoints[0].Inputs = "fill", inputs
	if got := s.after(time.Second); len(got) != 0 {
		t.Errorf("a second after the first scrapes: %+v", got)
	}
}

// Its metrics pages are not read, so there is nothing to be found there.
func TestAnEndpointThatNothingCountsIsNotSaidToHaveNoMetrics(t *testing.T) {
	for _, c := range []struct {
		source string
		state  api.SourceState
		next   string // empty: the source is the incident
	}{
		{"redis", api.SourceOK, "inflight.redis_key"},
		{"redis", api.SourceDown, ""},
		{"access_log", api.SourceOK, "bootstrap"},
	} {
		s := calm()
		s.pool().Sources = []api.SourceStatus{{Name: c.source, State: c.state}}
		s.endpoint(0).Reason, s.endpoint(0).Inputs = reasonNeutral, nil
		s.after(time.Second)
		got := only(t, s.after(time.Minute))
		if c.next == "" {
			if got.Kind != kindSource {
				t.Errorf("%+v, want its source", got)
			}
			continue
		}
		if !strings.HasPrefix(got.Title, "No usable counts for ") || !strings.Contains(got.Next, c.next) ||
			strings.Contains(got.Next+got.Command, "metrics") {
			t.Errorf("%s: %+v", c.source, got)
		}
	}
}

// TestWhatDiscoverySaysIsTrue: of what is in use, of what is left out, and of what was never found.
func TestWhatDiscoverySaysIsTrue(t *testing.T) {
	small := api.Omission{Object: "capacity of Pod small", Reason: "it is not a number."}
	many := api.Omissions{Count: 41, First: []api.Omission{small, {Address: "10.0.0.7", Object: "Pod b",
		Reason: "no port"},
		{Object: "c", Reason: "d"}, {Object: "e", Reason: "f"}}}
	for name, c := range map[string]struct {
		source   api.SourceStatus
		empty    bool
		severity api.Severity
		why      string
	}{
		"in part": {api.SourceStatus{State: api.SourcePartly, LastSuccess: api.At(noon),
			Omitted: api.Omissions{Count: 1, First: []api.Omission{small}}}, false, api.SeverityWarning,
			"8 endpoints are in use. Left out: capacity of Pod small: it is not a number."},
		"many parts": {api.SourceStatus{State: api.SourcePartly, LastSuccess: api.At(noon), Omitted: many}, false,
			api.SeverityWarning, "8 endpoints are in use. Left out: capacity of Pod small: it is not a number; " +
				"10.0.0.7 (Pod b): no port; c: d; and 38 more."},
		"a failure": {api.SourceStatus{State: api.SourceStale, LastSuccess: api.At(noon), LastError: "refused"},
			false, api.SeverityWarning, "It fails, last worked 0 s ago: refused. 8 endpoints are in use."},
		"none left": {api.SourceStatus{State: api.SourceStale, LastSuccess: api.At(noon), LastError: "refused"},
			true, api.SeverityWarning, "It fails, last worked 0 s ago: refused. No endpoint is in use."},
		"nothing ever": {api.SourceStatus{State: api.SourceDown, LastError: "refused"}, true, api.SeverityError,
			"It is down, and has never worked: refused."},
	} {
		s := calm()
		// As at each start: nothing is known of it.
		s.pool().Sources = append(s.pool().Sources, api.SourceStatus{Name: sourceDiscovery, State: api.SourceDown})
		s.after(time.Second)
		c.source.Name = sourceDiscovery
		if c.empty {
			s.pool().Endpoints, s.pool().Counts = nil, api.EndpointCounts{}
		}
		s.pool().Sources[1] = c.source
		s.after(time.Second)
		all := s.after(2 * passing)
		i := slices.IndexFunc(all, func(i api.Incident) bool { return i.Kind == kindSource })
		if i < 0 || all[i].Severity != c.severity || !strings.HasPrefix(all[i].Why, c.why[:8]) {
			t.Errorf("%s: %+v, want a source: %s", name, all, c.why)
			continue
		}
		why := regexp.MustCompile(`[0-9.]+ s ago`).ReplaceAllString(all[i].Why, "0 s ago")
		if why != c.why {
			t.Errorf("%s: %q, want %q", name, all[i].Why, c.why)
		}
		if c.source.State != api.SourcePartly && strings.Contains(all[i].Because, "other sources") {
			t.Errorf("%s: %q, and nothing else finds endpoints", name, all[i].Because)
		}
	}
}

func TestAPoolWithoutPodsIsLookedForInKubernetes(t *testing.T) {
	s := calm()
	s.Status.ConfigFile = "s.yaml"
	s.pool().Endpoints = nil
	s.pool().Sources = []api.SourceStatus{{Name: sourceDiscovery, State: api.SourceStale, LastSuccess: api.At(noon),
		LastError: "InferencePool models/llama: no Pod has the labels of its selector, app=llama,v=1"}}
	for _, i := range s.after(2 * passing) {
		if i.Command != "kubectl -n models get pods -l app=llama,v=1" {
			t.Errorf("%s: %s", i.Title, i.Command)
		}
	}
}

func TestASourceThatAReloadAddsIsNoIncidentBeforeItHasAResult(t *testing.T) {
	s := calm()
	s.after(time.Second)
	s.pool().Sources = append(s.pool().Sources, api.SourceStatus{Name: "redis", State: api.SourceDown})
	if got := s.after(time.Second); len(got) != 0 {
		t.Errorf("before the first read: %+v", got)
	}
	if got := only(t, s.after(2*passing)); got.Severity != api.SeverityError {
		t.Errorf("without a result for seconds: %+v", got)
	}
	s.pool().Sources[1].LastError = "refused"
	s.states = nil
	if got := only(t, s.after(time.Second)); got.Severity != api.SeverityError {
		t.Errorf("after the first failure: %+v", got)
	}
}

// A probe that speaks no TLS must not hide what is to be done about the Envoys.
func TestEachReasonOfRefusedHandshakesHasItsAdvice(t *testing.T) {
	wanted := map[string]string{
		"not_tls": "its bootstrap lacks TLS", "expired": "Renew the certificate", "no_certificate": "a certificate (",
		"refused_by_client": "its authority and names", "unknown_authority": "xds.tls.client_ca_file",
	}
	for reason, want := range wanted {
		s := calm()
		s.Status.RefusedHandshakes = []api.RefusedHandshake{
			{Reason: "bad_certificate"},
			{Reason: "closed", Count: 9, LastAt: api.At(noon.Add(time.Second))},
			{Reason: "timeout", Count: 1, LastAt: api.At(noon.Add(time.Second))},
			{Reason: reason, Count: 1, LastAt: api.At(noon)},
		}
		got := s.after(time.Second)
		i := slices.IndexFunc(got, func(i api.Incident) bool { return i.ID == "handshakes_refused/"+reason })
		if len(got) != 2 || i < 0 || !strings.Contains(got[i].Next, want) || !strings.HasSuffix(got[i].Title, reason) {
			t.Errorf("%s: %+v, want one of two with %q", reason, got, want)
		}
	}
}

func TestClientsThatXDSClientsDeniesAreAnIncident(t *testing.T) {
	s := calm()
	s.Status.XDSAccess = api.XDSAccess{Insecure: true, Denied: []api.DeniedClients{ // insecure was decided, and is none
		{Kind: "report"},
		{Kind: "stream", Count: 9, LastAt: api.At(noon), LastClient: "spiffe://prod/other", LastPeer: "10.0.0.9:1"},
	}}
	got := only(t, s.after(time.Second))
	if got.Kind != kindDenied || !strings.HasPrefix(got.Why, "clients are denied by xds.clients (stream): 9 times") ||
		!strings.Contains(got.Next, "xds.clients") {
		t.Errorf("%+v", got)
	}
}

func TestALostConnectionToOtherReplicasLeadsToTheirPort(t *testing.T) {
	s := calm()
	s.pool().Sources = append(s.pool().Sources, api.SourceStatus{
		Name: api.SourceReplicas, State: api.SourceDown, LastError: "refused",
	})
	s.after(time.Second)
	got := only(t, s.after(2*passing))
	if !strings.Contains(got.Next, "xDS port") || got.Severity != api.SeverityWarning {
		t.Errorf("it is %s and what to do is %q, want a warning and a look at the xDS port", got.Severity, got.Next)
	}
}

func TestARefusedConfigurationIsNoIncidentOnceTheFileIsGood(t *testing.T) {
	s := calm()
	s.Status.LastReload.At, s.Status.LastReload.Error = api.At(noon), "steelyard.yaml:1:1: the file is empty"
	if got := only(t, s.after(time.Second)); got.Kind != kindConfigRefused {
		t.Errorf("a file that was refused: %+v", got)
	}
	s.Status.LastReload.At, s.Status.LastReload.Error = api.At(s.Now), ""
	if got := s.after(time.Second); len(got) != 0 {
		t.Errorf("the good file is applied, and there is %+v", got)
	}
}

// The file is good, so there is nothing to correct.
func TestAConfigurationThatNeedsARestartAsksForOne(t *testing.T) {
	s := calm()
	s.Status.ConfigFile = "/etc/steelyard/steelyard.yaml"
	s.Status.LastReload = api.Reload{At: api.At(noon), Error: "the section xds cannot change while running: " +
		api.RestartToChange}
	got := only(t, s.after(2*time.Second))
	if got.Title != "The latest configuration needs a restart" || !strings.HasPrefix(got.Next, "Restart Steelyard") ||
		got.Command != "systemctl restart steelyard" {
		t.Errorf("%+v", got)
	}
}

// Operators find incidents by steelyard status.
func TestNoIncidentSendsBackToStatus(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), `"steelyard status"`) {
			t.Errorf("%s has the command steelyard status: name one that leads on, or none", file)
		}
	}
}

func TestEnvoysThatAreNotThereAreNotSaidToSendNothing(t *testing.T) {
	s := calm()
	s.endpoint(2).Reason = ReasonUnused
	if got := only(t, s.after(time.Second)); !strings.HasPrefix(got.Title, "Envoys send nothing to ") {
		t.Errorf("with Envoys: %+v", got)
	}
	for i := range s.Clients {
		s.Clients[i].Subscriptions[0].Cluster = "mixtral"
	}
	s.states = nil
	if got := only(t, s.after(time.Second)); !strings.HasPrefix(got.Title, "Nothing is sent to ") ||
		!strings.Contains(got.Next, "Attach") {
		t.Errorf("without: %+v", got)
	}
}

func TestASilentStreamIsNoLimitThatWasReached(t *testing.T) {
	s := calm()
	s.Status.XDSPort.SilentStreams, s.Status.XDSPort.LastSilentStreamAt = 1, api.At(noon)
	got := only(t, s.after(time.Second))
	if got.Kind != kindPortFull || got.Steelyard != api.BlameNo || strings.Contains(got.Because+got.Next, "limit") {
		t.Errorf("%+v, want no blame and no limit", got)
	}
}

func TestACertificateIsNoIncidentOnceItIsRenewed(t *testing.T) {
	s := calm()
	s.Status.Certificates = []api.Certificate{{File: "tls.crt", Use: "xds", Subject: "CN=a", NotAfter: api.At(noon)}}
	if got := only(t, s.after(time.Second)); got.Kind != kindCertificate {
		t.Errorf("a certificate that expires: %+v", got)
	}
	s.Status.Certificates[0].NotAfter = api.At(noon.AddDate(1, 0, 0))
	if got := s.after(time.Second); len(got) != 0 {
		t.Errorf("it is renewed, and there is %+v", got)
	}
	s.Status.Certificates[0].Error = "tls.crt holds no PEM certificate"
	if got := only(t, s.after(time.Second)); !strings.HasPrefix(got.Next, "Correct the file") {
		t.Errorf("a file that cannot be used: what to do is %q", got.Next)
	}
}

// Without a URL in the error nothing was requested: a command that requests the page, without the token, would succeed.
func TestATokenThatCannotBeReadIsFoundByCheck(t *testing.T) {
	s := calm()
	s.Status.ConfigFile = "/etc/steelyard/steelyard.yaml"
	s.look()
	e := s.endpoint(3)
	e.LastScrape.Error = "reading bearer token from /run/token: open /run/token: no such file or directory"
	e.Inputs[0].State = "decay"
	got := only(t, s.after(time.Second))
	if want := "steelyard check --config /etc/steelyard/steelyard.yaml"; got.Command != want {
		t.Errorf("the command is %q, want %q", got.Command, want)
	}
}

// A server that dies is unread, then blind, then failing, with another text each second: one incident, and its
// beginning stays.
func TestADyingServerIsOneIncidentFromBeginningToEnd(t *testing.T) {
	s := calm()
	s.look()
	e := s.endpoint(3)
	e.LastScrape.Error = "get http://10.0.0.4:9000/metrics: connection refused"
	e.Inputs[0].State = "decay"
	first := only(t, s.after(time.Second))
	if first.Severity != api.SeverityWarning ||
		first.Command != "steelyard inspect --engine vllm http://10.0.0.4:9000/metrics" {
		t.Errorf("unread: %+v", first)
	}
	titles := map[string]bool{first.Title: true}
	for second := range 60 {
		switch {
		case second > 20:
			e.Outlier, e.Overloaded = true, true
			e.OverloadReason = fmt.Sprintf("stalled since 12:00:00: none of %d requests in flight ends", second)
		case second > 5:
			e.Reason = "neutral"
		}
		if second%7 == 3 { // it goes through states and back
			e.Outlier, e.Reason, e.LastScrape.Error = false, "fill", ""
		} else {
			e.LastScrape.Error = fmt.Sprintf("get http://10.0.0.4:9000/metrics: no answer within %d ms", second)
		}
		got := only(t, s.after(time.Second))
		titles[got.Title] = true
		if got.ID != first.ID || got.Since != first.Since {
			t.Fatalf("second %d: %s since %s, was %s since %s", second, got.ID, got.Since, first.ID, first.Since)
		}
	}
	if len(titles) != 3 {
		t.Errorf("the titles were %v, want one for each time that it got worse", titles)
	}
	*e = calm().Clusters[0].Endpoints[3]
	if got := s.after(DefaultKeepFor - 2*time.Second); len(got) != 1 {
		t.Errorf("it ended at once: %v", got)
	}
	if got := s.after(3 * time.Second); len(got) != 0 {
		t.Errorf("it does not end: %+v", got)
	}
}

func TestAnEnvoyThatIsLateNowAndThenIsOneIncident(t *testing.T) {
	s := calm()
	s.look()
	sub := &s.Clients[1].Subscriptions[0]
	sub.InSync, sub.VersionSent, sub.LastSent = false, "8", api.At(s.Now)
	if got := s.after(5 * time.Second); len(got) != 0 {
		t.Fatalf("within the time that Envoys take: %+v", got)
	}
	first := only(t, s.after(time.Second))
	if first.Kind != kindBehind || first.Subject.Name != "edge-2" || first.Steelyard != api.BlameInPart {
		t.Fatalf("%+v", first)
	}
	for range 10 {
		sub.LastSent = api.At(s.Now) // answered one, and is late with the next
		s.after(5 * time.Second)
		if got := only(t, Shown(s.states, s.Now)); got.Since != first.Since || got.Title != first.Title {
			t.Fatalf("it flickers: since %s, was %s", got.Since, first.Since)
		}
		s.after(2 * time.Second)
	}
}

func TestManyOfAKindAreOneIncidentWithAStableTitle(t *testing.T) {
	s := calm()
	s.look()
	for i := range 3 {
		s.endpoint(i).Outlier = true
	}
	if got := s.after(time.Second); len(got) != 3 {
		t.Fatalf("three of them are %d incidents", len(got))
	}
	s.endpoint(3).Outlier = true
	s.after(DefaultKeepFor + time.Second)
	first := only(t, Shown(s.states, s.Now))
	if first.Title != "Several endpoints of llama stall, fail or cannot be read" ||
		first.Severity != api.SeverityError {
		t.Fatalf("%+v", first)
	}
	for i := 4; i < 8; i++ {
		s.endpoint(i).Outlier = true
		got := only(t, s.after(time.Second))
		if got.Title != first.Title || got.Since != first.Since ||
			!strings.Contains(got.Why, fmt.Sprint(i+1, " endpoints")) {
			t.Errorf("with %d: %+v", i+1, got)
		}
	}
	for i := 2; i < 8; i++ {
		s.endpoint(i).Outlier = false
	}
	if got := only(t, s.after(time.Second)); got.ID != first.ID {
		t.Errorf("while two are left it is still one: %+v", got)
	}
}

func TestAScrapeThatFailsForMostOfAPoolIsAnError(t *testing.T) {
	s := calm()
	s.look()
	s.pool().Sources[0] = api.SourceStatus{Name: "scrape", State: api.SourceStale, LastSuccess: api.At(noon),
		LastError: "8 of 8 endpoints fail"}
	for i := range 8 {
		s.endpoint(i).LastScrape.Error = "get http://10.0.0.1:9000/metrics: status 500"
	}
	if got := s.after(time.Second); len(got) != 0 {
		t.Errorf("while what was read before is used: %+v", got)
	}
	for i := range 8 {
		for k := range s.endpoint(i).Inputs {
			s.endpoint(i).Inputs[k].State = "unknown"
		}
	}
	got := only(t, s.after(time.Second))
	if got.Severity != api.SeverityError || got.Kind != kindSource || got.Steelyard != api.BlameNo ||
		got.Title != "The metrics of most endpoints of llama cannot be read" {
		t.Errorf("%+v", got)
	}
}

// The pages of a pool break one after the other: warnings of single endpoints become the one incident of the pool at
// once, and what is wrong for another reason stays one of its own.
func TestPagesThatBreakOneAfterTheOtherAreOneIncident(t *testing.T) {
	for name, blind := range map[string]bool{"the Envoys' counts stand in": false, "nothing else is known": true} {
		s := calm()
		s.look()
		for i := range 7 {
			e := s.endpoint(i)
			e.LastScrape.Error, e.Inputs[0].State = "get http://10.0.0.1:9000/metrics: status 500", "neutral"
			if blind {
				e.Reason = "neutral"
			}
			got := s.after(time.Second)
			switch n := i + 1; {
			case n < 4 && len(got) != n:
				t.Fatalf("%s: %d pages are %d incidents: %+v", name, n, len(got), got)
			case n >= 4 && only(t, got).ID != "source/llama/scrape":
				t.Fatalf("%s: %d pages are %+v", name, n, got)
			}
		}
		s.endpoint(7).Outlier = true
		got := s.after(time.Second)
		if len(got) != 2 || got[0].Kind == got[1].Kind {
			t.Errorf("%s: with an endpoint that stalls: %+v", name, got)
		}
	}
}

// An Envoy that stands still neither answers nor reports, and what it sends follows no decision: one incident.
func TestAnEnvoyThatStandsStillIsOneIncident(t *testing.T) {
	for kind, stand := range map[api.IncidentKind]func(*api.Subscription, time.Time){
		kindBehind: func(s *api.Subscription, now time.Time) {
			s.InSync, s.VersionSent, s.LastSent = false, "8", api.At(now)
		},
		kindRefuses: func(s *api.Subscription, now time.Time) {
			s.Nack = api.Nack{Message: "no", At: api.At(now), Current: true}
		},
	} {
		s := calm()
		s.look()
		if kind == kindBehind {
			s.Clients[1].Signals.State = api.SignalSilent
		}
		stand(&s.Clients[1].Subscriptions[0], s.Now)
		s.pool().Served = api.Served{Source: api.ServedBegun, Requests1m: api.Num(6000), VsDecided: api.Num(0.2),
			Noise: api.Num(0.02)}
		if got := only(t, s.after(2*followPatience)); got.Kind != kind || got.Subject.Name != "edge-2" {
			t.Errorf("%+v", got)
		}
	}
}

// An Envoy that falls silent is missing in both sources that it reports to.
func TestAnEnvoyThatFallsSilentIsOneIncident(t *testing.T) {
	s := calm()
	s.look()
	s.Clients[1].Signals.State = api.SignalSilent
	for _, name := range []string{"access_log", "load_reports"} {
		s.pool().Sources = append(s.pool().Sources, api.SourceStatus{Name: name, State: api.SourcePartial,
			Envoys: api.Reporting{Expected: api.Num(3), Reporting: api.Num(2), Missing: []string{"edge-2"}}})
	}
	if got := only(t, s.after(2*passing)); got.Kind != kindSilent {
		t.Errorf("%+v", got)
	}
	s.Clients[1].Signals.State = api.SignalOK // by the other source
	s.pool().Sources = s.pool().Sources[:2]
	s.after(2 * DefaultKeepFor)
	if got := only(t, Shown(s.states, s.Now)); got.Kind != kindSource {
		t.Errorf("%+v", got)
	}
}

func TestOverloadIsAnIncidentFromAQuarterOfThePoolOn(t *testing.T) {
	s := calm()
	s.look()
	for n, want := range []api.Severity{"", "", api.SeverityWarning, api.SeverityWarning, api.SeverityError} {
		for i := range n {
			s.endpoint(i).Overloaded, s.endpoint(i).OverloadReason = true, "queue per slot 5 >= 4"
		}
		got := s.after(3 * time.Second)
		if want == "" {
			if len(got) != 0 {
				t.Errorf("%d overloaded: %+v", n, got)
			}
			continue
		}
		if i := only(t, got); i.Severity != want || i.Kind != kindOverloaded {
			t.Errorf("%d overloaded: %+v", n, i)
		}
	}
}

// An operator has seen to it, and restarts it.
func TestAnEndpointThatIsDrainedIsNoIncidentWhateverItDidBefore(t *testing.T) {
	for name, does := range map[string]func(e *api.Endpoint){
		"it stalled": func(e *api.Endpoint) {
			e.Outlier, e.Overloaded, e.OverloadReason = true, true, "stalled since 11:58:00Z"
		},
		"it stalled, and was tried again": func(e *api.Endpoint) { e.Probed = "stalled since 11:58:00Z" },
		"its report stood still":          func(e *api.Endpoint) { e.DoubtedSince = api.At(noon) },
		"its metrics cannot be read": func(e *api.Endpoint) {
			e.LastScrape.Error = "connection refused"
			for i := range e.Inputs {
				e.Inputs[i].State = "neutral"
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := calm()
			e := s.endpoint(0)
			e.OutlierSince = api.At(noon)
			does(e)
			if got := s.after(5 * time.Second); len(got) == 0 {
				t.Fatal("no incident before it is drained")
			}
			e.Reason = reasonDrained
			e.Override = &api.Override{Kind: api.OverrideDrain, By: "alice", Until: api.At(noon)}
			if got := s.after(20 * time.Second); len(got) != 0 || EndpointState(e) != api.EndpointDrained {
				t.Errorf("%s, with %+v", EndpointState(e), got)
			}
			problems := EndpointProblems(&s.Observation, s.pool(), e)
			if len(problems) == 0 || Worst(problems) != api.SeverityWarning ||
				!strings.Contains(problems[len(problems)-1].Message, "drained by alice") &&
					!strings.Contains(problems[0].Message, "drained by alice") {
				t.Errorf("problems: %+v", problems)
			}
		})
	}
}

func TestSleepIsAnIncidentOnlyWhereAllEnginesSleep(t *testing.T) {
	s := calm()
	s.look()
	for n := range s.pool().Endpoints {
		e := s.endpoint(n)
		e.Reason, e.Overloaded, e.OverloadReason = reasonAsleep, true, "asleep: its metrics show it"
		if got := EndpointState(e); got != api.EndpointAsleep {
			t.Fatalf("its state is %s", got)
		}
		got := s.after(3 * time.Second)
		if n < len(s.pool().Endpoints)-1 {
			if len(got) != 0 {
				t.Fatalf("%d asleep: %+v", n+1, got)
			}
			continue
		}
		if i := only(t, got); i.Kind != kindAsleep || i.Severity != api.SeverityError ||
			i.Command != "curl -i -m 2 -X POST http://10.0.0.1:8000/wake_up" {
			t.Errorf("all asleep: %+v", i)
		}
	}
	s.endpoint(3).Reason, s.endpoint(3).Overloaded = "fill", false
	if got := s.after(time.Minute); len(got) != 0 {
		t.Errorf("one is awake: %+v", got)
	}
}

// A server that answers with something else is alive, and its port is right.
func TestTheAdviceForAPageThatCannotBeReadIsNotToLookForItsPort(t *testing.T) {
	const (
		url     = "http://10.0.0.1:8000/metrics"
		page    = url + ": reading vllm metrics: this is a page of JSON, not of metrics: vllm has metrics at /metrics"
		refused = "fetching " + url + ": connection refused"
	)
	for _, c := range []struct {
		error, reason, next, because string
	}{
		{page, reasonNeutral, "A server answers there", "has in the mean"},
		{refused, reasonNeutral, "did its metrics port move", "has in the mean"},
		{page, "fill", "See what its page has", "something else than the metrics of this engine"},
		{refused, "fill", "A slow endpoint needs", "too slow for scrape.timeout"},
	} {
		s := calm()
		e := s.endpoint(0)
		e.Reason, e.LastScrape.Error, e.Inputs = c.reason, c.error, []api.Input{{Field: "queue", State: "decay"}}
		got := only(t, s.after(time.Minute))
		if !strings.Contains(got.Next, c.next) || !strings.Contains(got.Because, c.because) ||
			!strings.Contains(got.Command, "inspect --engine vllm "+url) {
			t.Errorf("%s of an endpoint with reason %s: %+v", c.error, c.reason, got)
		}
	}
}

func TestAConfigurationThatChangedTheClusterIsNamedAsACause(t *testing.T) {
	for name, test := range map[string]struct {
		changed []string
		before  time.Duration
		want    api.Blame
	}{
		"it changed this cluster":     {[]string{"llama"}, 6 * time.Second, api.BlameInPart},
		"it changed another":          {[]string{"mixtral"}, 6 * time.Second, api.BlameNo},
		"it was applied a minute ago": {[]string{"llama"}, time.Minute, api.BlameNo},
	} {
		t.Run(name, func(t *testing.T) {
			s := calm()
			s.look()
			s.Configs = []Configured{{At: s.Now.Add(time.Second - test.before), Generation: 3, Clusters: test.changed}}
			s.endpoint(0).Outlier = true
			got := only(t, s.after(time.Second))
			if got.Steelyard != test.want {
				t.Fatalf("%s: %s", got.Steelyard, got.Because)
			}
			if test.want == api.BlameInPart && got.Because !=
				"It began 6.0 s after configuration 3 was applied, which changed this cluster." {
				t.Error(got.Because)
			}
			if got := only(t, s.after(time.Minute)); got.Steelyard != test.want {
				t.Errorf("a minute later: %s", got.Steelyard)
			}
		})
	}
}

func TestARefusalIsSteelyardsWhereItIsAboutWhatSteelyardWrites(t *testing.T) {
	for message, want := range map[string]api.Blame{
		"load_balancing_weight: value must be greater than or equal to 1": api.BlameYes,
		"malformed IP address: foo":                                       api.BlameYes,
		"Proto constraint: drop_percentage":                               api.BlameYes,
		"ClusterLoadAssignment.Policy with unknown field set {6}":         api.BlameInPart,
		"something else": api.BlameUnknown,
	} {
		s := calm()
		s.look()
		s.Clients[0].Subscriptions[0].Nack = api.Nack{Message: message, At: api.At(s.Now), Current: true}
		if got := only(t, s.after(time.Second)); got.Steelyard != want || got.Kind != kindRefuses ||
			got.Severity != api.SeverityError || !strings.Contains(got.Why, message) {
			t.Errorf("%s: %+v", message, got)
		}
	}
}

func TestEnvoysThatDoNotFollowAreAnIncidentAfterHalfAMinute(t *testing.T) {
	s := calm()
	s.look()
	s.pool().Served = api.Served{Source: api.ServedBegun, Requests1m: api.Num(6000), VsDecided: api.Num(0.2),
		Noise: api.Num(0.02)}
	if got := s.after(followPatience - time.Second); len(got) != 0 {
		t.Fatalf("too early: %+v", got)
	}
	if got := only(t, s.after(2*time.Second)); got.Kind != kindNotFollowed || got.Steelyard != api.BlameYes ||
		got.Severity != api.SeverityError {
		t.Errorf("%+v", got)
	}
	s = calm()
	s.look()
	s.pool().Served = api.Served{VsDecided: api.Num(0.2), Noise: api.Num(0.1)}
	if got := s.after(time.Minute); len(got) != 0 {
		t.Errorf("as much as by chance: %+v", got)
	}
}

func TestAPoolThatIsFullIsTheIncidentAndNotItsWeights(t *testing.T) {
	s := calm()
	s.look()
	s.pool().Served = api.Served{Source: api.ServedBegun, Requests1m: api.Num(3200), VsDecided: api.Num(0.09),
		Noise: api.Num(0.014)}
	s.pool().Use = api.Use{CapacityUsed: api.Num(0.96)}
	if got := only(t, s.after(time.Minute)); got.Kind != kindNotFollowed || got.Steelyard != api.BlameNo ||
		!strings.Contains(got.Because, "least request") {
		t.Errorf("nearly full: %+v", got)
	}
	s.pool().Use.UsedMean = api.Num(1.06)
	if got := only(t, s.after(time.Second)); got.Kind != kindFull || got.Severity != api.SeverityError ||
		!strings.Contains(got.Why, "106 %") {
		t.Errorf("full: %+v", got)
	}
	s.pool().Use.UsedMean, s.pool().Served.VsDecided = api.Num(0.99), api.Num(0.01)
	if got := s.after(2 * time.Minute); len(got) != 0 {
		t.Errorf("not any more: %+v", got)
	}
}

func TestAPoolWhoseEnvoysRefuseRequestsHasNoQueueThatGrows(t *testing.T) {
	s := calm()
	s.look()
	s.pool().Shedding, s.pool().Decision.DropFraction = true, api.Num(0.1)
	s.pool().Use.UsedMean = api.Num(1.1)
	s.pool().Served = api.Served{Source: api.ServedBegun, Requests1m: api.Num(3200), VsDecided: api.Num(0.09),
		Noise: api.Num(0.014)} // as of any full pool
	if got := only(t, s.after(time.Minute)); got.Kind != kindDrops {
		t.Errorf("shedding: %+v", got)
	}
	s.pool().Decision.DropFraction = api.Num(0)
	for _, i := range s.after(2 * time.Minute) {
		if i.Kind == kindFull && !strings.Contains(i.Next, "shedding") {
			return
		}
	}
	t.Errorf("while it refuses nothing, there are %+v", s.after(time.Second))
}

func TestNobodyRefusesRequestsWhileEnvoysOnlyReport(t *testing.T) {
	s := calm()
	s.look()
	s.pool().Shedding, s.pool().Decision.DropFraction = true, api.Num(0.3)
	if got := s.after(10 * time.Second); len(got) == 0 {
		t.Error("Envoys that follow refuse requests, and nothing says so")
	}
	s = calm()
	s.look()
	s.pool().Shedding, s.pool().Decision.DropFraction, s.pool().ShadowEnvoys = true, api.Num(0.3), 1
	for i := range s.Clients {
		s.Clients[i].Subscriptions = []api.Subscription{{Resource: "llama/members", Cluster: "llama", Known: true,
			InSync: true}}
	}
	if got := s.after(10 * time.Second); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestAnEnvoyWithoutWeightsOnlyReports(t *testing.T) {
	sub := func(resource string) api.Subscription {
		return api.Subscription{Resource: resource, Cluster: "llama", Known: true, InSync: true}
	}
	clients := []api.Client{
		{Connection: api.Connection{Subscriptions: []api.Subscription{sub("llama/members")}}},
		{Connection: api.Connection{Subscriptions: []api.Subscription{sub("llama/members"), sub("llama/failsafe")}}},
		{Connection: api.Connection{Subscriptions: []api.Subscription{sub("llama")}}},
	}
	for i, want := range []api.EnvoyState{api.EnvoyShadow, api.EnvoyFollows, api.EnvoyFollows} {
		if got := ClientState(&clients[i], noon); got != want {
			t.Errorf("Envoy %d is %q, want %q", i, got, want)
		}
	}
	if got := ShadowEnvoys(clients); len(got) != 1 || got["llama"] != 1 {
		t.Errorf("%v", got)
	}
}

func TestAnEnvoyThatVanishedIsAnIncidentForTenMinutes(t *testing.T) {
	s := calm()
	s.Left = []api.LeftEnvoy{{Node: api.Node{NodeID: "edge-9"}, Address: "10.9.0.9:4000",
		LeftAt: api.At(s.Now), Vanished: true,
		LeftReason: "the connection was reset", Clusters: []string{"llama"}}}
	got := only(t, s.after(9*time.Minute))
	if got.Kind != kindGone || !got.Since.Equal(noon) || got.Severity != api.SeverityWarning {
		t.Errorf("%+v", got)
	}
	if got := s.after(2 * time.Minute); len(got) != 0 {
		t.Errorf("after eleven minutes: %+v", got)
	}
	s.Left[0].Vanished, s.Left[0].LeftAt = false, api.At(s.Now)
	if got := s.after(time.Second); len(got) != 0 {
		t.Errorf("one that closed its streams: %+v", got)
	}
}

func TestWhatIsRemovedIsInNoTrouble(t *testing.T) {
	s := calm()
	s.look()
	s.endpoint(7).Outlier = true
	only(t, s.after(time.Second))
	s.pool().Endpoints = s.pool().Endpoints[:7]
	if got := s.after(time.Second); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestACommandIsSafeToPaste(t *testing.T) {
	for in, want := range map[string]string{
		"llama": "llama", "10.0.0.1:8000": "10.0.0.1:8000", "": "''", "a b": "'a b'", "x; rm -rf /": "'x; rm -rf /'",
		"it's": `'it'\''s'`, "$(id)": "'$(id)'",
	} {
		if got := quoted(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

// A server that is frozen is flagged, tried again, and flagged again, for ever longer. All that is one incident, whose
// sentences and the endpoint's state say the same.
func TestAFrozenServerThatIsTriedAgainIsTheSameIncident(t *testing.T) {
	s := calm()
	s.look()
	e := s.endpoint(3)
	const stalled = "stalled since 12:00:00Z: none of 4 requests in flight ends, and its own report does not show them"
	flagged := func() { e.Outlier, e.Overloaded, e.OverloadReason, e.Probed = true, true, stalled, "" }
	probed := func() {
		e.Outlier, e.Overloaded, e.OverloadReason, e.Probed, e.Reason = false, false, "", stalled, "neutral"
	}
	flagged()
	first := only(t, s.after(10*time.Second))
	for round := range 3 {
		probed()
		got := only(t, s.after(20*time.Second))
		if state := EndpointState(e); state != api.EndpointProbed || !strings.Contains(got.Why, "Its flag is down") ||
			strings.Contains(got.Why, "asked to prefer others") {
			t.Errorf("round %d: it is %s, and the incident says %q", round, state, got.Why)
		}
		flagged()
		again := only(t, s.after(20*time.Second))
		if !strings.Contains(again.Why, "asked to prefer others") || EndpointState(e) != api.EndpointOutlier {
			t.Errorf("round %d: flagged, and the incident says %q", round, again.Why)
		}
		for _, i := range []api.Incident{got, again} {
			if i.ID != first.ID || i.Since != first.Since || i.Title != first.Title || i.Severity != first.Severity {
				t.Errorf("round %d: %+v, was %+v", round, i, first)
			}
		}
	}
	e.Outlier, e.Overloaded, e.OverloadReason, e.Reason = false, false, "", "fill"
	if got := s.after(DefaultKeepFor + time.Second); len(got) != 0 {
		t.Errorf("it answers, and there is still %+v", got)
	}
	probed()
	s.pool().Decision.ArrivalRate = api.Num(0)
	e.Reason = "fill"
	if got := s.after(time.Second); len(got) != 0 {
		t.Errorf("without requests nothing can show that it recovered: %+v", got)
	}
}

// A quarter of a pool is flagged, by reports that stand still. Each endpoint has an incident with what to do, which
// stays the same while it is tried; the pool has none.
func TestADoubtedReportIsItsEndpointsIncidentAndNoOverloadOfThePool(t *testing.T) {
	s := calm()
	s.look()
	const doubted = 2
	const why = "15 requests wait, 2.5 s of work"
	for i := range doubted {
		e := s.endpoint(i)
		e.Overloaded, e.OverloadReason, e.DoubtedSince = true, why, api.At(s.Now)
	}
	first := s.after(10 * time.Second)
	want := func(got []api.Incident) {
		t.Helper()
		if len(got) != doubted {
			t.Fatalf("%d incidents, want one for each of two endpoints: %+v", len(got), got)
		}
		for i, incident := range got {
			if incident.ID != first[i].ID || incident.Severity != api.SeverityWarning ||
				!strings.HasPrefix(incident.Title, "The report of ") || !strings.Contains(incident.Next, "by hand") {
				t.Errorf("%+v", incident)
			}
		}
	}
	want(first)
	e := s.endpoint(0)
	e.Overloaded, e.OverloadReason, e.Tried = false, "", why
	want(s.after(time.Second))
	if state := EndpointState(e); state != api.EndpointDoubted {
		t.Errorf("it is %s", state)
	}
	for i := range doubted {
		s.endpoint(i).DoubtedSince = api.Time{}
	}
	if state := EndpointState(e); state != api.EndpointOverloaded {
		t.Errorf("one that moves again, and is tried, is %s", state)
	}
	s.after(DefaultKeepFor + time.Second)
	got := only(t, s.after(time.Second))
	if !strings.Contains(got.Title, "is overloaded") || !strings.Contains(got.Why, why) {
		t.Errorf("the pool is overloaded, by reports that move: %+v", got)
	}
}

// The incident and its sentence about its latest part name one time, or both in one sentence.
func TestAnIncidentAndItsReasonNameOneBeginning(t *testing.T) {
	s := calm()
	s.look()
	e := s.endpoint(3)
	unread := func(on bool) {
		*e = calm().Clusters[0].Endpoints[3]
		if on {
			e.LastScrape.Error, e.Inputs[0].State = "get http://10.0.0.4:9000/metrics: connection refused", "decay"
		}
	}
	stalled := func(since time.Time) {
		e.Outlier, e.Overloaded, e.OutlierSince = true, true, api.At(since)
		e.OverloadReason = sprint("stalled since %s: nothing ends", since.Format("15:04:05Z"))
	}
	const before = "There was trouble before that, since "
	stalled(noon.Add(-5 * time.Second))
	i := only(t, s.after(time.Second))
	if !i.Since.Equal(noon.Add(-5*time.Second)) || strings.Contains(i.Why, before) {
		t.Errorf("it stalls since 11:59:55, and the incident is of %v: %s", i.Since, i.Why)
	}
	unread(false)
	s.after(5 * time.Second)
	stalled(noon.Add(6 * time.Second))
	again := only(t, s.after(time.Second))
	if again.Since != i.Since || !strings.Contains(again.Why, "Stalled since 12:00:06Z") ||
		!strings.HasSuffix(again.Why, before+"11:59:55Z.") {
		t.Errorf("it answered for a moment, and the incident is of %v: %s", again.Since, again.Why)
	}
	unread(false)
	s.after(DefaultKeepFor + time.Second)
	unread(true)
	first := only(t, s.after(2*time.Second))
	stalled(first.Since.Add(-time.Second))
	worse := only(t, s.after(time.Second))
	if !worse.Since.Equal(e.OutlierSince.Time) || strings.Contains(worse.Why, before) {
		t.Errorf("it stalled before its metrics were lost, and the incident is of %v: %s", worse.Since, worse.Why)
	}
}

// An Envoy that is frozen does not answer, and its connection is closed for that: it goes on to be behind, for ten
// minutes, and the counts, its state and the incident say the same in every second.
func TestAFrozenEnvoyIsBehindBeforeAndAfterItsConnectionIsClosed(t *testing.T) {
	s := calm()
	s.look()
	sub := &s.Clients[1].Subscriptions[0]
	sub.InSync, sub.VersionSent, sub.LastSent = false, "8", api.At(s.Now)
	all := s.after(15 * time.Second)
	first := only(t, all)
	if first.ID != "envoy_behind/llama/edge-2" || ClientState(&s.Clients[1], s.Now) != api.EnvoyBehind {
		t.Fatalf("%+v, and it is %s", first, ClientState(&s.Clients[1], s.Now))
	}
	if n := CountEnvoys(&s.Observation); n.Connected != 3 || n.InSync != 2 || n.Behind != 1 || n.Lost != 0 {
		t.Errorf("%+v", n)
	}
	s.Left = []api.LeftEnvoy{{Node: api.Node{NodeID: "edge-2"}, Address: "10.9.0.1:4000",
		Clusters: []string{"llama"}, Vanished: true,
		Silent: true, LeftAt: api.At(s.Now), LeftReason: "keepalive pings were not answered"}}
	s.Clients = append(s.Clients[:1], s.Clients[2:]...)
	for _, passed := range []time.Duration{time.Second, 20 * time.Second, 9 * time.Minute} {
		got := only(t, s.after(passed))
		if got.ID != first.ID || got.Since != first.Since || got.Title != first.Title ||
			!strings.Contains(got.Why, "Steelyard closed its connection") {
			t.Errorf("after %v: %+v, was %+v", passed, got, first)
		}
		if state := LeftState(&s.Left[0], s.Now); state != api.EnvoyBehind {
			t.Errorf("after %v it is %s", passed, state)
		}
		if n := CountEnvoys(&s.Observation); n.Connected != 2 || n.InSync != 2 || n.Lost != 1 || n.Left != 1 {
			t.Errorf("after %v: %+v", passed, n)
		}
		if names := notFollowing(&s.Observation, "llama"); len(names) != 1 || names[0] != "edge-2" {
			t.Errorf("after %v these do not follow: %v", passed, names)
		}
	}
	if got := s.after(time.Minute); len(got) != 0 || LeftState(&s.Left[0], s.Now) != api.EnvoyGone {
		t.Errorf("after ten minutes it is %s: %+v", LeftState(&s.Left[0], s.Now), got)
	}
}

func TestAnEnvoyThatDiedIsGoneAndNotBehind(t *testing.T) {
	s := calm()
	s.Left = []api.LeftEnvoy{{Node: api.Node{NodeID: "edge-9"}, Clusters: []string{"llama"}, Vanished: true,
		LeftAt:     api.At(s.Now),
		LeftReason: "the connection was reset"}}
	if got := only(t, s.after(time.Second)); got.Kind != kindGone || LeftState(&s.Left[0], s.Now) != api.EnvoyGone {
		t.Errorf("%s: %+v", LeftState(&s.Left[0], s.Now), got)
	}
	if n := CountEnvoys(&s.Observation); n.Lost != 0 || n.Left != 1 {
		t.Errorf("%+v", n)
	}
	s.Left[0].Vanished = false
	if state := LeftState(&s.Left[0], s.Now); state != api.EnvoyLeft {
		t.Errorf("one that closed its streams is %s", state)
	}
}

// The state of each Envoy, its problems, the counts and the incidents follow from the same; and the page that the
// server renders has the counts that its script shows.
func TestTheStateOfAnEnvoyAgreesWithItsIncidents(t *testing.T) {
	for name, c := range map[string]struct {
		set      func(*api.Client)
		state    api.EnvoyState
		incident api.IncidentKind
		counted  api.FleetEnvoys
	}{
		"follows": {func(*api.Client) {}, api.EnvoyFollows, "", api.FleetEnvoys{Connected: 3, Here: 3, InSync: 3}},
		"refuses": {func(c *api.Client) { c.Subscriptions[0].Nack = api.Nack{Message: "weight", Current: true} },
			api.EnvoyRefuses, kindRefuses, api.FleetEnvoys{Connected: 3, Here: 3, InSync: 2, Refusing: 1}},
		"behind": {func(c *api.Client) { c.Subscriptions[0].InSync, c.Subscriptions[0].VersionSent = false, "8" },
			api.EnvoyBehind, kindBehind, api.FleetEnvoys{Connected: 3, Here: 3, InSync: 2, Behind: 1}},
		"behind with what was removed": {func(c *api.Client) {
			s := &c.Subscriptions[0]
			s.InSync, s.VersionSent, s.Known, s.Cluster = false, "8", false, "gone"
		}, api.EnvoyBehind, kindBehind, api.FleetEnvoys{Connected: 3, Here: 3, InSync: 2, Behind: 1}},
		"asks for the unknown": {func(c *api.Client) {
			c.Subscriptions[0] = api.Subscription{Resource: "lama", Cluster: "lama"}
		}, api.EnvoyUnknown, kindUnknownCluster, api.FleetEnvoys{Connected: 3, Here: 3, InSync: 2}},
		"refuses its runtime values": {
			func(c *api.Client) { c.Signals.Runtime = api.Runtime{Subscribed: true, Nack: "no"} },
			api.EnvoyFollows, kindRefuses, api.FleetEnvoys{Connected: 3, Here: 3, InSync: 3}},
		"asks for nothing": {func(c *api.Client) { c.Subscriptions = nil }, api.EnvoyIdle, "",
			api.FleetEnvoys{Connected: 3, Here: 3, InSync: 2}},
		"silent": {func(c *api.Client) { c.Signals.State = api.SignalSilent }, api.EnvoySilent, kindSilent,
			api.FleetEnvoys{Connected: 3, Here: 3, InSync: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			s := calm()
			c.set(&s.Clients[0])
			for i := range s.Clients[0].Subscriptions {
				s.Clients[0].Subscriptions[i].LastSent = api.At(s.Now.Add(-time.Minute))
			}
			var kind api.IncidentKind
			var severity api.Severity
			if all := s.after(time.Second); len(all) > 0 {
				kind, severity = only(t, all).Kind, all[0].Severity
			}
			if state := ClientState(&s.Clients[0], s.Now); state != c.state || kind != c.incident {
				t.Errorf("%s with the incident %q, want %s with %q", state, kind, c.state, c.incident)
			}
			if n := CountEnvoys(&s.Observation); n != c.counted {
				t.Errorf("%+v, want %+v", n, c.counted)
			}
			if problems := ClientProblems(&s.Observation, &s.Clients[0]); Worst(problems) != severity {
				t.Errorf("%s with the problems %v, and an incident that is %q", c.state, problems, severity)
			}
		})
	}
}

// Every endpoint of a large cluster can be in trouble, each second.
func TestConditionsOfAThousandEndpointsAreJoinedOnce(t *testing.T) {
	const endpoints = 1000
	all := make([]condition, endpoints)
	for i := range all {
		all[i].Kind = kindEndpoint
		all[i].Subject = api.Subject{Kind: api.SubjectEndpoint, Cluster: "llama", Name: fmt.Sprint(i)}
	}
	var out []condition
	allocations := testing.AllocsPerRun(3, func() { out = grouped(all, nil) })
	if len(out) != 1 || !strings.HasPrefix(out[0].Why, "1000 endpoints: 0, 1, 2, 3, 4 and 995 more") {
		t.Errorf("joined to %d, the first: %s", len(out), out[0].Why)
	}
	if allocations > endpoints {
		t.Errorf("%v allocations, want fewer than one for each endpoint", allocations)
	}
}
