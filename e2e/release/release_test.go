//go:build long

package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/testbed"
)

// TestAReleaseHoldsWhatItSaysAndIsReproducible: the archives of the platforms of the image. Their binaries are static,
// and the same when they are built elsewhere with the flags of the Dockerfile, so that the image has those of the
// archives.
func TestAReleaseHoldsWhatItSaysAndIsReproducible(t *testing.T) {
	t.Parallel()
	root, err := proc.Root()
	if err != nil {
		t.Fatal(err)
	}
	const version = "9.8.7"
	dist, chartFile := filepath.Join(t.TempDir(), "dist"), "steelyard-chart-"+version+".tgz"
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	listed := []string{chartFile}
	var platforms []string
	for arch := range machines {
		platforms = append(platforms, "linux/"+arch)
		name := "steelyard_" + version + "_linux_" + arch
		listed = append(listed, name+".tar.gz", name+".cdx.json")
	}
	release := background(t, filepath.Join(root, "tools/release.sh"), version)
	release.Env = append(os.Environ(), "DIST="+dist, "PLATFORMS="+strings.Join(platforms, " "), "REGISTRY=ghcr.io/o")
	if out, err := release.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	checkSums(t, dist, listed...)
	for arch, machine := range machines {
		checkArchive(t, root, dist, version, arch, machine)
	}
	chart := unpack(t, filepath.Join(dist, chartFile))
	if text := string(chart["steelyard/Chart.yaml"]); !strings.Contains(text, "\nappVersion: "+version+"\n") {
		t.Errorf("the chart is of another version:\n%s", text)
	}
	if !bytes.Contains(chart["steelyard/values.yaml"], []byte("\n  repository: ghcr.io/o/steelyard\n")) {
		t.Errorf("the chart takes its image from elsewhere:\n%s", chart["steelyard/values.yaml"])
	}
	if len(chart["steelyard/files/alerts.yaml"]) == 0 {
		t.Error("the chart has no rules")
	}
}

// background is a command that leaves the CPU to the other tests: compilers take all that there is, for a minute.
func background(t *testing.T, command ...string) *exec.Cmd {
	return exec.CommandContext(t.Context(), "nice", append([]string{"-n", "19"}, command...)...)
}

// checkArchive checks the archive of a platform.
func checkArchive(t *testing.T, root, dist, version, arch string, machine elf.Machine) {
	t.Helper()
	name := "steelyard_" + version + "_linux_" + arch
	files := unpack(t, filepath.Join(dist, name+".tar.gz"))
	for _, want := range []string{"LICENSE", "README.md", "CHANGELOG.md", "steelyard.example.yaml",
		"completions/steelyard.bash", "completions/_steelyard", "completions/steelyard.fish",
		"prometheus/alerts.yaml", "prometheus/inhibit.yaml", "prometheus/recording.yaml", "prometheus/steelyard.json",
		"systemd/steelyard.service", "systemd/steelyard.conf"} {
		if len(files[name+"/"+want]) == 0 {
			t.Errorf("the archive for %s has no %s", arch, want)
		}
	}
	hasWhatItLinksTo(t, files, name+"/")
	isHardened(t, string(files[name+"/systemd/steelyard.service"]))
	binary := filepath.Join(t.TempDir(), "steelyard")
	if err := os.WriteFile(binary, files[name+"/steelyard"], 0o755); err != nil {
		t.Fatal(err)
	}
	isStatic(t, binary, machine)
	isTheModule(t, files[name+"/libsteelyard.so"], machine)
	if arch == runtime.GOARCH {
		envoyLoads(t, files[name+"/libsteelyard.so"])
		out, err := exec.CommandContext(t.Context(), binary, "--version").CombinedOutput()
		if err != nil || !strings.Contains(string(out), version) {
			t.Errorf("--version: %v, %s", err, out)
		}
	}
	hasLicences(t, filepath.Join(dist, name+".cdx.json"), string(files[name+"/THIRD_PARTY_NOTICES.txt"]))
	again := buildAsTheImage(t, root, version, arch)
	if sha256.Sum256(again) != sha256.Sum256(files[name+"/steelyard"]) {
		t.Errorf("built elsewhere, the binary for %s is another one (%d and %d bytes)", arch, len(again),
			len(files[name+"/steelyard"]))
	}
}

