// Package steelyard_test holds the rules of the project as tests.
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

// A rule lists the packages of the project that the packages below a folder may import.
type rule struct {
	folder  string   // with all below it
	project []string // folders that it may import, besides itself
	except  []string // folders in it that its other packages may not import
	stdOnly bool     // nothing outside the project but the standard library
	reason  string
}

// libraries are packages of a few lines that depend on nothing: every package may import them that is not restricted to
// the standard library.
var libraries = []string{"internal/engines", "internal/envoyid", "internal/loops", "internal/spelling",
	"internal/api", "internal/tally"}

// The rules; the first that fits a package applies. They do not bind tests.
var rules = []rule{
	{folder: "sim", project: []string{"weighting", "picking", "xds/envoyspec"}, stdOnly: true,
		reason: "a simulation of the law, of pickers and of Envoys needs them, and the numbers measured on Envoy"},
	{folder: "weighting/shed", stdOnly: true,
		reason: "values in, values out, and nothing of the law: what a pool refuses depends on its slots and flows"},
	{folder: "weighting/health", stdOnly: true,
		reason: "values in, values out, and nothing of the law: what becomes of requests says who gets any"},
	{folder: "weighting/lag", stdOnly: true,
		reason: "values in, values out, and nothing of the law: shares and arrivals say how late reports are"},
	{folder: "weighting", project: []string{"weighting/health", "weighting/lag", "weighting/shed"}, stdOnly: true,
		reason: "the law is values in, values out: no clock, network, log or library can get into it"},
	{folder: "picking/queue", project: []string{"weighting", "picking"}, stdOnly: true,
		reason: "the order is values in, values out, and the endpoint is chosen as for any request"},
	{folder: "picking", project: []string{"weighting"}, stdOnly: true,
		reason: "a choice is values in, values out, by the law's own fill"},
	{folder: "internal/files",
		reason: "how a file is read is the same for all packages, as with a library"},
	{folder: "internal/watch", project: []string{"internal/files"},
		reason: "how changes of files are noticed is the same for all packages, as with a library"},
	{folder: "internal/spelling", stdOnly: true,
		reason: "which word was meant depends on the words only"},
	{folder: "internal/engines", stdOnly: true,
		reason: "which engines there are is the same for all packages, as with a library"},
	{folder: "internal/envoyid", stdOnly: true,
		reason: "which Envoy it is depends on what it sent and where from, the same for all services of a port"},
	{folder: "internal/loops", stdOnly: true,
		reason: "how goroutines are woken and stopped is the same for all packages, as with a library"},
	{folder: "internal/tally", stdOnly: true,
		reason: "how repeated events are logged is the same for all packages, as with a library"},
	{folder: "internal/lease", project: []string{"internal/loops"}, stdOnly: true,
		reason: "who acts for all replicas follows from answers and times, wherever the lease is kept"},
	{folder: "internal/streams",
		reason: "how streams are bounded and ended is the same for all services, as with a library"},
	{folder: "internal/api", project: []string{"weighting"}, stdOnly: true,
		reason: "what a part counts is shown as it is, and a decision as the law made it"},
	{folder: "internal/credentials", project: []string{"internal/files"},
		reason: "how certificates are kept up to date is the same for all listeners and clients, as with a library"},
	{folder: "internal/extension",
		reason: "the messages of Envoy Gateway are its own, and are generated"},
	{folder: "internal/customrouter/leastlatency", stdOnly: true,
		reason: "a choice is values in, values out: what the backends answered and how long they took"},
	{folder: "internal/customrouter",
		reason: "the router in the module and the program that starts it share it; it has one strategy, no Steelyard"},
	{folder: "xds/envoyspec", project: []string{"weighting"}, stdOnly: true,
		reason: "these are numbers measured on Envoy; the simulator and the page use the same"},
	{folder: "xds/assignment", project: []string{"weighting", "xds/envoyspec"},
		reason: "an assignment is a pure function of a decision"},
	{folder: "xds/port",
		reason: "what bounds the peers of a port does not depend on the service behind it"},
	{folder: "xds/loads/follow", project: []string{"weighting", "picking", "xds/loads", "internal/credentials"},
		reason: "the other end of the stream, for programs next to or inside a proxy"},
	{folder: "xds/loads",
		project: []string{"weighting", "picking", "internal/spelling", "internal/streams"},
		reason:  "pickers get what the law decided on, in their terms"},
	{folder: "xds/places", project: []string{"weighting", "picking", "xds/loads", "internal/lease", "internal/streams"},
		reason: "the queue is a value of package queue; this is its stream, by the protocol and the unit of the loads"},
	{folder: "xds/access", project: []string{"internal/credentials"},
		reason: "who may use which cluster depends on certificates and messages, and not on what is sent"},
	{folder: "xds", project: []string{"weighting", "internal/credentials"},
		reason: "the streams carry decisions, wherever they come from"},
	{folder: "collectors/modelserver", project: []string{"weighting"},
		reason: "a parser of metrics can be read and fuzzed by itself"},
	{folder: "collectors/scrape", project: []string{"weighting", "collectors/modelserver", "internal/files",
		"internal/credentials"},
		reason: "a scrape fetches a page and has it parsed; it does not depend on the consumer of the report"},
	{folder: "collectors/inflight", project: []string{"weighting", "internal/files", "internal/credentials"},
		reason: "one kind of source does not depend on another"},
	{folder: "collectors/ledger", project: []string{"weighting"},
		reason: "the counts are values and times; they do not depend on how they arrived"},
	{folder: "collectors/replicas/merge", project: []string{"weighting", "internal/api"}, stdOnly: true,
		reason: "what several replicas count adds up whatever carries it: messages and times in, counts out"},
	{folder: "collectors/replicas", project: []string{"weighting", "internal/lease"},
		reason: "it carries counts and a lease between replicas, and depends on no source of either"},
	{folder: "collectors/wire", project: []string{"internal/credentials", "internal/streams"},
		reason: "how a stream is bounded, whose it is and how its messages are read is the same for all services"},
	{folder: "collectors/accesslog", project: []string{"collectors/ledger", "collectors/wire"},
		reason: "a service reports to the ledger, and depends on no other source"},
	{folder: "collectors/loadstats", project: []string{"collectors/ledger", "collectors/wire"},
		reason: "a service reports to the ledger, and depends on no other source"},
	{folder: "controlplane/config", project: []string{"weighting", "controlplane/discovery",
		"internal/files", "internal/watch"},
		except: []string{"controlplane/discovery/kubernetes"},
		reason: "a configuration is checked without running anything; the law has its own defaults"},
	{folder: "controlplane/discovery/kubernetes", project: []string{"controlplane/discovery", "internal/files",
		"internal/lease"},
		reason: "client-go stays in one folder, with the lease; a source of endpoints depends on nothing else"},
	{folder: "controlplane/discovery", project: []string{"internal/files", "internal/watch"},
		reason: "a source of endpoints depends on nothing else"},
	{folder: "controlplane/liveness",
		reason: "what watches the loops must not depend on what they need"},
	{folder: "controlplane/override",
		reason: "overrides are values and times; the loop applies them, and the wiring keeps them"},
	{folder: "controlplane/pods", project: []string{"internal/api"}, stdOnly: true,
		reason: "what is done with Pods follows from the state of their endpoints: values in, values out"},
	{folder: "controlplane/admin/conditions",
		reason: "what is wrong follows from what was seen at a moment"},
	{folder: "controlplane/admin/history", project: []string{"controlplane/admin/conditions", "xds/envoyspec"},
		reason: "it keeps what was seen and found; what Envoys do with an assignment it computes by the same numbers"},
	{folder: "controlplane/admin/current", project: []string{"controlplane/admin/conditions",
		"controlplane/admin/history"},
		reason: "the state that is shown needs what was found and measured, and nothing of how it is served"},
	{folder: "controlplane/admin/metrics", project: []string{"controlplane/admin/conditions",
		"controlplane/admin/history", "controlplane/admin/current"},
		reason: "the series are those of the state that the page shows"},
	{folder: "controlplane/admin",
		reason: "it asks for what it shows through an interface, so that the page can be run without a control plane"},
	{folder: "controlplane", project: []string{"weighting"},
		except: []string{"controlplane/admin"},
		reason: "the loop declares what it needs of collectors and streams, and does not serve HTTP; cmd plugs them " +
			"together"},
	{folder: "envoy-bootstrap",
		reason: "a bootstrap is a text made of options"},
	{folder: "e2e",
		project: []string{"weighting", "sim", "xds", "collectors", "controlplane", "envoy-bootstrap", "cmd",
			"internal/lease", "internal/extension"},
		reason: "the rig and its tests may use everything"},
	{folder: "cmd/internal/asynclog",
		reason: "all logs of a process are written the same way"},
	{folder: "cmd/internal/gateway", project: []string{"envoy-bootstrap", "internal/extension"},
		reason: "what a gateway's Envoys get is a function of its messages and of the parts of a bootstrap"},
	{folder: "cmd/internal/daemon", project: []string{"cmd/internal/gateway",
		"weighting", "picking/queue", "xds", "collectors", "controlplane", "internal/files", "internal/credentials",
		"internal/lease"},
		reason: "the wiring of the product: nothing of the test rig is in it"},
	{folder: "cmd/internal/picker", project: []string{"picking", "xds/loads", "internal/credentials"},
		reason: "a picker runs next to a proxy: it follows a Steelyard, and contains none"},
	{folder: "cmd/internal/router", project: []string{"internal/customrouter"},
		reason: "the router stands by itself: it has one strategy, and no Steelyard"},
	{folder: "cmd/internal/table", stdOnly: true,
		reason: "how a table is printed does not depend on what is in it"},
	{folder: "cmd/internal/console", project: []string{"cmd/internal/table", "controlplane/admin",
		"internal/credentials", "internal/files"},
		reason: "it prints what the admin API answers, and decides nothing by itself"},
	{folder: "cmd/internal/simulate", project: []string{"weighting", "sim", "controlplane/config",
		"controlplane/discovery", "collectors/loadstats", "xds/envoyspec", "internal/files", "cmd/internal/table"},
		reason: "a simulation needs the law, a configuration, and the lists and the interval that serve derives from " +
			"it, instead of rules of its own for these; and nothing that runs"},
	{folder: "cmd/internal/demo", project: []string{"e2e/rig", "envoy-bootstrap", "sim/engine"},
		reason: "the demo drives the product from outside, as a user would"},
	{folder: "cmd/steelyard-demo", project: []string{"cmd/internal/daemon", "cmd/internal/demo",
		"cmd/internal/router", "controlplane/config", "e2e/rig/proc"},
		reason: "the demo is a program of its own, so that the product does not contain simulated servers"},
	{folder: "cmd", project: []string{"weighting", "sim", "xds", "collectors", "controlplane", "envoy-bootstrap",
		"cmd/internal/daemon", "cmd/internal/picker", "cmd/internal/router", "cmd/internal/simulate",
		"cmd/internal/console", "internal/files", "internal/credentials"},
		reason: "commands wire the packages together; simulated servers are no part of the product"},
}

