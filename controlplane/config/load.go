package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"

	"go.yaml.in/yaml/v3"
)

// largestFile is the most bytes that are read of a configuration: some forty
// thousand static endpoints.
const largestFile = 1 << 20

// Load reads and checks the file at path. What is wrong in the file comes as an
// *Error; what is wrong with reading it as the system's error.
func Load(path string) (*Config, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(f, largestFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	return data, nil
}

// Parse checks data. The name stands for the file in messages, and its folder
// is where relative paths start. The error is an *Error.
func Parse(name string, data []byte) (*Config, error) {
	d := &decoder{
		problems: problems{file: name, seen: map[Problem]bool{}},
		folder:   filepath.Dir(name),
		places:   map[any]*place{},
		within:   map[*yaml.Node]bool{},
	}
	cfg := &Config{}
	if root := d.document(data); root != nil {
		d.budget = countNodes(root) + aliasedValues
		d.section(root, root, reflect.ValueOf(cfg).Elem(), "")
		if d.budget >= 0 {
			d.check(cfg)
		}
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	return cfg, nil
}

// document reads the one YAML document of a file; nil after a problem.
func (d *decoder) document(data []byte) *yaml.Node {
	if len(data) > largestFile {
		d.add(1, 1, "the file is larger than 1MiB: list endpoints in a file of their own (endpoints: file:)")
		return nil
	}
	if line, column, text := unreadable(data); text != "" {
		d.add(line, column, "%s", text)
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
		d.add(second.Line, second.Column, "a second YAML document starts here: write one, without a line of --- in between")
	case empty:
		d.add(1, 1, "the file is empty: write at least the clusters: section")
	default:
		return doc.Content[0]
	}
	return nil
}
