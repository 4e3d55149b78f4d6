// Package steelyard_test holds the rules of the house as tests.
package steelyard_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "steelyard/"

// A rule says which packages of the project the packages of a room may import.
type rule struct {
	room    string   // a folder, with all below it
	project []string // rooms it may import, besides itself
	stdOnly bool     // nothing outside the project but the standard library
	reason  string
}

// The rules; the first room that fits a package holds. Tests are not bound: they
// may bring rooms together.
var rules = []rule{
	{room: "weighting/sim", project: []string{"weighting", "xds/envoyspec"}, stdOnly: true,
		reason: "a simulation of the law and of Envoys needs the law, and what was measured of Envoy"},
	{room: "weighting", stdOnly: true,
		reason: "the law is values in, values out: no clock, network, log or library can get into it"},
	{room: "internal/files",
		reason: "how a file is read is the same for all who read one, as with a library"},
	{room: "xds/envoyspec", project: []string{"weighting"}, stdOnly: true,
		reason: "what was measured of Envoy are numbers, and the simulator uses the same"},
	{room: "xds/assignment", project: []string{"weighting", "xds/envoyspec"},
		reason: "an assignment is a pure function of a decision"},
	{room: "xds/port",
		reason: "what bounds the peers of a port knows nothing of what is served on it"},
	{room: "xds", project: []string{"weighting"},
		reason: "the streams know decisions, not where they come from"},
	{room: "collectors/modelserver", project: []string{"weighting"},
		reason: "a reader of metrics can be read, and fuzzed, alone"},
	{room: "collectors/scrape", project: []string{"weighting", "collectors/modelserver", "internal/files"},
		reason: "a scrape fetches a page and has it read; it knows nothing of who uses the report"},
	{room: "collectors/inflight", project: []string{"weighting", "internal/files"},
		reason: "one kind of source does not know the other"},
	{room: "collectors/ledger", project: []string{"weighting"},
		reason: "the counts are values and times; how they came in is not their matter"},
	{room: "collectors/wire", project: []string{"collectors/ledger"},
		reason: "how messages are read off a stream is the same for all who read them; whom a stream is of, the ledger names"},
	{room: "collectors/accesslog", project: []string{"collectors/ledger", "collectors/wire"},
		reason: "a service tells the ledger what it hears, and knows of no other source"},
	{room: "collectors/loadstats", project: []string{"collectors/ledger", "collectors/wire"},
		reason: "a service tells the ledger what it hears, and knows of no other source"},
	{room: "controlplane/config", project: []string{"weighting", "internal/files"},
		reason: "a configuration is checked without anything being run; the law's defaults are the law's"},
	{room: "controlplane/discovery", project: []string{"internal/files"},
		reason: "a source of endpoints knows endpoints and nothing else"},
	{room: "controlplane/liveness",
		reason: "what watches the loops must not need what they need"},
	{room: "controlplane/admin", project: []string{"weighting"},
		reason: "what is shown is asked for through an interface, so that the page can be looked at alone"},
	{room: "controlplane", project: []string{"weighting"},
		reason: "the loop declares what it needs of collectors and streams; only cmd knows both"},
	{room: "envoy-bootstrap",
		reason: "a bootstrap is a text made of options"},
	{room: "e2e",
		project: []string{"weighting", "xds", "collectors", "controlplane", "envoy-bootstrap", "cmd"},
		reason:  "the rig and its tests may use everything"},
	{room: "cmd/internal/asynclog",
		reason: "whatever a process logs is written the same way"},
	{room: "cmd/internal/daemon", project: []string{"weighting", "xds", "collectors", "controlplane", "internal/files"},
		reason: "the wiring of the product: nothing of the rig is in its path"},
	{room: "cmd/internal/simulate", project: []string{"weighting", "controlplane/config", "controlplane/discovery", "collectors/loadstats", "xds/envoyspec", "internal/files"},
		reason: "a simulation needs the law, a configuration, and the lists and the interval that serve makes of it; it is not to have rules of its own for these, and nothing that runs"},
	{room: "cmd/internal/demo", project: []string{"e2e/rig", "envoy-bootstrap"},
		reason: "the demo drives the product from outside, as a user would"},
	{room: "cmd/steelyard-demo", project: []string{"cmd/internal/daemon", "cmd/internal/demo", "controlplane/config"},
		reason: "the demo is a program of its own, so that the simulated servers stay out of the product"},
	{room: "cmd", project: []string{"weighting", "xds", "collectors", "controlplane", "envoy-bootstrap", "cmd/internal/daemon", "cmd/internal/simulate"},
		reason: "commands wire the packages together; simulated servers are no part of the product"},
}

