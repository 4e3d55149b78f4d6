package config

import (
	"errors"
	"math"
	"path/filepath"
	"reflect"
	"testing"
)

// FuzzParse holds for any file: no panic; an *Error whose every problem has a
// place and a text; or a Config that is within its bounds, refers to nothing
// that is missing, and is read the same a second time.
//
//	go test ./controlplane/config -fuzz FuzzParse -fuzztime 1m
func FuzzParse(f *testing.F) {
	good, err := filepath.Glob("testdata/good/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range append(badFiles(f), good...) {
		f.Add(readFile(f, path))
	}
	f.Add(readFile(f, examplePath))
	f.Add(wholeExample(f))
	fields := schemaFields(reflect.TypeFor[Config](), "")
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := Parse("fuzz.yaml", data)
		if err != nil {
			if cfg != nil {
				t.Error("a Config together with an error")
			}
			var problems *Error
			if !errors.As(err, &problems) {
				t.Fatalf("the error is a %T", err)
			}
			checkProblems(t, err)
			return
		}
		checkBounds(t, reflect.ValueOf(cfg).Elem(), "", fields)
		again, err := Parse("fuzz.yaml", data)
		if err != nil || !reflect.DeepEqual(cfg, again) {
			t.Errorf("a second reading differs: %v", err)
		}
	})
}

// checkBounds walks a Config and asserts that each value is within its range.
func checkBounds(t *testing.T, section reflect.Value, path string, fields map[string]field) {
	for _, f := range fieldsOf(section) {
		at := join(path, f.key)
		schema := fields[at]
		v := f.value
		if limits := schema.tag.Get("range"); limits != "" && !inRange(v, limits) {
			t.Errorf("%s is %v, out of %s", at, v, limits)
		}
		if v.CanFloat() && (math.IsNaN(v.Float()) || math.IsInf(v.Float(), 0)) {
			t.Errorf("%s is %v", at, v)
		}
		if _, required := schema.tag.Lookup("required"); required && v.IsZero() {
			t.Errorf("%s is missing", at)
		}
		switch v.Kind() {
		case reflect.Struct:
			checkBounds(t, v, at, fields)
		case reflect.Pointer:
			if !v.IsNil() {
				checkBounds(t, v.Elem(), at, fields)
			}
		case reflect.Slice:
			for i := range v.Len() {
				if v.Index(i).Kind() == reflect.Struct {
					checkBounds(t, v.Index(i), at+"[]", fields)
				}
			}
		}
	}
}
