package router

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/e2e/rig/testbed"
)

// answersNothing is the address of a backend that answers nothing.
func answersNothing(t *testing.T) string {
	t.Helper()
	over := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(over) })
	return s.URL
}

func TestAClientsBrokenRequestIsNoAnswerOfTheBackend(t *testing.T) {
	r := startRouter(t)
	r.backends(answersNothing(t))
	for range 3 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: router\r\nTransfer-Encoding: chunked\r\n\r\n")
		r.eventually("it is at the backend", func() error {
			if h, err := r.health(); err != nil || h.Backends[0].InFlight != 1 {
				return fmt.Errorf("health is %+v, %w", h, err)
			}
			return nil
		})
		fmt.Fprint(conn, "ZZZ\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("the answer is %d, want Envoy's 400", resp.StatusCode)
		}
		r.idle()
	}
	if h, err := r.health(); err != nil || h.Backends[0].EWMALatency != nil {
		t.Errorf("health is %+v, %v: want no latency", h, err)
	}
}

// TestABackendThatHangsGetsOneOfTheClientsThatGiveUp: the other one is new, too.
func TestABackendThatHangsGetsOneOfTheClientsThatGiveUp(t *testing.T) {
	r := startRouter(t)
	pool := testbed.Servers(t, modelsim.Options{Slots: 1})
	r.backends(answersNothing(t), pool[0].Address())
	lost := 0
	for range 6 {
		ctx, giveUp := context.WithTimeout(t.Context(), time.Second)
		code, _, err := r.ask(ctx, time.Millisecond)
		giveUp()
		if errors.Is(err, context.DeadlineExceeded) {
			lost++
		} else if err != nil || code != http.StatusOK {
			t.Errorf("the answer is %d, %v", code, err)
		}
		r.idle()
	}
	if lost != 1 {
		t.Errorf("%d of 6 requests were lost, want one", lost)
	}
}

// TestAWarmBackendThatHangsGetsLittleWhileOthersAreIdle: it was the fastest, and its clients do not give up.
func TestAWarmBackendThatHangsGetsLittleWhileOthersAreIdle(t *testing.T) {
	r := startRouter(t, "CUSTOM_ROUTER_LATENCY_THRESHOLD=65")
	free, err := proc.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	fast := proctest.Start(t, proc.Spec{Name: "backend", Path: os.Args[0], Env: []string{asBackend + "=" + free[0]},
		Dir: proctest.Dir(t)})
	r.eventually("the backend listens", func() error {
		conn, err := net.Dial("tcp", free[0])
		if err == nil {
			conn.Close()
		}
		return err
	})
	pool := testbed.Servers(t, testbed.Same(2, modelsim.Options{Slots: 8})...)
	const service = 100 * time.Millisecond
	answered := func(n int) { // one after the other
		for range n {
			if code, _, err := r.ask(t.Context(), service); err != nil || code != http.StatusOK {
				t.Fatalf("the answer is %d, %v", code, err)
			}
		}
	}
	r.backends(free[0])
	answered(30) // five times as many may be in flight
	r.backends(free[0], pool[0].Address(), pool[1].Address())
	answered(3)
	r.idle()
	if err := fast.Pause(); err != nil {
		t.Fatal(err)
	}
	const requests = 60
	before := pool[0].Served() + pool[1].Served()
	var clients sync.WaitGroup
	for range requests {
		clients.Go(func() {
			if code, _, err := r.ask(t.Context(), service); err != nil || code != http.StatusOK {
				t.Errorf("the answer is %d, %v", code, err)
			}
		})
		time.Sleep(service / 2) // the load: one of the others would do
	}
	r.eventually("the others are done", func() error {
		if h, err := r.health(); err != nil || h.Backends[1].InFlight+h.Backends[2].InFlight > 0 {
			return fmt.Errorf("health is %+v, %w", h, err)
		}
		return nil
	})
	if n := pool[0].Served() + pool[1].Served() - before; n < requests*3/4 {
		t.Errorf("%d of %d requests were answered by the others, want all but a few", n, requests)
	}
	if err := fast.Resume(); err != nil {
		t.Fatal(err)
	}
	clients.Wait()
	r.idle()
}

