package sim

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"steelyard/sim/engine"
	"steelyard/sim/trace"
	"steelyard/weighting"
)

// Each file of testdata/stories is a question about the law: a fleet and what happens to it, what must hold, and, below
// a line, what happened as text, to be reviewed. What must hold fails the test and is never rewritten; -update rewrites
// the text. A line of a story is one of
//
//	fleet 20 pods of 4 slots at load 0.7        or: fleet 12 engines at load 0.8
//	by access_log, scrapes each 1s              a source; shedding, if it ends so
//	at 30s hang of pod 3 for 40s                an event; "by 3" is its factor, "pods 3,4" are several
//	show share of 3, load of 3, waiting         columns of the text
//	want share of 3 below 0.01 from 35s to 69s  a mean: below, above, or about within 15 %
func TestStories(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/stories/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			told, _, _ := strings.Cut(string(text), "\n----\n")
			s := story{t: t, scenario: small(), policy: Steelyard{Deadband: 0.01, Heartbeat: time.Second}}
			s.scenario.Envoys, s.scenario.Duration, s.scenario.WarmUp = 10, 2*time.Minute, 0
			s.scenario.SampleEvery = time.Second
			for line := range strings.Lines(told) {
				s.read(strings.TrimSpace(line))
			}
			samples := run(t, s.scenario, Policy{Name: "story", Steelyard: &s.policy}).Series
			s.check(samples)
			golden(t, filepath.Join("stories", filepath.Base(file)), []byte(told+"\n----\n"+s.tell(samples)))
		})
	}
}

// A story is one that was read.
type story struct {
	t        *testing.T
	scenario Scenario
	policy   Steelyard
	shown    []column
	wanted   []wish
}

// A column is a number of the world over time: of a pod, or of all.
type column struct {
	what string
	pod  int
}

// A wish is what the mean of a number must be from one second to another.
type wish struct {
	column
	how      string
	value    float64
	from, to time.Duration
}

// read takes in a line.
func (s *story) read(line string) {
	word, rest, _ := strings.Cut(line, " ")
	var err error
	switch word {
	case "#", "":
	case "fleet":
		err = s.fleet(rest)
	case "by":
		rest, shed := strings.CutSuffix(rest, ", shedding")
		if s.policy.Params = weighting.DefaultParams(); shed {
			s.policy.Params.Shedding.Enabled = true
		}
		source, scrapes, _ := strings.Cut(rest, ", scrapes each ")
		s.policy.Source = Source(source)
		if scrapes != "" {
			s.policy.ScrapeInterval, err = time.ParseDuration(scrapes)
		}
	case "at":
		err = s.event(strings.Fields(rest))
	case "show":
		for what := range strings.SplitSeq(rest, ", ") {
			s.shown = append(s.shown, s.column(what))
		}
	case "want":
		var w wish
		var from, to string
		what, how, _ := strings.Cut(rest, " from ")
		fields := strings.Fields(what)
		n := len(fields) - 2
		w.column, w.how = s.column(strings.Join(fields[:n], " ")), fields[n]
		fmt.Sscan(fields[n+1], &w.value)
		from, to, _ = strings.Cut(how, " to ")
		w.from, _ = time.ParseDuration(from)
		w.to, err = time.ParseDuration(to)
		s.wanted = append(s.wanted, w)
	default:
		err = fmt.Errorf("unknown word %q", word)
	}
	if err != nil {
		s.t.Fatalf("%q: %v", line, err)
	}
}

func (s *story) fleet(line string) error {
	var n, slots int
	if _, err := fmt.Sscanf(line, "%d engines at load %g", &n, &s.scenario.Load); err == nil {
		p := engine.Defaults()
		s.scenario.Pods, s.scenario.Prompts = []PodGroup{{Count: n, Engine: &p}}, &Prompts{Trace: trace.Azure()}
		return nil
	}
	_, err := fmt.Sscanf(line, "%d pods of %d slots at load %g", &n, &slots, &s.scenario.Load)
	s.scenario.Pods = []PodGroup{{Count: n, Slots: slots}}
	return err
}

// event reads one: its time, its kind, and pairs of a word and a value.
func (s *story) event(fields []string) (err error) {
	e := Event{Kind: EventKind(fields[1])}
	if e.At, err = time.ParseDuration(fields[0]); err != nil {
		return err
	}
	for pairs := fields[2:]; len(pairs) >= 2; pairs = pairs[2:] {
		switch value := pairs[1]; pairs[0] {
		case "pods":
			for pod := range strings.SplitSeq(value, ",") {
				var i int
				_, err = fmt.Sscan(pod, &i)
				e.Pods = append(e.Pods, i)
			}
		case "by":
			_, err = fmt.Sscan(value, &e.Factor)
		case "for":
			e.For, err = time.ParseDuration(value)
		default:
			err = fmt.Errorf("unknown word %q", pairs[0])
		}
		if err != nil {
			return err
		}
	}
	s.scenario.Events = append(s.scenario.Events, e)
	return nil
}

func (s *story) column(text string) (c column) {
	what, of, one := strings.Cut(text, " of ")
	c.what, c.pod = what, -1
	if _, err := fmt.Sscan(of, &c.pod); one && err != nil {
		s.t.Fatalf("%q: %v", text, err)
	}
	return c
}

func (c *column) value(s *Sample) float64 {
	switch c.what {
	case "share":
		return s.Shares[c.pod]
	case "load":
		return s.Load[c.pod]
	case "flag":
		if s.Flagged[c.pod] {
			return 1
		}
		return 0
	case "waiting":
		return s.Waiting
	case "refused":
		return s.Refused
	case "rate":
		return s.Rate
	}
	panic(fmt.Sprintf("there is no column %q", c.what))
}

// check compares what happened with what must hold.
func (s *story) check(samples []Sample) {
	for _, w := range s.wanted {
		from, to := int(w.from/s.scenario.SampleEvery), int(w.to/s.scenario.SampleEvery)
		got := mean(samples, from, to, func(at Sample) float64 { return w.column.value(&at) })
		ok := false
		switch w.how {
		case "below":
			ok = got < w.value
		case "above":
			ok = got > w.value
		case "about":
			ok = got > 0.85*w.value && got < 1.15*w.value
		default:
			s.t.Fatalf("want %q: is it below, above or about?", w.how)
		}
		if !ok {
			s.t.Errorf("%s of %d is %.4g from %v to %v, want it %s %v", w.what, w.pod, got, w.from, w.to, w.how,
				w.value)
		}
	}
}

// tell is what happened, in means of five seconds.
func (s *story) tell(samples []Sample) string {
	const each = 5
	var b bytes.Buffer
	fmt.Fprintf(&b, "%7s", "seconds")
	for _, c := range s.shown {
		name := c.what
		if c.pod >= 0 {
			name = fmt.Sprint(c.what, " of ", c.pod)
		}
		fmt.Fprintf(&b, " %12s", name)
	}
	for from := 0; from+each <= len(samples); from += each {
		fmt.Fprintf(&b, "\n%7d", from)
		for _, c := range s.shown {
			fmt.Fprintf(&b, " %12.3g", mean(samples, from, from+each, func(at Sample) float64 { return c.value(&at) }))
		}
	}
	return b.String() + "\n"
}
