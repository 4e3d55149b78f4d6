package chaos

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"steelyard/e2e/rig/load"
)

// An Account counts the requests of a run.
type Account struct {
	Requests int
	// WithEnvoy and WithServer count failed requests by the part that was ended while it had them.
	WithEnvoy, WithServer int
	// Unexcused counts failed requests for which no part was ended.
	Unexcused int
}

func (a Account) String() string {
	return fmt.Sprintf("%d requests, failed: %d with their Envoy, %d with their server, %d not explained by a fault",
		a.Requests, a.WithEnvoy, a.WithServer, a.Unexcused)
}

// An entry is a request's line in the access log of its Envoy.
type entry struct{ code, flags, upstream string }

// accessLogLine is Envoy's default format; the request's id and the upstream host of
// the last attempt are its last but two and last fields.
var accessLogLine = regexp.MustCompile(`^\[[^\]]+\] "[^"]*" (\d+) (\S+) .*"([^"]*)" "[^"]*" "([^"]*)"$`)

// accessLogs returns the entries of failed requests from all Envoys' logs in a folder, by request id.
func accessLogs(dir string) (map[string]entry, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "envoy-*.log"))
	if err != nil {
		return nil, err
	}
	entries := make(map[string]entry)
	for _, path := range paths {
		if err := readAccessLog(path, entries); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// longestLine bounds a line of an Envoy's log, in bytes.
const longestLine = 1 << 20

// readAccessLog adds the entries of one log. A log that cannot be read to its end is an error: without their entries,
// requests would be excused wrongly, or not.
func readAccessLog(path string, into map[string]entry) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		if m := accessLogLine.FindStringSubmatch(lines.Text()); m != nil && m[1] != "200" {
			into[m[3]] = entry{code: m[1], flags: m[2], upstream: m[4]}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// judge adds the requests of a load to the account, by the rule in the package comment, and complains about failures
// that no fault explains.
func (f *fleet) judge(prefix string, result load.Result) error {
	f.account.Requests += result.Requests
	if result.Errors == 0 {
		return nil
	}
	entries, err := accessLogs(f.dir)
	if err != nil {
		return fmt.Errorf("reading the Envoys' access logs: %w", err)
	}
	list, err := os.OpenFile(filepath.Join(f.dir, "failed-requests.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("listing the requests that failed: %w", err)
	}
	defer list.Close()
	for i, s := range result.Samples {
		if !s.Failed() {
			continue
		}
		id := load.RequestID(prefix, i)
		r := failure{
			id: id, sample: s, entry: entries[id], envoy: envoyName(s.Target), server: f.serverAt(entries[id].upstream),
			sent: result.Start.Add(s.At + s.Lateness), ended: result.Start.Add(s.At + s.Latency),
		}
		excuse := f.excuse(r)
		fmt.Fprintf(list, "%s: %s\n", f.describe(r), excuse)
		if excuse == noExcuse && f.account.Unexcused <= mostComplaints {
			f.complain("%s: %s; faults at the time:\n    %s", f.describe(r), excuse, f.around(r.sent, r.ended))
		}
	}
	if f.account.Unexcused > mostComplaints {
		f.complain("%d failures in all are not explained by a fault", f.account.Unexcused)
	}
	return nil
}

// mostComplaints bounds the complaints about single requests.
const mostComplaints = 10

// A failure is a failed request with its log entry and parts.
type failure struct {
	id            string
	sample        load.Sample
	entry         entry  // empty where the Envoy has none, or died before it wrote it
	envoy, server string // that had it; server is empty if none had
	sent, ended   time.Time
}

// The excuses.
const (
	withEnvoy  = "its Envoy was ended while it had the request"
	withServer = "its server was ended while it had the request"
	noExcuse   = "no part that had the request was ended"
)

func (f *fleet) excuse(r failure) string {
	switch {
	case f.inHand(r.envoy, "", r.sent, r.ended):
		f.account.WithEnvoy++
		return withEnvoy
	case f.inHand(r.server, r.envoy, r.sent, r.ended), f.lost(r) && f.anyInHand(r):
		f.account.WithServer++
		return withServer
	}
	f.account.Unexcused++
	return noExcuse
}

// lost reports whether the Envoy may have died before it wrote the request's server into its access log.
func (f *fleet) lost(r failure) bool {
	const unwritten = 500 * time.Millisecond // well above the flush interval
	return r.sample.Err == nil && r.entry == entry{} && f.inHand(r.envoy, "", r.ended, r.ended.Add(unwritten))
}

// anyInHand reports whether a server that may have had the request was ended.
func (f *fleet) anyInHand(r failure) bool {
	for i := range servers {
		if f.inHand(serverName(i), r.envoy, r.sent, r.ended) {
			return true
		}
	}
	return false
}

// serverAt returns the name of the server at an address; empty if there is none.
func (f *fleet) serverAt(address string) string {
	for i, a := range f.at.servers {
		if a == address {
			return serverName(i)
		}
	}
	return ""
}

func (f *fleet) describe(r failure) string {
	what := fmt.Sprintf("status %d", r.sample.Status)
	if r.sample.Err != nil {
		what = r.sample.Err.Error()
	}
	return fmt.Sprintf("request %s, sent at %s, failed at %s through %s, to %s, with %s, response flags %q",
		r.id, f.since(r.sent), f.since(r.ended), r.envoy, cmp.Or(r.server, "no server"), what, r.entry.flags)
}
