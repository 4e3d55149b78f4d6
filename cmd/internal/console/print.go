package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"golang.org/x/term"

	"steelyard/cmd/internal/table"
	"steelyard/internal/api"
)

// The forms of the output.
const (
	FormatTable = "table"
	FormatJSON  = "json"
	FormatYAML  = "yaml"
)

// Formats are all of them.
func Formats() []string { return []string{FormatTable, FormatJSON, FormatYAML} }

// An Output is where a command prints, and how.
type Output struct {
	W      io.Writer
	Format string
	// Width is the columns of the terminal; 0: as many as needed.
	Width int
}

// WidthOf is the columns of the terminal behind w; 0 if there is none.
func WidthOf(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil || columns <= 0 {
		return 80 // that of the oldest ones
	}
	return columns
}

// Print is print, for what another package has made of an answer.
func (o Output) Print(value any, table func(io.Writer)) error { return o.print(value, table) }

// print writes a value in a form for programs, or calls table.
func (o Output) print(value any, table func(io.Writer)) error {
	var out bytes.Buffer
	switch o.Format {
	case FormatJSON:
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(value); err != nil {
			return err
		}
	case FormatYAML:
		text, err := asYAML(value)
		if err != nil {
			return err
		}
		out.Write(text)
	default:
		table(&out)
	}
	_, err := o.W.Write(out.Bytes())
	return err
}

// asYAML has the keys of the JSON in their order.
func asYAML(value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var node yaml.Node // JSON is YAML
	if err := yaml.Unmarshal(text, &node); err != nil {
		return nil, err
	}
	plain(&node)
	return yaml.Marshal(&node)
}

// plain takes the brackets and quotes of JSON away where YAML needs none.
func plain(n *yaml.Node) {
	n.Style &^= yaml.FlowStyle | yaml.DoubleQuotedStyle
	for _, c := range n.Content {
		plain(c)
	}
}

// wrap breaks a text into lines of a width, which are indented but for the first.
func wrap(text, indent string, width int) string {
	text = table.Printable(text)
	if width <= 0 {
		return text
	}
	var out, line strings.Builder
	columns := 0
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		if columns > 0 && columns+1+n > width-utf8.RuneCountInString(indent) {
			out.WriteString(line.String() + "\n" + indent)
			line.Reset()
			columns = 0
		}
		if columns > 0 {
			line.WriteString(" ")
			columns++
		}
		line.WriteString(word)
		columns += n
	}
	return out.String() + line.String()
}

const unknown = "-"

// percent is a part as percent, with a decimal; a non-zero value never prints as 0.0, and halves are rounded up as on
// the page and in the sentences of the API.
func percent(n api.Number) string {
	v, ok := n.Value()
	switch {
	case !ok:
		return unknown
	case v > 0 && v < 0.0005:
		return "<0.1%"
	}
	return strconv.FormatFloat(math.Round(1000*v)/10, 'f', 1, 64) + "%"
}

// number has three digits.
func number(n api.Number) string {
	v, ok := n.Value()
	if !ok {
		return unknown
	}
	return table.Number(v)
}

// seconds is a time with the unit that suits it.
func seconds(n api.Number) string {
	v, ok := n.Value()
	if !ok {
		return unknown
	}
	switch {
	case v < 0.1:
		return table.Number(1000*v) + "ms"
	case v < 120:
		return table.Number(v) + "s"
	}
	d := time.Duration(v * float64(time.Second)).Round(time.Minute)
	switch {
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// clock is a time of day in UTC.
func clock(t api.Time) string {
	if t.IsZero() {
		return unknown
	}
	return t.UTC().Format("15:04:05")
}

// ago is how long ago a time was.
func ago(t api.Time, now time.Time) string {
	if t.IsZero() {
		return unknown
	}
	return seconds(t.Age(now))
}
