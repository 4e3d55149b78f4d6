package chaos

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"steelyard/controlplane/admin"
)

func TestOnlyKnownZerosAreIdle(t *testing.T) {
	for name, tt := range map[string]struct {
		inputs string
		want   string // in the error; empty: none
	}{
		"idle":     {`{"field":"in_flight","value":0},{"field":"running","value":0},{"field":"queue","value":0}`, ""},
		"a leak":   {`{"field":"in_flight","value":1},{"field":"running","value":0},{"field":"queue","value":0}`, "server-0: in_flight is 1"},
		"unknown":  {`{"field":"in_flight","value":null},{"field":"running","value":0},{"field":"queue","value":0}`, "server-0: in_flight is -1"},
		"no queue": {`{"field":"in_flight","value":0},{"field":"running","value":0}`, "server-0: queue is -1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(`{"endpoints":[{"address":"127.0.0.1:1","inputs":[` + tt.inputs + `]}]}`))
			}))
			defer s.Close()
			f := &fleet{at: addresses{servers: []string{"127.0.0.1:1"}}, api: api{s.Listener.Addr().String(), s.Client()}}
			err := f.idle(t.Context())
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestMoreThanBeforeIsNoticed(t *testing.T) {
	before := Vitals{Resident: 40 << 20, Goroutines: 70, Descriptors: 25}
	for _, tt := range []struct {
		name  string
		after Vitals
		want  bool
	}{
		{"the same", before, true},
		{"less", Vitals{Resident: 30 << 20, Goroutines: 60, Descriptors: 20}, true},
		{"a little more", Vitals{Resident: 44 << 20, Goroutines: 73, Descriptors: 27}, true},
		{"memory", Vitals{Resident: 80 << 20, Goroutines: 70, Descriptors: 25}, false},
		{"goroutines", Vitals{Resident: 40 << 20, Goroutines: 100, Descriptors: 25}, false},
		{"descriptors", Vitals{Resident: 40 << 20, Goroutines: 70, Descriptors: 60}, false},
	} {
		if got := tt.after.within(before); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}

func TestProblemsNameTheirPart(t *testing.T) {
	if err := problems("envoy-1", nil); err != nil {
		t.Errorf("without any: %v", err)
	}
	all := []admin.Problem{{Message: "silent"}, {Message: "refuses cluster llama"}}
	if err := problems("envoy-1", all); err == nil || err.Error() != "envoy-1: silent\nenvoy-1: refuses cluster llama" {
		t.Errorf("%v", err)
	}
}
