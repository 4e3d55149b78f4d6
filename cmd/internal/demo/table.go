package demo

import (
	"fmt"
	"strings"
)

// A Table compares results, which are its columns.
type Table[R any] struct {
	First, Other int // width of the column of titles, and of those of the results
	rows         []row[R]
}

type row[R any] struct {
	title string
	value func(R) string
}

// With is the table with one more row.
func (t Table[R]) With(title string, value func(R) string) Table[R] {
	t.rows = append(t.rows, row[R]{title, value})
	return t
}

// Text is the table with these results.
func (t Table[R]) Text(results []R) string {
	var b strings.Builder
	for _, row := range t.rows {
		fmt.Fprintf(&b, "%-*s", t.First, row.title)
		for _, r := range results {
			fmt.Fprintf(&b, " %*s", t.Other, row.value(r))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Seconds is a length of time in a table.
func Seconds(s float64) string { return fmt.Sprintf("%.2f s", s) }
