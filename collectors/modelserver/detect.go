package modelserver

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"steelyard/internal/engines"
)

// Detect returns the engine of which the body has the series of most fields, whether or not they can be read; or, where
// it has none, of which it has the most names, in samples that are of no field and in comments. EngineCustom, whose
// series only a user can name, is never detected. The error for a body without an engine says what is wrong with it.
func Detect(body []byte) (Engine, error) {
	names := declared.ReplaceAll(body, nil)
	for _, count := range []func(*Reader) int{
		func(r *Reader) int { return r.served(body) },
		func(r *Reader) int { return r.named(names) },
	} {
		if e := most(count); e != "" {
			return e, nil
		}
	}
	if err := checkPage("", body); err != nil {
		return "", err
	}
	if is := renamed(body); is != "" {
		return "", errors.New("the page has no series of an engine that Steelyard knows: " + is)
	}
	return "", fmt.Errorf("the page has no series of an engine that Steelyard knows (%s): name the series with "+
		"--engine custom, --queue and --running", strings.Join(engines.Names(), ", "))
}

// most returns the engine that has the most of something, none if none has it.
func most(count func(*Reader) int) (found Engine) {
	largest := 0
	for _, e := range Engines() {
		if e == EngineCustom {
			continue
		}
		if reader, err := NewReader(e, Custom{}); err == nil {
			if n := count(reader); n > largest {
				found, largest = e, n
			}
		}
	}
	return found
}

// served returns how many fields have series in a body.
func (r *Reader) served(body []byte) (n int) {
	s := r.scratch.Get().(*samples)
	defer r.scratch.Put(s)
	s.read(&r.picker, body)
	for i := range r.fields {
		if evaluateField(&r.fields[i], s).source != nil {
			n++
		}
	}
	return n
}

// declared is what is in front of a name in a comment about it.
var declared = regexp.MustCompile(`(?m)^# (HELP|TYPE) `)

// named returns how many names of series are in a body.
func (r *Reader) named(body []byte) int {
	names := make(map[int]bool)
	r.picker.each(body, func(name int, _ []byte) { names[name] = true })
	return len(names)
}

// renamed returns, in words, which series of an engine a body has under the name that it has without a colon; empty
// for none. Routers that join the pages of workers rename series so (github.com/smg-project/smg/pull/813), and
// so did Dynamo (github.com/ai-dynamo/dynamo/pull/5701).
func renamed(body []byte) (is string) {
	var names, plain []string
	for _, e := range Engines() {
		for _, name := range seriesNames(sourcesOf(e, Custom{})) {
			if without := strings.Replace(name, ":", "_", 1); without != name {
				names, plain = append(names, name), append(plain, without)
			}
		}
	}
	newPicker(plain).each(body, func(i int, _ []byte) {
		is = cmp.Or(is, fmt.Sprintf("it has %s, which is %s renamed, as by a router that joins the pages of workers: "+
			"scrape the worker itself, or write engine custom with these names", plain[i], names[i]))
	})
	return is
}
