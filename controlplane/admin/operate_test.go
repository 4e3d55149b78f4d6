package admin

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"steelyard/controlplane/view"
)

// A deskOperator notes what it is asked for.
type deskOperator struct {
	asked []string
	level string
}

func (o *deskOperator) Override(v view.Override) (view.Override, error) {
	o.asked = append(o.asked, fmt.Sprintf("%s %s/%s %v %v by %s: %s", v.Kind, v.Cluster, v.Address, v.Share.Or(-1),
		v.Until.Sub(v.Since.Time), v.By, v.Reason))
	switch v.Cluster {
	case "llama":
		v.Kept = true
		return v, nil
	case "last":
		return v, errors.New("it is the last endpoint")
	}
	return v, Missing(errors.New("no cluster " + v.Cluster))
}

func (o *deskOperator) Undo(cluster, address string) (view.Override, bool) {
	return view.Override{Cluster: cluster, Address: address, Kind: view.OverrideDrain}, cluster == "llama"
}

func (o *deskOperator) Overrides() []view.Override { return nil }

func (o *deskOperator) Diff(name string, text []byte) (view.Diff, error) {
	if string(text) == "wrong" {
		return view.Diff{}, errors.New(name + ":1:1: wrong")
	}
	return view.Diff{Added: []string{"new"}, Clusters: []view.ClusterDiff{{Name: "llama", Keys: []view.KeyDiff{},
		Endpoints: []view.EndpointDiff{{Address: "10.20.1.11:8000"}}}}}, nil
}

func (o *deskOperator) LogLevel() string { return o.level }

func (o *deskOperator) SetLogLevel(level string) error {
	if level == "loud" {
		return errors.New("no such level")
	}
	o.level = level
	return nil
}

func TestOperationsNeedTheRoleAndAreAnswered(t *testing.T) {
	operator := &deskOperator{level: "info"}
	tokens, err := ParseTokens([]byte("operate anna 0123456789abcdef\nview bob fedcba9876543210\n"))
	if err != nil {
		t.Fatal(err)
	}
	access := NewAccess(AccessOptions{Loopback: true, TokensFile: "tokens"})
	access.SetTokens(tokens, nil)
	h := New(Options{Source: fixed{}, Operator: operator, Access: access, Now: func() time.Time { return noon }})
	const anna, bob = "0123456789abcdef", "fedcba9876543210"
	for _, c := range []struct {
		method, path, token, body string
		code                      int
		says                      string
	}{
		{"PUT", "/api/v1/clusters/llama/overrides/10.0.0.1:80", anna, `{"kind":"drain","reason":"x"}`, 200,
			`"kept":true`},
		{"PUT", "/api/v1/clusters/llama/overrides/%5B::1%5D:80", anna, `{"kind":"pin","share":0.5,"for_seconds":60}`,
			200, `"address":"[::1]:80"`},
		{"PUT", "/api/v1/clusters/llama/overrides/10.0.0.1:80", bob, `{"kind":"drain"}`, 403, "role"},
		{"PUT", "/api/v1/clusters/llama/overrides/10.0.0.1:80", "", `{"kind":"drain"}`, 401, "token"},
		{"PUT", "/api/v1/clusters/llama/overrides/10.0.0.1:80", anna, `{"sort":"drain"}`, 400, "unknown field"},
		{"PUT", "/api/v1/clusters/last/overrides/10.0.0.1:80", anna, `{"kind":"drain"}`, 400, "the last endpoint"},
		{"PUT", "/api/v1/clusters/other/overrides/10.0.0.1:80", anna, `{"kind":"drain"}`, 404, "no cluster other"},
		{"DELETE", "/api/v1/clusters/llama/overrides/10.0.0.1:80", anna, "", 200, `"kind":"drain"`},
		{"DELETE", "/api/v1/clusters/other/overrides/10.0.0.1:80", anna, "", 404, "neither drained nor pinned"},
		{"DELETE", "/api/v1/clusters/llama/overrides/10.0.0.1:80", bob, "", 403, "role"},
		{"GET", "/api/v1/overrides", bob, "", 200, `"overrides":[]`},
		{"POST", "/api/v1/diff?name=new.yaml", bob, "clusters: []", 200, `"added":["new"]`},
		{"POST", "/api/v1/diff?name=new.yaml", bob, "wrong", 400, "new.yaml:1:1: wrong"},
		{"POST", "/api/v1/diff", bob, strings.Repeat(" ", maxConfig+1), 413, "larger than"},
		{"POST", "/api/v1/diff", "", "clusters: []", 401, "token"},
		{"POST", "/api/v1/log-level", anna, `{"level":"debug"}`, 200, `"level":"debug"`},
		{"POST", "/api/v1/log-level", anna, `{"level":"loud"}`, 400, "no such level"},
		{"POST", "/api/v1/log-level", bob, `{"level":"debug"}`, 403, "role"},
		{"GET", "/api/v1/log-level", bob, "", 200, `"level":"debug"`},
	} {
		r := httptest.NewRequest(c.method, "http://localhost"+c.path, strings.NewReader(c.body))
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		body, _ := io.ReadAll(w.Result().Body)
		if w.Code != c.code || !strings.Contains(string(body), c.says) {
			t.Errorf("%s %s with %q: %d %s, want %d and %q", c.method, c.path, c.body[:min(len(c.body), 40)], w.Code,
				body, c.code, c.says)
		}
	}
	want := "drain llama/10.0.0.1:80 -1 1h0m0s by anna: x\npin llama/[::1]:80 0.5 1m0s by anna: \n" +
		"drain last/10.0.0.1:80 -1 1h0m0s by anna: \ndrain other/10.0.0.1:80 -1 1h0m0s by anna: "
	if got := strings.Join(operator.asked, "\n"); got != want {
		t.Errorf("asked for\n%s\nwant\n%s", got, want)
	}
}

