package report

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Conditions are those under which a document's figures hold.
type Conditions struct {
	Started  time.Time `json:"started"`
	Envoys   int       `json:"envoys"`
	Servers  int       `json:"servers"`
	Slots    int       `json:"slots"`
	Slow     int       `json:"slow_servers"`
	Skew     bool      `json:"one_envoy_has_half"`
	Load     float64   `json:"load"`
	Seed     uint64    `json:"seed"`
	Cores    int       `json:"cores"`
	Envoy    string    `json:"envoy"`
	WarmUp   float64   `json:"warm_up"`        // mean services before each block of requests, not counted
	Block    float64   `json:"bootstrap_mean"` // mean services in a block of the bootstrap
	Lateness float64   `json:"lateness_limit"` // largest p99 of the generator's lateness, in mean services
}

// A Run is one of the consecutive runs of a bench, or all of them together.
type Run struct {
	Rows []Row `json:"rows"` // one for each policy and service time
	// those of further groups, which their rows are held against
	References  []Row             `json:"references,omitempty"`
	Targets     []Target          `json:"targets,omitempty"`
	MachineBusy map[string]Number `json:"machine_busy"`    // share of all cores, by service time
	Again       []string          `json:"again,omitempty"` // groups that were measured more than once, and why

	Sections []Section `json:"-"`
}

// NewRun makes a run of its sections.
func NewRun(sections []Section, busy map[string]Number, again []string) Run {
	r := Run{Targets: Targets(sections), MachineBusy: busy, Again: again, Sections: sections}
	for _, s := range sections {
		r.Rows = append(r.Rows, s.Rows...)
		r.References = append(r.References, s.References...)
	}
	return r
}

// Late names the groups whose requests left too late to be worth anything, each with
// its latest row: p99 of the lateness above the limit, in mean service times.
func (r Run) Late(limit float64) []string {
	var late []string
	for _, s := range r.Sections {
		for group := 1; group <= s.Groups(); group++ {
			row := s.latest(group)
			if share := float64(row.LatenessP99 / row.Service); !(share <= limit) {
				late = append(late, fmt.Sprintf("group %d at %g s service: the load generator was %.1f ms late at "+
					"p99 for %s, %.1f %% of the mean service, limit %.1f %%",
					group, float64(row.Service), 1e3*float64(row.LatenessP99), row.Policy, 100*share, 100*limit))
			}
		}
	}
	return late
}

// A Document is what a bench found.
type Document struct {
	Valid      bool       `json:"valid"`
	Reasons    []string   `json:"reasons,omitempty"` // why it is not valid
	Conditions Conditions `json:"conditions"`
	Run                   // over all runs
	Runs       []Run      `json:"runs"`
}

// NewDocument judges the runs: one that was late makes the whole worth nothing.
func NewDocument(c Conditions, all Run, runs []Run) Document {
	d := Document{Conditions: c, Run: all, Runs: runs}
	for i, r := range runs {
		for _, reason := range r.Late(c.Lateness) {
			d.Reasons = append(d.Reasons, fmt.Sprintf("run %d: %s", i+1, reason))
		}
	}
	d.Valid = len(d.Reasons) == 0
	return d
}

// outcomes returns a target in each of the runs, as far as it was measured there.
func (d Document) outcomes(text string) []Target {
	var all []Target
	for _, r := range d.Runs {
		for _, t := range r.Targets {
			if t.Text == text && t.Known() {
				all = append(all, t)
			}
		}
	}
	return all
}

// Held returns how many of the measured targets held in every run.
func (d Document) Held() (held, measured int) {
	for _, t := range d.Targets {
		all := d.outcomes(t.Text)
		if len(all) == 0 {
			continue
		}
		measured++
		if !slices.ContainsFunc(all, func(t Target) bool { return !t.Holds }) {
			held++
		}
	}
	return held, measured
}

// spread returns the least and the largest p99 of a row over the runs.
func (d Document) spread(of Row) (least, most Number) {
	var all []Number
	for _, r := range d.Runs {
		for _, row := range slices.Concat(r.Rows, r.References) {
			if row.Policy == of.Policy && row.Service == of.Service && row.Group == of.Group {
				all = append(all, row.WaitP99)
			}
		}
	}
	if len(all) == 0 {
		return unknown, unknown
	}
	return slices.Min(all), slices.Max(all)
}

// WriteJSON writes a value to a file, in one move, so that a reader never gets half of
// it. Missing folders are made.
func WriteJSON(file string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return write(file, append(text, '\n'))
}

func write(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	fresh := file + ".new"
	if err := os.WriteFile(fresh, text, 0o644); err != nil {
		return err
	}
	return os.Rename(fresh, file)
}
