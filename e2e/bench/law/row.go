package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"steelyard/sim"
)

// A row is what one law did in one run.
type row struct {
	set, fleet, source string
	seed               uint64
	figures            [columns]float64
}

// The figures of a row.
const (
	waitP50 = iota // until the first token in seconds, or until the start of service in mean services
	waitP99
	waitMean
	waitMax
	endP50      // until the last token, seconds
	perTokenP99 // seconds
	pushes      // per second
	refused     // requests
	columns
)

var names = [columns]string{"p50", "p99", "mean", "max", "end_p50", "per_token_p99", "pushes", "refused"}

// run simulates one row.
func run(ctx context.Context, f *fleet, source string, seed uint64) (row, error) {
	s := f.scenario
	s.Seed = seed
	r, err := sim.Run(ctx, s, f.policy(source))
	if err != nil {
		return row{}, err
	}
	wait := r.Wait
	if s.Prompts != nil {
		wait = r.FirstToken
	}
	return row{set: f.set, fleet: f.name, source: source, seed: seed, figures: [columns]float64{
		waitP50: wait.P50, waitP99: wait.P99, waitMean: wait.Mean, waitMax: wait.Max,
		endP50: r.EndToEnd.P50, perTokenP99: r.PerToken.P99,
		pushes: float64(r.Pushes) / s.Duration.Seconds(), refused: float64(r.Dropped),
	}}, nil
}

// header is the first line of a file of rows.
func header() []string { return append([]string{"set", "fleet", "source", "seed"}, names[:]...) }

func (r *row) record() []string {
	out := []string{r.set, r.fleet, r.source, strconv.FormatUint(r.seed, 10)}
	for _, f := range r.figures {
		out = append(out, strconv.FormatFloat(f, 'g', 6, 64))
	}
	return out
}

// read reads a file of rows.
func read(from io.Reader) ([]row, error) {
	records, err := csv.NewReader(from).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(records) == 0 || len(records[0]) != 4+columns {
		return nil, errors.New("not a file that bench-law wrote: other columns")
	}
	var rows []row
	for i, record := range records[1:] {
		r := row{set: record[0], fleet: record[1], source: record[2]}
		seed, err := strconv.ParseUint(record[3], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("row %d: seed: %w", i+1, err)
		}
		r.seed = seed
		for c := range r.figures {
			if r.figures[c], err = strconv.ParseFloat(record[4+c], 64); err != nil {
				return nil, fmt.Errorf("row %d: %s: %w", i+1, names[c], err)
			}
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// ratio is NaN where there is nothing to compare.
func ratio(a, b float64) float64 {
	if !(a > 0) || !(b > 0) {
		return math.NaN()
	}
	return a / b
}
