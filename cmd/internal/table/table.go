package table

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Table is rows of cells under a heading.
type Table struct {
	head  []string
	right []bool // by column: numbers stand to the right
	rows  [][]string
}

// New makes a table; a heading with a > in front is of a column of numbers.
func New(head ...string) *Table {
	t := &Table{right: make([]bool, len(head))}
	for i, h := range head {
		h, t.right[i] = strings.CutPrefix(h, ">")
		t.head = append(t.head, h)
	}
	return t
}

// Add adds a row. Control characters in it are replaced (Printable).
func (t *Table) Add(cells ...string) {
	for i := range cells {
		cells[i] = Printable(cells[i])
	}
	t.rows = append(t.rows, cells)
}

// Write prints the table. Where it is wider than the terminal, columns of numbers at its end are left out, and then the
// last column is cut.
func (t *Table) Write(w io.Writer, width int) {
	widths := make([]int, len(t.head))
	all := append([][]string{t.head}, t.rows...)
	for _, row := range all {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	columns := t.fitting(widths, width)
	for _, row := range all {
		row = row[:columns]
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			switch {
			case t.right[i]:
				line.WriteString(pad + cell)
			case i == len(row)-1:
				line.WriteString(cell)
			default:
				line.WriteString(cell + pad)
			}
			if i < len(row)-1 {
				line.WriteString("  ")
			}
		}
		fmt.Fprintln(w, strings.TrimRight(Fit(line.String(), width), " "))
	}
}

// gap is the columns between two of a table.
const gap = 2

// fitting is how many columns of the table are printed.
func (t *Table) fitting(widths []int, width int) int {
	all := -gap
	for _, n := range widths {
		all += n + gap
	}
	columns := len(widths)
	for width > 0 && all > width && columns > 1 && t.right[columns-1] {
		columns--
		all -= widths[columns] + gap
	}
	return columns
}

// Fit cuts a line to a width; 0 is none.
func Fit(line string, width int) string {
	if width <= 0 || utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:width-1]) + "…"
}

// Printable replaces control characters: names and messages come from others, and terminals execute escape sequences.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) && r != ' ' {
			if r == '\n' || r == '\t' {
				return ' '
			}
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// Number is a number with three digits.
func Number(v float64) string {
	switch a := max(v, -v); {
	case a == 0:
		return "0"
	case v > 0 && v < 0.0005: // the tail of a moving average
		return "<0.001"
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
	case a >= 0.01:
		return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 2, 64), ".00")
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

// Count is how many things there are, of which one is named.
func Count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
