package history

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"steelyard/controlplane/admin/conditions"
	"steelyard/internal/api"
	"steelyard/weighting"
)

func TestTheRateOfPushesIsOfTheLastTenSeconds(t *testing.T) {
	var c pushCounts
	look := func(second int, pushes ...uint64) api.Number {
		clusters := make([]api.Cluster, len(pushes))
		for i, n := range pushes {
			clusters[i] = api.Cluster{Name: fmt.Sprint(i), Pushes: n}
		}
		return c.rate(noon.Add(time.Duration(second)*time.Second), clusters)
	}
	if _, known := look(0, 100).Value(); known {
		t.Error("one look shows a rate")
	}
	for i, want := range []float64{30, 30, 30} {
		if got := look(i+1, 130+30*uint64(i)).Or(-1); got != want {
			t.Errorf("second %d: %v, want %v", i+1, got, want)
		}
	}
	if got := look(4, 190, 5000).Or(-1); got != 22.5 {
		t.Errorf("a cluster that joined counts with what it had: %v", got)
	}
	if got := look(5, 0, 5010).Or(-1); got != 20 {
		t.Errorf("a cluster that began again counts backwards: %v", got)
	}
	for i := range 10 {
		look(6+i, 0, 5010)
	}
	if got := look(16, 0, 5010).Or(-1); got != 0 {
		t.Errorf("ten seconds without a push: %v", got)
	}
}

func TestDecisionsThatAreKeptTakeABoundedRoom(t *testing.T) {
	var w workings
	d := weighting.Decision{At: noon}
	for i := range 5000 {
		d.Endpoints = append(d.Endpoints, weighting.EndpointDecision{Address: fmt.Sprintf("10.0.0.%d:8000", i),
			Inputs: make([]weighting.Input, 4), Work: &weighting.EndpointWork{}})
	}
	step := stepOf([]api.Cluster{{Working: api.WorkingOf(d)}})
	for i := range 3000 {
		d.At = noon.Add(time.Duration(i) * time.Second)
		w.add(api.WorkingOf(d), step)
	}
	bytes := 0
	for _, k := range w.kept {
		bytes += k.Bytes()
	}
	if bytes > workingsBytes*5/4 || len(w.kept) < 2 {
		t.Errorf("%d decisions of %d endpoints take %d bytes, each %s", len(w.kept), len(d.Endpoints), bytes, step)
	}
}

func TestAThousandEventsAreKeptForAnHour(t *testing.T) {
	var e events
	for i := range 3 * maxEvents {
		e.add(noon.Add(time.Duration(i)*time.Second), change{kind: api.EventConfig, cluster: fmt.Sprint(i)})
	}
	at := noon.Add(3 * maxEvents * time.Second)
	all, oldest := e.since(at, 0)
	if len(all) != maxEvents || oldest != all[0].ID || all[len(all)-1].ID != 3*maxEvents {
		t.Errorf("%d are kept, from %d", len(all), oldest)
	}
	if some, _ := e.since(at, 3*maxEvents-2); len(some) != 2 {
		t.Errorf("%d after the last but two", len(some))
	}
	if none, _ := e.since(at.Add(2*time.Hour), 0); len(none) != 0 {
		t.Errorf("%d after two hours", len(none))
	}
}

func TestAnOverrideIsAProblemThatExplainsAndAnEvent(t *testing.T) {
	o := &api.Override{Kind: api.OverridePin, Share: api.Num(0.05), Until: api.At(noon), By: "anna",
		Reason: "canary"}
	e := api.Endpoint{Address: "a:1", Reason: "pinned", Override: o}
	const says = "pinned to 5 % of the requests by anna until 2026-03-14 12:00:00 UTC: canary"
	p := &conditions.Observation{Now: noon}
	got := conditions.EndpointProblems(p, &api.Cluster{}, &e)
	if len(got) != 1 || got[0].Message != says || got[0].Severity != "warning" {
		t.Errorf("%+v", got)
	}
	e.Reason = "fill"
	got = conditions.EndpointProblems(p, &api.Cluster{}, &e)
	if len(got) != 1 || !strings.Contains(got[0].Message, "not in effect") {
		t.Errorf("%+v", got)
	}
	with := api.Cluster{Name: "llama", Endpoints: []api.Endpoint{e}}
	without := api.Cluster{Name: "llama", Endpoints: []api.Endpoint{{Address: "a:1"}}}
	before := &conditions.Observation{Clusters: []api.Cluster{without}}
	after := &conditions.Observation{Clusters: []api.Cluster{with}}
	began := changes(before, after)
	if len(began) != 1 || began[0].kind != api.EventOverride || began[0].detail != says {
		t.Errorf("began: %+v", began)
	}
}

