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

// An Account says what became of the requests of a run.
type Account struct {
	Requests int
	// Failed requests by the part that was ended with them in hand.
	WithEnvoy, WithServer int
	// Unexcused failed with nobody who was.
	Unexcused int
}

func (a Account) String() string {
	return fmt.Sprintf("%d requests, failed: %d with their Envoy, %d with their server, %d with nobody",
		a.Requests, a.WithEnvoy, a.WithServer, a.Unexcused)
}

// An entry is what an Envoy's own access log says of a request.
type entry struct{ code, flags, upstream string }

// accessLogLine is Envoy's default format; the request's id and the upstream host of
// the last attempt are its last but two and last fields.
var accessLogLine = regexp.MustCompile(`^\[[^\]]+\] "[^"]*" (\d+) (\S+) .*"([^"]*)" "[^"]*" "([^"]*)"$`)

// accessLogs reads the entries of requests that failed from all Envoys' logs in a
// folder, by request id.
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

// readAccessLog adds the entries of one log. One that cannot be read to its end is an error: requests whose entries are
// missing would get a wrong verdict.
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

// judge adds the requests of a load to the account, by the rule in the package's
// comment, and complains of those that it does not excuse.
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
		verdict := f.verdict(r)
		fmt.Fprintf(list, "%s: %s\n", f.describe(r), verdict)
		if verdict == nobody && f.account.Unexcused <= mostTold {
			f.complain("%s: %s; faults at the time:\n    %s", f.describe(r), verdict, f.around(r.sent, r.ended))
		}
	}
	if f.account.Unexcused > mostTold {
		f.complain("%d requests in all failed although nobody died with them", f.account.Unexcused)
	}
	return nil
}

// mostTold is how many failed requests are told of one by one.
const mostTold = 10

// A failure is a request that failed, with what is known of it.
type failure struct {
	id            string
	sample        load.Sample
	entry         entry  // empty where the Envoy has none, or died before it wrote it
	envoy, server string // that had it; server is empty if none had
	sent, ended   time.Time
}

// The verdicts.
const (
	withEnvoy  = "its Envoy was ended with it in hand"
	withServer = "its server was ended with it in hand"
	nobody     = "nobody died with it"
)

func (f *fleet) verdict(r failure) string {
	switch {
	case f.inHand(r.envoy, "", r.sent, r.ended):
		f.account.WithEnvoy++
		return withEnvoy
	case f.inHand(r.server, r.envoy, r.sent, r.ended), f.lost(r) && f.anyInHand(r):
		f.account.WithServer++
		return withServer
	}
	f.account.Unexcused++
	return nobody
}

// lost reports whether the Envoy may have died before it wrote into its access log
// which server the request was at.
func (f *fleet) lost(r failure) bool {
	const unwritten = 500 * time.Millisecond // well above the flush interval
	return r.sample.Err == nil && r.entry == entry{} && f.inHand(r.envoy, "", r.ended, r.ended.Add(unwritten))
}

// anyInHand reports whether any server was ended that may have had the request.
func (f *fleet) anyInHand(r failure) bool {
	for i := range servers {
		if f.inHand(serverName(i), r.envoy, r.sent, r.ended) {
			return true
		}
	}
	return false
}

// serverAt is the name of the server at an address; empty when there is none.
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