func TestNoRequestIsLostToAnAddressWhereNothingListens(t *testing.T) {
	r := startRouter(t)
	pool := testbed.Servers(t, modelsim.Options{Slots: 1})
	r.backends("127.0.0.1:1", "127.0.0.1:2", pool[0].Address())
	for range 10 {
		if code, _, err := r.ask(t.Context(), time.Millisecond); err != nil || code != http.StatusOK {
			t.Errorf("the answer is %d, %v", code, err)
		}
	}
	if n := r.metric("custom_router_requests_dispatched_total"); n != 10 {
		t.Errorf("%v were dispatched, want 10", n)
	}
}

// answersNoConnection returns an address at which packets are dropped: a listener whose queue is full.
func answersNoConnection(t *testing.T) string {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(socket) })
	if err := errors.Join(syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
		syscall.Listen(socket, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	for range 9 {
		conn, err := net.DialTimeout("tcp", address, 200*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Fatalf("%s still accepts connections", address)
	return ""
}

// TestNoRequestWaitsForBackendsThatDropPackets: a connection to one takes the two seconds after which it is given up.
func TestNoRequestWaitsForBackendsThatDropPackets(t *testing.T) {
	r := startRouter(t)
	live := testbed.Servers(t, modelsim.Options{Slots: 4})[0]
	backends := []string{live.Address()}
	for range 3 {
		backends = append(backends, answersNoConnection(t))
	}
	r.backends(backends...)
	for i := range 40 { // for four seconds, so that connections are given up and attempted again
		began := time.Now()
		code, _, err := r.ask(t.Context(), 10*time.Millisecond)
		if took := time.Since(began); err != nil || code != http.StatusOK || took > time.Second {
			t.Errorf("request %d: %d, %v after %v, want 200 at once", i, code, err, took)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if n := r.metric("custom_router_requests_dispatched_total"); n != 40 {
		t.Errorf("%v requests were dispatched, want each of 40 once", n)
	}
}

// TestRequestsWaitWhileTheOnlyBackendRestarts: it answered before, is gone, and comes back at its address.
func TestRequestsWaitWhileTheOnlyBackendRestarts(t *testing.T) {
	t.Parallel()
	r := startRouter(t)
	first := testbed.Servers(t, modelsim.Options{Slots: 4})[0]
	r.backends(first.Address())
	if code, _, err := r.ask(t.Context(), time.Millisecond); err != nil || code != http.StatusOK {
		t.Fatalf("before: %d, %v", code, err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	var clients sync.WaitGroup
	for i := range 5 {
		clients.Go(func() {
			if code, _, err := r.ask(t.Context(), time.Millisecond); err != nil || code != http.StatusOK {
				t.Errorf("request %d: %d, %v", i, code, err)
			}
		})
	}
	r.waiting(5)
	again, err := modelsim.Start(modelsim.Options{Slots: 4, Address: first.Address()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Close() })
	clients.Wait()
	r.idle()
}

// TestNoRequestIsLostToABackendThatAnsweredBeforeAndIsGone: nothing of it was sent. Its body arrives at another
// backend, whole, also where the client sends the rest of it only then.
func TestNoRequestIsLostToABackendThatAnsweredBeforeAndIsGone(t *testing.T) {
	r := startRouter(t)
	begun, received := make(chan struct{}, 1), make(chan int64, 1)
	backend := func(slow time.Duration) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			begun <- struct{}{}
			n, _ := io.Copy(io.Discard, req.Body)
			received <- n
			time.Sleep(slow)
		}))
		t.Cleanup(s.Close)
		return s
	}
	send := func(size int) {
		t.Helper()
		body, to := io.Pipe()
		half := bytes.Repeat([]byte("x"), size/2)
		go func() {
			_, _ = to.Write(half)
			<-begun
			_, _ = to.Write(half)
			to.Close()
		}()
		resp, err := http.Post(r.url+"/v1/images", "application/json", body)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%d bytes: the answer is %d", size, resp.StatusCode)
		}
		if n := <-received; n != int64(size) {
			t.Errorf("%d bytes arrived, want %d", n, size)
		}
		r.idle()
	}
	for _, size := range []int{2, 500_000} {
		fast, slow := backend(0), backend(200*time.Millisecond)
		r.backends(fast.URL, slow.URL)
		send(2)
		send(2)
		fast.Close()
		send(size)
	}
	if n := r.metric("custom_router_requests_dispatched_total"); n != 8 {
		t.Errorf("%v were dispatched, want 8: two of the six came twice", n)
	}
}

func TestABackendWithoutTheModelIsNotFast(t *testing.T) {
	r := startRouter(t)
	without, asked := alwaysAnswers(t, http.StatusNotFound)
	pool := testbed.Servers(t, modelsim.Options{Slots: 1})
	r.backends(pool[0].Address(), without)
	for range 20 {
		if _, _, err := r.ask(t.Context(), 10*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	// Three at once, and then one after each pause, of which the first is a second.
	if n := asked.Load(); n < 1 || n > 6 {
		t.Errorf("%d of 20 requests went to the backend that answers 404 to all", n)
	}
	if h, err := r.health(); err != nil || h.Backends[0].EWMALatency == nil || h.Backends[1].EWMALatency != nil {
		t.Errorf("health is %+v, %v: want a latency of the first only", h, err)
	}
}

// TestARequestArrivesAsItCame, of old clients, too, at once and where it comes again; and each path that is not one of
// the API is a user's.
func TestARequestArrivesAsItCame(t *testing.T) {
	r := startRouter(t)
	type arrival struct {
		path   string
		header http.Header
	}
	arrived := make(chan arrival, 1)
	backend := func(slow time.Duration) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			arrived <- arrival{req.URL.Path, req.Header}
			time.Sleep(slow)
			fmt.Fprint(w, "an ", "answer")
		}))
		t.Cleanup(s.Close)
		return s
	}
	send := func(protocol, path, headers string) (status int, body string) {
		t.Helper()
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go fmt.Fprintf(conn, "GET %s HTTP/%s\r\n%s\r\n", path, protocol, headers)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	const host, steals = "Host: h\r\n", "X-Steelyard-Request: 1\r\n"
	large := "X-Large: " + strings.Repeat("x", 900<<10) + "\r\n" + strings.Repeat("X-Many: 1\r\n", 900)
	arrives := func(protocol, path, headers string) {
		t.Helper()
		if code, body := send(protocol, path, headers+steals); code != http.StatusOK || body != "an answer" {
			t.Fatalf("HTTP/%s %s with %d bytes of headers: %d, %.99s", protocol, path, len(headers), code, body)
		}
		got := <-arrived
		if got.path != path || strings.Contains(headers, large) && (len(got.header["X-Many"]) != 900 ||
			len(got.header.Get("X-Large")) != 900<<10) {
			t.Errorf("%s arrives at %s with %d and %d of its headers", path, got.path, len(got.header["X-Many"]),
				len(got.header.Get("X-Large")))
		}
		for name := range got.header {
			if strings.HasPrefix(name, "X-Steelyard") {
				t.Errorf("the backend has the header %s", name)
			}
		}
		r.idle()
	}
	fast, slow := backend(0), backend(200*time.Millisecond)
	r.backends(fast.URL, slow.URL)
	arrives("1.0", "/", "")
	arrives("1.0", "/", large)
	arrives("1.1", "/", host+large)
	for _, path := range []string{"/_custom_router", "/_custom_router/", "/_custom_router/other",
		"/_custom_router/health/x", "/_custom_router/metrics/", "/_custom_router/drain", "/_custom_router/stop",
		"/_custom_router/Health", "//_custom_router/health", "/a/_custom_router/health"} {
		arrives("1.1", path, host)
	}
	for path, want := range map[string]string{"/_custom_router/health": `"ok"`, "/_custom_router/health?v=1": `"ok"`,
		"/_custom_router/metrics": "custom_router_queue_depth"} {
		if code, body := send("1.0", path, ""); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s of the API is %d, %s", path, code, body)
		}
	}
	if code, _ := send("1.1", "/", host+"X-Larger: "+strings.Repeat("x", 2<<20)+"\r\n"); code !=
		http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("2 MiB of headers are answered %d", code)
	}
	fast.Close()
	arrives("1.0", "/", large)
	if n := r.metric("custom_router_requests_dispatched_total"); n != 15 {
		t.Errorf("%v were dispatched, want 15: the last of the 14 came twice", n)
	}
}

