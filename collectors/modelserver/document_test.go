package modelserver

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"steelyard/e2e/rig/golden"
)

// use is what some fields of a page are used for.
type use struct {
	name   string
	fields []Field
}

var uses = []use{
	{"queue", []Field{FieldQueue}},
	{"running", []Field{FieldRunning}},
	{"memory", []Field{FieldUtilization}},
	{"work", []Field{FieldPromptTokens, FieldGeneratedTokens, FieldFirstTokens}},
	{"iterations", []Field{FieldIterations}},
	{"cached prompts", []Field{FieldCachedTokens}},
	{"block of the cache", []Field{FieldBlockTokens}},
	{"sleep", []Field{FieldAwake}},
}

// The table of docs/engines.md is made of the readers and of the pages in testdata.
func TestTheDocumentOfEnginesIsMadeOfTheirPages(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# What is read of each engine

Made of the pages in [testdata](../collectors/modelserver/testdata): yes means that the page has it. A page with a
version was recorded from that server; the others are written by its documentation and source. Older names of series are
read, too. ` + "`steelyard inspect URL`" + ` shows the same of your servers.
[collectors/modelserver/doc.go](../collectors/modelserver/doc.go) has the series.

`)
	b.WriteString("| engine | page |")
	for _, u := range uses {
		b.WriteString(" " + u.name + " |")
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(uses)) + "\n")
	for _, path := range documented(t) {
		row(t, &b, path)
	}
	golden.Check(t, "../../docs/engines.md", b.String())
}

// documented are the pages of servers with requests: an idle one does not have all series.
func documented(t *testing.T) (paths []string) {
	t.Helper()
	for _, pattern := range []string{"recorded/*-loaded.prom", "handmade/sglang.prom", "handmade/tgi.prom",
		"handmade/triton-tensorrt-llm.prom", "handmade/trtllm-serve.prom"} { // the whole of what such a server exports
		found, err := filepath.Glob("testdata/" + pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d pages, %v", pattern, len(found), err)
		}
		paths = append(paths, found...)
	}
	return slices.DeleteFunc(paths, func(path string) bool {
		return strings.Contains(path, "router") || strings.Contains(path, "summary") // no engine; the same series
	})
}

var version = regexp.MustCompile(`-(\d+(\.\d+)+)-`)

func row(t *testing.T, b *strings.Builder, path string) {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := Detect(page)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	reader, err := NewReader(engine, Custom{})
	if err != nil {
		t.Fatal(err)
	}
	fields, err := reader.Explain(page)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	name := strings.TrimSuffix(filepath.Base(path), ".prom")
	if m := version.FindStringSubmatch(name); m != nil && strings.HasPrefix(path, "testdata/recorded/") {
		name = m[1]
	}
	fmt.Fprintf(b, "| %s | %s |", engine, name)
	for _, u := range uses {
		has := ""
		if !slices.ContainsFunc(fields, func(f FieldSource) bool {
			return slices.Contains(u.fields, f.Field) && !f.Value.Known
		}) {
			has = "yes"
		}
		b.WriteString(" " + has + " |")
	}
	b.WriteString("\n")
}
