package kubernetes

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestHowAnEvictionEnds: only an answer of 201 is one.
func TestHowAnEvictionEnds(t *testing.T) {
	failure := func(code int, reason, details string) string {
		return fmt.Sprintf(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": %d, "reason": %q%s}`,
			code, reason, details)
	}
	for name, c := range map[string]struct {
		code int
		body string
		want error  // nil: none, or another one
		says string // of another one
	}{
		"done": {code: 201, body: `{"kind": "Status", "apiVersion": "v1", "status": "Success"}`},
		"its budget": {code: 429, body: failure(429, "TooManyRequests",
			`, "details": {"causes": [{"reason": "DisruptionBudget", "message": "needs 4 healthy pods"}]}`),
			want: ErrDisrupted},
		"a busy API server":   {code: 429, body: failure(429, "TooManyRequests", ""), says: "pods/eviction"},
		"gone":                {code: 404, body: failure(404, "NotFound", ""), want: ErrGone},
		"another of its name": {code: 409, body: failure(409, "Conflict", ""), want: ErrGone},
		"forbidden":           {code: 403, body: failure(403, "Forbidden", ""), says: "pods/eviction"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(c.code)
			_, _ = io.WriteString(w, c.body)
		}))
		kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
		text := fmt.Appendf(nil, "current-context: a\ncontexts: [{name: a, context: {cluster: a}}]\n"+
			"clusters: [{name: a, cluster: {server: %q}}]\n", server.URL)
		if err := os.WriteFile(kubeconfig, text, 0o600); err != nil {
			t.Fatal(err)
		}
		client, err := New(Options{Kubeconfig: kubeconfig, Requested: func(string, string, string) {},
			Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		err = client.Evict(t.Context(), Pod{Namespace: "models", Name: "a", UID: "1"}, false)
		if c.says == "" && !errors.Is(err, c.want) || c.says != "" && (err == nil || errors.Is(err, ErrDisrupted) ||
			errors.Is(err, ErrGone) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %v%s", name, err, c.want, c.says)
		}
		client.dialer.CloseAll()
		server.Close()
	}
}

func TestWhetherAPodHasAControllerIsKept(t *testing.T) {
	is, no := true, false
	for name, c := range map[string]struct {
		owners []meta.OwnerReference
		want   bool
	}{
		"bare":         {},
		"a ReplicaSet": {[]meta.OwnerReference{{Kind: "ReplicaSet", Name: "llama", Controller: &is}}, true},
		"an owner that is no controller": {[]meta.OwnerReference{{Kind: "Queue", Name: "llama", Controller: &no},
			{Kind: "Group", Name: "llama"}}, false},
	} {
		pod := &core.Pod{ObjectMeta: meta.ObjectMeta{OwnerReferences: c.owners}}
		if slimPod(pod); podOf(pod).Controlled != c.want {
			t.Errorf("%s: controlled %t, want %t", name, podOf(pod).Controlled, c.want)
		}
	}
}
