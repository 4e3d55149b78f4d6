package steelyard_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// plainWords are words to avoid, and what to write instead. A space in a pattern matches any white space, and the
// beginning of a comment's next line. Patterns do not look at case.
var plainWords = []struct{ avoid, write string }{
	// Words that readers stumble over.
	{`\banew\b`, "again"},
	{`\bseldom\b`, "rarely"},
	{`\bput(s|ting)? right\b`, "correct"},
	{`\bmend(s|ed|ing)?\b`, "correct, repair"},
	{`(?-i:\bbeside\b)`, "next to, besides, together with, compared with"},
	{`\bin vain\b`, "without success"},
	{`\blately\b`, "recently"},
	{`\breckon`, "compute, estimate, count"},
	{`\bcome to pass\b`, "happen"},
	{`\bfor want of\b`, "because there was no …"},
	{`\b(whoever|whomever)\b`, "the caller, the client, the person who"},
	{`\bsomebody\b`, "something, or who it is: a client, a person"},
	{`\b(of|as of) (now|the moment)\b`, "current, at this time"},
	{`\b(by|from|of|on|in|with|to|for) ([\w-]+ ){1,3}alone\b`, "only, before the noun: from scrapes only"},
	{`\b(reports?|scrapes|logs?|metrics|counts?|weights?|Redis) alone\b`, "only, before the noun: only load reports"},
	{`\balone (is|are|has|have|says?)\b`, "only, before the noun"},
	{`\bif need be\b`, "if necessary"},
	{`\b(is|are|was|be|been) no chance\b`, "significant, not by chance"},
	{`\bbelongs? into\b`, "belongs in"},
	{`\bleave of\b`, "announces that it leaves"},
	{`\b(of|is|was) so long\b`, "until then"},
	{`\bdearer\b`, "more expensive"},
	{`(?m)^\s*// \w+ (is that|are those) of\b`, "what it is or returns, by its noun"},

	// Things do not speak: a server reports, a field is stale, a log has entries.
	{`\b(tells?|telling|told) ([\w']+ ){0,2}of\b`, "report, report about"},
	{`\b(is|are|was|were) told\b`, "gets, is sent"},
	{`\b(said|says?) of\b`, "report about, means for"},
	{`\b(go|goes|going) by (itself|themselves|its own|their own)\b`, "use only its own …"},
	{`\bsa(ys?|id) (of|for) (itself|themselves)\b`, "report"},
	{`\b(is|are|was|were|be) said\b`, "the subject: who reports or logs it, and where"},
	{`\bwhat (is|was) said\b`, "the report, the message"},
	{`\bwho (is|was|has) (next|idle|silent|refused|how)\b`, "which request, endpoint or replica"},
	{`\bwho (asks?|sees?|sends?|waits?|reads?|listens?|counts?|reports?|serves?|uses|needs|calls|tells?)\b`,
		"that, for a machine; or the noun: clients that ask"},
	{`\bnobody (asks|listens|reads|reports|counts|answers|waits|sends|serves|uses|is told)\b`,
		"nothing, no client, no server"},
	{`\b(is|are|be|was|were|not) believed\b`, "trusted"},
	{`\bnobody (sees|says|renews|knows of|can tell)\b`, "passive, or the machine"},
	{`\b(anybody|anyone) can (make|announce|invent|claim)\b`, "any client can"},

	// Names that the glossary of CONTRIBUTING.md replaced.
	{`\bsuspects?\b`, "outlier"},
	{`\bpardon`, "panic mode, or end of the ejection"},
	{`\bill\b`, "outlier, stalled, failing"},
	{`\bconduct\b`, "outlier state"},
	{`\bowed\b`, "overcounted"},
	{`\bletGo\b`, "publishNeutral"},
	{`\brealEnvoy\b`, "what the fixture is"},
	{`\bward\b`, "what the fixture is"},
	{`\bbed\b`, "what the fixture is"},
}

