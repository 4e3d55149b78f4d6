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

	"steelyard/internal/api"
)

// A deskOperator notes what it is asked for.
type deskOperator struct {
	asked []string
	level string
}

func (o *deskOperator) Override(v api.Override) (api.Override, error) {
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

func (o *deskOperator) Undo(cluster, address, by string) (api.Override, bool) {
	o.asked = append(o.asked, "undo by "+by)
	return api.Override{Cluster: cluster, Address: address, Kind: api.OverrideDrain}, cluster == "llama"
}

func (o *deskOperator) Overrides() []api.Override { return nil }

func (o *deskOperator) Diff(name string, text []byte) (api.Diff, error) {
	if string(text) == "wrong" {
		return api.Diff{}, errors.New(name + ":1:1: wrong")
	}
	return api.Diff{Added: []string{"new"}, Clusters: []api.ClusterDiff{{Name: "llama", Keys: []api.KeyDiff{},
		Endpoints: []api.EndpointDiff{{Address: "10.20.1.11:8000"}}}}}, nil
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
		"drain last/10.0.0.1:80 -1 1h0m0s by anna: \ndrain other/10.0.0.1:80 -1 1h0m0s by anna: \n" +
		"undo by anna\nundo by anna"
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
	d := api.ClusterDiff{CapacityBefore: api.Num(20), CapacityAfter: api.Num(40),
		Endpoints: []api.EndpointDiff{{Address: "a:1"}, {Address: "new:1"}}}
	c := api.Cluster{Endpoints: []api.Endpoint{{Address: "a:1", ServedShare1m: api.Num(0.25)}}}
	c.Use.CapacityUsed = api.Num(0.6)
	addServed(&d, &c)
	if d.Endpoints[0].ServedShare1m != api.Num(0.25) || d.Endpoints[1].ServedShare1m != (api.Number{}) ||
		d.CapacityUsed != api.Num(0.6) || d.CapacityUsedAfter != api.Num(0.3) {
		t.Errorf("%+v", d)
	}
}
