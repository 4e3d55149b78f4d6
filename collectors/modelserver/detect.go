package modelserver

import (
	"fmt"
	"strings"

	"steelyard/internal/engines"
)

// Detect returns the engine of which the body has the series of most fields, whether or not they can be read.
// EngineCustom, whose series only a user can name, is never detected. The error for a body without an engine says what
// is wrong with it.
func Detect(body []byte) (Engine, error) {
	var found Engine
	most := 0
	for _, e := range Engines() {
		if e == EngineCustom {
			continue
		}
		reader, err := NewReader(e, Custom{})
		if err != nil {
			continue
		}
		if served := reader.served(body); served > most {
			found, most = e, served
		}
	}
	if found != "" {
		return found, nil
	}
	if err := checkPage("", body); err != nil {
		return "", err
	}
	return "", fmt.Errorf("the page has no series of an engine that Steelyard knows (%s): name the series with "+
		"--engine custom, --queue and --running", strings.Join(engines.Names(), ", "))
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
