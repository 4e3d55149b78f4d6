package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// quotedCommand is a command line between backquotes, and shownCommand one on a line of its own.
var (
	quotedCommand = regexp.MustCompile("`(?:bin/)?(steelyard [a-z][^`\n]*)`")
	shownCommand  = regexp.MustCompile(`(?m)^(?:    |  )(?:.*[|] )?(?:\S*bin/)?(steelyard [a-z].*)$`)
)

// TestTheCommandsOfTheDocumentsParse runs every steelyard command line that a document, an example or a message shows,
// up to where it would do something.
func TestTheCommandsOfTheDocumentsParse(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, path := range append(files, "../../README.md", "../../CONTRIBUTING.md") {
		body, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(body), "\\\n", " ") // a command on several lines
		for _, m := range quotedCommand.FindAllStringSubmatch(text, -1) {
			seen++
			if err := parses(m[1], true); err != nil {
				t.Errorf("%s has %q: %v", path, m[1], err)
			}
		}
		for _, m := range shownCommand.FindAllStringSubmatch(text, -1) {
			seen++
			if err := parses(m[1], false); err != nil {
				t.Errorf("%s shows %q: %v", path, m[1], err)
			}
		}
	}
	if seen < 60 {
		t.Errorf("only %d command lines were found", seen)
	}
	eachCommand(root(), func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			if m := shownCommand.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
				if err := parses(m[1], false); err != nil {
					t.Errorf("the help of %s shows %q: %v", c.Name(), m[1], err)
				}
			}
		}
	})
}

// yamlBlock is a fenced block of a document.
var yamlBlock = regexp.MustCompile("(?s)\n *```yaml\n(.*?)\n *```\n")

// TestTheCommandsOfTheDocumentsRun runs what the documents show, in their order and in a folder with the files of
// get-started.md, against a running Steelyard. Simulations are short; what goes on for ever is only parsed, above.
func TestTheCommandsOfTheDocumentsRun(t *testing.T) {
	kubernetesAPI(t, llamaPool, llamaService)
	r := serveForReal(t, "")
	files := filesOfTheDocuments(t)
	paths, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	ran := map[string]int{}
	for _, path := range append([]string{"../../README.md", "../../docs/get-started.md"}, paths...) {
		body, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		dir := write(t, files)
		for _, m := range shownCommand.FindAllStringSubmatch(strings.ReplaceAll(string(body), "\\\n", " "), -1) {
			words, err := shellWords(m[1])
			if err != nil || !runsByItself(words) {
				continue
			}
			args := made(words[1:], r)
			code, out, errs := r.runIn(dir, "anna", args...)
			if code != 0 && !(code == 1 && args[0] == "status") { // no Envoy follows, which is an incident
				t.Errorf("%s shows %q: status %d\n%s%s", path, m[1], code, out, errs)
			}
			if _, file, into := strings.Cut(m[1], " > "); into {
				err := os.WriteFile(filepath.Join(dir, strings.Fields(file)[0]), []byte(out), 0o600)
				if err != nil || out == "" {
					t.Errorf("%s shows %q, which prints %q: %v", path, m[1], out, err)
				}
			}
			ran[args[0]]++
		}
	}
	for _, command := range []string{"bootstrap", "check", "drain", "events", "inspect", "log-level", "pin", "schema",
		"simulate", "status", "top", "undrain"} {
		if ran[command] == 0 {
			t.Errorf("steelyard %s was not run: %v", command, ran)
		}
	}
}

