package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// write puts files into a folder and returns it.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const twoLists = `clusters:
- name: llama
  engine: vllm
  endpoints: {file: missing.yaml}
- name: ${NAME}
  engine: triton
  endpoints: {file: list.yaml}
`

func TestCheckWarnsOfWhatIsProbablyAMistake(t *testing.T) {
	dir := write(t, map[string]string{"c.yaml": twoLists,
		"list.yaml": "- targets: [10.0.0.1:8000]\n  labels: {capcity: 4}\n"})
	path := filepath.Join(dir, "c.yaml")
	status, stdout, stderr := steelyard(t, "check", "-c", path)
	want := path + ":4:15: warning: clusters[llama].endpoints.file: " + dir +
		"/missing.yaml is not there: the cluster has no endpoints until it is\n" +
		path + ":5:9: warning: clusters[1].name: ${NAME} is used as it is written, because Steelyard expands no " +
		"variables: fill it in before\n" +
		dir + "/list.yaml:2:12: warning: group 0, label \"capcity\": it is not used; did you mean \"capacity\"?\n"
	if status != 0 || stdout != path+": ok, 2 clusters\n" {
		t.Errorf("status %d, %q", status, stdout)
	}
	if diff := cmp.Diff(want, stderr); diff != "" {
		t.Errorf("standard error (-want +got):\n%s", diff)
	}
}

// A pull request has the configuration, and not the keys of the machine.
func TestCheckWithoutFilesReadsTheConfigurationOnly(t *testing.T) {
	const text = `xds:
  listen: "0.0.0.0:18000"
  tls: {cert_file: /no/c.pem, key_file: /no/k.pem, client_ca_file: /no/ca.pem}
clusters: [{name: llama, engine: vllm, endpoints: {file: /no/list.yaml}}]
`
	path := filepath.Join(write(t, map[string]string{"c.yaml": text}), "c.yaml")
	if status, _, stderr := steelyard(t, "check", "-c", path); status != 1 || !strings.Contains(stderr, "/no/c.pem") {
		t.Errorf("with files: status %d, %s", status, stderr)
	}
	status, stdout, stderr := steelyard(t, "check", "--no-files", "-c", path)
	if status != 0 || stdout != path+": ok, 1 cluster\n" || stderr != "" {
		t.Errorf("status %d, %q, %q", status, stdout, stderr)
	}
	bad := filepath.Join(write(t, map[string]string{"c.yaml": text + "pods: 3\n"}), "c.yaml")
	status, _, stderr = steelyard(t, "check", "--no-files", "-c", bad)
	if status != 1 || !strings.Contains(stderr, "pods") {
		t.Errorf("with a mistake: status %d, %s", status, stderr)
	}
}

// What serve refuses without reading a file, a pull request is refused for.
func TestCheckWithoutFilesRefusesASelectorThatIsNone(t *testing.T) {
	path := filepath.Join(write(t, map[string]string{"c.yaml": `kubernetes: {wedged: {evict: true}}
clusters: [{name: llama, engine: vllm, endpoints: {kubernetes: {selector: "app in ("}}}]
`}), "c.yaml")
	for _, arguments := range [][]string{{"check", "-c", path}, {"check", "--no-files", "-c", path},
		{"serve", "-c", path}} {
		status, _, stderr := steelyard(t, arguments...)
		if status != 1 || !strings.Contains(stderr, "endpoints.kubernetes.selector: ") ||
			strings.Contains(stderr, "has no effect") {
			t.Errorf("%v: status %d, %s", arguments, status, stderr)
		}
	}
}

func TestCheckWarnsOfActionsOnPodsThatNobodyFinds(t *testing.T) {
	path := filepath.Join(write(t, map[string]string{"c.yaml": `kubernetes: {wedged: {evict: true}, deletion_cost: true}
