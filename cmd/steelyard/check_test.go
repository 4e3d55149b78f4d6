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
