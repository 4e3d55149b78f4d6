package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	shownProblems = 20   // in the text of an Error
	keptProblems  = 1000 // in an Error; a file with more has one cause
	shownBytes    = 60   // of a text quoted from the file
)

// Problem is one mistake in a file.
type Problem struct {
	File   string `json:"file"`
	Line   int    `json:"line"`   // from 1
	Column int    `json:"column"` // from 1
	Text   string `json:"text"`
}

// Error is FILE:LINE:COLUMN: TEXT, the form that editors and terminals follow.
func (p *Problem) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Text)
}

// Error has all mistakes in a file, in the order of its lines.
type Error struct {
	Problems []*Problem // at least one
	More     int        // further problems, not kept
}

// Error has one problem a line, the first 20.
func (e *Error) Error() string {
	shown := e.Problems[:min(len(e.Problems), shownProblems)]
	lines := make([]string, 0, len(shown)+1)
	for _, p := range shown {
		lines = append(lines, p.Error())
	}
	if more := len(e.Problems) - len(shown) + e.More; more > 0 {
		next := e.Problems[min(len(shown), len(e.Problems)-1)]
		lines = append(lines, (&Problem{next.File, next.Line, next.Column,
			fmt.Sprintf("and %d more from here on", more)}).Error())
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives each problem to errors.As.
func (e *Error) Unwrap() []error {
	errs := make([]error, len(e.Problems))
	for i, p := range e.Problems {
		errs[i] = p
	}
	return errs
}

// problems collects the mistakes in one file.
type problems struct {
	file string
	list []*Problem
	more int
	seen map[Problem]bool // what an alias repeats is one mistake of the user's
}

func (ps *problems) add(line, column int, format string, args ...any) {
	p := Problem{File: ps.file, Line: max(line, 1), Column: max(column, 1), Text: fmt.Sprintf(format, args...)}
	switch {
	case ps.seen[p]:
	case !ps.full():
		ps.seen[p] = true
		ps.list = append(ps.list, &p)
	default:
		ps.more++
	}
}

func (ps *problems) full() bool { return len(ps.list) >= keptProblems }

// count never goes back: comparing two counts shows whether one was added.
func (ps *problems) count() int { return len(ps.list) + ps.more }

// err is nil where nothing was added.
func (ps *problems) err() error {
	if len(ps.list) == 0 {
		return nil
	}
	ps.sort()
	return &Error{Problems: ps.list, More: ps.more}
}

func (ps *problems) sort() {
	slices.SortStableFunc(ps.list, func(a, b *Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// userInfo is the user and password of a URL.
var userInfo = regexp.MustCompile(`[^\s/:@]*:[^\s@]*@`)

// shown is a text from the file as a message quotes it: as it is where that
// cannot be misread, else in quotes; never long, and without a password.
func shown(s string) string {
	s, cut := userInfo.ReplaceAllString(s, "…@"), ""
	if len(s) > shownBytes {
		s, cut = strings.ToValidUTF8(s[:shownBytes], ""), "…"
	}
	if q := strconv.Quote(s); s == "" || q != `"`+s+`"` || strings.TrimSpace(s) != s {
		return q + cut
	}
	return s + cut
}
