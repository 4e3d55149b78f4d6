package config

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"steelyard/e2e/rig/reference"
)

// said matches what a comment says that a tag says, too.
var said = regexp.MustCompile(`[,;]? [0-9][0-9.a-zA-Z]* to [0-9][0-9.a-zA-Z]*\b`)

// TestTheDocumentOfTheConfigurationIsMadeOfItsTypes: a table for each section, with the first sentence of the comment
// of each key. The keys of a struct are listed where it is first used.
func TestTheDocumentOfTheConfigurationIsMadeOfItsTypes(t *testing.T) {
	source := reference.Read(t, ".")
	var b reference.Table
	b.WriteString("\n## Keys\n")
	section, listed := "", map[reflect.Type]string{} // where the keys of a struct are
	var rows func(t reflect.Type, path string)
	rows = func(of reflect.Type, path string) {
		for f := range of.Fields() {
			key := f.Tag.Get("yaml")
			if key == ",inline" {
				b.Row("`"+path+"…`", "", "keys as in `"+listed[f.Type]+"`")
				continue
			}
			in, suffix := f.Type, ""
			if in.Kind() == reflect.Pointer {
				in = in.Elem()
			}
			if in.Kind() == reflect.Slice {
				in, suffix = in.Elem(), "[]"
			}
			says := meaning(source.Fields[of.Name()+"."+f.Name], f.Name, of)
			if at := listed[in]; at != "" {
				b.Row("`"+path+key+suffix+"`", accepted(f.Tag), says+"; keys as in `"+at+"`")
				continue
			}
			b.Row("`"+path+key+suffix+"`", accepted(f.Tag), says)
			if in.Kind() == reflect.Struct {
				listed[in] = section + "." + path + key
				rows(in, path+key+suffix+".")
			}
		}
	}
	for f := range reflect.TypeFor[Config]().Fields() {
		in := f.Type
		if in.Kind() != reflect.Struct {
			in = in.Elem()
		}
		section = f.Tag.Get("yaml")
		b.WriteString("\n### " + section + "\n")
		b.Head("key", "default", "meaning")
		rows(in, "")
	}
	reference.Check(t, "../../docs/configuration.md", "go test ./controlplane/config -run Document -update", b.String())
}

// accepted is the default of a key and its bounds.
func accepted(tag reflect.StructTag) string {
	initial, ok := tag.Lookup("default")
	if _, required := tag.Lookup("required"); required {
		initial = "required"
	} else if ok {
		initial = "`" + initial + "`"
	}
	if least, most, ok := strings.Cut(tag.Get("range"), ".."); ok {
		initial += " (" + least + " to " + most + ")"
	}
	return initial
}

// meaning is the first sentence of a comment, without the name at its beginning and what the column before says; other
// names of fields are those of their keys.
func meaning(comment, name string, in reflect.Type) string {
	first := said.ReplaceAllString(reference.FirstSentence(comment), "")
	for _, begin := range []string{name + " is ", name + " are ", name + " holds ", name + " says ", name + " "} {
		if rest, ok := strings.CutPrefix(first, begin); ok {
			first = strings.TrimPrefix(rest, "the ")
			break
		}
	}
	for f := range in.Fields() {
		named := regexp.MustCompile(`\b(at most|at least|above|and|with|Either it or|by) ` + f.Name + `\b`)
		first = named.ReplaceAllString(first, "$1 `"+f.Tag.Get("yaml")+"`")
	}
	return first
}