func TestASourceThatIsLostIsAnEvent(t *testing.T) {
	with := func(sources ...api.SourceStatus) *conditions.Observation {
		return &conditions.Observation{Clusters: []api.Cluster{{Name: "llama", Sources: sources}}}
	}
	discovery := func(state api.SourceState, worked time.Time, why string) api.SourceStatus {
		return api.SourceStatus{Name: "discovery", State: state, LastSuccess: api.At(worked), LastError: why}
	}
	waits, well := discovery(api.SourceDown, time.Time{}, ""), discovery(api.SourceOK, noon, "")
	failed, stale := discovery(api.SourceDown, time.Time{}, "refused"), discovery(api.SourceStale, noon, "no file")
	for name, c := range map[string]struct {
		before, after *conditions.Observation
		want          api.EventKind // empty: none
	}{
		"a new cluster whose source waits":  {&conditions.Observation{}, with(waits), ""},
		"a new cluster whose source failed": {&conditions.Observation{}, with(failed), api.EventSourceLost},
		"the first failure":                 {with(waits), with(failed), api.EventSourceLost},
		"a failure after it worked":         {with(well), with(stale), api.EventSourceLost},
		"the end of a failure":              {with(failed), with(well), api.EventSourceBack},
		"late scrapes": {with(well), with(well, api.SourceStatus{Name: "scrape", State: api.SourceStale,
			LastSuccess: api.At(noon)}), ""},
	} {
		got := changes(c.before, c.after)
		if len(got) != conditions.BoolToInt(c.want != "") || len(got) == 1 && got[0].kind != c.want {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
	}
	r := &Recorder{}
	if got := changes(r.before(with(failed)), with(failed)); len(got) != 1 || got[0].detail != "refused" {
		t.Errorf("at the first look: %+v", got)
	}
}

func TestAnInferencePoolIsNamedWhenItAppearsAndWhenItGoes(t *testing.T) {
	r := &Recorder{}
	r.PoolsChanged(noon, []string{"models/llama"}, nil)
	r.PoolsChanged(noon.Add(time.Minute), nil, []string{"models/llama"})
	all, _ := r.events.since(noon, 0)
	if len(all) != 2 || all[0].Text != "the InferencePool models/llama appeared" ||
		all[1].Text != "the InferencePool models/llama went" || len(r.configs) != 0 {
		t.Errorf("%+v, and configurations %+v", all, r.configs)
	}
}

func TestOverridesOfOneSecondAreAnEventEach(t *testing.T) {
	one, two := api.Endpoint{Address: "a:1"}, api.Endpoint{Address: "b:1"}
	before := &conditions.Observation{Clusters: []api.Cluster{{Name: "llama", Endpoints: []api.Endpoint{one, two}}}}
	one.Override = &api.Override{Kind: api.OverrideDrain, By: "anna", Reason: "bad fan"}
	two.Override = &api.Override{Kind: api.OverridePin, By: "bob", Share: api.Num(0.05)}
	after := &conditions.Observation{Clusters: []api.Cluster{{Name: "llama", Endpoints: []api.Endpoint{one, two}}}}
	var e events
	for _, c := range changes(before, after) {
		e.add(noon, c)
	}
	all, _ := e.since(noon, 0)
	if len(all) != 2 || !strings.Contains(all[0].Text, "a:1 was changed by hand: drained by anna") ||
		!strings.Contains(all[1].Text, "b:1 was changed by hand: pinned") {
		t.Errorf("the events are %+v", all)
	}
}

func TestASourceThatIsTakenOutOfTheConfigurationIsNotBack(t *testing.T) {
	source := api.SourceStatus{Name: "redis", State: api.SourceDown, LastError: "refused"}
	look := func(sources ...api.SourceStatus) *conditions.Observation {
		return &conditions.Observation{Clusters: []api.Cluster{{Name: "llama", Sources: sources}}}
	}
	if all := changes(look(source), look()); len(all) != 0 {
		t.Errorf("the events are %+v", all)
	}
}
