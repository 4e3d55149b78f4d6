package modelserver

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestTheDocHasEverySeries: doc.go is where people look up which series of an engine give which field.
func TestTheDocHasEverySeries(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	short := regexp.MustCompile(`(\w+)\{(\w+),(\w+),(\w+)\}(\w+)`)
	doc := short.ReplaceAllString(string(text), "$1$2$5 $1$3$5 $1$4$5")
	for e, fields := range exported {
		_, rows, _ := strings.Cut(doc, "\n//\t"+string(e)+" ")
		if next := regexp.MustCompile(`\n//\t?\S`).FindStringIndex(rows); next != nil {
			rows = rows[:next[0]]
		}
		for f, sources := range fields {
			if !strings.Contains(rows, " "+string(f)+" ") {
				t.Errorf("the rows of %s have no %s", e, f)
			}
			for _, source := range sources {
				for _, s := range source.series {
					if !strings.Contains(rows, s.name) {
						t.Errorf("the rows of %s have no %s", e, s.name)
					}
				}
			}
		}
	}
}
