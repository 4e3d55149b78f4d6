package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

var (
	durationType = reflect.TypeFor[time.Duration]()
	sizeType     = reflect.TypeFor[Size]()
	portType     = reflect.TypeFor[Port]()
)

// longestText bounds every text of a configuration, in bytes.
const longestText = 4096

// parseScalar turns the text of a scalar into a value of type t. The error is
// for the user: the offending text, what is wrong with it, what to write.
func parseScalar(n *yaml.Node, t reflect.Type) (reflect.Value, error) {
	v, err := parseKind(n, t)
	return reflect.ValueOf(v).Convert(t), err // t may be a named type, such as a string of a few words
}

func parseKind(n *yaml.Node, t reflect.Type) (any, error) {
	switch t {
	case durationType:
		return parseDuration(n.Value)
	case sizeType:
		return parseSize(n.Value)
	case portType:
		return parsePortRef(n.Value)
	}
	switch t.Kind() {
	case reflect.Bool:
		return parseBool(n)
	case reflect.Int:
		return parseInt(n)
	case reflect.Float64:
		return parseFloat(n)
	case reflect.String:
		return parseText(n)
	}
	panic("config: no scalar of type " + t.String())
}

// parseTag is parseScalar for what stands in a tag of the schema, which the tests prove to be right.
func parseTag(text string, t reflect.Type) reflect.Value {
	tags := map[reflect.Kind]string{reflect.Bool: "!!bool", reflect.Int: "!!int", reflect.Float64: "!!float",
		reflect.String: "!!str"}
	v, err := parseScalar(&yaml.Node{Kind: yaml.ScalarNode, Value: text, Tag: tags[t.Kind()]}, t)
	if err != nil {
		panic("config: in a tag: " + err.Error())
	}
	return v
}

// textKinds names the scalars that are no text unless they are quoted.
var textKinds = map[string]string{
	"!!int": "a number", "!!float": "a number", "!!bool": "a truth value", "!!timestamp": "a date",
}

// notText is where a value is no text; quotes make it one, which helps where any text will do.
type notText struct{ error }

func parseText(n *yaml.Node) (string, error) {
	switch kind, plain := textKinds[n.ShortTag()]; {
	case n.ShortTag() == "!!str" && n.Value == "":
		return "", errors.New(`"" is empty: write a value, or remove the key`)
	case plain:
		return "", notText{fmt.Errorf("%s is %s where a text is needed: write %q", shown(n.Value), kind, n.Value)}
	case n.ShortTag() != "!!str":
		return "", fmt.Errorf("%s has the tag %s: remove the tag", shown(n.Value), shown(n.Tag))
	case len(n.Value) > longestText:
		return "", fmt.Errorf("%s has %d bytes: write at most %d", shown(n.Value), len(n.Value), longestText)
	case strings.ContainsFunc(n.Value, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "", fmt.Errorf("%s has a line break or another control character in it: write it on one line",
			shown(n.Value))
	}
	return n.Value, nil
}

// portName is what Kubernetes allows as the name of a port.
var portName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func parsePortRef(text string) (Port, error) {
	if _, err := strconv.Atoi(text); err == nil {
		if number, ok := parsePort(text); ok && number > 0 {
			return Port(strconv.Itoa(number)), nil
		}
		return "", fmt.Errorf("%s is not a valid port: write 1 to 65535, or the name of a port", shown(text))
	}
	if !portName.MatchString(text) {
		return "", fmt.Errorf("%s is not a valid port: write its number, or its name in lower-case letters, digits "+
			"and -", shown(text))
	}
	return Port(text), nil
}

func parseBool(n *yaml.Node) (bool, error) {
	switch n.Value {
	case "true", "false":
		if n.ShortTag() == "!!str" {
			return false, fmt.Errorf("%q is a text: write %s without the quotes", n.Value, n.Value)
		}
		return n.Value == "true", nil
	}
	switch strings.ToLower(n.Value) {
	case "true", "yes", "y", "on", "1", "enabled":
		return false, fmt.Errorf("%s is neither true nor false: write true", shown(n.Value))
	case "false", "no", "n", "off", "0", "disabled":
		return false, fmt.Errorf("%s is neither true nor false: write false", shown(n.Value))
	}
	return false, fmt.Errorf("%s is neither true nor false: write one of them", shown(n.Value))
}

// errTooLarge is where a number does not even fit its type.
var errTooLarge = errors.New("out of range")

func parseInt(n *yaml.Node) (int, error) {
	i, err := strconv.Atoi(n.Value)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, errTooLarge
	case err != nil:
		return 0, fmt.Errorf("%s is not a whole number: write digits only", shown(n.Value))
	case n.ShortTag() == "!!str":
		return 0, fmt.Errorf("%q is a text: write %d without the quotes", n.Value, i)
	}
	return i, nil
}

var number = regexp.MustCompile(`^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$`)

