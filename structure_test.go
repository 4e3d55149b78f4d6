package steelyard_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// product are the folders of the product.
var product = []string{"weighting", "xds", "collectors", "controlplane", "cmd", "envoy-bootstrap", "picking", "sim",
	"internal", "envoy-module"}

// The exceptions to the rules below, with their present numbers. A number rises only when branches come together.
var (
	listedUp = map[string]int{ // arrows that run back up, by package
		"cmd/internal/console":              3,
		"cmd/internal/daemon":               27,
		"collectors/replicas":               7,
		"collectors/replicas/merge":         2,
		"controlplane/discovery/kubernetes": 7,
		"xds/loads":                         4,
		"xds/loads/follow":                  4,
		"xds/places":                        4,
	}
	listedWide = map[string]int{ // fields, by struct
		"weighting.EndpointDecision": 32,
	}
)

// TestFilesDependOnEachOtherInOneDirection: in each package, there is an order of the files in which most use only
// what is declared further down. So a reader goes from one file to the next, and rarely back.
func TestFilesDependOnEachOtherInOneDirection(t *testing.T) {
	const most = 0.1 // of the arrows may run back up; in a small package one
	packages := map[string][]*ast.File{}
	for _, folder := range product {
		eachFile(t, folder, func(name string, f *ast.File) {
			packages[filepath.Dir(name)] = append(packages[filepath.Dir(name)], f)
		})
	}
	above := map[string]int{}
	for folder, files := range packages {
		g := usesOf(files)
		arrows := 0
		for _, to := range g {
			arrows += len(to)
		}
		if up := back(g); len(up) > max(1, int(most*float64(arrows))) {
			above[folder] = len(up)
			t.Logf("%s: %d of %d arrows run back up: %s", folder, len(up), arrows, strings.Join(up, ", "))
		}
	}
	onlyListed(t, above, listedUp, "want at most one in ten arrows between files that run back up")
}

// TestFilesStayShort: a longer one is split by subject.
func TestFilesStayShort(t *testing.T) {
	const most = 350 // lines of code
	above := map[string]int{}
	for _, folder := range product {
		eachFile(t, folder, func(name string, _ *ast.File) {
			if n := linesOfCode(t, name); n > most && !strings.HasSuffix(name, ".pb.go") {
				above[name] = n
			}
		})
	}
	onlyListed(t, above, nil, "want at most 350 lines of code")
}

// TestStructsOfTheLawStaySmall: one with more fields is several things.
func TestStructsOfTheLawStaySmall(t *testing.T) {
	const most = 15 // fields
	above := map[string]int{}
	eachFile(t, "weighting", func(_ string, f *ast.File) {
		ast.Inspect(f, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok && s.Fields.NumFields() > most {
					above[f.Name.Name+"."+spec.Name.Name] = s.Fields.NumFields()
				}
			}
			return true
		})
	})
	onlyListed(t, above, listedWide, "want at most 15 fields")
}

// TestTheLawStaysShort: it is what everybody has to understand.
func TestTheLawStaysShort(t *testing.T) {
	const mostCode, mostComment = 4550, 120 // lines
	code := 0
	for _, folder := range []string{"weighting", "weighting/health", "weighting/lag", "weighting/shed"} {
		eachFile(t, folder, func(name string, _ *ast.File) {
			if filepath.Dir(name) == folder {
				code += linesOfCode(t, name)
			}
		})
	}
	if code > mostCode {
		t.Errorf("the law has %d lines of code, want at most %d", code, mostCode)
	}
	text, err := os.ReadFile("weighting/doc.go")
	if lines := bytes.Count(text, []byte("\n")); err != nil || lines > mostComment {
		t.Errorf("weighting/doc.go has %d lines, want at most %d: %v", lines, mostComment, err)
	}
}

// onlyListed reports what is above a bound and not listed, or listed with another number.
func onlyListed(t *testing.T, above, listed map[string]int, want string) {
	t.Helper()
	for name, n := range above {
		if n > listed[name] {
			t.Errorf("%s has %d: %s", name, n, want)
		}
	}
	for name, n := range listed {
		if above[name] < n {
			t.Errorf("%s has %d by the list, and %d in fact (0: within the bound): lower the entry", name, n,
				above[name])
		}
	}
}

// linesOfCode counts lines without blanks and comments.
func linesOfCode(t *testing.T, name string) (n int) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			n++
		}
	}
	return n
}

// none imports nothing: what a package uses of others does not matter here.
type none struct{}

func (none) Import(path string) (*types.Package, error) { return nil, errors.New(path) }

// A graph has the files that each file uses declarations of.
type graph map[string]map[string]bool

// usesOf returns which file of a package uses declarations of which.
func usesOf(files []*ast.File) graph {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	check := types.Config{Importer: none{}, FakeImportC: true, Error: func(error) {}}
	pkg, _ := check.Check("p", fset, files, info) // what is imported is unknown, and does not matter
	g := graph{}
	for _, f := range files {
		g[fset.File(f.Pos()).Name()] = map[string]bool{}
	}
	for ident, object := range info.Uses {
		if object.Pkg() != pkg || !object.Pos().IsValid() {
			continue
		}
		from, to := fset.File(ident.Pos()).Name(), fset.File(object.Pos()).Name()
		if from != to {
			g[from][to] = true
		}
	}
	return g
}

// back returns the arrows that run back up in an order of the files in which few do: the best one that is found from
// several others by moving one file at a time.
func back(g graph) (fewest []string) {
	files := slices.Sorted(maps.Keys(g))
	for turn := range files {
		order := append(slices.Clone(files[turn:]), files[:turn]...)
		if up := upwards(g, improved(g, order)); turn == 0 || len(up) < len(fewest) {
			fewest = up
		}
	}
	return fewest
}

// improved returns an order in which no file by itself has a better place.
func improved(g graph, order []string) []string {
	for moved := true; moved; {
		moved = false
		for from := range order {
			if to := better(g, order, from); to != from {
				name := order[from]
				order = slices.Insert(slices.Delete(order, from, from+1), to, name)
				moved = true
			}
		}
	}
	return order
}

func upwards(g graph, order []string) (up []string) {
	for i, file := range order {
		for _, above := range order[:i] {
			if g[file][above] {
				up = append(up, fmt.Sprintf("%s to %s", filepath.Base(file), filepath.Base(above)))
			}
		}
	}
	return up
}

// better returns the place in the order at which a file has the fewest arrows back up.
func better(g graph, order []string, from int) (to int) {
	file, fewest := order[from], 0
	for _, step := range []int{-1, 1} {
		change := 0
		for at := from + step; at >= 0 && at < len(order); at += step {
			over, under := g[order[at]][file], g[file][order[at]]
			if step < 0 { // the file goes above that one
				change += count(over) - count(under)
			} else {
				change += count(under) - count(over)
			}
			if change < fewest {
				fewest, to = change, at
			}
		}
	}
	if fewest == 0 {
		return from
	}
	return to
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}
