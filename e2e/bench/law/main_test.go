package main

import (
	"bytes"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"steelyard/sim"
)

func TestRowsAreWrittenAndComparedWithThemselves(t *testing.T) {
	folder := t.TempDir()
	rows := filepath.Join(folder, "a.csv")
	invoke(t, "--only", "^engines/ten together/", "--seeds", "1", "--out", rows)
	written, err := readFile(rows)
	if err != nil {
		t.Fatal(err)
	}
	if len(written) != 2 || written[0].source != byLog || written[1].source != byReports {
		t.Fatalf("rows %v, want one by log and one by load reports", written)
	}
	for _, r := range written {
		for c, v := range r.figures {
			if zero := c == refused; math.IsNaN(v) || (v == 0) != zero {
				t.Errorf("by %s %s is %v", r.source, names[c], v)
			}
		}
	}
	out := invoke(t, "--only", "^engines/ten together/log", "--seeds", "1", "--out", filepath.Join(folder, "b.csv"),
		"--against", rows)
	if want := "engines, log       1  1.000  1.000  1.000"; !strings.Contains(out, want) {
		t.Errorf("%q is not in:\n%s", want, out)
	}
}

func invoke(t *testing.T, args ...string) string {
	t.Helper()
	c := newCommand()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetArgs(args)
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestRatiosAreOfMeansOverTheSeedsThatBothHave(t *testing.T) {
	of := func(fleet string, seed uint64, p99 float64) row {
		r := row{set: engines, fleet: fleet, source: byLog, seed: seed}
		r.figures[waitP99] = p99
		return r
	}
	measured := []row{of("a", 1, 1), of("a", 2, 3), of("a", 3, 100), of("b", 1, 1)}
	base := []row{of("b", 1, 2), of("a", 2, 1), of("a", 1, 1), of("c", 1, 1)}
	got := compare(measured, base)
	if len(got) != 2 {
		t.Fatalf("%d comparisons, want 2: %v", len(got), got)
	}
	for i, want := range []comparison{{fleet: "a", seeds: 2}, {fleet: "b", seeds: 1}} {
		p99 := []float64{2, 0.5}[i]
		if g := got[i]; g.set != engines || g.source != byLog || g.fleet != want.fleet || g.seeds != want.seeds ||
			g.ratios[waitP99] != p99 || !math.IsNaN(g.ratios[waitMean]) {
			t.Errorf("%+v, want %s over %d seeds with p99 %v and no mean", g, want.fleet, want.seeds, p99)
		}
	}
	sets := summarize(got)
	if len(sets) != 1 || sets[0].fleets != 2 || math.Abs(sets[0].ratios[waitP99]-1) > 1e-12 ||
		!math.IsNaN(sets[0].ratios[waitMean]) {
		t.Errorf("%+v, want one set of 2 fleets with p99 √(2·0.5) and no mean", sets)
	}
}

func TestOtherFilesAreRefused(t *testing.T) {
	row := strings.Join((&row{set: "s", fleet: "f", source: "log", seed: 1}).record(), ",")
	head := strings.Join(header(), ",")
	for name, content := range map[string]string{
		"other columns": "a,b\n1,2\n", "nothing": "",
		"a seed that is no number":   head + "\n" + strings.Replace(row, ",1,", ",x,", 1),
		"a figure that is no number": head + "\n" + strings.TrimSuffix(row, "0") + "x",
	} {
		if rows, err := read(strings.NewReader(content)); err == nil {
			t.Errorf("%s: read as %v", name, rows)
		}
	}
	if rows, err := read(strings.NewReader(head + "\n" + row)); err != nil || len(rows) != 1 {
		t.Errorf("a row is read as %v: %v", rows, err)
	}
}

// Names of rows are keys, and every row must be one that the simulator accepts; a few seconds of each show it.
func TestEveryFleetHasItsOwnNameAndSourcesThatExist(t *testing.T) {
	seen := make(map[string]bool)
	for _, f := range fleets() {
		if seen[f.set+f.name] {
			t.Errorf("two fleets of %s are named %q", f.set, f.name)
		}
		seen[f.set+f.name] = true
		for _, source := range append(f.sources, byItself) {
			p := f.policy(source)
			if ok := p.Balancer == sim.LeastRequest || p.Steelyard != nil && p.Steelyard.Source != ""; !ok {
				t.Errorf("%s, %s: by %q nothing is placed", f.set, f.name, source)
			}
		}
	}
	if len(seen) < 100 {
		t.Errorf("%d fleets", len(seen))
	}
}
