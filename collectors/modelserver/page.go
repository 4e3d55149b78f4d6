package modelserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
)

// errCut is the error for a body whose last line has no line feed. Half a line can contain half a number, so such a
// body is not read at all.
var errCut = errors.New("the page is cut off: its last line has no line feed")

// checkPage returns why a body is not a whole page of metrics: it is empty, something else than metrics, or cut off.
func checkPage(e Engine, body []byte) error {
	if form := formOf(body); form != "" {
		return fmt.Errorf("this is a page of %s, not of metrics: %s", form, pathToTry(e))
	}
	switch {
	case len(body) == 0:
		return errors.New("the page is empty")
	case !whole(body) && !pageStart.Match(body):
		return fmt.Errorf("this is no page of metrics: it begins with %s: %s", excerpt(body), pathToTry(e))
	case !whole(body):
		return errCut
	}
	return nil
}

// whole reports whether the body ends where a page can end: at the end of a line, or, in OpenMetrics, after its "# EOF"
// (exposition = metricset HASH SP eof [ LF ]).
func whole(body []byte) bool {
	return body[len(body)-1] == '\n' || bytes.HasSuffix(body, []byte("\n"+eof)) || string(body) == eof ||
		bytes.Contains(body, []byte("\n"+eof+"\n"))
}

// jsonStart is how JSON begins. A line of metrics may begin with a brace, too: in OpenMetrics a name may be quoted, as
// in {"name"} 1.
var jsonStart = regexp.MustCompile(`^(\[|\{\s*(\}|"(\\.|[^"\\])*"\s*:))`)

// pageStart is how a page of metrics begins: with a comment, or with a sample.
var pageStart = regexp.MustCompile(`^\s*([#{]|[a-zA-Z_:][a-zA-Z0-9_:]*(\{|[ \t]+[-+.0-9NI]))`)

// formOf returns "JSON" or "HTML" for a body of that form.
func formOf(body []byte) string {
	switch body = bytes.TrimLeft(bytes.TrimPrefix(body, []byte("\ufeff")), " \t\r\n"); {
	case bytes.HasPrefix(body, []byte("<")):
		return "HTML"
	case jsonStart.Match(body), json.Valid(body):
		return "JSON"
	}
	return ""
}

// pathToTry returns where the engine has its metrics; where most have them, of an engine that is not known.
func pathToTry(e Engine) string {
	switch e {
	case EngineTensorRTLLM:
		return "trtllm-serve has its metrics at /prometheus/metrics, and Triton at /metrics (scrape.path)"
	case "", EngineCustom:
		e = "most servers have"
	default:
		e += " has"
	}
	return fmt.Sprintf("%s metrics at /metrics, and trtllm-serve at /prometheus/metrics (scrape.path)", e)
}
