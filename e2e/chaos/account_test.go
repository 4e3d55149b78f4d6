package chaos

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/load"
)

// logOfAnEnvoy is in Envoy's own words, but for the addresses.
const logOfAnEnvoy = `[2026-11-22 05:33:34.402][4954][warning][upstream] [load_stats_reporter_impl.cc:352] StreamLoadStats closed
[2026-11-22T05:33:32.108Z] "POST / HTTP/1.1" 503 UC 2 95 52 - "-" "Go-http-client/1.1" "storm-1" "127.0.0.1:16005" "127.0.0.1:2"
[2026-11-22T05:33:32.129Z] "POST / HTTP/1.1" 200 - 2 50 55 54 "-" "Go-http-client/1.1" "storm-2" "127.0.0.1:16005" "127.0.0.1:1"
[2026-11-22T05:33:32.253Z] "POST / HTTP/1.1" 503 UO,UF 2 98 0 - "-" "Go-http-client/1.1" "storm-3" "127.0.0.1:16005" "127.0.0.1:1"
[2026-11-22T05:33:32.253Z] "POST / HTTP/1.1" 503 UH 2 98 0 - "-" "Go-http-client/1.1" "storm-4" "127.0.0.1:16005" "-"
`

func TestAFailedRequestIsExcusedIfTheEnvoyOrTheServerThatHadItWasEnded(t *testing.T) {
	at := addresses{servers: []string{"127.0.0.1:1", "127.0.0.1:2"}}
	f := &fleet{journal: newJournal(t), dir: t.TempDir(), at: at}
	if err := os.WriteFile(filepath.Join(f.dir, "envoy-0-2.log"), []byte(logOfAnEnvoy), 0o600); err != nil {
		t.Fatal(err)
	}
	start := f.start
	f.died("envoy-1", start.Add(time.Second), start.Add(2*time.Second))
	f.died("envoy-2", start.Add(1400*time.Millisecond), start.Add(2*time.Second))
	f.died("server-1", start.Add(time.Second), start.Add(2*time.Second))
	sample := func(envoy, status int, err error) load.Sample {
		arrival := load.Arrival{At: 900 * time.Millisecond, Target: envoy}
		return load.Sample{Arrival: arrival, Status: status, Err: err, Latency: 200 * time.Millisecond}
	}
	result := load.Result{Start: start, Requests: 7, Errors: 6, Samples: []load.Sample{
		sample(1, 0, errors.New("EOF")), // its Envoy died
		sample(0, 503, nil),             // its server died
		sample(0, 200, nil),
		sample(0, 503, nil),             // its server lives
		sample(0, 503, nil),             // it had none
		sample(0, 0, errors.New("EOF")), // not in the log, and its Envoy lives
		sample(2, 503, nil),             // its server, not in the log of an Envoy that died then
	}}
	if err := f.judge("storm", result); err != nil {
		t.Fatal(err)
	}
	if want := (Account{Requests: 7, WithEnvoy: 1, WithServer: 2, Unexcused: 3}); f.account != want {
		t.Errorf("%+v, want %+v", f.account, want)
	}
	for i, want := range []string{
		"request storm-3, sent at 0.900 s, failed at 1.100 s through envoy-0, to server-0, with status 503",
		`to no server, with status 503, response flags "UH"`, `to no server, with EOF, response flags ""`,
	} {
		if len(f.wrong) != 3 || !strings.Contains(f.wrong[i], want) {
			t.Errorf("complaints %q, want %q in number %d of 3", f.wrong, want, i)
		}
	}
	list, err := os.ReadFile(filepath.Join(f.dir, "failed-requests.log"))
	if lines := strings.Count(string(list), "\n"); err != nil || lines != 6 {
		t.Errorf("the list has %d lines, %v; want all 6 failures", lines, err)
	}
}

// TestALogThatCannotBeReadToItsEndIsAnError: requests whose entries come after the break would have none.
func TestALogThatCannotBeReadToItsEndIsAnError(t *testing.T) {
	for name, tt := range map[string]struct {
		longest int // bytes of a line in the middle
		entries int
		want    string // in the error; empty: none
	}{
		"a long line":     {longestLine / 2, 3, ""},
		"a line too long": {longestLine + 1, 0, "envoy-0-1.log: bufio.Scanner: token too long"},
	} {
		dir := t.TempDir()
		half := strings.Index(logOfAnEnvoy, "[2026-11-22T05:33:32.253Z]")
		text := logOfAnEnvoy[:half] + strings.Repeat("x", tt.longest) + "\n" + logOfAnEnvoy[half:]
		if err := os.WriteFile(filepath.Join(dir, "envoy-0-1.log"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		entries, err := accessLogs(dir)
		if len(entries) != tt.entries || (err == nil) != (tt.want == "") ||
			err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %d entries, %v; want %d, %q", name, len(entries), err, tt.entries, tt.want)
		}
	}
}
