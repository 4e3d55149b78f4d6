package steelyard_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"steelyard/e2e/rig/reference"
)

// A source is the code of some packages, as far as texts in it are looked for.
type source struct {
	functions map[string]*ast.FuncDecl
	values    map[string]ast.Expr // constants and variables of the packages
}

func readSource(t *testing.T, folders ...string) *source {
	t.Helper()
	s := &source{functions: map[string]*ast.FuncDecl{}, values: map[string]ast.Expr{}}
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			for _, d := range file.Decls {
				s.add(path, d)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *source) add(path string, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		s.functions[fmt.Sprintf("%s %s %v", path, d.Name.Name, d.Pos())] = d
		if d.Recv == nil {
			s.functions[d.Name.Name] = d
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok {
				for i, name := range v.Names {
					if i < len(v.Values) {
						s.values[name.Name] = v.Values[i]
					}
				}
			}
		}
	}
}

// calls visits each call in the functions whose key has a path, in order.
func (s *source) calls(visit func(in *ast.FuncDecl, c *ast.CallExpr)) {
	for _, key := range slices.Sorted(maps.Keys(s.functions)) {
		if f := s.functions[key]; strings.Contains(key, " ") && f.Body != nil {
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if c, ok := n.(*ast.CallExpr); ok {
					visit(f, c)
				}
				return true
			})
		}
	}
}

// called is the name of a function or method.
func called(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// unknown stands for what only a running Steelyard has.
const unknown = "…"

var verb = regexp.MustCompile(`%(?:\[\d\])?[-+#0-9.]*[a-zA-Z]`)

// texts are what an expression in a function may be.
func (s *source) texts(e ast.Expr, in *ast.FuncDecl) []string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil {
			return []string{text}
		}
	case *ast.BinaryExpr:
		var out []string
		for _, a := range s.texts(e.X, in) {
			for _, b := range s.texts(e.Y, in) {
				out = append(out, a+b)
			}
		}
		return out
	case *ast.Ident:
		if out := s.assigned(e.Name, in); len(out) > 0 {
			return out
		}
		if v := s.values[e.Name]; v != nil {
			return s.texts(v, in)
		}
	case *ast.CallExpr:
		return s.returned(e, in)
	case *ast.SelectorExpr:
		return s.member(e.Sel.Name, in)
	}
	return []string{unknown}
}

// returned are the texts of a call.
func (s *source) returned(c *ast.CallExpr, in *ast.FuncDecl) (out []string) {
	switch name := called(c); name {
	case "sprint", "Sprintf", "warn", "fail":
		for _, format := range s.texts(c.Args[0], in) {
			out = append(out, strings.ReplaceAll(verb.ReplaceAllString(format, unknown), "%%", "%"))
		}
		return out
	default:
		f := s.functions[name]
		if f == nil {
			break
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if r, ok := n.(*ast.ReturnStmt); ok && len(r.Results) == 1 {
				out = append(out, s.texts(r.Results[0], f)...)
			}
			return true
		})
		return out
	}
	return []string{unknown}
}

// assigned are the texts that a variable of a function gets.
func (s *source) assigned(name string, in *ast.FuncDecl) (out []string) {
	ast.Inspect(in.Body, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == len(a.Rhs) && a.Tok != token.ADD_ASSIGN {
			for i := range a.Lhs {
				if v, ok := a.Lhs[i].(*ast.Ident); ok && v.Name == name {
					out = append(out, s.texts(a.Rhs[i], in)...)
				}
			}
		}
		return true
	})
	return out
}

// member are the texts of a field of the values in adviceByReason.
func (s *source) member(name string, in *ast.FuncDecl) (out []string) {
	at := slices.Index([]string{"blame", "because", "next"}, name)
	advice, ok := s.values["adviceByReason"].(*ast.CompositeLit)
	if at < 0 || !ok {
		return []string{unknown}
	}
	for _, entry := range advice.Elts {
		if v, ok := entry.(*ast.KeyValueExpr).Value.(*ast.CompositeLit); ok {
			out = append(out, s.texts(v.Elts[at], in)...)
		}
	}
	return out
}

