package chaos

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"steelyard/internal/api"
)

func TestOnlyKnownZerosAreIdle(t *testing.T) {
	for name, tt := range map[string]struct {
		inFlight, running, queue string // values as JSON; empty: there is no such input
		want                     string // in the error; empty: none
	}{
		"idle":     {"0", "0", "0", ""},
		"a leak":   {"1", "0", "0", "server-0: in_flight is 1"},
		"unknown":  {"null", "0", "0", "server-0: in_flight is -1"},
		"no queue": {"0", "0", "", "server-0: queue is -1"},
	} {
		t.Run(name, func(t *testing.T) {
			var inputs []string
			for field, value := range map[string]string{"in_flight": tt.inFlight, "running": tt.running,
				"queue": tt.queue} {
				if value != "" {
					inputs = append(inputs, fmt.Sprintf(`{"field":%q,"value":%s}`, field, value))
				}
			}
			body := `{"endpoints":[{"address":"127.0.0.1:1","inputs":[` + strings.Join(inputs, ",") + `]}]}`
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(body))
			}))
			defer s.Close()
			f := &fleet{at: addresses{servers: []string{"127.0.0.1:1"}},
				api: caller{s.Listener.Addr().String(), s.Client()}}
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
	all := []api.Problem{{Message: "silent"}, {Message: "refuses cluster llama"}}
	if err := problems("envoy-1", all); err == nil || err.Error() != "envoy-1: silent\nenvoy-1: refuses cluster llama" {
		t.Errorf("%v", err)
	}
}
