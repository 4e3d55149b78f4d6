package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
)

const examplePath = "../../steelyard.example.yaml"

// commentedOut is a key or an item that is commented out; text has a space
// after its #.
var commentedOut = regexp.MustCompile(`(?m)^( *)#([^ #\n])`)

// alternative begins a key that excludes the one before.
var alternative = regexp.MustCompile(`(?m)^( *)# or `)

func wholeExample(t testing.TB) []byte {
	t.Helper()
	return commentedOut.ReplaceAll(readFile(t, examplePath), []byte("$1$2"))
}

// schemaFields lists all keys of the schema by their path.
func schemaFields(t reflect.Type, path string) map[string]field {
	all := map[string]field{}
	for _, f := range fieldsOf(reflect.New(t).Elem()) {
		at := join(path, f.key)
		all[at] = f
		below := f.value.Type()
		if below.Kind() == reflect.Slice {
			below, at = below.Elem(), at+"[]"
		} else if below.Kind() == reflect.Pointer {
			below = below.Elem()
		}
		if below.Kind() == reflect.Struct {
			maps.Copy(all, schemaFields(below, at))
		}
	}
	return all
}

// linesOfKeys lists the lines of each key in a YAML tree, by path.
func linesOfKeys(n *yaml.Node, path string, into map[string][]int) {
	switch n.Kind {
	case yaml.DocumentNode:
		linesOfKeys(n.Content[0], path, into)
	case yaml.SequenceNode:
		for _, item := range n.Content {
			linesOfKeys(item, path+"[]", into)
		}
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			at := join(path, n.Content[i].Value)
			into[at] = append(into[at], n.Content[i].Line)
			linesOfKeys(n.Content[i+1], at, into)
		}
	}
}

func TestExampleLoadsAsItIsAndWithEveryKey(t *testing.T) {
	asItStands, err := Load(examplePath)
	if err != nil {
		t.Fatalf("as it stands:\n%v", err)
	}
	if _, err := Parse("whole.yaml", wholeExample(t)); err != nil {
		t.Fatalf("with every key:\n%v", err)
	}
	minimal := `clusters: [{name: llama, engine: vllm,
  endpoints: {static: [{address: 10.0.0.1:8000}, {address: 10.0.0.2:8000}]}}]`
	want, err := Parse("minimal.yaml", []byte(minimal))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, asItStands); diff != "" {
		t.Errorf("as it stands, the example differs from the defaults (-defaults +example):\n%s", diff)
	}
}

func TestExampleHasEveryKeyWithItsDefaultAndItsBounds(t *testing.T) {
	text := alternative.ReplaceAll(wholeExample(t), []byte("$1"))
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	lines := map[string][]int{}
	linesOfKeys(&doc, "", lines)
	rows := strings.Split(string(text), "\n")
	fields := schemaFields(reflect.TypeFor[Config](), "")
	for path, f := range fields {
		found := ""
		for _, line := range lines[path] {
			if _, comment, ok := strings.Cut(rows[line-1], " # "); ok {
				found = comment
			} else if found != "" || len(lines[path]) > 1 {
				continue // explained where it occurs first
			}
		}
		for _, want := range stated(f) {
			if !strings.Contains(found, want) {
				t.Errorf("%s: the comment %q does not say %q", path, found, want)
			}
		}
	}
	for path := range lines {
		if _, known := fields[path]; !known {
			t.Errorf("%s is in the example and not in the schema", path)
		}
	}
}

// stated is what the comment of a field must say.
func stated(f field) []string {
	var want []string
	if limits := f.tag.Get("range"); limits != "" {
		want = append(want, strings.Replace(limits, "..", " to ", 1))
	}
	if words := f.words(); len(words) > 0 && len(words) < 5 {
		want = append(want, strings.Join(words, ", "))
	}
	text, has := f.tag.Lookup("default")
	_, required := f.tag.Lookup("required")
	switch {
	case required:
		want = append(want, "Required")
	case has:
		want = append(want, "Default "+text)
	case !f.isSection():
		want = append(want, "Default none")
	}
	return want
}

// TestDocCommentsStateDefaultAndBounds reads the comments of the structs.
func TestDocCommentsStateDefaultAndBounds(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	ast.Inspect(file, func(n ast.Node) bool {
		f, ok := n.(*ast.Field)
		if !ok || f.Tag == nil || len(f.Names) == 0 {
			return true
		}
		tag := reflect.StructTag(strings.Trim(f.Tag.Value, "`"))
		comment := strings.Join(strings.Fields(f.Doc.Text()), " ")
		for key, want := range map[string]string{
			"default":  "Default " + tag.Get("default"),
			"range":    strings.Replace(tag.Get("range"), "..", " to ", 1),
			"required": "Required.",
		} {
			if _, has := tag.Lookup(key); has && !strings.Contains(comment, want) {
				t.Errorf("%s: the comment does not say %q: %s", f.Names[0], want, comment)
			}
		}
		checked++
		return true
	})
	if all := len(schemaFields(reflect.TypeFor[Config](), "")); checked < all/2 {
		t.Errorf("%d comments for %d keys", checked, all)
	}
}

// TestTagsAreWellFormed proves what parseTag relies on.
func TestTagsAreWellFormed(t *testing.T) {
	for path, f := range schemaFields(reflect.TypeFor[Config](), "") {
		if f.key == "" {
			t.Errorf("%s has no key", path)
		}
		kind := f.value.Kind()
		_, hasDefault := f.tag.Lookup("default")
		_, required := f.tag.Lookup("required")
		_, hasMax := f.tag.Lookup("max")
		limits, hasRange := f.tag.Lookup("range")
		number := kind == reflect.Int || kind == reflect.Int64 || kind == reflect.Float64
		if number != hasRange || number && hasDefault == required {
			t.Errorf("%s: numbers have a range, and a default unless they are required", path)
		}
		if ofFile := strings.HasSuffix(f.key, "file") || strings.HasSuffix(f.key, "config"); kind == reflect.String &&
			ofFile != (f.tag.Get("kind") == "path") {
			t.Errorf("%s: what names a file is of kind path, and called ..._file, file or ...config", path)
		}
		if (kind == reflect.Slice) != hasMax {
			t.Errorf("%s: lists have a max", path)
		}
		if hasDefault {
			v := parseTag(f.tag.Get("default"), f.value.Type())
			if hasRange && !inRange(v, limits) {
				t.Errorf("%s: the default is not within %s", path, limits)
			}
			if words := f.words(); len(words) > 0 && !slices.Contains(words, v.String()) {
				t.Errorf("%s: the default is not one of %v", path, words)
			}
		}
	}
}
