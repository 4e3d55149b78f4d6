package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"steelyard/internal/spelling"
)

// entry is a key of a mapping with its value.
type entry struct{ key, value *yaml.Node }

// entries lists a mapping, with what "<<" merges into it: keys that are written in the mapping itself win.
func (d *decoder) entries(n *yaml.Node, path string) []entry {
	var own []entry
	var merged []*yaml.Node
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		first, twice := lines[key.Value]
		switch {
		case key.ShortTag() == "!!merge":
			merged = append(merged, value)
		case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
			d.complain(key, path, "%s where a key is needed: write a plain word", describe(key))
		case twice:
			d.complain(key, path, "%s is written twice, first on line %d: remove one", shown(key.Value), first)
		default:
			lines[key.Value] = key.Line
			own = append(own, entry{key, value})
		}
	}
	for _, m := range merged {
		own = d.merge(own, m, path)
	}
	return own
}

// merge adds the entries of a merged mapping, or of a list of them, whose keys are not there yet.
func (d *decoder) merge(own []entry, from *yaml.Node, path string) []entry {
	n, ok := d.follow(from)
	switch {
	case !ok:
		return own
	case n.Kind == yaml.SequenceNode && from.Kind == yaml.SequenceNode:
		for _, item := range n.Content {
			own = d.merge(own, item, path)
		}
		return own
	case n.Kind != yaml.MappingNode:
		d.complain(from, path, "<< takes the keys of another section, not %s: write an alias, such as <<: *name",
			describe(n))
		return own
	case d.within[n]:
		d.complain(from, path, "<< merges a section into itself: remove it")
		return own
	}
	d.within[n] = true
	defer delete(d.within, n)
	for _, e := range d.entries(n, path) {
		if !slices.ContainsFunc(own, func(o entry) bool { return o.key.Value == e.key.Value }) {
			own = append(own, e)
		}
	}
	return own
}

// follow replaces an alias by what it stands for and counts what is read; not
// ok once that is more than any honest file holds.
func (d *decoder) follow(n *yaml.Node) (*yaml.Node, bool) {
	d.budget--
	if d.budget < 0 {
		if d.budget == -1 { // what was found so far is what the aliases repeat
			d.list, d.more = nil, 0
			d.complain(n, "", "aliases (*name) stand for more than %d values here: write the values out", aliasedValues)
		}
		return nil, false
	}
	if n.Kind == yaml.AliasNode {
		return n.Alias, true
	}
	return n, true
}

// countNodes is the number of values and keys that are written out.
func countNodes(n *yaml.Node) int {
	count := 1
	for _, c := range n.Content {
		count += countNodes(c)
	}
	return count
}

// unknown reports a key that a section does not have.
func (d *decoder) unknown(key *yaml.Node, section reflect.Type, path string) {
	if d.full() { // the search for what was meant is not free
		d.more++
		return
	}
	var known []string
	for _, f := range fieldsOf(reflect.New(section).Elem()) {
		known = append(known, f.key)
	}
	meant := spelling.Nearest(key.Value, known)
	elsewhere := sectionsWith(key.Value, section)
	switch {
	case meant == "" && len(elsewhere) == 0:
		elsewhere = sectionsWith(key.Value, d.root)
	case meant != "":
		d.complain(key, path, "unknown key %q: did you mean %q?", key.Value, meant)
		return
	}
	if len(elsewhere) > 0 {
		d.complain(key, path, "unknown key %q here: it belongs in %s", key.Value, strings.Join(elsewhere, " or "))
		return
	}
	d.complain(key, path, "unknown key \"%s\": the keys here are %s", strings.Trim(shown(key.Value), `"`),
		strings.Join(known, ", "))
}

// sectionsWith lists the sections below a type that have the key, as paths from that type, in the order of the schema.
func sectionsWith(key string, t reflect.Type) []string {
	var found []string
	for _, f := range fieldsOf(reflect.New(t).Elem()) {
		below, suffix := f.value.Type(), ""
		if below.Kind() == reflect.Slice {
			below, suffix = below.Elem(), "[]"
		} else if below.Kind() == reflect.Pointer {
			below = below.Elem()
		}
		if below.Kind() != reflect.Struct {
			continue
		}
		name := f.key + suffix
		for _, g := range fieldsOf(reflect.New(below).Elem()) {
			if g.key == key {
				found = append(found, name)
			}
		}
		for _, deeper := range sectionsWith(key, below) {
			found = append(found, name+"."+deeper)
		}
	}
	return found
}

// describe names the kind of a node, for "… where a list is needed".
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "keys"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.AliasNode:
		return "an alias"
	case isNull(n):
		return "nothing"
	}
	return shown(n.Value)
}

// exampleKeys is advice for a section that is none.
func exampleKeys(n *yaml.Node, first field) string {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" && first.value.Kind() == reflect.String {
		return fmt.Sprintf("write keys, such as {%s: %s}", first.key, shown(n.Value))
	}
	return fmt.Sprintf("write keys below it, such as %s:", first.key)
}

// exampleItem is advice for a list that is none.
func exampleItem(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode {
		return fmt.Sprintf("write [%s]", shown(n.Value))
	}
	return "start each item with \"- \" on a line of its own"
}

// whatToWrite is advice for a field whose value has the wrong form.
func whatToWrite(f field) string {
	if advice, ok := f.tag.Lookup("required"); ok {
		return advice
	}
	t := f.value.Type()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch words := f.words(); {
	case t.Kind() == reflect.Struct:
		return "write its keys below it, or remove the line"
	case len(words) > 0:
		return "write one of " + strings.Join(words, ", ") + ", or remove the line"
	case t == durationType:
		return "write a duration such as 250ms, or remove the line"
	case t == sizeType:
		return "write a size such as 4MiB, or remove the line"
	case t.Kind() == reflect.Bool:
		return "write true or false, or remove the line"
	case t.Kind() == reflect.Int, t.Kind() == reflect.Float64:
		return "write a number, or remove the line"
	case t.Kind() == reflect.Slice:
		return "write at least one item, or remove the line"
	}
	return "write a text, or remove the line"
}

func didYouMean(word string, known []string) string {
	if meant := spelling.Nearest(word, known); meant != "" {
		return ": did you mean " + meant + "?"
	}
	return ": write one of them"
}

// aliasedValues is how many values aliases may add to those that are written
// out: a file of a kilobyte can otherwise stand for billions.
const aliasedValues = 10_000
