package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"steelyard/e2e/rig/proc"
)

// recorder is a program that writes how it was called to a file, and answers as the one of its name.
const recorder = `#!/bin/sh
name=$(basename "$0")
printf '%s %s\n' "$name" "$*" >>"$CALLS"
case "$name $*" in
'make release '*) mkdir dist; touch dist/checksums.txt dist/steelyard-chart-1.2.3.tgz ;;
'git log '*) echo 1700000000 ;;
*' imagetools inspect '*) echo sha256:base ;;
*' build '*)
    while [ "$1" != --metadata-file ]; do shift; done
    echo '{"containerimage.digest": "sha256:image"}' >"$2" ;;
*' login '*) read -r password && [ "$password" = secret ] ;;
'helm push '*) printf 'Pushed: x\nDigest: sha256:chart\n' >&2 ;;
esac
`

// TestADryRunOfTheReleaseWorkflowSignsWhatItPublishesByItsDigest runs the steps of the workflow with recorders in place
// of what builds, logs in, pushes and signs.
func TestADryRunOfTheReleaseWorkflowSignsWhatItPublishesByItsDigest(t *testing.T) {
	root, err := proc.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "tools"), os.DirFS(filepath.Join(root, "tools"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"make", "git", "docker", "helm", "cosign", "gh"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(recorder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	calls := filepath.Join(dir, "calls")
	run := func(script string, env ...string) (string, error) {
		step := exec.CommandContext(t.Context(), "bash", "-e", "-c", script)
		step.Dir = dir
		step.Env = append(os.Environ(), append(env, "PATH="+dir+":"+os.Getenv("PATH"), "CALLS="+calls,
			"GITHUB_OUTPUT="+filepath.Join(dir, "outputs"), "GITHUB_REF_NAME=v1.2.3", "GITHUB_REPOSITORY_OWNER=O",
			"GITHUB_ACTOR=a")...)
		out, err := step.CombinedOutput()
		return string(out), err
	}
	if out, err := run("tools/publish.sh 1.2.3 ghcr.io/o"); err == nil ||
		!strings.Contains(out, "has no chart of 1.2.3") {
		t.Fatalf("without what is to be published: %v, %s", err, out)
	}
	for _, s := range releaseSteps(t, root) {
		var env []string
		for name, value := range s.Env {
			env = append(env, name+"="+evaluated(t, value, filepath.Join(dir, "outputs")))
		}
		if out, err := run(s.Run, env...); err != nil {
			t.Fatalf("%s: %v: %s", s.Run, err, out)
		}
	}
	text, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	checkCalls(t, strings.Split(strings.TrimSpace(string(text)), "\n"))
}

// A step is one of the workflow.
type step struct {
	Run string
	Env map[string]string
}

// releaseSteps returns what the job runs that publishes. It waits for all tests.
func releaseSteps(t *testing.T, root string) []step {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, ".github/workflows/release.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var workflow struct {
		Jobs map[string]struct {
			Uses, Needs string
			Steps       []step
		}
	}
	if err := yaml.Unmarshal(text, &workflow); err != nil {
		t.Fatal(err)
	}
	job := workflow.Jobs["release"]
	if tests := workflow.Jobs[job.Needs].Uses; tests != "./.github/workflows/test.yml" {
		t.Errorf("it publishes after %q (%q), want after all tests", job.Needs, tests)
	}
	return slices.DeleteFunc(job.Steps, func(s step) bool { return s.Run == "" })
}

var expression = regexp.MustCompile(`\$\{\{ (.*?) \}\}`)

// evaluated is a value of the workflow, with what steps before have written.
func evaluated(t *testing.T, value, outputs string) string {
	t.Helper()
	return expression.ReplaceAllStringFunc(value, func(found string) string {
		of := expression.FindStringSubmatch(found)[1]
		if of == "github.token" {
			return "secret"
		}
		written, _ := os.ReadFile(outputs)
		_, rest, ok := strings.Cut(string(written), strings.TrimPrefix(of, "steps.names.outputs.")+"=")
		if !ok {
			t.Fatalf("no step has written %s: %s", of, written)
		}
		value, _, _ := strings.Cut(rest, "\n")
		return value
	})
}

func checkCalls(t *testing.T, got []string) {
	t.Helper()
	at := 0
	for _, want := range []string{ // in this order
		"make release VERSION=1.2.3 REGISTRY=ghcr.io/o",
		"docker login ghcr.io --username a --password-stdin",
		"cosign sign --yes ghcr.io/o/steelyard@sha256:image",
		"cosign sign --yes ghcr.io/o/steelyard-router@sha256:image",
		"helm push dist/steelyard-chart-1.2.3.tgz oci://ghcr.io/o/charts",
		"cosign sign --yes ghcr.io/o/charts/steelyard@sha256:chart",
		"cosign sign-blob --yes --bundle dist/checksums.txt.sigstore.json dist/checksums.txt",
		"gh release create v1.2.3 --draft --verify-tag --title v1.2.3 dist/checksums.txt " +
			"dist/steelyard-chart-1.2.3.tgz",
	} {
		next := slices.Index(got[at:], want)
		if next < 0 {
			t.Fatalf("there is no call %q in its place in\n%s", want, strings.Join(got, "\n"))
		}
		at += next
	}
	for name, builds := range map[string][]string{
		"steelyard":        {"--build-arg BASE=gcr.io/distroless/static-debian12:nonroot@sha256:base"},
		"steelyard-router": {"--target router", "--build-arg ENVOY=envoyproxy/envoy:v1.40.0@sha256:base"},
	} {
		at := slices.IndexFunc(got, func(call string) bool {
			return strings.Contains(call, "name=ghcr.io/o/"+name+":1.2.3,")
		})
		if at < 0 {
			t.Fatalf("%s is not built:\n%s", name, strings.Join(got, "\n"))
		}
		for _, want := range append(builds, "--platform linux/amd64,linux/arm64", "--sbom=true",
			"--provenance=mode=max", "--build-arg VERSION=1.2.3", "SOURCE_DATE_EPOCH=1700000000", "push=true") {
			if !strings.Contains(got[at], want) {
				t.Errorf("the build of %s has no %s: %s", name, want, got[at])
			}
		}
	}
}
