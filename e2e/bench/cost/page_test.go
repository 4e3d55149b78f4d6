package main

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"steelyard/collectors/modelserver"
	"steelyard/e2e/rig/modelsim"
)

// TestAPageHasTheReading has the page read by what reads it in the product.
func TestAPageHasTheReading(t *testing.T) {
	whole := modelsim.Recording(modelsim.VLLM)
	if n := len(named(whole)); n > len(whole)/10 {
		t.Errorf("%d bytes of %d are left when series are named", n, len(whole))
	}
	for _, recording := range []string{whole, named(whole)} {
		testPage(t, recording)
	}
}

func testPage(t *testing.T, recording string) {
	p, err := newPage(recording)
	if err != nil {
		t.Fatal(err)
	}
	w := writer{page: p}
	reader, err := modelserver.NewReader(modelserver.EngineVLLM, modelserver.Custom{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []reading{
		{},
		{running: 12, waiting: 3, completed: 1234.5, queued: 17.25, busy: 4000},
		{running: 16, waiting: 1000, completed: 1e9, queued: 1e7, busy: 1e8},
	} {
		var b bytes.Buffer
		pieces := w.response(r)
		pieces.WriteTo(&b)
		header, body, found := bytes.Cut(b.Bytes(), []byte("\r\n\r\n"))
		if !found || !bytes.HasPrefix(header, []byte("HTTP/1.1 200 OK\r\n")) {
			t.Fatalf("header %q", header)
		}
		if n := len(recording); len(body) < n*8/10 || len(body) > n*12/10 {
			t.Errorf("a page of %d bytes, the recording has %d", len(body), n)
		}
		got, err := reader.Read(body)
		if err != nil {
			t.Fatal(err)
		}
		values := []float64{got.Running.Value, got.Queue.Value, got.Completions.Value, got.QueueSeconds.Value,
			got.BusySeconds.Value}
		if want := []float64{r.running, r.waiting, r.completed, r.queued, r.busy}; !slices.Equal(values, want) {
			t.Errorf("%v is read as %v", want, values)
		}
	}
}

func TestARecordingWithoutALiveSeriesIsRefused(t *testing.T) {
	if _, err := newPage("vllm:num_requests_running{engine=\"0\"} 1\n"); err == nil {
		t.Error("no error")
	}
}

func TestAServerShowsAChangeOnce(t *testing.T) {
	f, err := startFleet(2, false, named(modelsim.Recording(modelsim.VLLM)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	s := f.servers[1]
	var shown atomic.Int32
	s.burden(5, time.Now(), func(time.Time) { shown.Add(1) })
	for range 2 {
		response, err := http.Get("http://" + s.address + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || !bytes.Contains(body, []byte("\nvllm:num_requests_waiting{engine=\"0\",model_name=\"tiny\"} "+
			"5\n")) {
			t.Errorf("error %v, or no five requests wait", err)
		}
	}
	if n := shown.Load(); n != 1 {
		t.Errorf("told %d times", n)
	}
	http.DefaultClient.CloseIdleConnections()
}
