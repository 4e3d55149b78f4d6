package discovery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// The bounds on a file_sd document besides its size. The form has four levels;
// aliases of YAML can make a small file large.
const (
	maxDepth  = 8
	maxValues = 1 << 20
)

type kind int

const (
	scalar kind = iota
	list
	mapping
)

func (k kind) String() string { return [...]string{"a plain value", "a list", "a mapping"}[k] }

// A place is a line and a column of a document, both from 1.
type place struct{ line, column int }

// top is the place of what concerns a whole document.
var top = place{1, 1}

func (p place) String() string { return fmt.Sprintf("%d:%d", p.line, p.column) }

// A value is a JSON or YAML value with its place: what the two have in common, so
// that one reading serves both.
type value struct {
	place
	kind  kind
	text  string  // of a scalar, as written; empty for null
	null  bool    // a scalar without value
	items []value // of a list or mapping
	keys  []value // of a mapping, parallel to items
}

// A positioned error has its place in the document in front.
type positioned struct {
	place
	err error
}

func (p *positioned) Error() string { return fmt.Sprintf("%v: %v", p.place, p.err) }
func (p *positioned) Unwrap() error { return p.err }

var errEmpty = errors.New("the document is empty; write [] if no endpoint is meant")

// jsonReader builds values from tokens, the only way to get their positions.
type jsonReader struct {
	body    []byte
	decoder *json.Decoder
	at      place // of counted
	counted int64 // offset up to which lines and columns are counted
	values  int
}

func parseJSON(body []byte) (value, error) {
	r := &jsonReader{body: body, decoder: json.NewDecoder(bytes.NewReader(body)), at: top}
	r.decoder.UseNumber()
	v, err := r.value(0)
	if errors.Is(err, io.EOF) && len(bytes.TrimSpace(body)) == 0 {
		return value{}, &positioned{top, errEmpty}
	}
	if err != nil {
		return value{}, r.explain(err)
	}
	next := r.next()
	if _, err := r.decoder.Token(); !errors.Is(err, io.EOF) {
		return value{}, &positioned{next, errors.New("something follows after the end of the document")}
	}
	return v, nil
}

// explain gives a syntax error its place.
func (r *jsonReader) explain(err error) error {
	if _, ok := errors.AsType[*positioned](err); ok {
		return err
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the document ends in the middle")
	}
	return &positioned{r.next(), err}
}

// next is the place of the next token: of what follows the last one, its separator and blanks. It counts on from the
// place before, since a file may be one long line.
func (r *jsonReader) next() place {
	at := min(r.decoder.InputOffset(), int64(len(r.body)))
	rest := r.body[at:]
	at += int64(len(rest) - len(bytes.TrimLeft(rest, " \t\r\n,:")))
	passed := r.body[r.counted:at] // no token has a line break in it
	if n := bytes.Count(passed, []byte{'\n'}); n > 0 {
		r.at = place{r.at.line + n, 1}
		passed = passed[bytes.LastIndexByte(passed, '\n')+1:]
	}
	r.at.column += utf8.RuneCount(passed)
	r.counted = at
	return r.at
}

func (r *jsonReader) value(depth int) (value, error) {
	v := value{place: r.next()}
	token, err := r.decoder.Token()
	if err != nil {
		return value{}, err
	}
	if r.values++; r.values > maxValues || depth > maxDepth {
		return value{}, &positioned{v.place, errTooMuch}
	}
	switch t := token.(type) {
	case json.Delim:
		v.kind = list
		if t == '{' {
			v.kind = mapping
		}
		return v, r.inside(&v, depth)
	case nil:
		v.null = true
	default:
		v.text = fmt.Sprint(t) // string, json.Number or bool
	}
	return v, nil
}

// inside reads what stands between brackets, and the closing one.
func (r *jsonReader) inside(v *value, depth int) error {
	for r.decoder.More() {
		if v.kind == mapping {
			key, err := r.value(depth + 1)
			if err != nil {
				return err
			}
			v.keys = append(v.keys, key)
		}
		item, err := r.value(depth + 1)
		if err != nil {
			return err
		}
		v.items = append(v.items, item)
	}
	_, err := r.decoder.Token()
	return err
}

var errTooMuch = fmt.Errorf("the document has more than %d levels or %d values", maxDepth, maxValues)

func parseYAML(body []byte) (value, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(body))
	var document, second yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return value{}, &positioned{top, errEmpty}
	} else if err != nil {
		return value{}, inYAML(err)
	}
	if err := decoder.Decode(&second); err == nil {
		return value{}, &positioned{place{second.Line, second.Column},
			errors.New("a second document follows; write all groups into one list")}
	} else if !errors.Is(err, io.EOF) {
		return value{}, inYAML(err)
	}
	values := 0
	v, err := fromYAML(&document, 0, &values)
	if err == nil && v.null {
		return value{}, &positioned{top, errEmpty}
	}
	return v, err
}

// inYAML gives an error of the parser its place.
func inYAML(err error) error {
	at := top
	if load, ok := errors.AsType[*yaml.LoadError](err); ok {
		at = place{max(1, load.Mark.Line), max(1, load.Mark.Column)}
		err = errors.New("not YAML: " + load.Message)
	}
	return &positioned{at, err}
}

// fromYAML copies a node, following aliases: the copy's bounds are what ends an
// alias to itself.
func fromYAML(n *yaml.Node, depth int, values *int) (value, error) {
	for hops := 0; n.Kind == yaml.AliasNode && n.Alias != nil && hops < maxDepth; hops++ {
		n = n.Alias
	}
	if *values++; *values > maxValues || depth > maxDepth {
		return value{}, &positioned{place{n.Line, n.Column}, errTooMuch}
	}
	v := value{place: place{max(1, n.Line), max(1, n.Column)}}
	switch n.Kind {
	case yaml.DocumentNode:
		if len(n.Content) == 1 {
			return fromYAML(n.Content[0], depth, values)
		}
		v.null = true
		return v, nil
	case yaml.SequenceNode:
		v.kind = list
	case yaml.MappingNode:
		v.kind = mapping
	default:
		v.null = n.ShortTag() == "!!null"
		if !v.null {
			v.text = n.Value
		}
		return v, nil
	}
	for i, child := range n.Content {
		c, err := fromYAML(child, depth+1, values)
		if err != nil {
			return value{}, err
		}
		if v.kind == mapping && i%2 == 0 {
			v.keys = append(v.keys, c)
		} else {
			v.items = append(v.items, c)
		}
	}
	return v, nil
}