type listed struct {
	ImportPath, Dir string
	Imports         []string
	GoFiles         []string
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

func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

func TestImportBoundaries(t *testing.T) {
	for _, p := range packages(t) {
		path := strings.TrimPrefix(p.ImportPath, module)
		if len(p.GoFiles) == 0 {
			continue
		}
		i := slices.IndexFunc(rules, func(r rule) bool { return within(path, r.folder) })
		if i < 0 {
			t.Errorf("%s has no rule: give it one, with a reason", path)
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
	case slices.ContainsFunc(r.except, func(folder string) bool { return within(path, folder) }):
		return "it may not import " + path
	case within(path, r.folder), !r.stdOnly && slices.Contains(libraries, path),
		slices.ContainsFunc(r.project, func(f string) bool { return within(path, f) }):
		return ""
	}
	return "it may import of the project only " + strings.Join(append(r.project, "itself"), ", ")
}

func TestEveryPackageHasOnePackageComment(t *testing.T) {
	for _, p := range packages(t) {
		if len(p.GoFiles) == 0 {
			continue
		}
		var docs []string
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil,
				parser.ParseComments|parser.PackageClauseOnly)
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

// pure are the packages, with all below, that are values in, values out.
var pure = []string{"weighting", "sim", "picking", "xds/assignment", "xds/envoyspec", "collectors/modelserver",
	"collectors/ledger", "collectors/replicas/merge", "internal/engines", "internal/envoyid", "internal/spelling",
	"internal/api", "internal/customrouter/leastlatency"}

// TestPureCodeHasNoClock: in pure packages time is an argument, and so is randomness.
func TestPureCodeHasNoClock(t *testing.T) {
	forbidden := map[string][]string{
		"time":  {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"},
		"loops": {"Every", "Pause", "Start"},
	}
	seeded := []string{"Rand", "New", "NewPCG", "NewZipf"} // all else in rand draws from the source of the process
	// A constant date, whose monotonic reading only a clock can give.
	const monotonic = "sim/epoch.go"
	for _, folder := range pure {
		eachFile(t, folder, func(name string, f *ast.File) {
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if pkg, ok := s.X.(*ast.Ident); ok && pkg.Obj == nil && name != monotonic &&
						(slices.Contains(forbidden[pkg.Name], s.Sel.Name) ||
							pkg.Name == "rand" && !slices.Contains(seeded, s.Sel.Name)) {
						t.Errorf("%s uses %s.%s: it must come in as an argument", name, pkg.Name, s.Sel.Name)
					}
				}
				return true
			})
		})
	}
}

// TestPureCodeDoesNoIO: the standard library has files, networks and logs, too.
func TestPureCodeDoesNoIO(t *testing.T) {
	forbidden := []string{"os", "net", "log", "syscall", "crypto/rand"} // with all below
	const addresses = "net/netip"
	for _, folder := range pure {
		eachFile(t, folder, func(name string, f *ast.File) {
			for _, i := range f.Imports {
				path := strings.Trim(i.Path.Value, `"`)
				if path != addresses && slices.ContainsFunc(forbidden, func(p string) bool { return within(path, p) }) {
					t.Errorf("%s imports %s: pure code reads and writes nothing", name, path)
				}
			}
		})
	}
}

// TestFunctionsStayShort: above 60 lines a function is split.
func TestFunctionsStayShort(t *testing.T) {
	const longest = 60 // lines
	for _, folder := range []string{"weighting", "xds", "collectors", "controlplane", "cmd", "envoy-bootstrap",
		"e2e/rig", "picking", "sim", "internal", "envoy-module"} {
		eachFile(t, folder, func(name string, f *ast.File) {
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

// eachFile parses the files of a folder that are not tests.
func eachFile(t *testing.T, folder string, visit func(name string, f *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
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
