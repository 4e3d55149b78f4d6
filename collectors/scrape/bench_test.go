package scrape

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"steelyard/collectors/modelserver"
)

// Both benchmarks run on one core (GOMAXPROCS=1), and so do the servers that
// they scrape: what is measured is the client and the server together, and the
// client on its own is faster than the figure. The servers are as cheap as they can
// be, one write for each request, and answer with the body that was recorded
// from a vLLM under load, 50 KB.
//
//	go test -run '^$' -bench Scrape -count 6 ./collectors/scrape | benchstat -
const benchmarkedBody = "../modelserver/testdata/recorded/vllm-0.32.0-loaded.prom"

// BenchmarkScrape scrapes a hundred endpoints in turn, as fast as it goes.
func BenchmarkScrape(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	loops := make([]*loop, 100)
	p := New(nil, slog.New(slog.DiscardHandler))
	p.shared.network.dial = respond(b)
	for i := range loops {
		loops[i] = newLoop(benchTarget(i, time.Minute), p.shared, nil, p.log)
		b.Cleanup(loops[i].fetcher.close)
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		if r := loops[i%len(loops)].scrape(b.Context()); r.Err != nil || r.Report.Queue.Value != 18 {
			b.Fatalf("result %+v", r)
		}
		i++
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "scrapes/s")
}

// BenchmarkScrapePool runs a thousand loops that scrape their endpoints once a
// second, and reports how busy that keeps the core: 1.0 would be all of it.
func BenchmarkScrapePool(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const endpoints = 1000
	results := make(chan Result, endpoints)
	p := New(func(r Result) { results <- r }, slog.New(slog.DiscardHandler))
	p.shared.network.dial = respond(b)
	targets := make([]Target, endpoints)
	for i := range targets {
		targets[i] = benchTarget(i, time.Second)
	}
	p.SetTargets(targets)
	done := make(chan error, 1)
	ctx := b.Context() // ends after the benchmark, before its cleanup
	go func() { done <- p.Run(ctx) }()
	b.Cleanup(func() { drainUntil(done, results) })
	for range endpoints { // the first round opens the connections
		<-results
	}
	failed, cpu, began := 0, cpuSeconds(b), time.Now()
	b.ResetTimer()
	for range b.N {
		if r := <-results; r.Err != nil {
			failed++
		}
	}
	elapsed := time.Since(began).Seconds()
	b.ReportMetric(float64(b.N)/elapsed, "scrapes/s")
	b.ReportMetric((cpuSeconds(b)-cpu)/elapsed, "cores")
	b.ReportMetric(float64(failed), "failed")
}

// drainUntil keeps the loops from blocking on their sink while they end.
func drainUntil(done chan error, results chan Result) {
	for {
		select {
		case <-results:
		case <-done:
			return
		}
	}
}

func benchTarget(i int, interval time.Duration) Target {
	address := fmt.Sprintf("10.0.%d.%d:8000", i/256, i%256)
	return Target{
		Cluster: "llama", Address: address, URL: "http://" + address + "/metrics",
		Engine: modelserver.EngineVLLM, Interval: interval, Timeout: interval, BodyLimit: 4 << 20,
	}
}

// respond serves the body, and returns a dialer that leads every address there:
// one local server is all the hosts of a fleet.
func respond(b *testing.B) dialFunc {
	b.Helper()
	body, err := os.ReadFile(benchmarkedBody)
	if err != nil {
		b.Fatal(err)
	}
	header := "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=1.0.0\r\nContent-Length: %d\r\n\r\n"
	response := fmt.Appendf(nil, header+"%s", len(body), body)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { answer(conn, response) })
		}
	})
	b.Cleanup(func() { listener.Close(); wg.Wait() })
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, listener.Addr().String())
	}
}

// answer writes the response after each request, until the client hangs up.
func answer(conn net.Conn, response []byte) {
	defer conn.Close()
	for r := bufio.NewReader(conn); ; {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return
		}
		if len(line) > len("\r\n") { // an empty line ends a request
			continue
		}
		if _, err := conn.Write(response); err != nil {
			return
		}
	}
}

// cpuSeconds returns what this process has used of all cores so far.
func cpuSeconds(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
