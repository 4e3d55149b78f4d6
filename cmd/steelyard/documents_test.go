package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
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