func parseFloat(n *yaml.Node) (float64, error) {
	if text, ok := strings.CutSuffix(n.Value, "%"); ok && number.MatchString(text) {
		percent, _ := strconv.ParseFloat(text, 64)
		return 0, fmt.Errorf("%s is not a number: write the share, %s", shown(n.Value), plain(percent/100))
	}
	f, err := strconv.ParseFloat(n.Value, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, errTooLarge
	case err == nil && (math.IsInf(f, 0) || math.IsNaN(f)),
		slices.Contains([]string{".nan", ".inf", "-.inf", "+.inf"}, strings.ToLower(n.Value)):
		return 0, fmt.Errorf("%s is not a finite number: write one in digits", shown(n.Value))
	case !number.MatchString(n.Value):
		return 0, fmt.Errorf("%s is not a number: write digits, such as 4 or 0.5", shown(n.Value))
	case n.ShortTag() == "!!str":
		return 0, fmt.Errorf("%q is a text: write %s without the quotes", n.Value, n.Value)
	}
	return f, nil
}

// plain writes a number the way a person would.
func plain(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// quantity is a number and its unit.
var quantity = regexp.MustCompile(`^([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)) *([a-zA-Zµ]*)$`)

// durationUnits are the units that people write, and those that are meant.
var durationUnits = map[string]string{
	"ms": "ms", "msec": "ms", "msecs": "ms", "milli": "ms", "millis": "ms", "millisecond": "ms", "milliseconds": "ms",
	"s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s",
	"m": "m", "min": "m", "mins": "m", "minute": "m", "minutes": "m",
	"h": "h", "hr": "h", "hrs": "h", "hour": "h", "hours": "h",
	"us": "us", "µs": "us", "ns": "ns",
}

func parseDuration(text string) (time.Duration, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	m := quantity.FindStringSubmatch(text)
	if m == nil || m[2] == "" && strings.HasPrefix(m[1], "-") { // no unit would make that right
		return 0, fmt.Errorf("%s is not a duration: write a number and its unit, such as 250ms, 1.5s or 2m",
			shown(text))
	}
	unit, known := durationUnits[strings.ToLower(m[2])]
	switch meant := m[1] + unit; {
	case m[2] == "":
		return 0, fmt.Errorf("%s has no unit: write %sms or %ss", shown(text), m[1], m[1])
	case meant == text:
		return 0, errTooLarge // it has the right form, so only its size can be wrong
	case known:
		return 0, fmt.Errorf("%s is not a duration: write %s", shown(text), meant)
	case strings.HasPrefix(strings.ToLower(m[2]), "d"):
		return 0, fmt.Errorf("%s is not a duration: write it in hours, 24h for one day", shown(text))
	}
	return 0, fmt.Errorf("%s is not a duration: %s is not a valid unit; write %sms or %ss", shown(text), shown(m[2]),
		m[1], m[1])
}

// binaryUnits are units of sizes that people write, and those that are meant.
var binaryUnits = map[string]string{
	"b": "B", "byte": "B", "bytes": "B",
	"k": "KiB", "kb": "KiB", "ki": "KiB", "kib": "KiB",
	"m": "MiB", "mb": "MiB", "mi": "MiB", "mib": "MiB",
	"g": "GiB", "gb": "GiB", "gi": "GiB", "gib": "GiB",
}

func parseSize(text string) (Size, error) {
	m := quantity.FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("%s is not a size: write a number and its unit, such as 512KiB or 4MiB", shown(text))
	}
	unit, known := binaryUnits[strings.ToLower(m[2])]
	count, err := strconv.ParseInt(m[1], 10, 64)
	switch {
	case m[2] == "" && count <= 0: // a unit would not make it right
		return 0, fmt.Errorf("%s is not a size: write a number and its unit, such as 512KiB or 4MiB", shown(text))
	case m[2] == "":
		return 0, fmt.Errorf("%s has no unit: write %sB, %sKiB or %sMiB", shown(text), m[1], m[1], m[1])
	case !known:
		return 0, fmt.Errorf("%s is not a size: the units are B, KiB, MiB and GiB", shown(text))
	case errors.Is(err, strconv.ErrRange):
		return 0, errTooLarge
	case err != nil:
		return 0, fmt.Errorf("%s is not a whole number of %s: use a smaller unit", shown(text), unit)
	case m[1]+unit != text:
		return 0, fmt.Errorf("%s is not a size: write %s%s", shown(text), m[1], unit)
	}
	for _, u := range sizeUnits {
		if u.name == unit && count <= math.MaxInt64/int64(u.bytes) && count >= -math.MaxInt64/int64(u.bytes) {
			return Size(count) * u.bytes, nil
		}
	}
	return 0, errTooLarge
}

// inRange checks a value against a tag such as "10ms..1h".
func inRange(v reflect.Value, limits string) bool {
	least, most, _ := strings.Cut(limits, "..")
	low, high := parseTag(least, v.Type()), parseTag(most, v.Type())
	if v.CanFloat() {
		return v.Float() >= low.Float() && v.Float() <= high.Float()
	}
	return v.Int() >= low.Int() && v.Int() <= high.Int()
}

// rangeError says what a value must be between.
func rangeError(text string, t reflect.Type, limits string) error {
	least, most, _ := strings.Cut(limits, "..")
	hint := ""
	if percent, err := strconv.ParseFloat(text, 64); err == nil && t.Kind() == reflect.Float64 && most == "1" &&
		percent >= 2 && percent <= 100 {
		hint = fmt.Sprintf("; %s percent is %s", text, plain(percent/100))
	}
	return fmt.Errorf("%s is out of range: write %s to %s%s", shown(text), least, most, hint)
}
