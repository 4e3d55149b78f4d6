package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v4"
)

// A decoder fills a Config, or another struct with its tags, from a YAML tree, and remembers where each field stands,
// so that checks of one field against another can point at it.
type decoder struct {
	problems
	warnings problems            // what is allowed and probably a mistake
	folder   string              // of the file: where relative paths start
	root     reflect.Type        // of the whole
	tooLarge string              // what to do about a file that is too large
	budget   int                 // values that may still be read
	places   map[any]*place      // by the address of the field
	within   map[*yaml.Node]bool // mappings being merged, to see a circle
}

// place is the position of a field in the file.
type place struct {
	node    *yaml.Node // its key; where it is not written, that of its section
	path    string     // such as clusters[llama].scrape.interval
	written bool
	broken  bool // a mistake in it was reported, so its value means nothing
}

func newDecoder(name string, into any) *decoder {
	return &decoder{
		problems: problems{file: name, seen: map[Problem]bool{}},
		warnings: problems{file: name, seen: map[Problem]bool{}},
		folder:   filepath.Dir(name),
		root:     reflect.TypeOf(into).Elem(),
		places:   map[any]*place{},
		within:   map[*yaml.Node]bool{},
	}
}

// fail reports a mistake in a field, unless the decoder has reported one.
func (d *decoder) fail(field any, format string, args ...any) {
	if at := d.places[field]; at != nil && !at.broken {
		at.broken = true
		d.complain(at.node, at.path, format, args...)
	}
}

// refuse is fail for a text, which the message begins with.
func (d *decoder) refuse(field *string, format string, args ...any) {
	d.fail(field, "%s "+format, append([]any{shown(*field)}, args...)...)
}

// conflict reports two fields that contradict each other, at the one that is written,
// unless the decoder has reported either.
func (d *decoder) conflict(a, b any, format string, args ...any) {
	first, second := d.places[a], d.places[b]
	if first == nil || second == nil || first.broken || second.broken {
		return
	}
	if !first.written && second.written {
		first = second
	}
	d.complain(first.node, first.path, format, args...)
}

func (d *decoder) written(field any) bool {
	at := d.places[field]
	return at != nil && at.written
}

// value is how a message quotes a field: a default is marked as one, because the user never wrote it.
func (d *decoder) value(field any) string {
	text := shownValue(reflect.ValueOf(field).Elem())
	if !d.written(field) {
		text += " (the default)"
	}
	return text
}

// DurationText is Duration.String without the zero parts: 1m, not 1m0s.
func DurationText(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// checkTimeout also makes a default timeout fit a short interval.
func (d *decoder) checkTimeout(timeout, interval *time.Duration) {
	if !d.written(timeout) {
		*timeout = min(*timeout, *interval*4/5)
	}
	if *timeout > *interval {
		d.conflict(timeout, interval, "%s is above the interval of %s: write a timeout of at most %s, or a longer "+
			"interval", DurationText(*timeout), d.value(interval), DurationText(*interval))
	}
}

// checkPair wants both or none of a certificate and its key.
func (d *decoder) checkPair(cert, key *string) {
	switch {
	case *cert != "" && *key == "":
		d.conflict(cert, key, "the certificate has no key: add key_file:")
	case *key != "" && *cert == "":
		d.conflict(key, cert, "the key has no certificate: add cert_file:")
	}
}

// checkTwice complains of a text that an earlier item of a list has.
func (d *decoder) checkTwice(field *string, text string, lines map[string]int, what string) {
	if at := d.places[field]; at == nil || at.broken {
		return
	}
	if first, twice := lines[text]; twice {
		d.fail(field, "%s is the same %s as on line %d: remove one", shown(text), what, first)
		return
	}
	lines[text] = d.places[field].node.Line
}

// A Checker takes reports of mistakes in fields of the struct that is being decoded. A field is named by its address.
// One whose own value is wrong has been reported before, and is not reported again.
type Checker decoder

// Fail reports a mistake in a field: the text is for the user, what is wrong and what to write instead.
func (c *Checker) Fail(field any, format string, args ...any) {
	(*decoder)(c).fail(field, format, args...)
}

// Warn reports a field whose value is allowed, and probably a mistake.
func (c *Checker) Warn(field any, format string, args ...any) {
	d := (*decoder)(c)
	if at := d.places[field]; at != nil && !at.broken {
		d.warn(at.node, at.path, format, args...)
	}
}

// Written reports whether the file has the field.
func (c *Checker) Written(field any) bool { return (*decoder)(c).written(field) }

// complain adds a problem at a node; path is what it is about.
func (d *decoder) complain(n *yaml.Node, path, format string, args ...any) {
	if path != "" {
		format, args = "%s: "+format, append([]any{path}, args...)
	}
	d.add(n.Line, n.Column, "%s", fmt.Errorf(format, args...))
}

// warn adds a warning at a node; path is what it is about.
func (d *decoder) warn(n *yaml.Node, path, format string, args ...any) {
	d.warnings.add(n.Line, n.Column, "%s: %s", path, fmt.Sprintf(format, args...))
}

// checkWord wants a text without white space, of so many bytes at most; write says what to write instead.
func (d *decoder) checkWord(word *string, longest int, write string) {
	unfit := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }
	switch {
	case strings.ContainsFunc(*word, unfit):
		d.refuse(word, "has white space in it: write %s", write)
	case len(*word) > longest:
		d.refuse(word, "has %d bytes: write at most %d", len(*word), longest)
	}
}
