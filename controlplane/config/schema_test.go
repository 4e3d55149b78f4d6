package config

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"steelyard/e2e/rig/golden"
)

// A schemaNode is a JSON schema. The order of its fields is that of the file.
type schemaNode struct {
	Schema      string                 `json:"$schema,omitempty"`
	Title       string                 `json:"title,omitempty"`
	Description string                 `json:"description,omitempty"`
	Type        any                    `json:"type,omitempty"`
	Enum        []string               `json:"enum,omitempty"`
	Pattern     string                 `json:"pattern,omitempty"`
	Default     any                    `json:"default,omitempty"`
	Minimum     *float64               `json:"minimum,omitempty"`
	Maximum     *float64               `json:"maximum,omitempty"`
	MinLength   int                    `json:"minLength,omitempty"`
	MinItems    int                    `json:"minItems,omitempty"`
	MaxItems    int                    `json:"maxItems,omitempty"`
	Items       *schemaNode            `json:"items,omitempty"`
	Required    []string               `json:"required,omitempty"`
	AnyOf       []*schemaNode          `json:"anyOf,omitempty"`
	Properties  map[string]*schemaNode `json:"properties,omitempty"`
	Additional  *bool                  `json:"additionalProperties,omitempty"`
}

// comments returns the comments of the fields in config.go, by type and field.
func comments(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, d := range file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, s := range decl.Specs {
			spec, ok := s.(*ast.TypeSpec)
			if !ok {
				continue
			}
			if fields, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range fields.Fields.List {
					for _, name := range f.Names {
						all[spec.Name.Name+"."+name.Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
					}
				}
			}
		}
	}
	return all
}

// section is the schema of a struct.
func (n *schemaNode) section(t reflect.Type, docs map[string]string) {
	closed := false
	n.Additional = &closed
	if n.Properties == nil {
		n.Properties = map[string]*schemaNode{}
	}
	for f := range t.Fields() {
		key := f.Tag.Get("yaml")
		if key == ",inline" {
			n.section(f.Type, docs)
			continue
		}
		if _, required := f.Tag.Lookup("required"); required {
			n.Required = append(n.Required, key)
		}
		n.Properties[key] = nodeOf(f.Type, f.Tag, docs[t.Name()+"."+f.Name], docs)
	}
	n.Type = []string{"object", "null"} // a section all of whose keys are commented out
	if len(n.Required) > 0 {
		n.Type = "object"
	}
}

func nodeOf(t reflect.Type, tag reflect.StructTag, comment string, docs map[string]string) *schemaNode {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	n := &schemaNode{Description: comment}
	initial, hasDefault := tag.Lookup("default")
	switch {
	case t == durationType:
		n.Type, n.Pattern = "string", `^[-+]?(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$|^0$`
	case t == sizeType:
		n.Type, n.Pattern = "string", `^[0-9]+(B|KiB|MiB|GiB)$`
	case t == reflect.TypeFor[Port]():
		n.Type, n.MinLength = []string{"string", "integer"}, 1
	case t.Kind() == reflect.Struct:
		n.section(t, docs)
		return n
	case t.Kind() == reflect.Slice:
		n.Type, n.MinItems = "array", 1
		n.MaxItems = int(parseTag(tag.Get("max"), reflect.TypeFor[int]()).Int())
		n.Items = nodeOf(t.Elem(), "", "", docs)
		return n
	case t.Kind() == reflect.Bool:
		n.Type = "boolean"
	case t.Kind() == reflect.Int:
		n.Type = "integer"
	case t.Kind() == reflect.Float64:
		n.Type = "number"
	default:
		n.Type, n.MinLength = "string", 1
		n.Enum = field{tag: tag}.words()
	}
	if hasDefault {
		n.Default = initial
		if v := parseTag(initial, t); n.Type != "string" {
			n.Default = v.Interface()
		}
	}
	if limits := tag.Get("range"); limits != "" && n.Type != "string" {
		least, most, _ := strings.Cut(limits, "..")
		low := parseTag(least, reflect.TypeFor[float64]()).Float()
		high := parseTag(most, reflect.TypeFor[float64]()).Float()
		n.Minimum, n.Maximum = &low, &high
	}
	return n
}

func TestTheSchemaForEditorsIsThatOfTheStructs(t *testing.T) {
	root := &schemaNode{Schema: "https://json-schema.org/draft/2020-12/schema", Title: "Configuration of Steelyard"}
	root.section(reflect.TypeFor[Config](), comments(t))
	root.Type, root.AnyOf = "object", []*schemaNode{{Required: []string{"clusters"}}, {Required: []string{"pools"}}}
	var got bytes.Buffer
	e := json.NewEncoder(&got)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(root); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "steelyard.schema.json", got.String())
	for path, f := range schemaFields(reflect.TypeFor[Config](), "") {
		if at := root.at(path); at == nil || at.Description == "" && !f.isSection() {
			t.Errorf("%s is not in the schema, or without a description", path)
		}
	}
}

// at is the schema of a key, by its path.
func (n *schemaNode) at(path string) *schemaNode {
	for key := range strings.SplitSeq(path, ".") {
		name, isList := strings.CutSuffix(key, "[]")
		if n = n.Properties[name]; n == nil {
			return nil
		}
		if isList {
			n = n.Items
		}
	}
	return n
}

// editor is the schema as an editor uses it.
func editor(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("steelyard.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("steelyard.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// valueOf is a YAML file as JSON has it.
func valueOf(t *testing.T, text []byte) (any, error) {
	t.Helper()
	var v any
	if err := yaml.Unmarshal(text, &v); err != nil {
		return nil, err
	}
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(body))
}

// refusedByEditors are the bad files of testdata that the schema refuses. Of the others only the check finds what is
// wrong: a value contradicts another one, or a text has a form that needs more than a pattern.
var refusedByEditors = []string{
	"access_log", "addresses", "aliases_bomb", "aliases_circle", "aliases_unknown", "bytes_control",
	"bytes_latin1", "clusters_empty", "clusters_map", "dns", "doors", "duplicate_keys", "empty", "engines",
	"inflight_keys", "limits", "limits_few", "list", "listen", "listen_ports", "many", "names", "no_clusters",
	"numbers", "redis", "redis_empty", "redis_missing", "scrape_tls", "sizes", "sources", "syntax_at",
	"syntax_brace", "syntax_bracket", "syntax_colon", "syntax_indent", "syntax_ipv6", "syntax_quote",
	"syntax_space", "syntax_tab", "text", "texts", "types", "units", "unknown_keys", "variables",
}

func TestTheSchemaAcceptsGoodFilesAndRefusesBadOnes(t *testing.T) {
	s := editor(t)
	good := map[string][]byte{"the example": readFile(t, examplePath), "the whole example": wholeExample(t)}
	files, err := filepath.Glob("testdata/good/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		good[path] = readFile(t, path)
	}
	for name, text := range good {
		v, err := valueOf(t, text)
		if err == nil {
			err = s.Validate(v)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	refused := map[string]bool{}
	for _, path := range badFiles(t) {
		v, err := valueOf(t, readFile(t, path))
		refused[strings.TrimSuffix(filepath.Base(path), ".yaml")] = err != nil || s.Validate(v) != nil
	}
	for _, name := range refusedByEditors {
		if !refused[name] {
			t.Errorf("the schema accepts testdata/bad/%s.yaml", name)
		}
	}
}