// TestEnvoyEndsWithARouterThatIsKilled, so that the port is free for the next one.
func TestEnvoyEndsWithARouterThatIsKilled(t *testing.T) {
	testbed.WithModule(t)
	free, err := proc.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	binary, err := proc.BuildSteelyard()
	if err != nil {
		t.Fatal(err)
	}
	envoy, err := proc.Find(proc.ProgramEnvoy)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free[0])
	c := exec.Command(binary, "router", "--envoy", envoy)
	c.Env = append(os.Environ(), "CUSTOM_ROUTER_PORT="+port, "TMPDIR="+t.TempDir())
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }) // whatever is left of it
	r := &routerProcess{t: t, url: "http://" + free[0]}
	r.eventually("the router answers", func() error {
		_, err := r.health()
		return err
	})
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // its error is that it was killed
	r.eventually("the port is free", func() error {
		l, err := net.Listen("tcp", free[0])
		if err == nil {
			l.Close()
		}
		return err
	})
}

// TestAllLinesOfTheRoutersLogAreJSON where that is asked for: its own, the module's and Envoy's.
func TestAllLinesOfTheRoutersLogAreJSON(t *testing.T) {
	testbed.WithModule(t)
	r := runRouterWith(t, []string{"--log-format", "json"}, "CUSTOM_ROUTER_STATE_LOG_INTERVAL=0.1")
	pool := testbed.Servers(t, modelsim.Options{Slots: 1})
	r.backends(pool[0].Address())
	type line struct {
		Time, Level, Msg, Module, Logger, Addr string
		Latency                                *float64 `json:"ewma_latency_seconds"`
	}
	read := func() (lines []line) {
		text, err := os.ReadFile(r.LogFile())
		if err != nil {
			t.Fatal(err)
		}
		for each := range strings.Lines(string(text[:bytes.LastIndexByte(text, '\n')+1])) {
			var l line
			if err := json.Unmarshal([]byte(each), &l); err != nil || l.Time == "" || l.Level == "" || l.Msg == "" {
				t.Fatalf("a line is %s, %v", each, err)
			}
			lines = append(lines, l)
		}
		return lines
	}
	logged := func(what string, is func(line) bool) {
		t.Helper()
		r.eventually(what, func() error {
			if lines := read(); !slices.ContainsFunc(lines, is) {
				return fmt.Errorf("not among %d lines", len(lines))
			}
			return nil
		})
	}
	logged("its own", func(l line) bool { return l.Msg == "serving" })
	logged("Envoy's", func(l line) bool { return l.Logger != "" })
	logged("a new backend, without a latency", func(l line) bool {
		return l.Module != "" && l.Addr != "" && l.Latency == nil
	})
	if _, _, err := r.ask(t.Context(), time.Millisecond); err != nil {
		t.Fatal(err)
	}
	logged("a backend with a latency", func(l line) bool { return l.Addr != "" && l.Latency != nil && *l.Latency > 0 })
}

