package admin

import (
	"bufio"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"steelyard/e2e/rig/reference"
	"steelyard/internal/api"
)

// longestMeaning is how many words a key or a series may take. A key whose name says all takes none.
const longestMeaning = 20

// An apiDocument is docs/admin-api.md as it is made.
type apiDocument struct {
	reference.Table
	t       *testing.T
	sources map[string]reference.Source // by package
	objects []reflect.Type              // in the order in which they are found
	words   []reflect.Type
}

func TestTheDocumentOfTheAPIIsMadeOfItsTypes(t *testing.T) {
	d := apiDocument{t: t, sources: map[string]reference.Source{
		reflect.TypeFor[api.Status]().PkgPath(): reference.Read(t, "../../internal/api"),
	}}
	d.routes()
	d.WriteString("\n## Objects\n")
	d.find(reflect.TypeFor[api.Error]())
	for i := 0; i < len(d.objects); i++ { // describing one finds others
		d.object(d.objects[i])
	}
	d.WriteString("\n## Words\n")
	d.Head("type", "word", "meaning")
	for _, kind := range d.words {
		for _, word := range d.sources[kind.PkgPath()].Words[kind.Name()] {
			d.Row(title(kind), "`"+word.Value+"`", d.needed(word.Meaning))
		}
	}
	d.series()
	reference.Check(t, "../../docs/admin-api.md", "go test ./controlplane/admin -run Document -update", d.String())
}

func (d *apiDocument) routes() {
	d.WriteString("\n## Routes\n")
	d.Head("route", "answer", "parameters")
	h := &handler{}
	for _, r := range append(h.apiRoutes(), h.operatorRoutes()...) {
		var takes []string
		for _, p := range r.query {
			takes = append(takes, "`"+p.name+"`: "+p.meaning)
		}
		switch {
		case r.body != nil:
			d.find(r.body)
			takes = append(takes, "body: "+d.link(r.body))
		case r.text != "":
			takes = append(takes, "body: "+r.text)
		}
		answer := r.summary + ": " + d.typeOf("", r.answer)
		d.Row("`"+strings.TrimSpace(r.method+" "+r.path)+"`", answer, strings.Join(takes, "<br>"))
	}
}

// find adds an object to those that are described.
func (d *apiDocument) find(t reflect.Type) {
	if !slices.Contains(d.objects, t) {
		d.objects = append(d.objects, t)
	}
}

func title(t reflect.Type) string { return strings.ToUpper(t.Name()[:1]) + t.Name()[1:] }

func (d *apiDocument) link(t reflect.Type) string {
	d.find(t)
	return "[" + title(t) + "](#" + strings.ToLower(t.Name()) + ")"
}

// object describes the keys of one.
func (d *apiDocument) object(t reflect.Type) {
	d.WriteString("\n### " + title(t) + "\n")
	d.Head("key", "type", "meaning")
	for _, key := range keysOf(t) {
		meaning := d.sources[key.of.PkgPath()].Fields[key.of.Name()+"."+key.field.Name]
		d.Row("`"+key.name+"`", d.typeOf(key.name, key.field.Type), d.short(meaning))
	}
}

func (d *apiDocument) short(meaning string) string {
	d.t.Helper()
	if n := len(strings.Fields(meaning)); n > longestMeaning {
		d.t.Errorf("the meaning %q has %d words, want at most %d", meaning, n, longestMeaning)
	}
	return meaning
}

func (d *apiDocument) needed(meaning string) string {
	d.t.Helper()
	if meaning == "" {
		d.t.Error("a word or a series has no meaning")
	}
	return d.short(meaning)
}

// typeOf is the type of a key with its unit; a ? follows where it may be null.
func (d *apiDocument) typeOf(key string, t reflect.Type) string {
	unit := "number"
	switch {
	case strings.HasSuffix(key, "seconds"):
		unit = "seconds"
	case strings.HasSuffix(key, "bytes"):
		unit = "bytes"
	case key == "days_left":
		unit = "days"
	}
	switch t {
	case reflect.TypeFor[api.Number]():
		return unit + "?"
	case reflect.TypeFor[api.Time]():
		return "time?"
	}
	switch t.Kind() {
	case reflect.Bool, reflect.String:
		if t.PkgPath() == "" {
			return t.Kind().String()
		}
		if !slices.Contains(d.words, t) && len(d.sources[t.PkgPath()].Words[t.Name()]) > 0 {
			d.words = append(d.words, t)
		}
		return "[" + title(t) + "](#words)"
	case reflect.Pointer:
		return d.typeOf(key, t.Elem()) + "?"
	case reflect.Slice:
		return d.typeOf(key, t.Elem()) + "[]"
	case reflect.Map:
		return d.typeOf(key, t.Elem()) + " by name"
	case reflect.Struct:
		return d.link(t)
	}
	return unit
}

// series describes what /metrics has, with every series that there is.
func (d *apiDocument) series() {
	d.WriteString("\n## Series\n\nSeries with the label `endpoint` have `envoy_cluster_name`, too; series with " +
		"`envoy` have `host`.\n")
	d.Head("series", "type", "labels", "meaning")
	help, kinds, labels := map[string]string{}, map[string]string{}, map[string][]string{}
	sample := regexp.MustCompile(`^(steelyard_[a-z0-9_]+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})? `)
	label := regexp.MustCompile(`([a-z_]+)="`)
	for lines := bufio.NewScanner(strings.NewReader(metricsText(d.t))); lines.Scan(); {
		line := lines.Text()
		words := strings.SplitN(line, " ", 4)
		m := sample.FindStringSubmatch(line)
		switch {
		case len(words) == 4 && words[1] == "HELP":
			help[words[2]] = words[3]
		case len(words) == 4 && words[1] == "TYPE":
			kinds[words[2]] = words[3]
		case m != nil:
			for _, l := range label.FindAllStringSubmatch(m[2], -1) {
				if l[1] != "le" && !slices.Contains(labels[m[1]], l[1]) {
					labels[m[1]] = append(labels[m[1]], l[1])
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(help)) {
		if strings.HasPrefix(name, "steelyard_") {
			d.Row("`"+name+"`", kinds[name], strings.Join(ownLabels(labels[name]), ", "),
				d.needed(strings.TrimSuffix(help[name], ".")))
		}
	}
}

// ownLabels are the labels of a series that do not follow from others.
func ownLabels(labels []string) []string {
	return slices.DeleteFunc(slices.Clone(labels), func(l string) bool {
		return l == "envoy_cluster_name" && slices.Contains(labels, "endpoint") ||
			l == "host" && slices.Contains(labels, "envoy")
	})
}
