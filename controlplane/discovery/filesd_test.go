package discovery

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"steelyard/internal/api"
)

func TestReadFile(t *testing.T) {
	tests := []struct {
		name, file, body string
		want             []Endpoint
		err              []string
	}{
		{
			name: "YAML with every label", file: "f.yaml",
			body: "- targets: ['10.0.0.2:8000', 10.0.0.1:8000]\n  labels: {zone: a, capacity: 8.5, engine: triton, " +
				"metrics_port: 8002, metrics_path: /m, team: search}\n- targets:\n  - '[2001:db8::1]:8000'\n",
			want: []Endpoint{
				{Address: "10.0.0.1:8000", Zone: "a", Capacity: 8.5, Engine: "triton", MetricsPort: 8002,
					MetricsPath: "/m"},
				{Address: "10.0.0.2:8000", Zone: "a", Capacity: 8.5, Engine: "triton", MetricsPort: 8002,
					MetricsPath: "/m"},
				{Address: "[2001:db8::1]:8000"},
			},
		},
		{
			name: "JSON with strings and with numbers", file: "f.json",
			body: `[{"targets": ["10.0.0.1:8000"], "labels": {"capacity": "4", "metrics_port": "8002"}},` + "\n" +
				"\t" + `{"targets": ["10.0.0.2:8000"], "labels": {"capacity": 4, "metrics_port": 8002, ` +
				`"zone": null, "spot": true}}]`,
			want: []Endpoint{{Address: "10.0.0.1:8000", Capacity: 4, MetricsPort: 8002},
				{Address: "10.0.0.2:8000", Capacity: 4, MetricsPort: 8002}},
		},
		// github.com/prometheus/prometheus/issues/884
		{name: "one target in groups that differ in labels that are not used", file: "f.yml",
			body: "- targets: [10.0.0.1:80]\n  labels: {team: a}\n- targets: [10.0.0.1:80]\n  labels: {team: b}\n",
			want: []Endpoint{{Address: "10.0.0.1:80"}}},
		{name: "YAML anchors", file: "f.yml", body: "- targets: [10.0.0.1:80]\n  labels: &l {zone: a}\n- targets: " +
			"[10.0.0.2:80]\n  labels: *l\n",
			want: []Endpoint{{Address: "10.0.0.1:80", Zone: "a"}, {Address: "10.0.0.2:80", Zone: "a"}}},
		{name: "an empty list empties", file: "f.yaml", body: "[]\n", want: []Endpoint{}},
		{name: "so do groups without targets", file: "f.json", body: `[{"targets": []}]`, want: []Endpoint{}},
		{name: "null labels", file: "f.yaml", body: "- targets: [10.0.0.1:80]\n  labels:\n",
			want: []Endpoint{{Address: "10.0.0.1:80"}}},

		{name: "empty YAML", file: "f.yaml", err: []string{"f.yaml:1:1: the document is empty", "write []"}},
		{name: "YAML of comments", file: "f.yaml", body: "# later\n",
			err: []string{"f.yaml:1:1: the document is empty"}},
		{name: "YAML null", file: "f.yaml", body: "---\n", err: []string{"the document is empty"}},
		{name: "empty JSON", file: "f.json", body: " \n", err: []string{"f.json:1:1: the document is empty"}},
		{name: "JSON null", file: "f.json", body: "null", err: []string{"f.json:1:1: document", "a plain value"}},
		{name: "half a JSON file", file: "f.json", body: "[\n{\"targets\": [\n\"10.0.0.1:80\"",
			err: []string{"f.json:3:14: ", "ends in the middle"}},
		{name: "broken JSON", file: "f.json", body: "[\n{\"targets\":\n\n x",
			err: []string{"f.json:4:2: ", "invalid character 'x'"}},
		{name: "JSON and more", file: "f.json", body: "[]\n[]", err: []string{"f.json:2:1: ", "follows after the end"}},
		{name: "broken YAML", file: "f.yaml", body: "- targets: [10.0.0.1:80\n- x: y\n",
			err: []string{"f.yaml:2:4: not YAML: "}},
		{name: "two YAML documents", file: "f.yaml", body: "[]\n---\n[]\n",
			err: []string{"f.yaml:2:1: ", "second document"}},
		{name: "a mapping", file: "f.yaml", body: "targets: [10.0.0.1:80]\n",
			err: []string{"f.yaml:1:1: document: it is a mapping", "list of groups"}},
		{name: "a group that is none", file: "f.yaml", body: "- 10.0.0.1:80\n",
			err: []string{"f.yaml:1:3: group 0", "a plain value"}},
		{name: "a mistyped key", file: "f.yaml", body: "- targets: []\n- target: [10.0.0.1:80]\n",
			err: []string{"f.yaml:2:3: group 1", `"target" is not known`, "targets or labels"}},
		{name: "no targets", file: "f.json", body: `[{"labels": {}}]`,
			err: []string{"f.json:1:2: group 0", "no targets"}},
		{name: "targets that are no list", file: "f.yaml", body: "- targets: 10.0.0.1:80\n",
			err: []string{"f.yaml:1:12: group 0", "targets is a plain value"}},
		{name: "a target that is no text", file: "f.yaml", body: "- targets:\n  - {a: b}\n",
			err: []string{"f.yaml:2:5: group 0, target 0", "not IP:port"}},
		{name: "a target that is a name", file: "f.yaml", body: "- targets:\n  - 10.0.0.1:80\n  - llama:80\n",
			err: []string{"f.yaml:3:5: group 0, target 1", `"llama" is not an IP`, "dns"}},
		{name: "labels that are no mapping", file: "f.yaml", body: "- targets: []\n  labels: [a]\n",
			err: []string{"f.yaml:2:11: group 0", "labels is a list"}},
		{name: "a label twice", file: "f.json", body: "[{\"targets\": [], \"labels\": {\"zone\": \"a\",\n\"zone\": " +
			"\"b\"}}]", err: []string{"f.json:2:1: group 0, labels", `key "zone" is written twice, first in line 1`}},
		{name: "a label that is a list", file: "f.yaml", body: "- targets: []\n  labels:\n    zone: [a]\n",
			err: []string{`f.yaml:3:11: group 0, label "zone"`, "a list"}},
		{name: "capacity in words", file: "f.yaml", body: "- targets: []\n  labels:\n    capacity: many\n",
			err: []string{`f.yaml:3:15: group 0, label "capacity"`, `"many" is not a number of slots`}},
		{name: "negative capacity", file: "f.yaml", body: "- targets: []\n  labels: {capacity: -1}\n",
			err: []string{`f.yaml:2:22: group 0, label "capacity"`, "-1"}},
		{name: "capacity NaN", file: "f.yaml", body: "- targets: []\n  labels: {capacity: nan}\n",
			err: []string{`label "capacity"`, "NaN"}},
		{name: "unknown engine", file: "f.yaml", body: "- targets: []\n  labels: {engine: vlmm}\n",
			err: []string{`f.yaml:2:20: group 0, label "engine"`, `"vlmm"`, "did you mean vllm?"}},
		{name: "metrics port in words", file: "f.yaml", body: "- targets: []\n  labels: {metrics_port: http}\n",
			err: []string{`label "metrics_port"`, `"http"`}},
		{name: "metrics port out of range", file: "f.yaml", body: "- targets: []\n  labels: {metrics_port: 99999}\n",
			err: []string{`label "metrics_port"`, "99999"}},
		{name: "metrics path without slash", file: "f.yaml", body: "- targets: []\n  labels: {metrics_path: m}\n",
			err: []string{`label "metrics_path"`, `write "/m"`}},
		{name: "one address twice", file: "f.yaml", body: "- targets: [10.0.0.1:80]\n- targets:\n  - 10.0.0.1:80\n" +
			"  labels: {zone: b}\n",
			err: []string{"f.yaml:3:5: group 1, target 0", "already given at ", "f.yaml:1:13: group 0, target 0"}},
		{name: "an alias to itself", file: "f.yaml", body: "- &a\n  targets: [*a]\n", err: []string{"f.yaml"}},
		{name: "deep nesting", file: "f.json", body: strings.Repeat("[", 100),
			err: []string{"f.json:1:10: ", "more than 8 levels"}},
		{name: "too large", file: "f.json", body: "[" + strings.Repeat(" ", MaxFileSize) + "]",
			err: []string{"f.json is larger than 8388608 bytes"}},
		{name: "other extension", file: "f.txt", body: "[]", err: []string{"f.txt", ".json, .yml or .yaml"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), tt.file)
			if err := os.WriteFile(path, []byte(tt.body), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := ReadFile(t.Context(), path)
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("set (-want +got):\n%s", d)
			}
			wantError(t, err, tt.err...)
		})
	}
}

