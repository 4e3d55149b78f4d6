package gateways

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"testing"
)

// document has the table of the cases.
const document = "../../docs/gateways.md"

// table says which cases passed at which gateway. Cells of cases that did not run stay as they are.
func table(passed map[string]map[string]bool, kept map[[2]string]string) string {
	var head, line, rows strings.Builder
	for _, g := range gateways {
		fmt.Fprintf(&head, " %s |", g.title())
		line.WriteString("---|")
	}
	for _, c := range cases {
		fmt.Fprintf(&rows, "| %s |", c.name)
		for _, g := range gateways {
			cell := kept[[2]string{g.title(), c.name}]
			switch {
			case g.leaves(c.name):
				cell = "–"
			case passed[g.title()][c.name]:
				cell = "0 failed"
			}
			fmt.Fprintf(&rows, " %s |", cmp.Or(cell, "not run"))
		}
		rows.WriteString("\n")
	}
	return fmt.Sprintf("| case |%s\n|---|%s\n%s", head.String(), line.String(), rows.String())
}

// keptCells reads the cells of the table in the document, by title and case.
func keptCells(t *testing.T) map[[2]string]string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	cells := map[[2]string]string{}
	var titles []string
	for row := range strings.Lines(string(text)) {
		columns := strings.Split(strings.Trim(row, "| \n"), " | ")
		if strings.HasPrefix(row, "| case |") {
			titles = columns
		}
		for i := 1; i < len(columns) && i < len(titles); i++ {
			cells[[2]string{titles[i], columns[0]}] = columns[i]
		}
	}
	return cells
}
