package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"steelyard/e2e/rig/proc"
)

// recorder is a program that writes how it was called to a file, and answers as the one of its name.
const recorder = `#!/bin/sh
name=$(basename "$0")
printf '%s %s\n' "$name" "$*" >>"$CALLS"
case "$name $*" in
*' imagetools inspect '*) echo sha256:base ;;
*' build '*)
    while [ "$1" != --metadata-file ]; do shift; done
    echo '{"containerimage.digest": "sha256:image"}' >"$2" ;;
'helm push '*) printf 'Pushed: x\nDigest: sha256:chart\n' >&2 ;;
esac
`

// TestWhatIsPublishedIsSignedByItsDigest runs the script of the release workflow with recorders in place of docker,
// helm and cosign.
func TestWhatIsPublishedIsSignedByItsDigest(t *testing.T) {
	root, err := proc.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"docker", "helm", "cosign"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(recorder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	calls := filepath.Join(dir, "calls")
	publish := exec.CommandContext(t.Context(), filepath.Join(root, "tools/publish.sh"), "1.2.3", "ghcr.io/o")
	publish.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "CALLS="+calls, "DIST="+dir)
	if out, err := publish.CombinedOutput(); err == nil || !strings.Contains(string(out), "has no chart of 1.2.3") {
		t.Fatalf("without what is to be published: %v, %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, "steelyard-chart-1.2.3.tgz"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	again := exec.CommandContext(t.Context(), publish.Path, publish.Args[1:]...)
	again.Env = publish.Env
	if out, err := again.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, want := range []string{
		"cosign sign --yes ghcr.io/o/steelyard@sha256:image",
		"cosign sign --yes ghcr.io/o/steelyard-router@sha256:image",
		"helm push " + dir + "/steelyard-chart-1.2.3.tgz oci://ghcr.io/o/charts",
		"cosign sign --yes ghcr.io/o/charts/steelyard@sha256:chart",
		"cosign sign-blob --yes --bundle " + dir + "/checksums.txt.sigstore.json " + dir + "/checksums.txt",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("there is no call %q in\n%s", want, text)
		}
	}
	for name, builds := range map[string][]string{
		"steelyard":        {"--build-arg BASE=gcr.io/distroless/static-debian12:nonroot@sha256:base"},
		"steelyard-router": {"--target router", "--build-arg ENVOY=envoyproxy/envoy:v1.40.0@sha256:base"},
	} {
		at := slices.IndexFunc(got, func(call string) bool {
			return strings.Contains(call, "name=ghcr.io/o/"+name+":1.2.3,")
		})
		if at < 0 {
			t.Fatalf("%s is not built:\n%s", name, text)
		}
		for _, want := range append(builds, "--platform linux/amd64,linux/arm64", "--sbom=true",
			"--provenance=mode=max", "--build-arg VERSION=1.2.3", "push=true") {
			if !strings.Contains(got[at], want) {
				t.Errorf("the build of %s has no %s: %s", name, want, got[at])
			}
		}
	}
}
