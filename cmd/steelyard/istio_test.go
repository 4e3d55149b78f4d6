package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kubernetesAPI has steelyard ask an API server that has these InferencePools and Services, JSON.
func kubernetesAPI(t *testing.T, pools, services string) {
	t.Helper()
	lists := map[string]string{
		"/apis/inference.networking.k8s.io/v1/namespaces/models/inferencepools": `{"kind": "InferencePoolList",
			"apiVersion": "inference.networking.k8s.io/v1", "items": [` + pools + `]}`,
		"/api/v1/namespaces/models/services": `{"kind": "ServiceList", "apiVersion": "v1", "items": [` +
			services + `]}`,
	}
	for path, list := range lists { // the same in a second namespace
		lists[strings.Replace(path, "/models/", "/chat/", 1)] = strings.ReplaceAll(list, `"models"`, `"chat"`)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if lists[r.URL.Path] == "" {
			http.NotFound(w, r)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(lists[r.URL.Path]))
	}))
	t.Cleanup(server.Close)
	dir := write(t, map[string]string{"kubeconfig": "current-context: a\ncontexts: [{name: a, context: {cluster: a, " +
		"user: a}}]\nclusters: [{name: a, cluster: {server: '" + server.URL + "'}}]\nusers: [{name: a}]\n"})
	t.Setenv("KUBECONFIG", filepath.Join(dir, "kubeconfig"))
}

const (
	llamaPool = `{"metadata": {"name": "llama", "namespace": "models"}, "spec": {"selector": {"matchLabels":
		{"app": "llama"}}, "targetPorts": [{"number": 8000}]}}`
	pickedPool = `{"metadata": {"name": "picked", "namespace": "models"}, "spec": {"selector": {"matchLabels":
		{"app": "picked"}}, "targetPorts": [{"number": 8000}], "endpointPickerRef": {"name": "epp"}}}`
	llamaService = `{"metadata": {"name": "llama-http"}, "spec": {"selector": {"app": "llama"}, "ports":
		[{"port": 80, "targetPort": 8000, "protocol": "TCP"}, {"port": 9090, "targetPort": 9090, "protocol": "TCP"}]}}`
	otherServices = `{"metadata": {"name": "embed"}, "spec": {"selector": {"app": "embed"}, "ports":
		[{"port": 80, "targetPort": 8000}]}},
		{"metadata": {"name": "canary"}, "spec": {"selector": {"app": "llama", "version": "2"}, "ports":
		[{"port": 80, "targetPort": 8000}]}},
		{"metadata": {"name": "named"}, "spec": {"selector": {"app": "llama"}, "ports":
		[{"port": 80, "targetPort": "http"}]}},
		{"metadata": {"name": "outside"}, "spec": {"type": "ExternalName", "externalName": "example.com"}}`
	secondService = `{"metadata": {"name": "llama-second"}, "spec": {"selector": {"app": "llama"}, "ports":
		[{"port": 8000, "targetPort": 8000}]}}`
)

