package faults

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/sys/unix"

	"steelyard/e2e/rig/grpctest"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/e2e/rig/testbed"
	"steelyard/e2e/rig/xdstest"
	"steelyard/internal/api"
)

// piped runs a fleet whose control plane logs at level debug into a pipe, and returns the reading end.
func piped(t *testing.T) (*fleet, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	defer w.Close() // the child has its own
	return start(t, testbed.Plan{Servers: testbed.Pool(t, 2), Stderr: w, Args: []string{"--log-level", "debug"}}), r
}

// noise connects clients that refuse each assignment, again and again, until enough returns nil. Each of them makes
// some long lines in a log of level debug.
func (f *fleet) noise(what string, enough func() error) {
	f.T.Helper()
	names := []string{testbed.Cluster}
	for i := range 20 {
		names = append(names, fmt.Sprint(strings.Repeat("unknown", 100), i))
	}
	var clients sync.WaitGroup
	defer clients.Wait()
	var stop atomic.Bool
	defer stop.Store(true)
	for i := range 2 {
		config := xdstest.Config{
			Address: f.XDS, ADS: true, NodeID: fmt.Sprint("noisy-", i), Clusters: names,
			Refuse: func(*endpointv3.ClusterLoadAssignment) error { return errors.New(strings.Repeat("no ", 300)) },
		}
		clients.Go(func() {
			for !stop.Load() {
				c, err := xdstest.Dial(config)
				if err != nil {
					continue
				}
				for s := c.State(); !stop.Load() && s.Refused == 0 && s.Err == nil; s = c.State() {
					time.Sleep(time.Millisecond)
				}
				c.Close()
			}
		})
	}
	f.Eventually(what, enough)
}

// dropping makes noise until lines of the log are dropped.
func (f *fleet) dropping() {
	f.T.Helper()
	f.noise("lines are dropped", func() error {
		n, err := f.dropped()
		if err == nil && n == 0 {
			err = errors.New("none yet")
		}
		return err
	})
}

var droppedSeries = regexp.MustCompile(`(?m)^steelyard_log_lines_dropped_total (\S+)$`)

// dropped returns how many lines of the log were dropped, by /metrics.
func (f *fleet) dropped() (lines int, err error) {
	body, err := f.Answer("/metrics")
	if err != nil {
		return 0, err
	}
	m := droppedSeries.FindStringSubmatch(body)
	if m == nil {
		return 0, errors.New("no such series")
	}
	n, err := strconv.ParseFloat(m[1], 64)
	return int(n), err
}

// serves checks that the control plane works: the admin API answers, a client gets pushes, an Envoy that starts gets
// its endpoints; and that the API has the problem of the log.
func (f *fleet) serves(problem string) {
	f.T.Helper()
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/api/v1/clients",
		"/api/v1/clusters/" + testbed.Cluster} {
		if _, err := f.Answer(path); err != nil {
			f.T.Error(err)
		}
	}
	c, err := xdstest.Dial(xdstest.Config{Address: f.XDS, NodeID: "pushed", Clusters: []string{testbed.Cluster}})
	if err != nil {
		f.T.Fatal(err)
	}
	defer c.Close()
	f.Eventually("a client is pushed to", func() error {
		if s := c.State(); s.Received[testbed.Cluster] < 3 {
			return errors.Join(fmt.Errorf("%d assignments", s.Received[testbed.Cluster]), s.Err)
		}
		return nil
	})
	f.StartEnvoy(len(f.Envoys))
	f.Eventually("the problem is shown", func() error {
		var s api.Status
		if err := f.Get("/api/v1/status", &s); err != nil {
			return err
		}
		for _, p := range s.Problems {
			if strings.Contains(p.Message, problem) {
				return nil
			}
		}
		return fmt.Errorf("problems %v", s.Problems)
	})
}

func TestAProcessLogThatIsNotReadStopsNothing(t *testing.T) {
	f, r := piped(t)
	f.dropping()
	if n, err := unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ); err != nil || n < 32<<10 {
		t.Fatalf("%d bytes are in the pipe (%v): it is not full", n, err)
	}
	f.serves("the log has not been read for")

	began := time.Now()
	if err := f.Control.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-f.Control.Done() // or the test's own timeout

	const limit = stopLimit + 600*time.Millisecond // 100 ms for a reload, 500 ms for the reader of the log
	if took := time.Since(began); took > limit {
		t.Errorf("the process ended %v after SIGTERM, want at most %v", took, limit)
	}
}