// filesOfTheDocuments are those that the commands of the documents read.
func filesOfTheDocuments(t *testing.T) map[string]string {
	t.Helper()
	body, err := os.ReadFile("../../docs/get-started.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := yamlBlock.FindAllStringSubmatch(string(body), -1)
	if len(blocks) != 2 {
		t.Fatalf("get-started.md has %d blocks of YAML, want a configuration and a list of endpoints", len(blocks))
	}
	trace := "TIMESTAMP,ContextTokens,GeneratedTokens\n"
	for i := range 60 {
		trace += fmt.Sprintf("2023-11-16 18:%02d:%02d.0000000,%d,%d\n", 15+i/60, i%60, 300+10*i, 40+i)
	}
	return map[string]string{"steelyard.yaml": blocks[0][1], "embeddings.yaml": blocks[1][1], "mine.csv": trace}
}

// runsByItself reports whether a command of a document comes to an end here.
func runsByItself(words []string) bool {
	switch {
	case len(words) < 2 || strings.ContainsAny(strings.Join(words, " "), "…"):
		return false
	case words[1] == "serve" || words[1] == "picker" || words[1] == "router":
		return false // until they are stopped
	}
	return true
}

// made are the arguments for the running Steelyard: its endpoint, and an end where there would be none.
func made(words []string, r *running) []string {
	args := make([]string, 0, len(words)+2)
	for i, w := range words {
		switch {
		case w == "--follow":
			continue
		case i > 0 && words[i-1] == "--duration" || w == "--duration":
			continue
		}
		args = append(args, strings.ReplaceAll(w, "10.0.0.1:8000", r.servers[0]))
	}
	simulates := args[0] == "simulate" && !slices.Contains(args, "--list") && !slices.Contains(args, "--print")
	switch {
	case simulates && slices.Contains(args, "stall"): // after ten minutes
		args = append(args, "--duration", "11m")
	case simulates:
		args = append(args, "--duration", "10s")
	case args[0] == "top" && !slices.Contains(args, "--count"):
		args = append(args, "--count", "1")
	}
	return args
}

// TestTheConfigurationsOfTheDocumentsPassCheck: every block of YAML is a configuration that steelyard check takes, or
// something else that another test does.
func TestTheConfigurationsOfTheDocumentsPassCheck(t *testing.T) {
	others := []string{"apiVersion: ", "static_resources:", "- name: envoy.", "# embeddings.yaml"}
	paths, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, path := range append(paths, "../../README.md") {
		body, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range yamlBlock.FindAllStringSubmatch(string(body), -1) {
			of := func(other string) bool { return strings.HasPrefix(strings.TrimSpace(m[1]), other) }
			if slices.ContainsFunc(others, of) {
				continue
			}
			checked++
			file := filepath.Join(write(t, map[string]string{"steelyard.yaml": m[1]}), "steelyard.yaml")
			c := root()
			var out bytes.Buffer
			c.SetOut(&out)
			c.SetErr(&out)
			c.SetArgs([]string{"check", "--config", file})
			if err := c.Execute(); err != nil {
				t.Errorf("%s: %v\n%s\n%s", path, err, out.String(), m[1])
			}
		}
	}
	if checked < 3 {
		t.Errorf("only %d configurations were found", checked)
	}
}

// parses checks the options and arguments of a command line, and runs nothing. One in a sentence may leave out what is
// required: it stands for the command, or for an option of it.
func parses(line string, inSentence bool) error {
	words, err := shellWords(line)
	if err != nil {
		return err
	}
	if len(words) == 1 { // the command by its name, in a text
		return nil
	}
	c := root()
	c.SetOut(io.Discard)
	c.SetErr(io.Discard)
	ran := false
	eachCommand(c, func(sub *cobra.Command) {
		if sub.RunE != nil && sub != c {
			if inSentence {
				sub.Args = cobra.ArbitraryArgs
				sub.Flags().VisitAll(func(f *pflag.Flag) { f.Annotations = nil }) // not required
			}
			sub.RunE = func(*cobra.Command, []string) error { ran = true; return nil }
		}
	})
	c.SetArgs(words[1:])
	if err := c.Execute(); err != nil {
		return err
	}
	if !ran && words[1] != "completion" && words[1] != "help" {
		return fmt.Errorf("no command ran")
	}
	return nil
}

// shellWords splits a line as a shell does, up to a pipe, a redirection, a comment or an &.
func shellWords(line string) (words []string, err error) {
	var word bytes.Buffer
	in, quote := false, rune(0)
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '"' || r == '\'':
			in, quote = true, r
		case r == ' ' || strings.ContainsRune("|<>&;", r):
			if in {
				words = append(words, word.String())
			}
			word.Reset()
			if in = false; r != ' ' {
				return words, nil
			}
		case r == '#' && !in:
			return words, nil
		default:
			in = true
			word.WriteRune(r)
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a %c is not closed", quote)
	}
	if in {
		words = append(words, word.String())
	}
	return words, nil
}
