// Package reference makes reference documents of the source: tables of the comments of types, fields and constants.
package reference

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"steelyard/e2e/rig/golden"
)

// A Word is a constant of a string type.
type Word struct{ Value, Meaning string }

// Source has the comments of a package.
type Source struct {
	Fields map[string]string // by Type.Field
	Words  map[string][]Word // by type, in the order of the source
}

// Read reads the package in a folder.
func Read(t testing.TB, folder string) Source {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no source in %s: %v", folder, err)
	}
	s := Source{Fields: map[string]string{}, Words: map[string][]Word{}}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if decl, ok := d.(*ast.GenDecl); ok {
				for _, spec := range decl.Specs {
					s.add(spec)
				}
			}
		}
	}
	return s
}

func (s *Source) add(spec ast.Spec) {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		fields, ok := spec.Type.(*ast.StructType)
		if !ok {
			return
		}
		for _, f := range fields.Fields.List {
			for _, name := range f.Names {
				s.Fields[spec.Name.Name+"."+name.Name] = text(f.Doc, f.Comment)
			}
		}
	case *ast.ValueSpec:
		kind, ok := spec.Type.(*ast.Ident)
		if !ok || len(spec.Values) != 1 {
			return
		}
		if value, ok := spec.Values[0].(*ast.BasicLit); ok && value.Kind == token.STRING {
			v, _ := strconv.Unquote(value.Value)
			s.Words[kind.Name] = append(s.Words[kind.Name], Word{v, text(spec.Doc, spec.Comment)})
		}
	}
}

// text is the comment of a field or a constant, in one line.
func text(above, behind *ast.CommentGroup) string {
	return strings.Join(strings.Fields(above.Text()+" "+behind.Text()), " ")
}

// FirstSentence is the beginning of a comment.
func FirstSentence(comment string) string {
	first, _, _ := strings.Cut(comment, ". ")
	return strings.TrimSuffix(first, ".")
}

// A Table is made row by row.
type Table struct{ strings.Builder }

// Head begins a table.
func (b *Table) Head(columns ...string) {
	b.WriteString("\n")
	b.Row(columns...)
	b.WriteString(strings.Repeat("|---", len(columns)) + "|\n")
}

// Row adds a row.
func (b *Table) Row(cells ...string) {
	for i := range cells {
		cells[i] = strings.ReplaceAll(cells[i], "|", `\|`)
	}
	b.WriteString("|" + strings.Join(cells, "|") + "|\n")
}

// marker divides what is written in a document from what is made.
const marker = "\n<!-- From here on this file is generated: "

// Check compares what follows the marker in a document with what is made of the source. Command rewrites it.
func Check(t testing.TB, path, command, made string) {
	t.Helper()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	written, _, found := strings.Cut(string(whole), marker)
	if !found {
		t.Fatalf("%s has no line that begins with %q", path, strings.TrimSpace(marker))
	}
	golden.Check(t, path, written+marker+command+" -->\n"+made)
}
