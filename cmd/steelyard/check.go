package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"steelyard/cmd/internal/daemon"
	"steelyard/controlplane/config"
	"steelyard/controlplane/discovery"
)

func checkCommand() *cobra.Command {
	var path string
	var asJSON, noFiles bool
	c := &cobra.Command{
		Use:   "check --config FILE",
		Short: "Check a configuration and the files that it names, and do nothing else",
		Long: `Check a configuration and do nothing else. FILE may be - for standard input. Run it
on the machine of serve, because it also reads the keys, certificates, passwords, tokens
and lists of endpoints that the file names. With --no-files it does not, as in CI.

Each line is FILE:LINE:COLUMN, what is wrong, and what to write. A warning is probably
a mistake: a list of endpoints that does not exist yet, a ${…} that nothing expands, a
label that resembles a known one. The exit status is 1 after an error, and 0 if there
are only warnings.`,
		Example: `  steelyard check -c steelyard.yaml
  helm template steelyard manifests/chart --show-only templates/config.yaml |
    yq '.data["steelyard.yaml"]' | steelyard check --no-files -c -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			checked, err := check(cmd, path, noFiles)
			if err != nil {
				return err
			}
			return checked.print(cmd.OutOrStdout(), cmd.ErrOrStderr(), asJSON)
		},
	}
	configFlag(c, &path)
	c.Flags().BoolVar(&noFiles, "no-files", false, "do not read what the configuration names: keys, tokens, lists")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON on standard output, errors and warnings too")
	return c
}

// The severities of a finding.
const (
	severityError   = "error"
	severityWarning = "warning"
)

// A finding is an error or a warning with its place.
type finding struct {
	Severity string `json:"severity"`
	config.Problem
}

// checked is the outcome of a check.
type checked struct {
	File     string    `json:"file"`
	OK       bool      `json:"ok"`
	Clusters []string  `json:"clusters"` // empty where there is an error
	Findings []finding `json:"findings"`
}

// stdinName stands for standard input in messages.
const stdinName = "stdin"

// readConfig reads a configuration, or standard input (-), and returns its name for messages.
func readConfig(cmd *cobra.Command, path string) (name string, text []byte, err error) {
	if path == "-" {
		text, err = readLimited(cmd.InOrStdin(), "standard input")
		return stdinName, text, err
	}
	text, err = config.Read(cmd.Context(), path)
	return path, text, err
}

// check reads the configuration and, unless noFiles, what it names. It fails only where nothing can be read.
func check(cmd *cobra.Command, path string, noFiles bool) (checked, error) {
	name, data, err := readConfig(cmd, path)
	if err != nil {
		return checked{}, err
	}
	out := checked{File: name, Clusters: []string{}, Findings: []finding{}}
	var listed checked
	lists := func(cfg *config.Config, c *config.Checker) {
		for i := range cfg.Clusters {
			listed.list(cmd.Context(), &cfg.Clusters[i].Endpoints.File, c)
		}
	}
	further := []config.Check{daemon.CheckSelectors}
	if !noFiles {
		further = append(further, daemon.CheckFiles, lists)
	}
	cfg, warnings, err := config.Examine(name, data, further...)
	var all *config.Error
	switch {
	case errors.As(err, &all):
		for _, p := range all.Problems {
			out.add(severityError, *p)
		}
	case err != nil:
		return checked{}, err
	}
	for _, w := range warnings {
		out.add(severityWarning, *w)
	}
	out.Findings = append(out.Findings, listed.Findings...)
	if cfg != nil {
		out.Clusters = clusterNames(cfg)
	}
	out.OK = !out.failed()
	return out, nil
}

// list checks a list of endpoints. One that is not there is a warning at the key that names it, and one that cannot be
// read is an error there.
func (c *checked) list(ctx context.Context, path *string, key *config.Checker) {
	if *path == "" || !daemon.Exists(*path) {
		return
	}
	_, unused, err := discovery.CheckFile(ctx, *path)
	switch {
	case err != nil && !place.MatchString(err.Error()):
		key.Fail(path, "%v", err)
	case err != nil:
		for line := range strings.Lines(err.Error()) {
			c.addLine(severityError, *path, line)
		}
	}
	for _, o := range unused {
		c.addLine(severityWarning, *path, o.String())
	}
}

var place = regexp.MustCompile(`(?m)^(.+?):(\d+):(\d+): (.*)$`)

// addLine takes a line that begins with its place, or concerns the whole file.
func (c *checked) addLine(severity, file, line string) {
	line = strings.TrimSpace(line)
	p := config.Problem{File: file, Line: 1, Column: 1, Text: line}
	if m := place.FindStringSubmatch(line); m != nil {
		p.File, p.Text = m[1], m[4]
		p.Line, _ = strconv.Atoi(m[2])
		p.Column, _ = strconv.Atoi(m[3])
	}
	c.add(severity, p)
}

func (c *checked) add(severity string, p config.Problem) {
	c.Findings = append(c.Findings, finding{severity, p})
}

func (c *checked) failed() bool {
	return slices.ContainsFunc(c.Findings, func(f finding) bool { return f.Severity == severityError })
}

// maxFindings is how many of them are printed for people.
const maxFindings = 20

// print writes the outcome: errors and warnings to the second writer, or all as JSON to the first.
func (c *checked) print(out, errs io.Writer, asJSON bool) error {
	if asJSON {
		if err := printJSON(out, c); err != nil {
			return err
		}
	} else {
		c.printText(out, errs)
	}
	if !c.OK {
		return errNotWell
	}
	return nil
}

func (c *checked) printText(out, errs io.Writer) {
	for i, f := range c.Findings {
		text := f.Text
		if f.Severity == severityWarning {
			text = "warning: " + text
		}
		if i == maxFindings {
			text = fmt.Sprintf("and %d more from here on", len(c.Findings)-i)
		}
		fmt.Fprintf(errs, "%s:%d:%d: %s\n", f.File, f.Line, f.Column, text)
		if i == maxFindings {
			break
		}
	}
	if c.OK {
		what := "clusters"
		if len(c.Clusters) == 1 {
			what = "cluster"
		}
		fmt.Fprintf(out, "%s: ok, %d %s\n", c.File, len(c.Clusters), what)
	}
}
