package demo

import (
	"fmt"
	"io"
	"strings"
)

// A table compares results, which are its columns.
type table[R any] struct {
	first, other int // width of the column of titles, and of those of the results
	rows         []row[R]
}

type row[R any] struct {
	title string
	value func(R) string
}

// with is the table with one more row.
func (t table[R]) with(title string, value func(R) string) table[R] {
	t.rows = append(t.rows, row[R]{title, value})
	return t
}

// text is the table with these results.
func (t table[R]) text(results []R) string {
	var b strings.Builder
	for _, row := range t.rows {
		fmt.Fprintf(&b, "%-*s", t.first, row.title)
		for _, r := range results {
			fmt.Fprintf(&b, " %*s", t.other, row.value(r))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// inSeconds is a length of time in a table.
func inSeconds(s float64) string { return fmt.Sprintf("%.2f s", s) }

// compare plays phases one after the other, and prints the table of their results.
func compare[P, R any](out io.Writer, t table[R], phases []P, play func(P) (R, error)) error {
	var results []R
	for _, p := range phases {
		r, err := play(p)
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	fmt.Fprint(out, "\n", t.text(results))
	return nil
}