// cell joins what a text may be.
func cell(texts []string) string {
	var out []string
	for _, text := range texts {
		if text = strings.TrimSpace(text); text != unknown && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return strings.Join(out, "<br>")
}

// TestTheDocumentOfSymptomsIsMadeOfTheSource: of the conditions that the page shows, the alerts, and the lines of the
// log.
func TestTheDocumentOfSymptomsIsMadeOfTheSource(t *testing.T) {
	var b reference.Table
	incidents(&b, readSource(t, "controlplane/admin/conditions"))
	alerts(t, &b)
	logLines(&b, readSource(t, "cmd/internal/asynclog", "cmd/internal/daemon", "cmd/steelyard/serve.go", "collectors",
		"controlplane", "xds", "internal/credentials", "internal/streams"))
	reference.Check(t, "docs/symptoms.md", "go test . -run Symptoms -update", b.String())
}

// An incident is a row without its severity.
type incident struct{ title, kind, next string }

// incidents are made where a condition is.
func incidents(b *reference.Table, s *source) {
	severities := map[incident][]string{}
	add := func(in *ast.FuncDecl, kind, severity, title, next ast.Expr) {
		words := []string{"error", "warning"}
		if _, known := severity.(*ast.SelectorExpr); known {
			words = []string{strings.ToLower(strings.TrimPrefix(types.ExprString(severity), "api.Severity"))}
		}
		row := incident{cell(s.texts(title, in)), cell(s.texts(kind, in)), cell(s.texts(next, in))}
		severities[row] = append(severities[row], words...)
	}
	s.calls(func(in *ast.FuncDecl, c *ast.CallExpr) {
		switch called(c) {
		case "explain":
			on, ok := c.Fun.(*ast.SelectorExpr).X.(*ast.CallExpr)
			if ok && called(on) == "newCondition" && in.Name.Name != "edgeConditions" {
				add(in, on.Args[0], on.Args[1], on.Args[3], c.Args[3])
			}
		case "add":
			if in.Name.Name == "edgeConditions" {
				add(in, c.Args[0], c.Args[0], c.Args[2], c.Args[6])
			}
		}
	})
	b.WriteString("\n## Incidents\n")
	b.Head("you see", "kind, severity", "what to do")
	byTitle := func(a, b incident) int {
		return cmp.Or(strings.Compare(a.title, b.title), strings.Compare(a.kind, b.kind),
			strings.Compare(a.next, b.next))
	}
	for _, row := range slices.SortedFunc(maps.Keys(severities), byTitle) {
		words := slices.Compact(slices.Sorted(slices.Values(severities[row])))
		b.Row(row.title, "`"+row.kind+"`, "+strings.Join(words, " or "), row.next)
	}
}

func alerts(t *testing.T, b *reference.Table) {
	text, err := os.ReadFile("deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	var file ruleFile
	if err := root.Decode(&file); err != nil {
		t.Fatal(err)
	}
	b.WriteString("\n## Alerts\n")
	comment := regexp.MustCompile(`(?m)^ *# (.*)\n *- alert: (\w+)$`)
	advice := map[string]string{}
	for _, m := range comment.FindAllStringSubmatch(string(text), -1) {
		advice[m[2]] = m[1]
	}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			if advice[rule.Alert] == "" {
				t.Errorf("%s has no comment above it: what is to be done?", rule.Alert)
			}
			if want := "docs/symptoms.md#" + strings.ToLower(rule.Alert); rule.Annotations["runbook_url"] != want {
				t.Errorf("%s leads to %s, want %s", rule.Alert, rule.Annotations["runbook_url"], want)
			}
			b.WriteString("\n### " + rule.Alert + "\n\n" + rule.Labels["severity"] + ": " + advice[rule.Alert] + "\n")
		}
	}
}

// logLines are those from WARN up: changes of state need no explanation.
func logLines(b *reference.Table, s *source) {
	levels := map[string]string{}
	s.calls(func(in *ast.FuncDecl, c *ast.CallExpr) {
		level, at := logged(c)
		if level == "" || len(c.Args) <= at {
			return
		}
		for _, line := range s.texts(c.Args[at], in) {
			if !strings.HasPrefix(line, unknown) && level != "INFO" {
				levels[line] = level
			}
		}
	})
	b.WriteString("\n## Log lines\n")
	b.Head("line", "level")
	for _, line := range slices.Sorted(maps.Keys(levels)) {
		b.Row(line, levels[line])
	}
}

// logged is the level of a line, and which argument of the call is the line; "" for a call that logs nothing.
func logged(c *ast.CallExpr) (level string, line int) {
	name := called(c)
	if name == "sums" { // of package port
		return "WARN", 0
	}
	on, isMethod := c.Fun.(*ast.SelectorExpr)
	if isMethod && slices.Contains([]string{"Info", "Warn", "Error"}, name) &&
		strings.HasSuffix(strings.ToLower(types.ExprString(on.X)), "log") {
		return strings.ToUpper(name), 0
	}
	for i, argument := range c.Args {
		text := types.ExprString(argument)
		if level, ok := strings.CutPrefix(text, "slog.Level"); ok && level != "Debug" {
			return strings.ToUpper(level), min(i+1, len(c.Args)-1)
		}
		if text == "level" {
			return "INFO, WARN", min(i+1, len(c.Args)-1)
		}
	}
	return "", 0
}
