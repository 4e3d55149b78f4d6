package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"steelyard/internal/api"
)

// Changes lists the values in which two clusters differ, in the order of the schema. Static endpoints are compared by
// address; one that joins or leaves is one change.
func Changes(before, after *Cluster) []api.KeyDiff {
	var out differences
	out.compare(reflect.ValueOf(before).Elem(), reflect.ValueOf(after).Elem(), "")
	return out
}

// differences collects the values in which two configurations differ.
type differences []api.KeyDiff

func (d *differences) add(path, before, after string) {
	*d = append(*d, api.KeyDiff{Path: path, Before: before, After: after})
}

func (d *differences) compare(before, after reflect.Value, path string) {
	if reflect.DeepEqual(before.Interface(), after.Interface()) {
		return
	}
	endpoints, static := before.Interface().([]StaticEndpoint)
	switch {
	case before.Kind() == reflect.Struct:
		was, will := fieldsOf(before), fieldsOf(after)
		for i := range was {
			d.compare(was[i].value, will[i].value, join(path, was[i].key))
		}
	case before.Kind() == reflect.Pointer && !before.IsNil() && !after.IsNil():
		d.compare(before.Elem(), after.Elem(), path)
	case static:
		d.compareEndpoints(endpoints, after.Interface().([]StaticEndpoint), path)
	case path == "capacity" || strings.HasSuffix(path, ".capacity"):
		d.add(path, shownCapacity(before), shownCapacity(after))
	default:
		d.add(path, shownValue(before), shownValue(after))
	}
}

func (d *differences) compareEndpoints(before, after []StaticEndpoint, path string) {
	next := make(map[string]StaticEndpoint, len(after))
	for _, e := range after {
		next[e.Address] = e
	}
	was := make(map[string]bool, len(before))
	for _, e := range before {
		was[e.Address] = true
		at := fmt.Sprintf("%s[%s]", path, e.Address)
		if to, stays := next[e.Address]; stays {
			d.compare(reflect.ValueOf(e), reflect.ValueOf(to), at)
		} else {
			d.add(at, e.Address, "")
		}
	}
	for _, e := range after {
		if !was[e.Address] {
			d.add(fmt.Sprintf("%s[%s]", path, e.Address), "", e.Address)
		}
	}
}

// shownCapacity leaves out 0, which is a capacity that is not written.
func shownCapacity(v reflect.Value) string {
	if v.IsZero() {
		return ""
	}
	return shownValue(v)
}

// shownValue is a value as one would write it.
func shownValue(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return ""
		}
		return "{…}"
	case reflect.Slice:
		if v.Len() == 0 {
			return ""
		}
		return fmt.Sprintf("%d items", v.Len())
	}
	switch x := v.Interface().(type) {
	case time.Duration:
		return DurationText(x)
	case float64:
		return plain(x)
	}
	return fmt.Sprint(v.Interface())
}
