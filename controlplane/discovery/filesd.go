package discovery

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"steelyard/internal/api"
	"steelyard/internal/files"
	"steelyard/internal/spelling"
)

// MaxFileSize bounds a file_sd file, in bytes.
const MaxFileSize = 8 << 20

// The labels of file_sd that describe an endpoint. Any other label is
// the user's own and ignored.
const (
	labelZone        = "zone"
	labelCapacity    = "capacity"
	labelEngine      = "engine"
	labelMetricsPort = "metrics_port"
	labelMetricsPath = "metrics_path"
)

// ReadFile reads the endpoints in a file_sd file, JSON or YAML by its extension,
// sorted by address. A file is taken whole or not at all; the error has a line for each
// fault that begins with FILE:LINE:COLUMN, with the group's index and the target's index or the label's
// name, at most the first ten.
func ReadFile(ctx context.Context, path string) ([]Endpoint, error) {
	endpoints, _, err := CheckFile(ctx, path)
	return endpoints, err
}

// CheckFile is ReadFile with the labels that are allowed, not used and probably meant as one that is. Their objects
// begin like the faults.
func CheckFile(ctx context.Context, path string) (endpoints []Endpoint, unused []api.Omission, err error) {
	parse, err := parserFor(path)
	if err != nil {
		return nil, nil, err
	}
	body, err := files.ReadAll(ctx, path, MaxFileSize)
	if err != nil {
		return nil, nil, fmt.Errorf("reading endpoints: %w", err)
	}
	document, err := parse(body)
	if err != nil {
		return nil, nil, fmt.Errorf("%s:%w", path, err)
	}
	r := groupReader{path: path, collector: collector{repeats: true}}
	r.groups(document)
	endpoints, err = r.result()
	return endpoints, r.unused, err
}

func parserFor(path string) (func([]byte) (value, error), error) {
	switch extension := filepath.Ext(path); extension {
	case ".json":
		return parseJSON, nil
	case ".yml", ".yaml":
		return parseYAML, nil
	default:
		return nil, fmt.Errorf("file %s: the extension %q is neither JSON nor YAML; name it .json, .yml or .yaml",
			path, extension)
	}
}

// A groupReader turns a document into endpoints.
// A target may be in several groups, as they may differ in labels that are not used here.
type groupReader struct {
	collector
	path   string
	unused []api.Omission
}

// at is a position for the reader of an error.
func (r *groupReader) at(v value, format string, args ...any) string {
	return fmt.Sprintf("%s:%v: %s", r.path, v.place, fmt.Sprintf(format, args...))
}

func (r *groupReader) groups(document value) {
	if document.kind != list {
		r.fault(r.at(document, "document"), fmt.Errorf("it is %v; write a list of groups, such as [{targets: "+
			"[\"10.0.0.1:8000\"]}]", document.kind))
		return
	}
	for i, g := range document.items {
		r.group(i, g)
	}
}

func (r *groupReader) group(i int, g value) {
	if g.kind != mapping {
		r.fault(r.at(g, "group %d", i), fmt.Errorf("it is %v; write a mapping with targets and labels", g.kind))
		return
	}
	fields, ok := r.fields(i, g)
	if !ok {
		return
	}
	template, ok := r.labels(i, fields["labels"])
	if !ok {
		return
	}
	targets := fields["targets"]
	if targets.kind != list {
		r.fault(r.at(targets, "group %d", i), fmt.Errorf("targets is %v; write a list of IP:port", targets.kind))
		return
	}
	for j, t := range targets.items {
		where := r.at(t, "group %d, target %d", i, j)
		if t.kind != scalar || t.null {
			r.fault(where, errors.New("it is not IP:port in quotes"))
			continue
		}
		template.Address = t.text
		r.add(where, template)
	}
}

// fields takes a group apart into what its keys hold.
func (r *groupReader) fields(i int, g value) (map[string]value, bool) {
	fields, ok := r.unique(g, fmt.Sprintf("group %d", i))
	if !ok {
		return nil, false
	}
	for _, k := range g.keys {
		if k.text != "targets" && k.text != "labels" {
			r.fault(r.at(k, "group %d", i), fmt.Errorf("key %q is not known; write targets or labels", k.text))
			ok = false
		}
	}
	if _, has := fields["targets"]; ok && !has {
		r.fault(r.at(g, "group %d", i), errors.New("it has no targets; write targets: [] if none is meant"))
		ok = false
	}
	return fields, ok
}

// unique is a mapping as a map; a key that is written twice is a fault, since one of
// the two would be lost.
func (r *groupReader) unique(m value, what string) (map[string]value, bool) {
	fields := make(map[string]value, len(m.keys))
	ok := true
	for i, k := range m.keys {
		switch first, twice := fields[k.text]; {
		case k.kind != scalar:
			r.fault(r.at(k, "%s", what), fmt.Errorf("a key is %v; write a name", k.kind))
			ok = false
		case twice:
			r.fault(r.at(k, "%s", what), fmt.Errorf("key %q is written twice, first in line %d", k.text, first.line))
			ok = false
		default:
			fields[k.text] = m.items[i]
		}
	}
	return fields, ok
}

// labels makes the endpoint that all targets of a group are alike in.
func (r *groupReader) labels(i int, labels value) (Endpoint, bool) {
	var e Endpoint
	if labels.kind == scalar && labels.text == "" { // not there, or null
		return e, true
	}
	if labels.kind != mapping {
		r.fault(r.at(labels, "group %d", i),
			fmt.Errorf("labels is %v; write a mapping of names to values", labels.kind))
		return e, false
	}
	byName, ok := r.unique(labels, fmt.Sprintf("group %d, labels", i))
	if !ok {
		return e, false
	}
	for _, k := range labels.keys { // in the file's order
		v := byName[k.text]
		err := setLabel(&e, k.text, v.text)
		r.resembling(i, k)
		if v.kind != scalar {
			err = fmt.Errorf("it is %v; write a plain value", v.kind)
		}
		if err != nil {
			r.fault(r.at(v, "group %d, label %q", i, k.text), err)
			ok = false
		}
	}
	return e, ok
}

// resembling notes a label that is not used, and is probably meant as one that is.
func (r *groupReader) resembling(group int, label value) {
	used := []string{labelZone, labelCapacity, labelEngine, labelMetricsPort, labelMetricsPath}
	meant := spelling.Nearest(label.text, used)
	if meant == "" || slices.Contains(used, label.text) {
		return
	}
	r.unused = append(r.unused, api.Omission{Object: r.at(label, "group %d, label %q", group, label.text),
		Reason: fmt.Sprintf("it is not used; did you mean %q?", meant)})
}

// setLabel puts one label's value in its place. Empty means not given.
func setLabel(e *Endpoint, name, text string) (err error) {
	if text == "" {
		return nil
	}
	switch name {
	case labelZone:
		e.Zone = text
		return validateZone(text)
	case labelCapacity:
		if e.Capacity, err = strconv.ParseFloat(text, 64); err != nil {
			return fmt.Errorf("capacity %q is not a number of slots, such as 8", text)
		}
		return validateCapacity(e.Capacity)
	case labelEngine:
		e.Engine = text
		return validateEngine(text)
	case labelMetricsPort:
		if e.MetricsPort, err = strconv.Atoi(strings.TrimSpace(text)); err != nil {
			return fmt.Errorf("metrics_port %q is not a port from 1 to 65535", text)
		}
		return validatePort(e.MetricsPort)
	case labelMetricsPath:
		e.MetricsPath = text
		return validatePath(text)
	}
	return nil
}
