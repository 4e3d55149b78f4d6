package weighting

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// TestACloneSharesNothing: what a law learned is values, but for what Clone copies.
func TestACloneSharesNothing(t *testing.T) {
	copied := []string{"Law.memory", "Law.listed", "Law.scratch", "Pool.values"}
	var walk func(typ reflect.Type)
	seen := map[reflect.Type]bool{reflect.TypeFor[time.Time](): true}
	walk = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Array {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] {
			return
		}
		seen[typ] = true
		for f := range typ.Fields() {
			if slices.Contains(copied, typ.Name()+"."+f.Name) {
				continue
			}
			switch f.Type.Kind() {
			case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Func, reflect.Interface, reflect.Chan:
				t.Errorf("%s.%s is a %s, which a clone shares", typ.Name(), f.Name, f.Type.Kind())
			}
			walk(f.Type)
		}
	}
	walk(reflect.TypeFor[Law]())
	walk(reflect.TypeFor[memory]())
}

func TestACloneGoesOnLikeTheOriginal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		story := storyGen.Draw(t, "story")
		law, dry := NewLaw(DefaultParams()), NewLaw(DefaultParams())
		for _, s := range story {
			want := law.Clone().Step(s.now, s.snapshot)
			other := dry.Clone()
			other.SetParams(Params{Floor: 0.5})
			other.Step(s.now, s.snapshot) // changes nothing of dry
			got := law.Step(s.now, s.snapshot)
			untouched := dry.Step(s.now, s.snapshot)
			same := cmp.Options{cmpopts.EquateNaNs(), cmp.AllowUnexported(Decision{}, Vessel{})}
			if diff := cmp.Diff(want, got, same); diff != "" {
				t.Fatalf("the clone decides otherwise (-clone +law):\n%s", diff)
			}
			if diff := cmp.Diff(got, untouched, same); diff != "" {
				t.Fatalf("a step of a clone changed the law (-want +got):\n%s", diff)
			}
		}
	})
}
