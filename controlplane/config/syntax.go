package config

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// unreadable finds the first byte that cannot be in a YAML file.
func unreadable(data []byte) (line, column int, text string) {
	for at := 0; at < len(data); {
		r, size := utf8.DecodeRune(data[at:])
		switch {
		case r == utf8.RuneError && size == 1:
			text = fmt.Sprintf("byte 0x%02x is not UTF-8: save the file as UTF-8 text", data[at])
		case r < ' ' && r != '\t' && r != '\n' && r != '\r', r == 0x7f:
			text = fmt.Sprintf("there is a control character (0x%02x) here: remove it", r)
		default:
			at += size
			continue
		}
		line, column = position(data, at)
		return line, column, text
	}
	return 0, 0, ""
}

// deepest is how many levels a file may nest its lists and sections; a configuration has ten. The parser takes time
// that grows with the square of them.
const deepest = 1000

// tooDeep finds where a file nests deeper than that: by brackets, or by the dashes that begin a row.
func tooDeep(data []byte) (line, column int, deep bool) {
	brackets, dashes := 0, 0
	for at, b := range data {
		switch b {
		case '[', '{':
			brackets++
		case ']', '}':
			brackets--
		case '\n':
			dashes = 0
		case '-':
			dashes++
		case ' ', '\r':
		default:
			dashes = 0
		}
		if brackets > deepest || dashes > deepest {
			line, column = position(data, at)
			return line, column, true
		}
	}
	return 0, 0, false
}

// position turns an offset into a line and a column, both from 1.
func position(data []byte, offset int) (line, column int) {
	before := data[:offset]
	return bytes.Count(before, []byte("\n")) + 1, utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
}

var unknownAnchor = regexp.MustCompile(`unknown anchor '(.*)' referenced`)

// syntaxError says where a file stops being YAML, and why, as far as that can be told.
func syntaxError(data []byte, err error) (line, column int, text string) {
	var load *yaml.LoadError
	if !errors.As(err, &load) {
		return 1, 1, "not YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")
	}
	mark := load.Mark
	if strings.Contains(load.Message, "end of stream") && load.ContextMark.Line > 0 {
		mark = load.ContextMark // where that began which does not end
	}
	line, column = max(1, mark.Line), max(1, mark.Column)
	if a := unknownAnchor.FindStringSubmatch(load.Message); a != nil {
		return line, column, fmt.Sprintf("*%s is an alias of nothing: put text that starts with * in quotes, "+
			"or write &%s before the value it stands for", a[1], a[1])
	}
	if above := lineOf(data, line-1); noSpace.MatchString(strings.TrimRight(above, " \r")) {
		// A key without a space after its colon is text, and only the next key shows that it was meant as one.
		line, column = line-1, 1+len(above)-len(strings.TrimLeft(above, " -"))
	}
	if at := conflict.FindIndex(data); at != nil {
		return 1 + bytes.Count(data[:at[0]], []byte("\n")), 1,
			"not YAML: two versions of a merge are both here: keep one, and remove the lines <<<<<<<, ======= and " +
				">>>>>>>"
	}
	row := lineOf(data, line)
	text = "not YAML: " + load.Message + ": "
	if bare := strings.TrimSpace(row); bare != "" && !secretKey.MatchString(row) {
		text += shown(bare) + ": "
	}
	return line, column, text + syntaxHint(row)
}

// conflict is the line that version control writes above two versions of the same lines.
var conflict = regexp.MustCompile(`(?m)^<{7} `)

// secretKey is a line that may hold a secret, which does not belong in a log.
var secretKey = regexp.MustCompile(`(?i)(password|secret|token)[a-z_]*["']?\s*:`)

func lineOf(data []byte, line int) string {
	lines := strings.Split(string(data), "\n")
	if line < 1 || line > len(lines) {
		return ""
	}
	return lines[line-1]
}

var (
	indentedByTab = regexp.MustCompile(`^ *\t`)
	noSpace       = regexp.MustCompile(`^ *(?:- )*([a-z_]+):([^\s:/]+)$`)
	bareIPv6      = regexp.MustCompile(`(?:^|[ ,])(\[[0-9a-fA-F:.]*:[0-9a-fA-F:.]*\]:[0-9]+)`)
	openQuote     = regexp.MustCompile(`(?:: |- )(["'])[^"']*$`)
	// special starts a value with a sign that means something else to YAML.
	special = regexp.MustCompile("(?:: |- |[\\[{,] *)([@`%*&!|>][^ ,}\\]]*)")
	// afterKey is the value of a line's first key.
	afterKey = regexp.MustCompile(`^ *(?:- )*[^\s:"'\[{]+: +([^"'].*)$`)
	// closed is a list or a section in one line.
	closed = regexp.MustCompile(`^(\[.*\]|\{.*\})$`)
)

// syntaxHint guesses from the line what its author meant.
func syntaxHint(row string) string {
	row = strings.TrimRight(row, " \r")
	quotes := func(value string) string { return fmt.Sprintf("write the value in quotes, %q", value) }
	switch {
	case indentedByTab.MatchString(row):
		return "indent with spaces instead of tabs"
	case noSpace.MatchString(row):
		m := noSpace.FindStringSubmatch(row)
		return fmt.Sprintf("write a space after the colon, %s: %s", m[1], m[2])
	case bareIPv6.MatchString(row):
		return fmt.Sprintf("write the IPv6 address in quotes, %q", bareIPv6.FindStringSubmatch(row)[1])
	case openQuote.MatchString(row):
		return "close the quote"
	case variable.MatchString(row):
		return "Steelyard expands no variables: fill them in before"
	case special.MatchString(row):
		return quotes(special.FindStringSubmatch(row)[1])
	}
	if m := afterKey.FindStringSubmatch(row); m != nil && !closed.MatchString(m[1]) &&
		strings.ContainsAny(m[1], ":{}[]") {
		return quotes(m[1])
	}
	return "start the keys of one section in the same column, write a space after each colon, and close what is opened"
}