// habits make a reader go back to the beginning of the sentence.
var habits = []struct{ avoid, write string }{
	// Pronouns that stand for a noun further back.
	{`\b(that|those) of\b`, "the noun again"},
	{`\b(that|those|ones?) (of )?which\b`, "the noun again: the requests that …"},
	{`\bthose that\b`, "the noun again: the requests that …"},
	{`(?m)(^|[.;] |\*\*)(?-i:What) (is|are|was|were|has|had|cannot|takes|makes|distinguishes)\b[^?.]*\.`,
		"a noun as the subject: numbers that cannot be used …"},
	// Relations in a noun, and prepositions that stand for a verb.
	{`\b(a|an|the|no) ([\w-]+ )?[\w-]+ of (its|their|your) own([.,;:)\n]| (and|that|is|in|for|with|on|next)\b)`,
		"its own …, your own …"},
	{`\bby (the )?(scrapes|access logs?|load reports?|reports|logs?|weights)\b`, "with, from, through, using"},
	{`\bin place of\b`, "instead of"},
	// "Where" is a place.
	{`(?m)(^|[.:;] )(?-i:Where) `, "if, when"},
	{`\bwhere (no|none|nothing|nobody|not)\b`, "if no …"},
	// Two negations.
	{`\b(not|never|no|hardly) (without|un(known|usual|likely|used|common))\b`, "say what is true"},
	{`\b(none|nothing|nobody|no [\w-]+) but\b`, "only"},
}

// The names of tests are sentences.
var (
	testName  = regexp.MustCompile(`\b(Test|Benchmark|Fuzz)[A-Z]\w*`)
	wordStart = regexp.MustCompile(`[A-Z]`)
)

func TestPlainWords(t *testing.T) {
	var patterns []*regexp.Regexp
	for _, w := range plainWords {
		patterns = append(patterns, regexp.MustCompile(`(?i)`+strings.ReplaceAll(w.avoid, " ", `[\s/#*>]+`)))
	}
	eachText(t, func(path, text string) {
		if filepath.Ext(path) == ".go" {
			text = testName.ReplaceAllStringFunc(text, func(name string) string {
				return wordStart.ReplaceAllString(name, " $0")
			})
		}
		for i, p := range patterns {
			for _, at := range p.FindAllStringIndex(text, -1) {
				line := 1 + strings.Count(text[:at[0]], "\n")
				t.Errorf("%s:%d: %q: write %s", path, line, text[at[0]:at[1]], plainWords[i].write)
			}
		}
	})
}

// code is what a document quotes: fenced and indented blocks, and spans.
var code = regexp.MustCompile("(?s)\n```.*?\n```|\n    [^\n]*|`[^`]*`")

// TestTextsReadWellAtOnce is for documents, and for what the program prints: messages, help and the page.
func TestTextsReadWellAtOnce(t *testing.T) {
	var patterns []*regexp.Regexp
	for _, h := range habits {
		patterns = append(patterns, regexp.MustCompile(`(?i)`+strings.ReplaceAll(h.avoid, " ", `[\s>]+`)))
	}
	check := func(path, text string, line int) {
		for i, p := range patterns {
			for _, at := range p.FindAllStringIndex(text, -1) {
				t.Errorf("%s:%d: %q: write %s", path, line+strings.Count(text[:at[0]], "\n"), text[at[0]:at[1]],
					habits[i].write)
			}
		}
	}
	eachText(t, func(path, text string) {
		switch {
		case filepath.Ext(path) == ".md":
			check(path, code.ReplaceAllStringFunc(text, func(quoted string) string {
				return strings.Repeat("\n", strings.Count(quoted, "\n")) + "…"
			}), 1)
		case filepath.Ext(path) == ".go" && !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(path, "e2e"):
			eachString(t, path, text, func(line int, printed string) { check(path, printed, line) })
		}
	})
}

// eachString calls visit for the strings of Go code, with its line; parts that + joins are one.
func eachString(t *testing.T, path, code string, visit func(line int, text string)) {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, code, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		text, ok := stringOf(e)
		if ok {
			visit(files.Position(e.Pos()).Line, text)
		}
		return !ok
	})
}

// stringOf returns the text of a string, with … for each part that is not written there.
func stringOf(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, first := stringOf(e.X)
		right, second := stringOf(e.Y)
		return left + right, e.Op == token.ADD && (first || second)
	}
	return "…", false
}

