package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"steelyard/e2e/rig/kube"
	"steelyard/e2e/rig/proc/proctest"
)

// limit bounds the wait for a condition. It is generous: tests that promise a time measure it themselves.
const limit = 30 * time.Second

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(stopsTheServer{m},
		// Connections that client-go and net/http keep for the next request.
		goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
	)
}

// stopsTheServer runs the tests, and stops the server that they share.
type stopsTheServer struct{ *testing.M }

func (s stopsTheServer) Run() int {
	code := s.M.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the shared API server:", err)
		code = max(code, 1)
	}
	return code
}

// shared is the API server of all tests that do not harm it, started by the first of them.
var shared sharedServer

type sharedServer struct {
	once   sync.Once
	server *kube.Server
	dir    string
	err    error
}

func (s *sharedServer) get() (*kube.Server, error) {
	s.once.Do(func() {
		if s.dir, s.err = os.MkdirTemp("", "steelyard-kube"); s.err != nil {
			return
		}
		s.server, s.err = kube.Start(context.Background(), kube.Options{Dir: s.dir})
	})
	return s.server, s.err
}

func (s *sharedServer) stop() error {
	var err error
	if s.server != nil {
		err = s.server.Stop()
	}
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

// apiServer returns the shared API server.
func apiServer(t testing.TB) *kube.Server {
	t.Helper()
	s, err := shared.get()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ownAPI starts an API server that the test may kill.
func ownAPI(t testing.TB, args ...string) *kube.Server {
	t.Helper()
	s, err := kube.Start(t.Context(), kube.Options{Dir: proctest.Dir(t), APIServerArgs: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

var namespaces atomic.Int64

// namespace makes a namespace for the test.
func namespace(t testing.TB, client kubernetes.Interface) string {
	t.Helper()
	name := fmt.Sprintf("test-%d", namespaces.Add(1))
	_, err := client.CoreV1().Namespaces().Create(t.Context(),
		&core.Namespace{ObjectMeta: meta.ObjectMeta{Name: name}}, meta.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// client may do everything.
func client(t testing.TB, s *kube.Server) kubernetes.Interface {
	t.Helper()
	c, err := s.Client()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// eventually waits for a condition: check returns why it does not hold yet.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("not within %v: %s: %v", limit, what, err)
}

// TestTheAPIServerIsTheOneThatIsPinned: clients decide by its version.
func TestTheAPIServerIsTheOneThatIsPinned(t *testing.T) {
	v, err := client(t, apiServer(t)).Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(v.GitVersion, "v1.36.") {
		t.Errorf("it is %s, want v1.36", v.GitVersion)
	}
}
