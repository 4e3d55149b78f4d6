package manifests

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	root      = "../.."
	manifests = root + "/manifests"
	namespace = "steelyard"
)

// An object is one of Kubernetes.
type object = *unstructured.Unstructured

// name returns how tests and their messages call an object.
func name(o object) string {
	return strings.Trim(fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName()), "/")
}

// overlays returns the folders below manifests that kubectl apply -k takes.
func overlays(t *testing.T) (out []string) {
	t.Helper()
	for _, pattern := range []string{"base", "overlays/*", "components/*"} {
		found, err := filepath.Glob(filepath.Join(manifests, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			relative, err := filepath.Rel(manifests, path)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, relative)
		}
	}
	if len(out) < 8 {
		t.Fatalf("only %v", out)
	}
	return out
}

// buildIn builds folders in another namespace, as manifests/names says.
func buildIn(t *testing.T, namespace string, folders ...string) []object {
	t.Helper()
	own, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Abs(manifests)
	if err != nil {
		t.Fatal(err)
	}
	from, err := filepath.Rel(own, all)
	if err != nil {
		t.Fatal(err)
	}
	text := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: " + namespace +
		"\ntransformers: [" + from + "/names]\nresources:\n"
	for _, folder := range folders {
		text += "- " + filepath.Join(from, folder) + "\n"
	}
	if err := os.WriteFile(filepath.Join(own, "kustomization.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return buildAt(t, own)
}

// build is kubectl kustomize.
func build(t *testing.T, folder string) []object {
	t.Helper()
	return buildAt(t, filepath.Join(manifests, folder))
}

func buildAt(t *testing.T, folder string) []object {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatalf("%s: %v", folder, err)
	}
	text, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, folder, text)
}

// render is helm template, with a file of values besides the chart's own and some more on top.
func render(t *testing.T, file string, more map[string]any) []object {
	t.Helper()
	return renderIn(t, namespace, file, more)
}

func renderIn(t *testing.T, namespace, file string, more map[string]any) []object {
	t.Helper()
	files, err := renderAs(t, "steelyard", namespace, file, more)
	if err != nil {
		t.Fatal(err)
	}
	return objectsOf(t, files)
}

// renderAs is helm template of a release, by file.
func renderAs(t *testing.T, release, namespace, file string, more map[string]any) (map[string]string, error) {
	t.Helper()
	chart, err := loader.LoadDir(filepath.Join(manifests, "chart"))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if file != "" {
		if values, err = common.ReadValuesFile(filepath.Join(manifests, "chart", file)); err != nil {
			t.Fatal(err)
		}
	}
	maps.Copy(values, more)
	all, err := util.ToRenderValues(chart, values,
		common.ReleaseOptions{Name: release, Namespace: namespace, IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, all)
}

// objectsOf are what helm install applies: neither notes nor tests.
func objectsOf(t *testing.T, files map[string]string) (objects []object) {
	t.Helper()
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if filepath.Ext(path) == ".yaml" && !strings.Contains(path, "/tests/") {
			objects = append(objects, parse(t, path, []byte(files[path]))...)
		}
	}
	return objects
}

// parse reads the objects of a file. A key that is there twice is an error.
func parse(t *testing.T, where string, text []byte) (objects []object) {
	t.Helper()
	for i, document := range bytes.Split(append([]byte("\n"), text...), []byte("\n---\n")) {
		var content map[string]any
		if err := yaml.UnmarshalStrict(document, &content); err != nil {
			t.Fatalf("%s, document %d: %v\n%s", where, i+1, err, document)
		}
		if len(content) > 0 {
			objects = append(objects, &unstructured.Unstructured{Object: content})
		}
	}
	return objects
}

// find returns the object of that kind and name.
func find(t *testing.T, objects []object, kind, called string) object {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == called {
			return o
		}
	}
	t.Fatalf("there is no %s %s", kind, called)
	return nil
}

// at returns what stands at a path of an object.
func at[T any](t *testing.T, o object, path ...string) T {
	t.Helper()
	value, found, err := unstructured.NestedFieldNoCopy(o.Object, path...)
	if err != nil || !found {
		t.Fatalf("%s has no %s: %v", name(o), strings.Join(path, "."), err)
	}
	typed, ok := value.(T)
	if !ok {
		t.Fatalf("%s of %s is a %T", strings.Join(path, "."), name(o), value)
	}
	return typed
}