func TestACrashDoesNotWaitForALogReaderThatHasStalled(t *testing.T) {
	f, r := piped(t)
	f.dropping()
	began := time.Now()
	if err := f.Control.Signal(syscall.SIGQUIT); err != nil { // as after a panic, the Go runtime writes all stacks
		t.Fatal(err)
	}
	select {
	case <-f.Control.Done():
		t.Logf("the process ended %v after SIGQUIT", time.Since(began))
	case <-time.After(testbed.Limit):
		r.Close() // which ends the write
		t.Errorf("the process still runs %v after SIGQUIT", testbed.Limit)
	}
}

func TestACrashIsWrittenWhole(t *testing.T) {
	f, r := piped(t)
	whole := make(chan string)
	go func() {
		log, _ := io.ReadAll(r)
		whole <- string(log)
	}()
	if err := f.Control.Signal(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	log := <-whole
	_, crash, _ := strings.Cut(log, "SIGQUIT: quit")
	if stacks := strings.Count(crash, "\n\ngoroutine "); stacks < 20 || !strings.Contains(crash, "main.main()") {
		t.Errorf("%d stacks, want 20 or more, and that of main: %s", stacks, log)
	}
}

func TestTheProcessLogHasTheNumberOfDroppedLines(t *testing.T) {
	f, r := piped(t)
	f.dropping()
	notice := regexp.MustCompile(`level=WARN msg="log lines were dropped[^"]*" lines=(\d+)`)
	var logged atomic.Int64
	go func() {
		in := bufio.NewScanner(r)
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			if m := notice.FindStringSubmatch(in.Text()); m != nil {
				n, _ := strconv.ParseInt(m[1], 10, 64)
				logged.Add(n)
			}
		}
	}()
	f.Eventually("the log and /metrics say the same", func() error {
		n, err := f.dropped()
		if in := logged.Load(); err == nil && int64(n) != in {
			err = fmt.Errorf("the log %d, /metrics %d", in, n)
		}
		return err
	})
}

func TestAProcessLogWithoutAReaderStopsNothing(t *testing.T) {
	f, r := piped(t)
	r.Close()
	f.dropping()
	f.serves("the log cannot be written")
	if !f.Control.Running() {
		t.Error("the process has ended")
	}
}

func TestAClientThatReconnectsAThousandTimesIsSummarised(t *testing.T) {
	ports, err := proc.FreeAddresses(2)
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{&testbed.Fleet{T: t, Plan: testbed.Plan{Servers: testbed.Pool(t, 1)},
		Dir: proctest.Dir(t), XDS: ports[0], Admin: ports[1]}}
	f.Config = filepath.Join(f.Dir, "steelyard.yaml")
	f.WriteConfig("")
	f.Control = f.StartControl("steelyard")

	conn := grpctest.Connect(t, f.XDS)
	const times = 1000
	for i := range times {
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(t.Context())
		if err == nil {
			err = stream.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: fmt.Sprint("envoy-", i)},
				TypeUrl: xdstest.EndpointType})
		}
		if err == nil {
			err = stream.CloseSend()
		}
		if err == nil {
			_, err = stream.Recv()
		}
		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	if err := f.Control.Stop(); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(f.Control.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(log), "\n"); lines > 100 {
		t.Errorf("%d lines", lines)
	}
	for _, line := range []string{"envoy stream opened", "envoy stream closed"} {
		said := strings.Count(string(log), `msg="`+line+`"`)
		summary := regexp.MustCompile(`line="` + line + `" host=127.0.0.1 left_out=(\d+)`)
		for _, m := range summary.FindAllStringSubmatch(string(log), -1) {
			n, _ := strconv.Atoi(m[1])
			said += n
		}
		if said != times {
			t.Errorf("%q was logged or summarised %d times, want %d", line, said, times)
		}
	}
}