// Labels are free, so one that is not used is no error.
func TestALabelThatResemblesAUsedOneIsAWarning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.yaml")
	body := "- targets: [10.0.0.1:80]\n  labels:\n    capcity: 8\n    team: search\n    zone: a\n    metrics-port: 9\n"
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	set, unused, err := CheckFile(t.Context(), path)
	if err != nil || !slices.Equal(set, []Endpoint{{Address: "10.0.0.1:80", Zone: "a"}}) {
		t.Errorf("%+v, %v", set, err)
	}
	want := []api.Omission{
		{Object: path + `:3:5: group 0, label "capcity"`, Reason: `it is not used; did you mean "capacity"?`},
		{Object: path + `:6:5: group 0, label "metrics-port"`, Reason: `it is not used; did you mean "metrics_port"?`},
	}
	if d := cmp.Diff(want, unused); d != "" {
		t.Errorf("unused labels (-want +got):\n%s", d)
	}
	r := watchFile(t, path)
	r.next("10.0.0.1:80")
	r.reported(0, "the omissions", func(err error) bool {
		o, partly := err.(*Omissions) //nolint:errorlint // see Omissions
		return partly && o.Count == 2 && slices.Equal(o.First, want)
	})
}

// TestPlacesAreThoseOfTheText: whichever way the lines are broken.
func TestPlacesAreThoseOfTheText(t *testing.T) {
	for body, want := range map[string]string{
		`[{"targets": ["10.0.0.1:80"]}, {"targets": ["é", 7]}]`:              "1:45 1:50",
		"[{\"targets\": [\n\"10.0.0.1:80\"]},\n {\"targets\": [\"é\",\n7]}]": "3:15 4:1",
	} {
		document, err := parseJSON([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		targets := document.items[1].items[0].items
		if got := fmt.Sprint(targets[0].place, targets[1].place); got != want {
			t.Errorf("%s: the last targets are at %s, want %s", body, got, want)
		}
	}
}

func TestAliasesCannotMakeASmallFileLarge(t *testing.T) {
	body := "- &a [x,x,x,x,x,x,x,x,x,x]\n"
	for _, pair := range []string{"ba", "cb", "dc", "ed", "fe", "gf"} {
		alias := "*" + pair[1:]
		body += "- &" + pair[:1] + " [" + strings.Repeat(alias+",", 9) + alias + "]\n"
	}
	_, err := parseYAML([]byte(body))
	wantError(t, err, "more than 8 levels or 1048576 values")
}

func TestReadFileDoesNotWaitForAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.yaml")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := ReadFile(t.Context(), path)
	wantError(t, err, path, "not a regular file")
}

// FuzzFileSD: whatever a file holds, it is read without harm, and what is read
// is a set that Normalize finds nothing to do about.
func FuzzFileSD(f *testing.F) {
	for _, seed := range []string{
		"[]", "", "null", "- targets: [10.0.0.1:80]\n",
		`[{"targets": ["[::1]:80"], "labels": {"zone": "a", "capacity": 8}}]`,
		"- targets: ['10.0.0.1:80']\n  labels: {engine: triton, metrics_port: 8002, metrics_path: /metrics}\n",
		"- &a\n  targets: [*a]\n", "- targets: [10.0.0.1:80]\n  labels: &l {zone: a}\n- targets: []\n  labels: *l\n",
		"- <<: {targets: []}\n", "!!binary x\n", "---\n---\n", "[[[[[[[[[[", "{\"a\":", "- ? [a]\n  : b\n",
		"%YAML 1.1\n---\n[]", "\xff\xfe[\x00]\x00",
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, asJSON bool) {
		parse := parseYAML
		if asJSON {
			parse = parseJSON
		}
		document, err := parse(body)
		if err != nil {
			return
		}
		r := groupReader{path: "f"}
		r.groups(document)
		set, err := r.result()
		if err != nil {
			if set != nil {
				t.Errorf("a set in spite of %v", err)
			}
			return
		}
		again, err := Normalize(slices.Clone(set))
		if err != nil || !slices.Equal(set, again) {
			t.Errorf("read %v; normalized %v, %v", set, again, err)
		}
	})
}