// hasWhatItLinksTo checks the relative links of the README in the folder of an archive.
func hasWhatItLinksTo(t *testing.T, files map[string][]byte, folder string) {
	t.Helper()
	links := regexp.MustCompile(`\]\(([^):#]+)[)#]`).FindAllStringSubmatch(string(files[folder+"README.md"]), -1)
	if len(links) < 10 {
		t.Errorf("the README of %s has only the links %q", folder, links)
	}
	for _, link := range links {
		there := false
		for name := range files {
			there = there || name == folder+link[1] || strings.HasPrefix(name, folder+link[1]+"/")
		}
		if !there {
			t.Errorf("the README of %s links to %s, which is not in the archive", folder, link[1])
		}
	}
}

// checkSums compares the files with checksums.txt, which lists these and no others.
func checkSums(t *testing.T, dist string, want ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dist, "checksums.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		listed = append(listed, name)
		body, err := os.ReadFile(filepath.Join(dist, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(body)); got != sum {
			t.Errorf("%s has the checksum %s, listed is %s", name, got, sum)
		}
	}
	slices.Sort(listed)
	slices.Sort(want)
	if !slices.Equal(listed, want) {
		t.Errorf("checksums of %v, want those of %v", listed, want)
	}
}

// unpack returns the files of an archive.
func unpack(t *testing.T, path string) map[string][]byte {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	packed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string][]byte)
	for archive := tar.NewReader(packed); ; {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		if head.Uid != 0 || head.Mode&0o022 != 0 {
			t.Errorf("%s in %s belongs to %d and has mode %o", head.Name, path, head.Uid, head.Mode)
		}
		body, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[head.Name] = body
	}
}

// isStatic checks that a binary is one for this machine, and needs no library, as the image has none.
func isStatic(t *testing.T, path string, machine elf.Machine) {
	t.Helper()
	binary, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	if binary.Machine != machine {
		t.Errorf("it is for %s, want %s", binary.Machine, machine)
	}
	libraries, err := binary.ImportedLibraries()
	if err != nil || len(libraries) > 0 {
		t.Errorf("it needs the libraries %v, %v", libraries, err)
	}
	for _, p := range binary.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("it needs a dynamic linker")
		}
	}
}

// isTheModule checks the library next to the program, where steelyard router looks for it: what Envoy calls first, and
// that no image of Envoy has too old a C library for it.
func isTheModule(t *testing.T, body []byte, machine elf.Machine) {
	t.Helper()
	library, err := elf.NewFile(bytes.NewReader(body))
	if err != nil {
		t.Fatalf("libsteelyard.so, %d bytes: %v", len(body), err)
	}
	if library.Machine != machine {
		t.Errorf("libsteelyard.so is for %s, want %s", library.Machine, machine)
	}
	symbols, err := library.DynamicSymbols()
	if err != nil || !slices.ContainsFunc(symbols, func(s elf.Symbol) bool {
		return s.Name == "envoy_dynamic_module_on_program_init" && s.Section != elf.SHN_UNDEF
	}) {
		t.Errorf("libsteelyard.so has not what Envoy calls first (%v)", err)
	}
	needs := 0
	for _, s := range symbols {
		const newest = 28 // glibc 2.28
		var minor int
		if n, _ := fmt.Sscanf(s.Version, "GLIBC_2.%d", &minor); n == 0 {
			continue
		}
		needs++
		if minor > newest {
			t.Errorf("libsteelyard.so for %s needs %s of %s", machine, s.Name, s.Version)
		}
	}
	if needs == 0 {
		t.Errorf("libsteelyard.so for %s needs no function of a C library", machine)
	}
}

// envoyLoads checks that Envoy accepts the module with a configuration that has it.
func envoyLoads(t *testing.T, module []byte) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "libsteelyard.so"), module, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := testbed.ValidateModule(t, dir); err != nil {
		t.Errorf("Envoy does not load the module of the archive: %v\n%s", err, out)
	}
}

// isHardened checks the unit: one section after the other, each key once but for those that add up, a command line that
// the binary has, and what keeps a process to its files and the network.
func isHardened(t *testing.T, unit string) {
	t.Helper()
	section, keys := "", map[string][]string{}
	for line := range strings.Lines(unit) {
		line = strings.TrimRight(line, "\n")
		switch key, value, found := strings.Cut(line, "="); {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
		case !found || section == "" || strings.ContainsAny(key, " #"):
			t.Errorf("the unit has the line %q", line)
		default:
			keys[section+"."+key] = append(keys[section+"."+key], value)
		}
	}
	for key, values := range keys {
		if len(values) > 1 && key != "Service.SystemCallFilter" {
			t.Errorf("the unit has %s more than once: %v", key, values)
		}
	}
	for key, want := range map[string]string{
		"Service.ExecStart":       "/usr/local/bin/steelyard serve --config /etc/steelyard/steelyard.yaml",
		"Service.User":            "steelyard",
		"Service.NoNewPrivileges": "yes", "Service.ProtectSystem": "strict", "Service.ProtectHome": "yes",
		"Service.PrivateDevices": "yes", "Service.CapabilityBoundingSet": "", "Service.RestrictNamespaces": "yes",
		"Service.MemoryDenyWriteExecute": "yes", "Service.SystemCallFilter": "@system-service",
		"Install.WantedBy": "multi-user.target",
	} {
		if got := keys[key]; len(got) == 0 || got[0] != want {
			t.Errorf("the unit has %s=%q, want %q", key, got, want)
		}
	}
}

// hasLicences checks an SBOM and the notices next to the binaries: each part with its licence, and no embedded Redis,
// which is the demo's.
func hasLicences(t *testing.T, path, notices string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		BOMFormat  string `json:"bomFormat"`
		Components []struct {
			Name, Version string
			Licenses      []struct{ License struct{ ID string } }
		}
	}
	if err := json.Unmarshal(text, &bom); err != nil {
		t.Fatal(err)
	}
	if bom.BOMFormat != "CycloneDX" || len(bom.Components) < 10 {
		t.Errorf("the SBOM is of the format %q and has %d components", bom.BOMFormat, len(bom.Components))
	}
	for _, c := range bom.Components {
		if strings.Contains(c.Name, "miniredis") || c.Version == "" {
			t.Errorf("the SBOM has %s %q", c.Name, c.Version)
		}
		if len(c.Licenses) == 0 || c.Licenses[0].License.ID == "" {
			t.Errorf("the SBOM has no licence of %s", c.Name)
		}
		if !strings.Contains(notices, "\n"+c.Name+" "+c.Version+": LICENSE") {
			t.Errorf("the notices have no licence of %s %s", c.Name, c.Version)
		}
	}
}

// buildAsTheImage builds a copy of the sources with the command of the Dockerfile.
func buildAsTheImage(t *testing.T, root, version, arch string) []byte {
	t.Helper()
	dockerfile, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?s)\nRUN (CGO_ENABLED=.*?)\n\n`).FindStringSubmatch(string(dockerfile))
	if command == nil {
		t.Fatal("the Dockerfile does not build the binary")
	}
	dir := t.TempDir()
	script := fmt.Sprintf("set -e; cd '%s'; git ls-files -z --cached --others --exclude-standard | "+
		"xargs -0 cp --parents --no-dereference -t '%s'; cd '%s'; %s",
		root, dir, dir, strings.ReplaceAll(command[1], " /", " '"+dir+"'/"))
	build := background(t, "bash", "-c", script)
	build.Env = append(os.Environ(), "TARGETOS=linux", "TARGETARCH="+arch, "VERSION="+version)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if notices, err := os.ReadFile(filepath.Join(dir, "THIRD_PARTY_NOTICES.txt")); err != nil || len(notices) < 1e5 {
		t.Errorf("the notices of the image have %d bytes, %v", len(notices), err)
	}
	body, err := os.ReadFile(filepath.Join(dir, "steelyard"))
	if err != nil {
		t.Fatal(err)
	}
	return body
}
