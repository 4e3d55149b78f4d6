package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"

	"go.yaml.in/yaml/v4"

	"steelyard/internal/files"
)

// largestFile is the most bytes that are read of a configuration: some forty thousand static endpoints.
const largestFile = 1 << 20

// A Check tests what the text of a configuration does not show, such as the files that it names.
type Check func(*Config, *Checker)

// Load reads and checks the file at path. Mistakes in the file are an *Error; a file that cannot be read is the
// system's error.
func Load(path string, further ...Check) (*Config, error) {
	data, err := Read(context.Background(), path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data, further...)
}

// Read returns the text of the file at path, for Parse and Examine: at most one byte more than they accept.
func Read(ctx context.Context, path string) ([]byte, error) {
	data, err := files.Read(ctx, path, largestFile+1)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration, a YAML file: %w", err)
	}
	return data, nil
}

// Parse checks data. The name stands for the file in messages, and its folder
// is where relative paths start. The error is an *Error.
func Parse(name string, data []byte, further ...Check) (*Config, error) {
	cfg, _, err := Examine(name, data, further...)
	return cfg, err
}

// Examine is Parse with warnings: what is allowed and probably a mistake. They are sorted by line; those of a file with
// an error come, too.
func Examine(name string, data []byte, further ...Check) (*Config, []*Problem, error) {
	cfg := &Config{}
	d := newDecoder(name, cfg)
	d.tooLarge = ": list endpoints in a file of their own (endpoints: file:)"
	check := func() {
		d.check(cfg)
		for _, check := range further {
			check(cfg, (*Checker)(d))
		}
	}
	err := d.decode(data, cfg, check)
	d.warnings.sort()
	if err != nil {
		return nil, d.warnings.list, err
	}
	return cfg, d.warnings.list, nil
}

// Decode reads a YAML file that is no configuration as strictly as one, and with the same messages. The name stands for
// the file in them; into points to a struct with the tags of this package's schema; check compares values with one
// another. The error is an *Error.
func Decode(name string, data []byte, into any, check func(*Checker)) error {
	d := newDecoder(name, into)
	return d.decode(data, into, func() { check((*Checker)(d)) })
}

// decode fills a struct from a file; check is called where that can be made sense of.
func (d *decoder) decode(data []byte, into any, check func()) error {
	if root := d.document(data); root != nil {
		d.budget = countNodes(root) + aliasedValues
		d.section(root, root, reflect.ValueOf(into).Elem(), "")
		if d.budget >= 0 {
			check()
		}
	}
	return d.err()
}

// document reads the one YAML document of a file; nil after a problem.
func (d *decoder) document(data []byte) *yaml.Node {
	if len(data) > largestFile {
		d.add(1, 1, "the file is larger than 1MiB%s", d.tooLarge)
		return nil
	}
	if line, column, text := unreadable(data); text != "" {
		d.add(line, column, "%s", text)
		return nil
	}
	if line, column, deep := tooDeep(data); deep {
		d.add(line, column, "lists and sections are nested more than %d deep here: close what is opened", deepest)
		return nil
	}
	var doc, second yaml.Node
	stream := yaml.NewDecoder(bytes.NewReader(data))
	err := stream.Decode(&doc)
	if err == nil {
		err = stream.Decode(&second)
	}
	switch empty := len(doc.Content) == 0 || isNull(doc.Content[0]); {
	case err != nil && !errors.Is(err, io.EOF):
		line, column, text := syntaxError(data, err)
		d.add(line, column, "%s", text)
	case second.Kind != 0:
		d.add(second.Line, second.Column, "a second YAML document starts here: write one, without a line of --- in "+
			"between")
	case empty:
		d.add(1, 1, "the file is empty: write at least the %s: section", d.leastSection())
	default:
		return doc.Content[0]
	}
	return nil
}

// leastSection is what a file has at the least: the first key that is required, else the last.
func (d *decoder) leastSection() string {
	fields := fieldsOf(reflect.New(d.root).Elem())
	for _, f := range fields {
		if _, required := f.tag.Lookup("required"); required {
			return f.key
		}
	}
	return fields[len(fields)-1].key
}
