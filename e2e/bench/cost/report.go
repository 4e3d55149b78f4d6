package main

import (
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"
	"time"

	"steelyard/e2e/bench/placement/report"
)

// A Report is everything that a bench has measured, as in bench/cost.json.
type Report struct {
	At       time.Time `json:"at"`
	Go       string    `json:"go"`
	Machine  string    `json:"machine"`
	CPUs     int       `json:"cpus"`
	Interval float64   `json:"scrape_interval_seconds"`
	Rows     []Row     `json:"rows"`
	Targets  []Target  `json:"targets"`
}

// A Target is what was promised and what was measured.
type Target struct {
	Name  string  `json:"name"`
	Limit float64 `json:"limit"`
	Got   float64 `json:"got"` // the median of the runs
	Unit  string  `json:"unit"`
	Met   bool    `json:"met"`
	// Starved: in every run the bench itself was late, so that this is a time of the
	// machine's and no result.
	Starved bool `json:"starved,omitempty"`
}

func newReport() Report {
	return Report{
		At: time.Now().UTC().Truncate(time.Second), Go: runtime.Version(), CPUs: runtime.NumCPU(),
		Machine: runtime.GOOS + "/" + runtime.GOARCH, Interval: interval.Seconds(), Rows: []Row{}, Targets: []Target{},
	}
}

// A promise is a target before it is measured.
type promise struct {
	setting, name string
	limit         float64
	unit          string
	least         time.Duration // of the window, to be meaningful
	time          bool          // it is a time, which a starved machine makes longer
	of            func(Row) float64
}

func promises() []promise {
	const mebi = 1 << 20
	return []promise{
		{"endpoints-100", "CPU, 100 endpoints every 250 ms, 10 Envoys", 0.15, "cores", 0, false,
			func(r Row) float64 { return r.Cores }},
		{"streams-1000", "CPU, 1,000 endpoints, 1,000 streams, a push a second", 1, "cores", 0, false,
			func(r Row) float64 { return r.Cores }},
		{"streams-1000", "p99 from a change of load to the ACK of the last stream", 1, "s", 0, true,
			func(r Row) float64 { return r.Acks.Last.P99 }},
		{"streams-1000", "changes that a stream never acknowledged", 0, "", 0, false,
			func(r Row) float64 { return float64(r.Acks.Missing) }},
		{"streams-1000", "RSS", 1024, "MiB", 0, false, func(r Row) float64 { return r.RSS / mebi }},
		{"streams-1000", "growth of RSS over the window", 1, "MiB/min", 5 * time.Minute, false,
			func(r Row) float64 { return r.Growth / mebi }},
	}
}

// judge compares the rows of the binary under test with what was promised.
func judge(rows []Row) []Target {
	out := []Target{}
	for _, p := range promises() {
		var got, late []float64
		for _, r := range rows {
			switch {
			case r.Name != p.setting || r.Binary != "" || r.Seconds < p.least.Seconds():
			case p.time && r.starved():
				late = append(late, p.of(r))
			default:
				got = append(got, p.of(r))
			}
		}
		if len(got)+len(late) == 0 {
			continue
		}
		t := Target{Name: p.name, Limit: p.limit, Unit: p.unit, Starved: len(got) == 0}
		if t.Starved {
			got = late
		}
		t.Got = median(got)
		t.Met = t.Got <= t.Limit
		out = append(out, t)
	}
	return out
}

// starved reports whether the bench's own timers were so late that the times measure the
// machine than about what is measured.
func (r Row) starved() bool {
	const most = 0.02 // seconds, a hundredth of the time; on a free machine it is 2 ms
	return r.Lateness.P99 > most
}

// header and line are the table.
const header = "setting\tbinary\tcores\tbench\tRSS\tgrowth\tscrapes\tfailed\tsteps\tpushes\tGCs\tchange → ACK " +
	"p50\tp99\tlast p99\tmax\tscraped p99\tlate p99"

func (r Row) line() string {
	const mebi = 1 << 20
	binary := r.Binary
	if binary == "" {
		binary = "this"
	}
	acks := "-\t-\t-\t-\t-"
	if a := r.Acks; a.Changes > 0 {
		acks = fmt.Sprintf("%s\t%s\t%s\t%s\t%s", ms(a.All.P50), ms(a.All.P99), ms(a.Last.P99), ms(a.All.Max),
			ms(a.Scraped.P99))
	}
	late := ms(r.Lateness.P99)
	if r.starved() {
		late += ": starved"
	}
	return fmt.Sprintf("%s\t%s\t%.3f\t%.3f\t%.0f MiB\t%+.1f MiB/min\t%.0f/s\t%.0f\t%.1f/s\t%.2f/s\t%.1f/s\t%s\t%s",
		r.Name, binary, r.Cores, r.BenchCores, r.RSS/mebi, r.Growth/mebi, r.Scrapes, r.Failed, r.Steps, r.Pushes, r.GCs,
		acks, late)
}

func ms(seconds float64) string { return fmt.Sprintf("%.0f ms", seconds*1000) }

// print writes the table and the targets.
func (r Report) print(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, header)
	for _, row := range r.Rows {
		fmt.Fprintln(table, row.line())
	}
	table.Flush()
	fmt.Fprintln(w)
	table = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, t := range r.Targets {
		verdict := "met"
		switch {
		case t.Starved && !t.Met:
			verdict = "no result"
		case !t.Met:
			verdict = "MISSED"
		}
		fmt.Fprintf(table, "%s\t%s\t%.3g %s\tat most %.3g %s\n", verdict, t.Name, t.Got, t.Unit, t.Limit, t.Unit)
	}
	table.Flush()
}

// save writes the report as JSON.
func (r Report) save(path string) error { return report.WriteJSON(path, r) }
