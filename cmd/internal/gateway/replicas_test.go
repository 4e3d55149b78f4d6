package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"steelyard/internal/extension"
)

// asReplica has the program of these tests be a replica.
const asReplica = "STEELYARD_TEST_REPLICA"

// serveReplica prints its address, and serves until its standard input ends.
func serveReplica() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	panic(fake{ruleOfLlama: {ofPool("llama", 1)}}.server().GRPC().Serve(l))
}

// A replica is a process that can be stopped, as one that hangs.
type replica struct {
	address string
	process *os.Process
}

func startReplica(t *testing.T) replica {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), asReplica+"=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return replica{strings.TrimSpace(line), cmd.Process}
}

func (r replica) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := r.process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// A service sends each new connection to one replica, and keeps those that there are, as in Kubernetes.
type service struct {
	l       net.Listener
	mu      sync.Mutex
	to      string
	open    int
	sent    int // bytes to the replicas
	running sync.WaitGroup
}

func startService(t *testing.T, to string) *service {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &service{l: l, to: to}
	s.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.running.Go(func() { s.forward(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.running.Wait()
	})
	return s
}

func (s *service) forward(from net.Conn) {
	defer from.Close()
	s.mu.Lock()
	address := s.to
	s.open++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.open--
		s.mu.Unlock()
	}()
	to, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer to.Close()
	back := make(chan struct{})
	go func() {
		defer close(back)
		_, _ = io.Copy(from, to)
		from.Close()
	}()
	_, _ = io.Copy(io.MultiWriter(to, s), from)
	to.Close()
	<-back
}

// Write counts.
func (s *service) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent += len(p)
	return len(p), nil
}

func (s *service) sendTo(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = address
}

// until waits for a state of the service.
func (s *service) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		done := is()
		s.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it never is so that %s", what)
		}
	}
}

// asEnvoyGateway is a client with the settings of Envoy Gateway 1.9.1: no deadline, no keepalive, four attempts.
func asEnvoyGateway(t *testing.T, address string) extension.EnvoyGatewayExtensionClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{"service":
			"envoygateway.extension.EnvoyGatewayExtension"}], "waitForReady": true, "retryPolicy": {"MaxAttempts": 4,
			"InitialBackoff": "0.1s", "MaxBackoff": "1s", "BackoffMultiplier": 2,
			"RetryableStatusCodes": ["UNAVAILABLE"]}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return extension.NewEnvoyGatewayExtensionClient(conn)
}

// ask has the cluster of a rule with a pool noted.
func ask(ctx context.Context, c extension.EnvoyGatewayExtensionClient) error {
	answer, err := c.PostClusterModify(ctx, &extension.PostClusterModifyRequest{Cluster: ofEnvoyGateway(ruleOfLlama),
		PostClusterContext: &extension.PostClusterExtensionContext{
			BackendExtensionResources: []*extension.ExtensionResource{resource("models", "llama", "")}}})
	if _, ok := takeNote(answer.GetCluster()); err == nil && !ok {
		return fmt.Errorf("the answer has no note: %v", answer)
	}
	return err
}

func TestEnvoyGatewayLeavesAReplicaThatHangs(t *testing.T) {
	t.Parallel()
	first, second := startReplica(t), startReplica(t)
	s := startService(t, first.address)
	client := asEnvoyGateway(t, s.l.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // which Envoy Gateway does not have
	defer cancel()
	if err := ask(ctx, client); err != nil {
		t.Fatal(err)
	}
	s.until(t, "the connection is closed", func() bool { return s.open == 0 })
	first.signal(t, syscall.SIGSTOP)
	s.sendTo(second.address) // as soon as the first one is not ready
	began := time.Now()
	if err := ask(ctx, client); err != nil {
		t.Fatal(err)
	}
	t.Logf("answered after %s", time.Since(began))
}

func TestACallToAReplicaThatHangsIsAnsweredByAnotherOnceItIsKilled(t *testing.T) {
	t.Parallel()
	first, second := startReplica(t), startReplica(t)
	s := startService(t, first.address)
	client := asEnvoyGateway(t, s.l.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := ask(ctx, client); err != nil {
		t.Fatal(err)
	}
	first.signal(t, syscall.SIGSTOP)
	s.mu.Lock()
	before := s.sent
	s.mu.Unlock()
	answered := make(chan error)
	go func() { answered <- ask(ctx, client) }()
	s.until(t, "the call is sent", func() bool { return s.sent > before })
	s.sendTo(second.address)
	first.signal(t, syscall.SIGKILL) // as the liveness probe has it done
	began := time.Now()
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	t.Logf("answered after %s", time.Since(began))
}

func TestAnAnswerIsBoundedWhateverItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fake{}.server()
		s.options.Backends = func(ctx context.Context, _ RuleID) ([]Backend, error) { // an API that hangs
			<-ctx.Done()
			return nil, ctx.Err()
		}
		began := time.Now()
		_, err := s.survive(t.Context(), nil, nil, func(ctx context.Context, _ any) (any, error) {
			return s.PostClusterModify(ctx, &extension.PostClusterModifyRequest{Cluster: ofEnvoyGateway(ruleOfLlama),
				PostClusterContext: &extension.PostClusterExtensionContext{
					BackendExtensionResources: []*extension.ExtensionResource{resource("models", "llama", "")}}})
		})
		if took := time.Since(began); took != 5*time.Second || err == nil {
			t.Errorf("it took %s: %v", took, err)
		}
	})
}
