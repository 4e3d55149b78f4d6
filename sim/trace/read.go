package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds on what is read.
const (
	mostRequests = 10_000_000
	mostTokens   = 1_000_000 // of a prompt or an answer
	largest      = 1 << 31   // bytes, when decompressed
	longestLine  = 1 << 20   // bytes
	longestSpan  = 10 * 365 * 24 * time.Hour
)

// Read reads a trace in any of the forms of the package comment. name stands for it
// in messages.
func Read(name string, from io.Reader) (*Trace, error) {
	plain, err := decompressed(from)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	r := reader{trace: &Trace{Name: name}, bytes: io.LimitedReader{R: plain, N: largest + 1}}
	r.lines = bufio.NewScanner(&r.bytes)
	r.lines.Buffer(make([]byte, 64<<10), longestLine)
	err = r.read()
	if cut := r.ended(); cut != nil {
		err = cut // the last line may be a part of one
	}
	if err != nil {
		return nil, fmt.Errorf("%s:%d: %w", name, max(1, r.line), err)
	}
	return r.trace, nil
}

// decompressed undoes gzip, if that is what it is.
func decompressed(from io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(from)
	if magic, _ := buffered.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return buffered, nil
	}
	plain, err := gzip.NewReader(buffered)
	if err != nil {
		return nil, fmt.Errorf("it begins like gzip: %w", err)
	}
	return plain, nil
}

// A reader is a trace that is being read.
type reader struct {
	trace *Trace
	bytes io.LimitedReader
	lines *bufio.Scanner
	line  int           // number of the latest
	began time.Duration // time of the first request, by the trace's own clock
	last  time.Duration // of the latest
}

// A parser reads one line after the first, or that too.
type parser func(line string) (entry, error)

// An entry is a line as written.
type entry struct {
	at             time.Duration // by the trace's own clock
	prompt, output int64
}

func (r *reader) read() error {
	first, ok := r.next()
	if !ok {
		return errors.New("an empty file: want a trace of Azure, BurstGPT or Mooncake")
	}
	first = strings.TrimPrefix(first, "\ufeff") // byte order mark
	if strings.HasPrefix(first, "{") {
		if err := r.take(first, mooncake); err != nil {
			return err
		}
		return r.readAll(mooncake)
	}
	parse, err := columns(first)
	if err != nil {
		return err
	}
	return r.readAll(parse)
}

// next is the next line that is not empty.
func (r *reader) next() (line string, ok bool) {
	for r.lines.Scan() {
		r.line++
		if line := strings.TrimSpace(r.lines.Text()); line != "" {
			return line, true
		}
	}
	return "", false
}

func (r *reader) readAll(parse parser) error {
	for line, ok := r.next(); ok; line, ok = r.next() {
		if err := r.take(line, parse); err != nil {
			return err
		}
	}
	if len(r.trace.Requests) == 0 {
		return errors.New("there is no request with a prompt and an answer: want at least two")
	}
	if r.trace.Span() == 0 {
		return errors.New("all requests arrive at the same moment, which gives no rate: want at least two moments")
	}
	return nil
}

// ended is why there are no more lines; nil at the end of the file, or before it.
func (r *reader) ended() error {
	err := r.lines.Err()
	switch {
	case errors.Is(err, bufio.ErrTooLong):
		r.line++
		return fmt.Errorf("longer than %d bytes: want one request a line", longestLine)
	case err != nil:
		return fmt.Errorf("reading the next line: %w", err)
	case r.bytes.N <= 0:
		return fmt.Errorf("larger than %d bytes: cut the file into parts", int64(largest))
	}
	return nil
}

// take adds the request of a line.
func (r *reader) take(line string, parse parser) error {
	e, err := parse(line)
	if err != nil {
		return err
	}
	if e.prompt > mostTokens || e.output > mostTokens || e.prompt < 0 || e.output < 0 {
		return fmt.Errorf("%d and %d tokens: want 0 to %d", e.prompt, e.output, mostTokens)
	}
	t := r.trace
	if len(t.Requests) == 0 && t.LeftOut == 0 {
		r.last = e.at
	}
	if e.at < r.last {
		return fmt.Errorf("%v before the line above: sort the lines by time", r.last-e.at)
	}
	r.last = e.at
	if e.prompt == 0 || e.output == 0 {
		t.LeftOut++
		return nil
	}
	if len(t.Requests) == 0 {
		r.began = e.at
	}
	switch {
	case e.at-r.began > longestSpan:
		return fmt.Errorf("%v after the first request: want at most %v", e.at-r.began, longestSpan)
	case len(t.Requests) == mostRequests:
		return fmt.Errorf("more than %d requests: cut the file into parts", mostRequests)
	}
	t.Requests = append(t.Requests, Request{At: e.at - r.began, Prompt: int32(e.prompt), Output: int32(e.output)})
	return nil
}

