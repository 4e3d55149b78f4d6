package daemon

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// soon waits until ok, for up to half a minute.
func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}

// model is a vLLM that completes requests all the time, each with its first token after 0.3 s.
func model(t *testing.T) *httptest.Server {
	var requests atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := requests.Add(2)
		fmt.Fprintf(w, "vllm:num_requests_waiting 0\nvllm:num_requests_running 2\nvllm:request_success_total %d\n"+
			"vllm:time_to_first_token_seconds_bucket{le=\"0.25\"} 0\n"+
			"vllm:time_to_first_token_seconds_bucket{le=\"0.5\"} %d\n"+
			"vllm:time_to_first_token_seconds_bucket{le=\"+Inf\"} %d\nvllm:time_to_first_token_seconds_count %d\n"+
			"vllm:time_to_first_token_seconds_sum %g\n", n, n, n, n, 0.3*float64(n))
	}))
	t.Cleanup(s.Close)
	return s
}

// TestTheRecordsOfARunningDaemon follows two servers through the API: what they served, their first tokens, the stream,
// the events, and the incident when one of them dies.
func TestTheRecordsOfARunningDaemon(t *testing.T) {
	a, b := model(t), model(t)
	address := func(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }
	body := fmt.Sprintf("clusters:\n- name: llama\n  engine: vllm\n  scrape: {interval: 100ms, timeout: 90ms}\n"+
		"  endpoints: {static: [{address: %q}, {address: %q}]}\n", address(a), address(b))
	_, base := serve(t, parse(t, body))

	var cluster struct {
		FirstToken float64 `json:"first_token_mean_seconds"`
		Low        float64 `json:"first_token_p99_low_seconds"`
		High       float64 `json:"first_token_p99_high_seconds"`
		Served     struct{ Source string }
		Endpoints  []struct {
			Address string
			Share   float64 `json:"served_share_10s"`
			Why     string
		}
	}
	soon(t, "served shares and first tokens", func() bool {
		err := get(base, "/api/v1/clusters/llama", &cluster)
		return err == nil && cluster.FirstToken > 0 && len(cluster.Endpoints) == 2 &&
			cluster.Endpoints[0].Share > 0.2 && cluster.Endpoints[0].Share < 0.8
	})
	if cluster.Served.Source != "completed" || cluster.FirstToken < 0.29 || cluster.FirstToken > 0.31 ||
		cluster.Low != 0.25 || cluster.High != 0.5 || !strings.HasPrefix(cluster.Endpoints[0].Why, "It gets ") {
		t.Errorf("%+v", cluster)
	}

	answer, err := http.Get(base + "/api/v1/stream?cluster=llama")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	// longer than the listener lets a request take to arrive, and an answer to be written
	frames := 0
	for end := time.Now().Add(12 * time.Second); time.Now().Before(end) && lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "data: {") && strings.Contains(lines.Text(), `"name":"llama"`) {
			frames++
		}
	}
	if frames < 5 {
		t.Errorf("%d frames in twelve seconds: %v", frames, lines.Err())
	}

	dead := address(a)
	a.Close()
	var incidents struct {
		Incidents []struct{ ID, Title, Since string }
	}
	find := func() (id, since string) {
		if err := get(base, "/api/v1/incidents?cluster=llama", &incidents); err != nil {
			return "", ""
		}
		for _, i := range incidents.Incidents {
			if strings.HasPrefix(i.ID, "endpoint/") && strings.HasSuffix(i.ID, dead) {
				return i.ID, i.Since
			}
		}
		return "", ""
	}
	soon(t, "the incident of the server that died", func() bool { id, _ := find(); return id != "" })
	_, since := find()
	for range 20 {
		if _, again := find(); again != since {
			t.Fatalf("it began at %s, and then at %q", since, again)
		}
		time.Sleep(100 * time.Millisecond)
	}
	var events struct{ Events []struct{ Kind, Text string } }
	if err := get(base, "/api/v1/events", &events); err != nil || len(events.Events) < 2 {
		t.Fatalf("%v: %+v", err, events)
	}
	kinds := map[string]bool{}
	for _, e := range events.Events {
		kinds[e.Kind] = true
	}
	for _, want := range []string{"started", "config", "source_lost"} {
		if !kinds[want] {
			t.Errorf("no event %s: %+v", want, events.Events)
		}
	}
}
