package modelserver

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestAFieldIsACounterWhereItsSeriesAre compares Field.counter with the types that the recorded pages declare.
func TestAFieldIsACounterWhereItsSeriesAre(t *testing.T) {
	declared := map[string]string{}
	for _, dir := range []string{"recorded", "handmade"} {
		files, err := filepath.Glob(filepath.Join("testdata", dir, "*.prom"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no bodies in testdata/%s (error %v)", dir, err)
		}
		for _, file := range files {
			body, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`).FindAllSubmatch(body, -1) {
				declared[string(line[1])] = string(line[2])
			}
		}
	}
	suffix := regexp.MustCompile(`_(total|sum|count)$`) // that the samples of a family have, and its TYPE may lack
	checked := map[Field]int{}
	for _, e := range Engines() {
		for _, f := range sourcesOf(e, Custom{}) {
			for _, source := range f.sources {
				for _, s := range source.series {
					kind := declared[s.name]
					if kind == "" {
						kind = declared[suffix.ReplaceAllString(s.name, "")]
					}
					if kind == "" || s.name == backendGeneral { // declared a gauge, has a counter
						continue
					}
					checked[f.field]++
					if isCounter := kind != "gauge"; f.field.counter() != isCounter {
						t.Errorf("%s of %s is a counter: %t; its series %s is a %s", f.field, e, f.field.counter(),
							s.name, kind)
					}
				}
			}
		}
	}
	for _, f := range []Field{FieldQueue, FieldRunning, FieldUtilization, FieldCompletions, FieldPromptTokens} {
		if checked[f] == 0 {
			t.Errorf("no page declares a series of %s", f)
		}
	}
}