type listed struct {
	ImportPath, Dir string
	Imports         []string
	GoFiles         []string
	Standard        bool
}

func packages(t *testing.T) []listed {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,Imports,GoFiles", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func within(path, room string) bool {
	return path == room || strings.HasPrefix(path, room+"/")
}

func TestRoomsImportOnlyWhatTheyMay(t *testing.T) {
	for _, p := range packages(t) {
		path := strings.TrimPrefix(p.ImportPath, module)
		if len(p.GoFiles) == 0 {
			continue
		}
		i := slices.IndexFunc(rules, func(r rule) bool { return within(path, r.room) })
		if i < 0 {
			t.Errorf("%s stands in no room: give it a rule with a reason", path)
			continue
		}
		for _, imported := range p.Imports {
			if broken := rules[i].broken(imported); broken != "" {
				t.Errorf("%s imports %s: %s, because %s", path, imported, broken, rules[i].reason)
			}
		}
	}
}

// broken says how an import breaks the rule; empty when it does not.
func (r rule) broken(imported string) string {
	path, ours := strings.CutPrefix(imported, module)
	switch {
	case !ours:
		if first, _, _ := strings.Cut(imported, "/"); r.stdOnly && strings.Contains(first, ".") {
			return "only the standard library is allowed"
		}
		return ""
	case within(path, r.room) || slices.ContainsFunc(r.project, func(room string) bool { return within(path, room) }):
		return ""
	}
	return "it may import of the project only " + strings.Join(append(r.project, "itself"), ", ")
}

func TestEveryPackageSaysInOneDocWhatItIsFor(t *testing.T) {
	for _, p := range packages(t) {
		if len(p.GoFiles) == 0 {
			continue
		}
		var docs []string
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc != nil {
				docs = append(docs, name)
			}
		}
		if len(docs) != 1 {
			t.Errorf("%s has %d package comments (%v), want one", p.ImportPath, len(docs), docs)
		}
	}
}

// TestPureCodeHasNoClock holds the pure rooms to their word: time is an
// argument there, and so is chance.
func TestPureCodeHasNoClock(t *testing.T) {
	forbidden := map[string][]string{
		"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"},
		"rand": {"Int", "IntN", "Float64", "Uint64", "Perm", "Shuffle", "NormFloat64", "ExpFloat64"},
	}
	for _, room := range []string{"weighting", "xds/assignment", "xds/envoyspec", "collectors/modelserver", "collectors/ledger"} {
		eachFile(t, room, func(name string, f *ast.File) {
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if pkg, ok := s.X.(*ast.Ident); ok && pkg.Obj == nil && slices.Contains(forbidden[pkg.Name], s.Sel.Name) {
						t.Errorf("%s uses %s.%s: it must come in as an argument", name, pkg.Name, s.Sel.Name)
					}
				}
				return true
			})
		})
	}
}

// TestFunctionsStayShort: above 80 lines a function is split.
func TestFunctionsStayShort(t *testing.T) {
	const longest = 80 // lines
	for _, room := range []string{"weighting", "xds", "collectors", "controlplane", "cmd", "envoy-bootstrap", "e2e/rig"} {
		eachFile(t, room, func(name string, f *ast.File) {
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok {
					if lines := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1; lines > longest {
						t.Errorf("%s: %s has %d lines, want at most %d", name, fn.Name.Name, lines, longest)
					}
				}
			}
		})
	}
}

var fset = token.NewFileSet()

// eachFile parses the files of a room that are not tests.
func eachFile(t *testing.T, room string, visit func(name string, f *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(room, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(fset, path, nil, 0)
		if err == nil {
			visit(path, f)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