clusters: [{name: llama, engine: vllm, endpoints: {static: [{address: 10.0.0.1:8000}]}}]
`}), "c.yaml")
	status, _, stderr := steelyard(t, "check", "--no-files", "-c", path)
	if status != 0 || !strings.Contains(stderr, "1:23: warning: kubernetes.wedged.evict: it has no effect") ||
		!strings.Contains(stderr, "warning: kubernetes.deletion_cost: it has no effect") {
		t.Errorf("status %d, %s", status, stderr)
	}
}

func TestInspectSaysByWhatRequestsWillBePlaced(t *testing.T) {
	const recorded = "../../collectors/modelserver/testdata/recorded/"
	for _, c := range []struct{ file, without, verdict string }{
		{"vllm-0.32.0-loaded.prom", "", "placed by work"},
		{"vllm-0.32.0-loaded.prom", "vllm:iteration_tokens_total", "placed by work; without " +
			"vllm:iteration_tokens_total_count (exported by vllm 0.32.0), what an iteration takes is not learned"},
		{"vllm-0.32.0-loaded.prom", "vllm:time_to_first_token", "placed by requests; placing them by work needs " +
			"vllm:time_to_first_token_seconds_count (exported by vllm 0.32.0)"},
		{"triton-2.51.0-loaded.prom", "", "placed by requests; this engine exports no counts of tokens"},
	} {
		page, err := os.ReadFile(recorded + c.file)
		if err != nil {
			t.Fatal(err)
		}
		var kept strings.Builder
		for line := range strings.Lines(string(page)) {
			if c.without == "" || !strings.Contains(line, c.without) {
				kept.WriteString(line)
			}
		}
		path := filepath.Join(write(t, map[string]string{"page.prom": kept.String()}), "page.prom")
		status, stdout, stderr := steelyard(t, "inspect", path)
		if want := "\nverdict: " + c.verdict + "\n"; status != 0 || !strings.Contains(stdout, want) {
			t.Errorf("%s without %q: status %d, %s%s\nwant %s", c.file, c.without, status, stdout, stderr, want)
		}
	}
}

func TestCheckReadsStandardInputAndWritesJSON(t *testing.T) {
	var out, errs bytes.Buffer
	c := root()
	c.SetArgs([]string{"check", "--json", "-c", "-"})
	c.SetIn(strings.NewReader("pods: 3\nclusters: [{name: \"${A}\"}]\n"))
	c.SetOut(&out)
	c.SetErr(&errs)
	if status := execute(c); status != 1 || errs.Len() > 0 {
		t.Errorf("status %d, standard error %q", status, &errs)
	}
	var got checked
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.OK || got.File != "stdin" || len(got.Clusters) != 0 || len(got.Findings) != 4 {
		t.Errorf("%+v", got)
	}
	first, last := got.Findings[0], got.Findings[len(got.Findings)-1]
	if first.Severity != "error" || first.File != "stdin" || first.Line != 1 || first.Column != 1 ||
		!strings.Contains(first.Text, `unknown key "pods"`) {
		t.Errorf("first %+v", first)
	}
	if last.Severity != "warning" || last.Line != 2 || !strings.Contains(last.Text, "${A} is used as it is written") {
		t.Errorf("last %+v", last)
	}
}

func TestCheckRefusesAListOfEndpointsWithAFault(t *testing.T) {
	dir := write(t, map[string]string{"c.yaml": twoLists, "list.yaml": "- targets: [gpu-7:8000, 10.0.0.1:80]\n",
		"missing.yaml": "[]\n"})
	status, stdout, stderr := steelyard(t, "check", "-c", filepath.Join(dir, "c.yaml"))
	if status != 1 || stdout != "" || !strings.Contains(stderr, dir+"/list.yaml:1:13: group 0, target 0: address") {
		t.Errorf("status %d, standard output %q, standard error %q", status, stdout, stderr)
	}
}

const page = "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting 3\nvllm:num_requests_running 2\n"

// A page behind TLS and a token is read with the options for it, and with the settings of its cluster.
func TestInspectUsesTLSAndTokenAndFindsTheEngine(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer s3cret" || r.URL.Path != "/m" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(page))
	}))
	defer s.Close()
	address := s.Listener.Addr().String()
	dir := write(t, map[string]string{
		"token": "s3cret\n",
		"ca.pem": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: s.Certificate().Raw})),
		"c.yaml": "clusters:\n- name: llama\n  engine: vllm\n  endpoints: {static: [{address: " + address +
			", metrics_path: /m}]}\n" +
			"  scrape: {scheme: https, bearer_token_file: token, tls: {ca_file: ca.pem}}\n",
	})
	for name, args := range map[string][]string{
		"options": {"inspect", "--ca-file", dir + "/ca.pem", "--bearer-token-file", dir + "/token",
			"https://" + address + "/m"},
		"a cluster's settings": {"inspect", "-c", dir + "/c.yaml", address},
	} {
		status, stdout, stderr := steelyard(t, args...)
		if status != 0 || stderr != "" || !strings.HasPrefix(stdout, "engine: vllm\n") ||
			!strings.Contains(stdout, "queue        ") || !strings.Contains(stdout, "  3  ") {
			t.Errorf("%s: status %d, standard output %q, standard error %q", name, status, stdout, stderr)
		}
	}
	status, _, stderr := steelyard(t, "inspect", "https://"+address+"/m")
	if status != 1 || !strings.Contains(stderr, "certificate") {
		t.Errorf("without the authority: status %d, %q", status, stderr)
	}
	status, _, stderr = steelyard(t, "inspect", "--insecure-skip-verify", "https://"+address+"/m")
	if status != 1 || !strings.Contains(stderr, "status 403") {
		t.Errorf("without the token: status %d, %q", status, stderr)
	}
}
