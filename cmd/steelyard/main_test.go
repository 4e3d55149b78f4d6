package main

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"steelyard/internal/api"
)

// steelyard runs a command line.
func steelyard(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	c := root()
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(&errs)
	status = execute(c)
	return status, out.String(), errs.String()
}

func TestExitStatusDistinguishesFailuresFromMistakesInTheCommandLine(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("pods: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := func(clusters ...string) string {
		path := filepath.Join(t.TempDir(), "good.yaml")
		text := "clusters:\n"
		for _, name := range clusters {
			text += "- {name: " + name + ", engine: vllm, endpoints: {static: [{address: 10.0.0.1:8000}]}}\n"
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	withoutKeys := filepath.Join(t.TempDir(), "tls.yaml")
	text := "xds: {listen: 127.0.0.1:0, tls: {cert_file: no.pem, key_file: no.key}}\n" +
		"clusters: [{name: llama, engine: vllm, endpoints: {static: [{address: 10.0.0.1:8000}]}}]\n"
	if err := os.WriteFile(withoutKeys, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		args   string
		status int
		says   string // on standard error; on standard output where all is well
	}{
		{"", 0, "Run and prepare:"},
		{"--help", 0, "simulate"},
		{"simulate --help", 0, "steelyard simulate --scenario photoroom --config steelyard.yaml --cluster llama"},
		{"simulate --list", 0, "photoroom"},
		{"simulate --scenario photoroom --print", 0, "name: \"photoroom\""},
		{"simulate --scenario " + bad, 1, "bad.yaml:1:7: pods: 3 where a list is needed"},
		{"simulate --scenario ./nowhere.yaml", 1, "reading the scenario: stat ./nowhere.yaml: no such file"},
		{"check --config " + bad, 1, "bad.yaml"},
		{"check --config " + good("llama"), 0, "good.yaml: ok, 1 cluster\n"},
		{"check --config " + good("llama", "mixtral"), 0, "good.yaml: ok, 2 clusters\n"},
		{"simulate", 2, "--scenario is missing"},
		{"simulate --scenario foto", 2, "there is no such scenario"},
		{"simulate --scenario photoroom --seed x", 2, `"x" for "--seed" flag: write a whole number, 0 or more`},
		{"simulate --bogus", 2, "unknown flag: --bogus"},
		{"simulate photoroom", 2, `there is no argument "photoroom": write steelyard simulate --scenario`},
		{"check steelyard.yaml", 2, `there is no argument "steelyard.yaml": write steelyard check --config FILE`},
		{"check -", 2, `there is no argument "-": write steelyard check --config FILE`},
		{"completion bsh", 2, `SHELL "bsh": did you mean bash?`},
		{"drain llama 10.0.0.1:8000 --for 30", 2, `"30" for "--for" flag: write a number with its unit, such as 90s`},
		{"drain llama 10.0.0.1:8000 --for 3d", 2, `"3d" for "--for" flag: write a number with its unit`},
		{"top llama --count many", 2, `"many" for "--count" flag: write a whole number`},
		{"check -c a.yaml --json=maybe", 2, `"maybe" for "--json" flag: write true or false`},
		{"drain llama 10.0.0.1:8000 --for 0s", 2, "an override ends after 0s"},
		{"drain llama 10.0.0.1:8000 --for 1000h", 2, "an override ends after 1000h0m0s"},
		{"pin llama 10.0.0.1:8000 --share 5% --reason a\nb", 2, "in one line"},
		{"explain llama 10.0.0.1:8000 --at yesterday", 2, `--at "yesterday": write a time`},
		{"explain llama 10.0.0.1:8000 --at -5m", 2, `--at "-5m": write a time`},
		{"completion", 0, "steelyard completion [command]"},
		{"top --limit -3", 2, "--limit -3: write 0 or more"},
		{"top --count -1", 2, "--count -1: write 0 or more"},
		{"events --limit -1", 2, "--limit -1: write 0 or more"},
		{"bootstrap --cluster a,b --xds 10.0.0.1:1", 2, "repeat --cluster"},
		{"inspect --engine vlmm http://127.0.0.1:1/metrics", 2, `--engine "vlmm": did you mean vllm?`},
		{"check", 2, `required flag(s) "config" not set`},
		{"nosuch", 2, `unknown command "nosuch" (steelyard --help lists them)`},
		{"simulat", 2, `unknown command "simulat": did you mean simulate?`},
		{"simulate --scenari photoroom", 2, "unknown flag: --scenari: did you mean --scenario?"},
		{"status --server http://10.0.0.1:19000", 2, "unknown flag: --server: did you mean --admin?"},
		{"status --json", 2, "unknown flag: --json: did you mean --output?"},
		{"bootstrap --address 10.0.0.1:19000", 2, "unknown flag: --address\n"}, // its --admin is Envoy's
		{"check -c a.yaml -c b.yaml", 2, "--config is given twice: write it once"},
		{"bootstrap --xds 10.0.0.1:1 --cluster a --xds 10.0.0.2:1", 2, "--xds is given twice: write it once"},
		{"bootstrap --cluster a --cluster b --xds 10.0.0.1:1", 2, "attach"},
		{"picker --cluster a --steelyard 10.0.0.1", 2,
			`--steelyard "10.0.0.1": want HOST:PORT, such as 10.0.0.5:18000 or [::1]:18000`},
		{"picker --cluster a --steelyard http://10.0.0.1:18000", 2, "want HOST:PORT"},
		{"picker --cluster a --steelyard 10.0.0.1:0", 2, "want a port from 1 to 65535"},
		{"picker --cluster a --steelyard :18000", 2, "want HOST:PORT"},
		{"picker --cluster a --steelyard 10.0.0.1:18000 --listen 18002", 2, "--listen: address 18002: missing port"},
		{"bootstrap --cluster a --xds 10.0.0.1:1 --tls", 2, "--tls needs --out"},
		{"simulate --scenario photoroom --config a -c b", 2, "--config is given twice"},
		{"bootstrap --cluster a/b --xds 10.0.0.1:1", 2, "a slash is not allowed"},
		{"bootstrap --cluster a --xds nowhere", 2, "want HOST:PORT"},
		{"bootstrap --form ads --cluster a --xds 10.0.0.1:1", 2, "--form ads needs --attach"},
		{"bootstrap --attach --listen :80 --cluster a --xds 10.0.0.1:1", 2, "--listen has no effect with --attach"},
		{"bootstrap --cluster a=b:1 --xds 10.0.0.1:1", 2, "NAME=SERVICE:PORT is for --form istio"},
		{"certificates --dir x", 2, "write --kubeconfig FILE"},
		{"pin llama 10.0.0.1:8000 --share 100%", 2, "write a part of the requests from 0.01% to 99%, such as"},
		{"bootstrap --form istio --cluster a --xds 10.0.0.1:1", 2, "needs --gateway NAMESPACE/NAME and --out FOLDER\n"},
		{"bootstrap --form istio --cluster a --xds 10.0.0.1:1 --out x", 2, "needs --gateway NAMESPACE/NAME\n"},
		{"bootstrap --form istio --cluster a --xds 10.0.0.1:1 --gateway a/b", 2, "istio needs --out FOLDER\n"},
		{"bootstrap --form istio --cluster a --xds 10.0.0.1:1 --gateway a/b --out x", 2, "write NAME=SERVICE:PORT"},
		{"bootstrap --form istio --cluster a=b.c.svc.local:1 --xds 10.0.0.1:1 --gateway a --out x", 2,
			"want NAMESPACE/NAME"},
		{"bootstrap --gateway a/b --cluster a --xds 10.0.0.1:1", 2, "--gateway, --pools-of and --mesh are for"},
		{"bootstrap --xds 10.0.0.1:1", 2, "--cluster is missing"},
		{"bootstrap --form istio --xds 10.0.0.1:1 --out x --gateway a/b", 2, "want a cluster and its Service"},
		{"serve -c x --log-level inf", 2,
			`--log-level "inf": did you mean info?: write one of debug, info, warn, error`},
		{"router --host foo", 2, `--host "foo": write an IP address`},
		{"router --host fe80::1%eth0", 2, `--host "fe80::1%eth0": write an IP address`},
		{"serve -c " + withoutKeys, 1, withoutKeys + ":1:34: xds.tls.cert_file: stat "},
		{"serve -c x --log-format yaml", 2, `--log-format "yaml": write one of text, json`},
		{"inspect --engine vlmm -", 2, `--engine "vlmm": did you mean vllm?`},
		{"inspect --engine vllm --queue q -", 2, "--engine: "},
		{"inspect --cluster llama -", 2, "--cluster needs --config"},
		{"inspect --ca-file ca.pem page.prom", 2, "options for TLS or a token need a URL"},
		{"inspect -c " + good("a", "b") + " 10.0.0.1:8000", 2, "--cluster is missing: write one of a, b"},
		{"inspect -c " + good("llama") + " --cluster lama 10.0.0.1:8000", 2, "did you mean llama?"},
		{"inspect -c " + good("llama") + " gpu-7", 2, "gpu-7"},
		{"inspect nowhere.prom", 1, "nowhere.prom: no such file"},
		{"inspect 10.0.0.1:8000", 2, "is neither a file nor a URL: write http://10.0.0.1:8000/metrics, or"},
		{"version", 0, "steelyard dev\nenvoy     1.40\n"},
		{"schema", 0, `"title": "Configuration of Steelyard"`},
	}
	for _, tt := range tests {
		status, stdout, stderr := steelyard(t, words(tt.args)...)
		said, quiet := stderr, stdout
		if tt.status == 0 {
			said, quiet = stdout, stderr
		}
		if status != tt.status || !strings.Contains(said, tt.says) || quiet != "" {
			t.Errorf("%q: status %d, standard output %q, standard error %q; want %d and %q", tt.args, status, stdout,
				stderr, tt.status, tt.says)
		}
		placed := regexp.MustCompile(`^\S+:\d+:\d+: `).MatchString(stderr)
		if tt.status > 0 && !strings.HasPrefix(stderr, "steelyard: ") && !placed {
			t.Errorf("%q: standard error %q begins neither with a place nor with the program", tt.args, stderr)
		}
		if placed != (strings.Contains(tt.args, bad) || strings.Contains(tt.args, withoutKeys)) {
			t.Errorf("%q: standard error %q begins with a place: %v", tt.args, stderr, placed)
		}
	}
}

// TestBootstrapSaysWhatAnEnvoyWithoutAFallbackDoes if Steelyard is away at its start.
func TestBootstrapSaysWhatAnEnvoyWithoutAFallbackDoes(t *testing.T) {
	for flags, noted := range map[string]bool{
		"": true, "--attach": true, "--fallback 10.0.0.2:8000": false, "--mode shedding": false,
	} {
		status, stdout, stderr := steelyard(t, words("bootstrap --cluster llama --xds 10.0.0.1:18000 "+flags)...)
		if status != 0 || !strings.Contains(stdout, "llama") || strings.Contains(stderr, "--fallback") != noted {
			t.Errorf("%q: status %d, standard error %q; a note is due: %v", flags, status, stderr, noted)
		}
	}
}

func TestSimulateFromTheCommandLine(t *testing.T) {
	rows := filepath.Join(t.TempDir(), "rows.json")
	args := []string{"simulate", "--scenario", "photoroom", "--duration", "30s", "--seed", "3",
		"--policy", "least_request,steelyard@20ms", "--policy", "shortest_queue", "--json", rows}
	status, stdout, stderr := steelyard(t, args...)
	if status != 0 || stderr != "" {
		t.Fatalf("status %d, standard error %q", status, stderr)
	}
	for _, want := range []string{"photoroom: 10 Envoys, 20 pods of 1 slot", "seed 3\n"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is not in\n%s", want, stdout)
		}
	}
	text, err := os.ReadFile(rows)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Header struct {
			Scenario        string  `json:"scenario"`
			Seed            uint64  `json:"seed"`
			DurationSeconds float64 `json:"duration_seconds"`
		}
		Rows []struct {
			Policy   string `json:"policy"`
			Requests int    `json:"requests"`
		}
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if h := got.Header; h.Scenario != "photoroom" || h.Seed != 3 || h.DurationSeconds != 30 {
		t.Errorf("the header is %+v", h)
	}
	var names []string
	for _, row := range got.Rows {
		names = append(names, row.Policy)
		if row.Requests < 100 {
			t.Errorf("%s has %d requests", row.Policy, row.Requests)
		}
	}
	if !slices.Equal(names, []string{"least_request", "steelyard@20ms", "shortest_queue"}) {
		t.Errorf("rows of %v", names)
	}
}

// Without --engine, it is the engine whose series are on the page, and the error is what is wrong with that page.
func TestInspectNamesWhatIsWrongWithAPage(t *testing.T) {
	const load = "vllm:num_requests_running 5\nvllm:num_requests_waiting 2\n"
	for name, c := range map[string]struct {
		page string
		args []string
		says string // on standard output where the status is 0
	}{
		"a series twice with two values": {
			page: load + "vllm:prompt_tokens_total 9000\nvllm:prompt_tokens_total 4400\n",
			says: "prompt_tokens unknown vllm:prompt_tokens_total occurs twice with the same labels, " +
				"as 9000 and as 4400"},
		"the only series twice with two values": {page: "vllm:num_requests_waiting 2\nvllm:num_requests_waiting 3\n",
			says: "!reading vllm metrics: no usable value: vllm:num_requests_waiting occurs twice with " +
				"the same labels"},
		"all of it twice": {page: load + load,
			says: "queue 2 sum of 1: vllm:num_requests_waiting"},
		"OpenMetrics without a last line feed": {page: load + "# EOF",
			says: "running 5 sum of 1: vllm:num_requests_running"},
		"text without a last line feed": {page: load + "vllm:kv_cache_usage_perc 0.2",
			says: "!reading vllm metrics: the page is cut off: its last line has no line feed"},
		"JSON, of no engine": {page: "[]", says: "!this is a page of JSON, not of metrics: most servers have " +
			"metrics at /metrics, and trtllm-serve at /prometheus/metrics (scrape.path)"},
		"JSON, of trtllm-serve": {page: "[]", args: []string{"--engine", "tensorrt-llm"},
			says: "!this is a page of JSON, not of metrics: trtllm-serve has its metrics at /prometheus/metrics"},
		"HTML, of SGLang": {page: "<!doctype html><html></html>\n", args: []string{"--engine", "sglang"},
			says: "!this is a page of HTML, not of metrics: sglang has metrics at /metrics"},
		"an empty page":             {page: "", says: "!the page is empty"},
		"cut off before any engine": {page: "go_goroutines 7\nvllm:num", says: "!the page is cut off"},
		"of no engine": {page: "go_goroutines 7\n",
			says: "!no series of an engine that Steelyard knows (vllm, triton, " +
				"tensorrt-llm, sglang, tgi, custom)"},
		"of SGLang's priorities": {page: "sglang:num_running_reqs{priority=\"1\"} 5\n",
			says: "!reading sglang metrics: none of the series is in the body " +
				`(expected sglang:num_queue_reqs{priority=""}`},
		"of a router that renames": {page: "sglang_num_running_reqs 5\n",
			says: "!it has sglang_num_running_reqs, which is sglang:num_running_reqs renamed"},
		"asleep": {page: load + "vllm:engine_sleep_state{sleep_state=\"awake\"} 0\n",
			says: `awake 0 min of 1: vllm:engine_sleep_state{sleep_state="awake"}`},
	} {
		t.Run(name, func(t *testing.T) {
			file := write(t, map[string]string{"page": c.page}) + "/page"
			status, out, errs := steelyard(t, append([]string{"inspect", file}, c.args...)...)
			says, fails := strings.CutPrefix(c.says, "!")
			if fails {
				out = errs
			}
			if (status != 0) != fails || !strings.Contains(strings.Join(strings.Fields(out), " "), says) {
				t.Errorf("status %d, want %q in\n%s%s", status, says, out, errs)
			}
		})
	}
}

// What requests cost an engine that counts tokens is shown of a single page; a server without such counts has none.
func TestInspectShowsTheWorkOfRequests(t *testing.T) {
	const pages = "../../collectors/modelserver/testdata/recorded/"
	const work = "work: a request has 4.66 prompt tokens (0 of them from a prefix cache) and 365.6 of output"
	for page, want := range map[string]bool{"vllm-0.32.0-loaded.prom": true, "vllm-0.32.0-idle.prom": false,
		"triton-2.51.0-loaded.prom": false} {
		status, out, errs := steelyard(t, "inspect", pages+page)
		if got := strings.Contains(out, work); status != 0 || got != want || !want && strings.Contains(out, "work:") {
			t.Errorf("%s: %d %s %s", page, status, out, errs)
		}
	}
}

// What takes more than a page is asked of the Steelyard that runs with the configuration, and unknown without one.
func TestInspectAsksARunningSteelyardForTheWork(t *testing.T) {
	page, err := os.ReadFile("../../collectors/modelserver/testdata/recorded/vllm-0.32.0-loaded.prom")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(page)
	}))
	defer server.Close()
	address := server.Listener.Addr().String()
	running := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/clusters/llama" {
			_ = json.NewEncoder(w).Encode(api.Cluster{Endpoints: []api.Endpoint{{Address: address,
				Pod: "vllm-llama-0"}}})
			return
		}
		if r.URL.Path != "/api/v1/clusters/llama/explain" || r.FormValue("endpoint") != address {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"decision": api.Decision{Work: api.Work{TokensPerByte: api.Num(0.24),
				TokensPerByteAgeSeconds: api.Num(3), Engines: 2}},
			"endpoint": api.Endpoint{Why: "It gets half.", Work: api.EndpointWork{Requests: api.Num(1),
				PromptTokens: api.Num(1834), Source: "sizes", PrefillRate: api.Num(12_300),
				PrefillRateSource: "measured", PrefillRateAgeSeconds: api.Num(2)}},
		})
	}))
	defer running.Close()
	dir := write(t, map[string]string{"c.yaml": "clusters: [{name: llama, engine: vllm, endpoints: " +
		"{static: [{address: '" + address + "'}]}}]\n"})

	status, out, errs := steelyard(t, "inspect", "-c", dir+"/c.yaml", "--admin", running.URL, address)
	for _, says := range []string{"prompt tokens outstanding 1834", "prefill rate (tokens/s) 12300 2s measured",
		"tokens per byte 0.24 3s counters, and sizes in logs", "It gets half."} {
		if status != 0 || !strings.Contains(strings.Join(strings.Fields(out), " "), says) {
			t.Errorf("%d %s, want %q in\n%s", status, errs, says, out)
		}
	}
	inspect := []string{"inspect", "-c", dir + "/c.yaml", "--admin"}
	if status, byPod, errs := steelyard(t, append(inspect, running.URL, "vllm-llama-0")...); status != 0 ||
		!strings.Contains(byPod, "1834") || !strings.Contains(byPod, "engine: vllm") {
		t.Errorf("by the name of its Pod: %d %s\n%s", status, errs, byPod)
	}
	for where, says := range map[string]string{running.URL: "nor has an endpoint of llama a Pod of that name",
		"127.0.0.1:1": "nor can a Steelyard be asked"} {
		if status, _, errs := steelyard(t, append(inspect, where, "vllm-llama-7")...); status != 2 ||
			!strings.Contains(errs, "vllm-llama-7") || !strings.Contains(errs, says) {
			t.Errorf("a Pod that is none, asking %s: %d %s", where, status, errs)
		}
	}
	for _, args := range [][]string{{"-c", dir + "/c.yaml", "--admin", "127.0.0.1:1", address}, {server.URL}} {
		status, out, errs = steelyard(t, append([]string{"inspect"}, args...)...)
		if status != 0 || !strings.Contains(out, "prefill rate and tokens per byte are unknown") {
			t.Errorf("%v: %d %s\n%s", args, status, errs, out)
		}
	}
	if status, _, errs = steelyard(t, "inspect", "--admin", running.URL, server.URL); status != 2 {
		t.Errorf("--admin without --config: %d %s", status, errs)
	}
}

// The configuration does not name the cluster of an InferencePool.
func TestInspectFetchesTheMetricsOfAPool(t *testing.T) {
	page, err := os.ReadFile("../../collectors/modelserver/testdata/recorded/vllm-0.32.0-loaded.prom")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(page)
	}))
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	pools := "pools: {namespaces: [models], metrics_port: " + port + "}\n"
	dir := write(t, map[string]string{"c.yaml": pools, "mine.yaml": pools +
		"clusters: [{name: mine, engine: triton, endpoints: {inferencePool: {name: llama}}}]\n"})
	status, out, errs := steelyard(t, "inspect", "-c", dir+"/mine.yaml", "--cluster", "models.llama", "127.0.0.1:1")
	if status != 0 || !strings.Contains(out, "engine: vllm") {
		t.Errorf("with a pool of that name in Steelyard's namespace: %d %s%s", status, out, errs)
	}
	for cluster, want := range map[string]struct {
		status int
		says   string
	}{
		"models.llama": {0, "engine: vllm"},
		"":             {2, "--cluster is missing: write one of NAMESPACE.NAME of an InferencePool"},
		"llama":        {2, "there are NAMESPACE.NAME of an InferencePool"},
		"models.la ma": {2, "there are NAMESPACE.NAME of an InferencePool"},
		"others.llama": {2, "pools.namespaces does not have the namespace others"},
	} {
		args := []string{"inspect", "-c", dir + "/c.yaml", "127.0.0.1:1"}
		if cluster != "" {
			args = append(args, "--cluster", cluster)
		}
		if status, out, errs := steelyard(t, args...); status != want.status || !strings.Contains(out+errs, want.says) {
			t.Errorf("%q: %d %s%s", cluster, status, out, errs)
		}
	}
}

// words splits a command line at blanks.
func words(line string) []string {
	return strings.FieldsFunc(line, func(r rune) bool { return r == ' ' })
}
