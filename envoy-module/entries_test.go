package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEveryEntryRecoversFromPanics before it does anything else: a panic in a function that Envoy calls would end
// Envoy.
func TestEveryEntryRecoversFromPanics(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	entries := 0
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Doc == nil || !slices.ContainsFunc(f.Doc.List, func(c *ast.Comment) bool {
				return strings.HasPrefix(c.Text, "//export ")
			}) {
				continue
			}
			entries++
			if first, ok := f.Body.List[0].(*ast.DeferStmt); !ok || !isGuard(first.Call) {
				t.Errorf("%s: %s does not begin with defer guard()", name, f.Name.Name)
			}
		}
	}
	if entries < 10 {
		t.Errorf("%d entries were found: the rule looks for something else", entries)
	}
}

func isGuard(c *ast.CallExpr) bool {
	f, ok := c.Fun.(*ast.Ident)
	return ok && f.Name == "guard"
}
