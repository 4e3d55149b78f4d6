package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// section reads a mapping into a struct; owner is the node that messages about the whole section point at.
func (d *decoder) section(owner, n *yaml.Node, into reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.complain(n, path, "%s where keys are needed: %s", describe(n), exampleKeys(n, fieldsOf(into)[0]))
		return
	}
	entries := d.entries(n, path)
	fields := fieldsOf(into)
	for _, f := range fields {
		i := slices.IndexFunc(entries, func(e entry) bool { return e.key.Value == f.key })
		if i < 0 {
			d.absent(owner, f, path)
			continue
		}
		d.field(entries[i], f, join(path, f.key))
		entries = slices.Delete(entries, i, i+1)
	}
	for _, e := range entries {
		d.unknown(e.key, into.Type(), path)
	}
}

// field reads the value of one key.
func (d *decoder) field(e entry, f field, path string) {
	at := &place{node: e.key, path: path, written: true}
	d.places[f.value.Addr().Interface()] = at
	value, ok := d.follow(e.value)
	if !ok {
		at.broken = true
		return
	}
	if isNull(value) && !f.isSection() {
		at.broken = true
		d.complain(e.key, path, "no value: %s", whatToWrite(f))
		d.initial(f)
		return
	}
	before := d.count()
	d.read(e.key, value, f, path)
	at.broken = d.count() > before
}

func (d *decoder) read(owner, n *yaml.Node, f field, path string) {
	switch f.value.Kind() {
	case reflect.Struct:
		if isNull(n) { // a section all of whose keys are commented out
			d.defaults(owner, f.value, path)
			return
		}
		d.section(owner, n, f.value, path)
	case reflect.Pointer: // nil where it is not written
		f.value.Set(reflect.New(f.value.Type().Elem()))
		d.read(owner, n, field{key: f.key, tag: f.tag, value: f.value.Elem()}, path)
	case reflect.Slice:
		d.items(n, f, path)
	default:
		d.scalar(n, f, path)
	}
}

// items reads a list. Its fields keep their addresses, because the whole slice is made first.
func (d *decoder) items(n *yaml.Node, f field, path string) {
	most := int(parseTag(f.tag.Get("max"), reflect.TypeFor[int]()).Int())
	switch count := len(n.Content); {
	case n.Kind != yaml.SequenceNode:
		d.complain(n, path, "%s where a list is needed: %s", describe(n), exampleItem(n))
		return
	case count == 0:
		d.complain(n, path, "the list is empty: %s", whatToWrite(f))
		return
	case count > most:
		d.complain(n, path, "the list has %d items: write at most %d", count, most)
		return
	}
	f.value.Set(reflect.MakeSlice(f.value.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		value, ok := d.follow(item)
		if !ok {
			return
		}
		label := fmt.Sprintf("%s[%s]", path, d.label(value, i))
		into := f.value.Index(i)
		at := &place{node: item, path: label, written: true}
		d.places[into.Addr().Interface()] = at
		before := d.count()
		if into.Kind() == reflect.Struct {
			d.section(item, value, into, label)
		} else {
			d.scalar(value, field{tag: f.tag, value: into}, label)
		}
		at.broken = d.count() > before
	}
}

var plainLabel = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]{0,63}$`)

// label names an item of a list in messages: by its name where it has one.
func (d *decoder) label(n *yaml.Node, index int) string {
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == "name" && plainLabel.MatchString(n.Content[i+1].Value) {
				return n.Content[i+1].Value
			}
		}
	}
	return fmt.Sprint(index)
}

// scalar reads one value, and leaves the default where it is wrong.
func (d *decoder) scalar(n *yaml.Node, f field, path string) {
	d.initial(f)
	if n.Kind != yaml.ScalarNode || isNull(n) {
		d.complain(n, path, "%s where one value is needed: %s", describe(n), whatToWrite(f))
		return
	}
	if words := f.words(); len(words) > 0 && !slices.Contains(words, n.Value) {
		d.complain(n, path, "%s is not one of %s%s", shown(n.Value), strings.Join(words, ", "),
			didYouMean(n.Value, words))
		return
	}
	v, err := parseScalar(n, f.value.Type())
	limits := f.tag.Get("range")
	if errors.Is(err, errTooLarge) || err == nil && limits != "" && !inRange(v, limits) {
		err = rangeError(n.Value, f.value.Type(), limits)
	}
	if example := f.tag.Get("default"); errors.As(err, &notText{}) && example != "" {
		err = fmt.Errorf("%s is not a text: for example, write %s", shown(n.Value), example)
	}
	if err != nil {
		hint := ""
		if variable.MatchString(n.Value) {
			hint = " (Steelyard expands no variables: fill them in before)"
		}
		d.complain(n, path, "%w%s", err, hint)
		return
	}
	if word := variable.FindString(n.Value); word != "" {
		d.warn(n, path, "%s is used as it is written, because Steelyard expands no variables: fill it in before",
			shown(word))
	}
	if text := v.String(); f.tag.Get("kind") == "path" && !filepath.IsAbs(text) {
		v = reflect.ValueOf(filepath.Join(d.folder, text)).Convert(v.Type())
	}
	f.value.Set(v)
}

// variable is what shells and templates fill in.
var variable = regexp.MustCompile(`\$\{[^}]*\}`)

// initial sets a field to its default.
func (d *decoder) initial(f field) {
	if text, ok := f.tag.Lookup("default"); ok {
		f.value.Set(parseTag(text, f.value.Type()))
	}
}

// defaults fills a section that is not written.
func (d *decoder) defaults(owner *yaml.Node, section reflect.Value, path string) {
	for _, f := range fieldsOf(section) {
		d.absent(owner, f, path)
	}
}

// absent fills one field that is not written.
func (d *decoder) absent(owner *yaml.Node, f field, path string) {
	at := &place{node: owner, path: join(path, f.key)}
	d.places[f.value.Addr().Interface()] = at
	if _, required := f.tag.Lookup("required"); required {
		at.broken = true
		d.complain(owner, at.path, "missing: %s", whatToWrite(f))
	}
	if f.isSection() {
		d.defaults(owner, f.value, at.path)
		return
	}
	d.initial(f)
}