// TestAGatewayOfIstioServesAllPoolsOfANamespace: by the Service with the same Pods. A pool with a picker is Istio's.
func TestAGatewayOfIstioServesAllPoolsOfANamespace(t *testing.T) {
	embed := strings.ReplaceAll(llamaPool, "llama", "embed")
	kubernetesAPI(t, strings.Join([]string{llamaPool, pickedPool, embed}, ","), llamaService+","+otherServices)
	dir := t.TempDir()
	status, out, errs := steelyard(t, "bootstrap", "--form", "istio", "--gateway", "models/eg", "--xds", "10.0.0.1:1",
		"--pools-of", "models", "--out", dir)
	if status != 0 || !strings.Contains(out, "1. kubectl apply -f "+dir) {
		t.Fatalf("%d %s\n%s", status, errs, out)
	}
	routes, err := os.ReadFile(filepath.Join(dir, "3-routes.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"outbound|80||llama-http.models.svc.cluster.local", "[\"models.llama\",",
		"outbound|80||embed.models.svc.cluster.local", "[\"models.embed\","} {
		if !strings.Contains(string(routes), want) {
			t.Errorf("step 3 has no %s", want)
		}
	}
	if n := strings.Count(string(routes), "operation: REMOVE"); n != 2 {
		t.Errorf("%d clusters are replaced", n)
	}
}

// TestAGatewayOfIstioServesSeveralNamespaces: in the same objects, which each run writes as a whole.
func TestAGatewayOfIstioServesSeveralNamespaces(t *testing.T) {
	kubernetesAPI(t, llamaPool, llamaService)
	dir := t.TempDir()
	status, _, errs := steelyard(t, "bootstrap", "--form", "istio", "--gateway", "models/eg", "--xds", "10.0.0.1:1",
		"--pools-of", "models", "--pools-of", "chat", "--cluster", "own.llama=llama.own.svc.cluster.local:80",
		"--out", dir)
	if status != 0 {
		t.Fatalf("%d %s", status, errs)
	}
	routes, err := os.ReadFile(filepath.Join(dir, "3-routes.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"outbound|80||llama-http.models.svc.cluster.local", "[\"models.llama\",",
		"outbound|80||llama-http.chat.svc.cluster.local", "[\"chat.llama\",",
		"outbound|80||llama.own.svc.cluster.local", "[\"own.llama\","} {
		if !strings.Contains(string(routes), want) {
			t.Errorf("step 3 has no %s", want)
		}
	}
}

// TestAPoolWithoutOneServiceIsNamed: and nothing is written, as files without a pool would take it from its routes.
func TestAPoolWithoutOneServiceIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		pools, services string
		args            []string
		status          int
		says            string
	}{
		"no Service": {llamaPool, otherServices, nil, 1,
			"add --cluster models.llama=SERVICE.models.svc.cluster.local:PORT"},
		"two Services": {llamaPool, llamaService + "," + secondService, nil, 1, "add --cluster models.llama= and the " +
			"one that routes name: llama-http.models.svc.cluster.local:80, llama-second.models.svc.cluster.local:8000"},
		"two, and one is named": {llamaPool, llamaService + "," + secondService,
			[]string{"--cluster", "models.llama=llama-second.models.svc.cluster.local:8000"}, 0, ""},
		"HTTP/2": {strings.Replace(llamaPool, `"selector"`, `"appProtocol": "kubernetes.io/h2c", "selector"`, 1),
			llamaService, nil, 1, "its appProtocol is kubernetes.io/h2c, and only http is served"},
		"only a pool with a picker": {pickedPool, llamaService, nil, 1,
			"--pools-of models: there is no InferencePool without an endpointPickerRef"},
		"a pool of all Pods": {strings.Replace(llamaPool, `"app": "llama"`, "", 1), llamaService, nil, 1,
			"InferencePool models/llama: its spec.selector is empty"},
		"another namespace": {llamaPool, llamaService, []string{"--pools-of", "elsewhere"}, 1,
			"listing inferencepools in namespace elsewhere"},
	} {
		t.Run(name, func(t *testing.T) {
			kubernetesAPI(t, c.pools, c.services)
			dir := filepath.Join(t.TempDir(), "istio")
			args := append([]string{"bootstrap", "--form", "istio", "--gateway", "models/eg", "--xds", "10.0.0.1:1",
				"--out", dir}, c.args...)
			if name != "another namespace" {
				args = append(args, "--pools-of", "models")
			}
			status, _, errs := steelyard(t, args...)
			if status != c.status || !strings.Contains(errs, c.says) {
				t.Errorf("%d %s, want %d and %q", status, errs, c.status, c.says)
			}
			if _, err := os.Stat(dir); (err == nil) != (c.status == 0) {
				t.Errorf("the files: %v", err)
			}
		})
	}
}

// TestWhatHasNoEffectOnAGatewayOfIstioIsRefused: or a mistake would look like a setting.
func TestWhatHasNoEffectOnAGatewayOfIstioIsRefused(t *testing.T) {
	for _, flag := range []string{"--listen=:80", "--admin=:1", "--node-id=a", "--zone=a", "--idle-timeout=1s",
		"--ready=/ready", "--access-log", "--attach", "--shadow", "--affinity=header:a", "--tls", "--tls-dir=/a",
		"--config-dir=/a"} {
		dir := filepath.Join(t.TempDir(), "istio")
		status, _, errs := steelyard(t, "bootstrap", "--form", "istio", "--gateway", "models/eg", "--xds", "10.0.0.1:1",
			"--cluster", "a=b.c.svc.cluster.local:1", "--out", dir, flag)
		name, _, _ := strings.Cut(flag, "=")
		if status != 2 || !strings.Contains(errs, name+" has no effect with --form istio") {
			t.Errorf("%s: %d %s", flag, status, errs)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s: files are written", flag)
		}
	}
}