// A form is a CSV with a header.
type form struct {
	time, prompt, output string // columns
	parse                func(string) (time.Duration, error)
}

var forms = []form{
	{"TIMESTAMP", "ContextTokens", "GeneratedTokens", dateAndTime},
	{"Timestamp", "Request tokens", "Response tokens", secondsSinceStart},
}

// columns finds the form of a CSV by its header.
func columns(header string) (parser, error) {
	names := strings.Split(header, ",")
	for _, f := range forms {
		at, prompt, output := slices.Index(names, f.time), slices.Index(names, f.prompt), slices.Index(names, f.output)
		if at >= 0 && prompt >= 0 && output >= 0 {
			return f.parser(len(names), at, prompt, output), nil
		}
	}
	return nil, fmt.Errorf("%.60q is no header of a trace: want %s,%s,%s (Azure), the columns %s, %s and %s "+
		"(BurstGPT), or a JSON object a line (Mooncake)",
		header, forms[0].time, forms[0].prompt, forms[0].output, forms[1].time, forms[1].prompt, forms[1].output)
}

func (f form) parser(count, at, prompt, output int) parser {
	return func(line string) (e entry, err error) {
		cells := strings.Split(line, ",")
		if len(cells) != count {
			return e, fmt.Errorf("%d columns: want %d, as in the header", len(cells), count)
		}
		if e.at, err = f.parse(cells[at]); err != nil {
			return e, fmt.Errorf("%s: %w", f.time, err)
		}
		if e.prompt, err = tokens(cells[prompt]); err != nil {
			return e, fmt.Errorf("%s: %w", f.prompt, err)
		}
		if e.output, err = tokens(cells[output]); err != nil {
			return e, fmt.Errorf("%s: %w", f.output, err)
		}
		return e, nil
	}
}

func tokens(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%.40q: want a number of tokens, such as 374", text)
	}
	return n, nil
}

// dateAndTime is as in Azure's traces, since 1970; those of 2024 have a zone.
func dateAndTime(text string) (time.Duration, error) {
	for _, layout := range []string{time.DateTime, "2006-01-02 15:04:05Z07:00"} {
		t, err := time.Parse(layout, text)
		if err == nil && t.Year() >= 1970 && t.Year() < 2200 {
			return time.Duration(t.UnixNano()), nil
		}
	}
	return 0, fmt.Errorf("%.40q: want a date and a time, such as 2023-11-16 18:15:46.6805900", text)
}

func secondsSinceStart(text string) (time.Duration, error) {
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(seconds >= 0 && seconds <= longestSpan.Seconds()) {
		return 0, fmt.Errorf("%.40q: want seconds since the start, such as 45", text)
	}
	return time.Duration(math.Round(seconds * 1e9)), nil
}

// mooncake reads an object of Mooncake's traces.
func mooncake(line string) (e entry, err error) {
	var object struct {
		Timestamp    *float64 `json:"timestamp"` // milliseconds
		InputLength  *int64   `json:"input_length"`
		OutputLength *int64   `json:"output_length"`
		HashIDs      []int64  `json:"hash_ids"`
	}
	const want = `want {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}`
	d := json.NewDecoder(strings.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&object); err != nil {
		return e, fmt.Errorf("%w: %s", err, want)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return e, errors.New("more than one object: want one a line")
	}
	if object.Timestamp == nil || object.InputLength == nil || object.OutputLength == nil {
		return e, errors.New("a key is missing: " + want)
	}
	if ms := *object.Timestamp; !(ms >= 0 && ms <= longestSpan.Seconds()*1e3) {
		return e, fmt.Errorf("timestamp %v: want milliseconds since the start", ms)
	}
	return entry{time.Duration(math.Round(*object.Timestamp * 1e6)), *object.InputLength, *object.OutputLength}, nil
}