// onlyLink matches a line of Markdown that is nothing but a link.
var onlyLink = regexp.MustCompile(`^\s*([-*] |\d+\. )?!?\[[^\]]*\]\(\S+\)\S*$`)

// TestLinesFitIn120Columns is for the files that no linter reads: lll has those of Go. Tables, links and what a program
// printed in Markdown cannot be wrapped, nor can the type URLs of Envoy and rows of HTML.
func TestLinesFitIn120Columns(t *testing.T) {
	const widest = 120
	eachText(t, func(path, text string) {
		if slices.Contains([]string{".go", ".html"}, filepath.Ext(path)) {
			return
		}
		isFenced := false
		for i, line := range strings.Split(text, "\n") {
			exempt := strings.Contains(line, "type.googleapis.com/")
			if filepath.Ext(path) == ".md" {
				isFenced = isFenced != strings.HasPrefix(line, "```")
				exempt = isFenced || strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "|") ||
					onlyLink.MatchString(line)
			}
			if columns := utf8.RuneCountInString(line); columns > widest && !exempt {
				t.Errorf("%s:%d has %d columns, want at most %d", path, i+1, columns, widest)
			}
		}
	})
}

// TestCommitSubjectsFitIn72Columns is for the commits since the rule has been tested. An export without git, or a clone
// that does not have its beginning, has nothing to test.
func TestCommitSubjectsFitIn72Columns(t *testing.T) {
	const widest, tested = 72, "19bf38d8a87225d4253801675e7963abcc3c67dc"
	log, err := exec.CommandContext(t.Context(), "git", "log", "--format=%h %s", tested+"..HEAD").Output()
	if err != nil {
		t.Logf("the commits cannot be listed: %v", err)
		return
	}
	for line := range strings.Lines(string(log)) {
		commit, subject, _ := strings.Cut(strings.TrimSpace(line), " ")
		if columns := utf8.RuneCountInString(subject); columns > widest {
			t.Errorf("%s has a subject of %d columns, want at most %d: %s", commit, columns, widest, subject)
		}
	}
}

// TestTheGlossaryIsShort: at most thirty terms are of the code only, and none of them is also among those that users
// see.
func TestTheGlossaryIsShort(t *testing.T) {
	const most = 30
	own, users := glossary(t, "CONTRIBUTING.md"), glossary(t, "docs/concepts.md")
	if len(own) < most/2 || len(own) > most || len(users) < most/2 {
		t.Errorf("%d terms in CONTRIBUTING.md, %d in docs/concepts.md, want at most %d of the former", len(own),
			len(users), most)
	}
	for _, term := range own {
		if slices.Contains(users, term) {
			t.Errorf("%q is in both glossaries", term)
		}
	}
}

// glossary returns the terms of a document, without the words of the page in quotation marks.
func glossary(t *testing.T, document string) (terms []string) {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Glossary\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]+) \|`).FindAllStringSubmatch(section, -1)[1:] { // no heading
		for _, term := range regexp.MustCompile(`[,;:] `).Split(row[1], -1) {
			if !strings.HasPrefix(term, `"`) {
				terms = append(terms, term)
			}
		}
	}
	return terms
}

// eachText reads what people write here: code, documents, templates, scripts. Recordings and what programs wrote
// (testdata) are not among them, nor is this file, which quotes what to avoid.
func eachText(t *testing.T, visit func(path, text string)) {
	t.Helper()
	var seen int
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", ".tools", "bin", "bench", "dist", "testdata", "recordings"},
			path),
			d.IsDir() && slices.Contains([]string{"testdata", "recordings"}, d.Name()):
			return filepath.SkipDir
		case d.IsDir() || !written(path):
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil {
			seen++
			visit(path, string(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 100 {
		t.Errorf("only %d files were read", seen)
	}
}

func written(path string) bool {
	switch filepath.Base(path) {
	case "words_test.go", "LICENSE":
		return false
	case "Makefile", "Dockerfile", "run":
		return true
	}
	return slices.Contains([]string{".go", ".md", ".yaml", ".yml", ".tmpl", ".sh", ".html", ".js", ".css"},
		filepath.Ext(path))
}
