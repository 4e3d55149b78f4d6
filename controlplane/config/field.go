package config

import (
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"steelyard/internal/engines"
)

// field is one key of a section and where its value goes.
type field struct {
	key   string
	tag   reflect.StructTag
	value reflect.Value
}

// fieldsOf lists the keys of a section, those of inlined structs among them.
func fieldsOf(section reflect.Value) []field {
	var fields []field
	for i := range section.NumField() {
		f := section.Type().Field(i)
		key := f.Tag.Get("yaml")
		if key == ",inline" {
			fields = append(fields, fieldsOf(section.Field(i))...)
			continue
		}
		fields = append(fields, field{key: key, tag: f.Tag, value: section.Field(i)})
	}
	return fields
}

// words are those that a value may be; none where any may.
func (f field) words() []string {
	words := strings.Fields(f.tag.Get("oneof"))
	if slices.Equal(words, []string{"@engines"}) {
		return engines.Names()
	}
	return words
}

func (f field) isSection() bool { return f.value.Kind() == reflect.Struct }

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }
