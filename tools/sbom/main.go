// Command sbom describes what Go binaries that are shipped together are made of, by the build information in them. It
// prints their modules with versions, checksums and licences, and the toolchain, in the CycloneDX format. It writes the
// texts of the licences to a file, because they have to be included where the binaries are passed on. A module without
// a licence is an error: nobody may pass it on.
package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/licensecheck"
	"golang.org/x/mod/module"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: sbom VERSION NOTICES BINARY...")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(version, notices string, binaries []string) error {
	parts, name, err := partsOf(binaries)
	if err != nil {
		return err
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{
		BOMRef: name, Type: cdx.ComponentTypeApplication, Name: name, Version: version,
	}}
	var components []cdx.Component
	var texts strings.Builder
	for _, p := range parts {
		c, err := p.component()
		if err != nil {
			return err
		}
		licences, err := p.licences()
		if err != nil {
			return err
		}
		for _, l := range licences {
			fmt.Fprintf(&texts, "%s\n%s %s: %s\n\n%s\n\n", strings.Repeat("=", 80), p.path, p.version, l.file,
				strings.TrimSpace(l.text))
		}
		c.Licenses = choices(licences)
		components = append(components, c)
	}
	bom.Components = &components
	if err := os.WriteFile(notices, []byte(texts.String()), 0o644); err != nil {
		return err
	}
	return cdx.NewBOMEncoder(os.Stdout, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

// choices are the licences as CycloneDX lists them, each once.
func choices(licences []licence) *cdx.Licenses {
	ids := make(map[string]bool)
	for _, l := range licences {
		for _, id := range l.ids {
			ids[id] = true
		}
	}
	var out cdx.Licenses
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		out = append(out, cdx.LicenseChoice{License: &cdx.License{ID: id}})
	}
	return &out
}

// part is a module, or the standard library.
type part struct {
	path, version string
	sum           string // as in go.sum; empty for the standard library
	folder        string // where its files are
}

// partsOf are the parts of all binaries, each once, and the name of the first binary's module.
func partsOf(binaries []string) (parts []part, name string, err error) {
	env, err := exec.Command("go", "env", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		return nil, "", fmt.Errorf("go env: %w", err)
	}
	root, cache, _ := strings.Cut(strings.TrimSpace(string(env)), "\n")
	all := make(map[string]part)
	for _, b := range binaries {
		info, err := buildinfo.ReadFile(b)
		if err != nil {
			return nil, "", fmt.Errorf("reading the build information of %s: %w", b, err)
		}
		if name == "" {
			name = info.Main.Path
		}
		all["std@"+info.GoVersion] = part{path: "std", version: info.GoVersion, folder: root}
		for _, m := range info.Deps {
			p, ours, err := partOf(m, cache)
			if err != nil {
				return nil, "", err
			}
			if !ours {
				all[p.path+"@"+p.version] = p
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		parts = append(parts, all[key])
	}
	return parts, name, nil
}

// partOf is a module of a binary. It is ours if it is a folder of this repository.
func partOf(m *debug.Module, cache string) (p part, ours bool, err error) {
	if m.Replace != nil {
		m = m.Replace
	}
	if m.Version == "" || m.Version == "(devel)" {
		return part{}, true, nil
	}
	path, err := module.EscapePath(m.Path)
	if err != nil {
		return part{}, false, err
	}
	version, err := module.EscapeVersion(m.Version)
	if err != nil {
		return part{}, false, err
	}
	folder := filepath.Join(cache, path+"@"+version)
	return part{path: m.Path, version: m.Version, sum: m.Sum, folder: folder}, false, nil
}

// component is the part without its licences. The checksum of a module is that of go.sum, a SHA-256 over the hashes of
// its files.
func (p part) component() (cdx.Component, error) {
	purl := "pkg:golang/" + p.path + "@" + p.version
	c := cdx.Component{
		BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: p.path, Version: p.version, PackageURL: purl,
	}
	if sum, ok := strings.CutPrefix(p.sum, "h1:"); ok {
		raw, err := base64.StdEncoding.DecodeString(sum)
		if err != nil {
			return c, fmt.Errorf("the checksum %q of %s: %w", p.sum, p.path, err)
		}
		c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(raw)}}
	}
	return c, nil
}

// licence is a file with a licence or a notice.
type licence struct {
	file, text string
	ids        []string // SPDX, of a licence
}

var (
	licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying)`)
	noticeFile  = regexp.MustCompile(`(?i)^(notice|patents)`)
)

// licences are those in the part's folder.
func (p part) licences() (out []licence, err error) {
	entries, err := os.ReadDir(p.folder)
	if err != nil {
		return nil, fmt.Errorf("the licence of %s %s: %w", p.path, p.version, err)
	}
	known := false
	for _, e := range entries {
		isLicence := licenceFile.MatchString(e.Name())
		if !e.Type().IsRegular() || !isLicence && !noticeFile.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(p.folder, e.Name()))
		if err != nil {
			return nil, err
		}
		l := licence{file: e.Name(), text: string(text)}
		for _, m := range licensecheck.Scan(text).Match {
			if isLicence && !m.IsURL {
				l.ids = append(l.ids, m.ID)
			}
		}
		known = known || len(l.ids) > 0
		out = append(out, l)
	}
	if !known {
		return nil, errors.New("no file in " + p.folder + " has a licence that is known")
	}
	return out, nil
}
