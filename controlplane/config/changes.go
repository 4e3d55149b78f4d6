package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// A KeyChange is a value that differs between two configurations of a cluster. An empty text is a value that is not
// there.
type KeyChange struct{ Path, Before, After string }

// Changes lists the values in which two clusters differ, in the order of the schema. Static endpoints are compared by
// address; one that joins or leaves is one change.
func Changes(before, after *Cluster) []KeyChange {
	var out []KeyChange
	changes(reflect.ValueOf(before).Elem(), reflect.ValueOf(after).Elem(), "", &out)
	return out
}

func changes(before, after reflect.Value, path string, out *[]KeyChange) {
	if reflect.DeepEqual(before.Interface(), after.Interface()) {
		return
	}
	switch before.Kind() {
	case reflect.Struct:
		was, will := fieldsOf(before), fieldsOf(after)
		for i := range was {
			changes(was[i].value, will[i].value, join(path, was[i].key), out)
		}
	case reflect.Pointer:
		if before.IsNil() || after.IsNil() {
			*out = append(*out, KeyChange{path, shownValue(before), shownValue(after)})
			return
		}
		changes(before.Elem(), after.Elem(), path, out)
	case reflect.Slice:
		if endpoints, ok := before.Interface().([]StaticEndpoint); ok {
			endpointChanges(endpoints, after.Interface().([]StaticEndpoint), path, out)
			return
		}
		*out = append(*out, KeyChange{path, shownValue(before), shownValue(after)})
	default:
		change := KeyChange{path, shownValue(before), shownValue(after)}
		if path == "capacity" || strings.HasSuffix(path, ".capacity") { // 0 is one that is not written
			for _, v := range []*string{&change.Before, &change.After} {
				if *v == "0" {
					*v = ""
				}
			}
		}
		*out = append(*out, change)
	}
}

func endpointChanges(before, after []StaticEndpoint, path string, out *[]KeyChange) {
	next := make(map[string]StaticEndpoint, len(after))
	for _, e := range after {
		next[e.Address] = e
	}
	was := make(map[string]bool, len(before))
	for _, e := range before {
		was[e.Address] = true
		at := fmt.Sprintf("%s[%s]", path, e.Address)
		if to, stays := next[e.Address]; stays {
			changes(reflect.ValueOf(&e).Elem(), reflect.ValueOf(&to).Elem(), at, out)
		} else {
			*out = append(*out, KeyChange{at, e.Address, ""})
		}
	}
	for _, e := range after {
		if !was[e.Address] {
			*out = append(*out, KeyChange{fmt.Sprintf("%s[%s]", path, e.Address), "", e.Address})
		}
	}
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