func TestWithoutAnOperatorNobodyCanChangeAnything(t *testing.T) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "http://localhost/api/v1/log-level", nil)
	New(Options{Source: fixed{}}).ServeHTTP(w, r)
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("status %d", w.Code)
	}
}

func TestADiffHasWhatTheEndpointsReallyGot(t *testing.T) {
	d := view.ClusterDiff{CapacityBefore: view.Num(20), CapacityAfter: view.Num(40),
		Endpoints: []view.EndpointDiff{{Address: "a:1"}, {Address: "new:1"}}}
	c := view.Cluster{Endpoints: []view.Endpoint{{Address: "a:1", ServedShare1m: view.Num(0.25)}}}
	c.Use.CapacityUsed = view.Num(0.6)
	addServed(&d, &c)
	if d.Endpoints[0].ServedShare1m != view.Num(0.25) || d.Endpoints[1].ServedShare1m != (view.Number{}) ||
		d.CapacityUsed != view.Num(0.6) || d.CapacityUsedAfter != view.Num(0.3) {
		t.Errorf("%+v", d)
	}
}

func TestAnOverrideIsAProblemThatExplainsAndAnEvent(t *testing.T) {
	o := &view.Override{Kind: view.OverridePin, Share: view.Num(0.05), Until: view.At(noon), By: "anna",
		Reason: "canary"}
	e := view.Endpoint{Address: "a:1", Reason: "pinned", Override: o}
	const says = "pinned to 5 % of the requests by anna until 2026-03-14 12:00:00 UTC: canary"
	p := &observation{now: noon}
	got := endpointProblems(p, &view.Cluster{}, &e)
	if len(got) != 1 || got[0].Message != says || got[0].Severity != "warning" {
		t.Errorf("%+v", got)
	}
	e.Reason = "fill"
	got = endpointProblems(p, &view.Cluster{}, &e)
	if len(got) != 1 || !strings.Contains(got[0].Message, "not in effect") {
		t.Errorf("%+v", got)
	}
	with := view.Cluster{Name: "llama", Endpoints: []view.Endpoint{e}}
	without := view.Cluster{Name: "llama", Endpoints: []view.Endpoint{{Address: "a:1"}}}
	before, after := &observation{clusters: []view.Cluster{without}}, &observation{clusters: []view.Cluster{with}}
	began, ended := changes(before, after), changes(after, before)
	if len(began) != 1 || began[0].kind != view.EventOverride || began[0].detail != says {
		t.Errorf("began: %+v", began)
	}
	if len(ended) != 1 || ended[0].detail != "it is not pinned any more" {
		t.Errorf("ended: %+v", ended)
	}
}