func TestARouterAtAllAddressesOfIPv6AnswersByIPv4(t *testing.T) {
	testbed.WithModule(t)
	r := runRouterWith(t, []string{"--host", "::"}) // which waits until it answers at 127.0.0.1
	r.url = strings.Replace(r.url, "127.0.0.1", "[::1]", 1)
	if _, err := r.health(); err != nil {
		t.Error(err)
	}
}

func TestASecondRouterOnThePortFails(t *testing.T) {
	r := startRouter(t)
	binary, err := proc.BuildSteelyard()
	if err != nil {
		t.Fatal(err)
	}
	envoy, err := proc.Find(proc.ProgramEnvoy)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testbed.Limit)
	defer cancel()
	second := exec.CommandContext(ctx, binary, "router", "--envoy", envoy)
	second.Cancel = func() error { return second.Process.Signal(syscall.SIGTERM) }
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(r.url, "http://"))
	second.Env = append(os.Environ(), "CUSTOM_ROUTER_PORT="+port)
	out, err := second.CombinedOutput()
	if err == nil || ctx.Err() != nil {
		t.Errorf("the second one ended with %v, %v, want an error of its own\n%s", err, ctx.Err(), out)
	}
}

func TestTheRouterEndsAfterTheRequestsThatItHas(t *testing.T) {
	r := startRouter(t)
	pool := testbed.Servers(t, modelsim.Options{Slots: 1})
	type answer struct {
		code int
		err  error
	}
	answers := make(chan answer, 2)
	for range 2 {
		go func() {
			code, _, err := r.ask(t.Context(), 300*time.Millisecond)
			answers <- answer{code, err}
		}()
	}
	r.waiting(2)
	r.backends(pool[0].Address()) // one waits for the other
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if a := <-answers; a.err != nil || a.code != http.StatusOK {
			t.Errorf("the answer is %d, %v", a.code, a.err)
		}
	}
}
