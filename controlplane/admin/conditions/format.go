package conditions

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"steelyard/internal/api"
)

// The formats below are those of the page before its script runs, and of the sentences.

// unknown stands where there is no value.
const unknown = "–"

func FormatFixed(n api.Number, decimals int) string {
	v, known := n.Value()
	if !known {
		return unknown
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

func FormatPercent(n api.Number) string {
	v, known := n.Value()
	if !known {
		return unknown
	}
	if v > 0 && v < 0.0005 {
		return "< 0.1 %"
	}
	return strconv.FormatFloat(100*v, 'f', 1, 64) + " %"
}

// FormatClock is the time of day, in the zone that logs are best compared in.
func FormatClock(t api.Time) string { return t.UTC().Format("15:04:05") + " UTC" }

// FormatDuration formats a duration in the unit that a person would use.
func FormatDuration(n api.Number) string {
	v, known := n.Value()
	if !known {
		return unknown
	}
	return FormatSeconds(v)
}

func FormatSeconds(v float64) string {
	switch {
	case v < 0.0995:
		return fmt.Sprintf("%.1f ms", 1000*v)
	case v < 0.9995:
		return fmt.Sprintf("%.0f ms", 1000*v)
	case v < 60:
		return fmt.Sprintf("%.1f s", v)
	case v < 2*3600:
		return fmt.Sprintf("%.0f min", v/60)
	case v < 48*3600:
		return fmt.Sprintf("%.0f h", v/3600)
	default:
		return fmt.Sprintf("%.0f d", v/86400)
	}
}

func formatAgo(t api.Time, now time.Time) string {
	n, known := t.Age(now).Value()
	switch {
	case !known:
		return "never"
	case n < 1:
		return "< 1 s ago" // milliseconds would flicker, and say nothing
	default:
		return FormatSeconds(n) + " ago"
	}
}

// formatReporting says how many Envoys report, and which do not. It is empty for what is no Envoy.
func formatReporting(r api.Reporting) string {
	expected, known := r.Expected.Value()
	if !known {
		return ""
	}
	words := fmt.Sprintf("%.0f of %.0f", r.Reporting.Or(0), expected)
	if idle := r.Idle.Or(0); idle > 0 {
		words += fmt.Sprintf(", %.0f idle", idle)
	}
	if len(r.Missing) == 0 {
		return words
	}
	words += ", without " + strings.Join(r.Missing, ", ")
	if more := int(r.NotReporting().Or(0)) - len(r.Missing); more > 0 {
		words += fmt.Sprintf(" and %d more", more)
	}
	return words
}

func FormatProblems(problems []api.Problem) string {
	messages := make([]string, 0, len(problems))
	for _, p := range problems {
		messages = append(messages, p.Message)
	}
	return strings.Join(messages, "; ")
}

// FormatAge is an age in words, of a decision for example.
func FormatAge(age api.Number) string {
	if _, known := age.Value(); !known {
		return "never"
	}
	return FormatDuration(age) + " ago"
}

// FormatBlame is the answer to whether Steelyard is the cause.
func FormatBlame(b api.Blame) string {
	return map[api.Blame]string{api.BlameNo: "No.", api.BlameYes: "Yes.", api.BlameInPart: "In part.",
		api.BlameUnknown: "Not known."}[b]
}

func Names(clusters []api.Cluster) (out []string) {
	for i := range clusters {
		out = append(out, clusters[i].Name)
	}
	return out
}

// MaxEventText is the longest reason that is shown, in bytes.
const MaxEventText = 4 << 10

// Clip cuts a text at a whole rune.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-3], "") + "..."
}

// InOneLine is an error that was joined of several.
func InOneLine(s string) string { return strings.Join(strings.Split(strings.TrimSpace(s), "\n"), "; ") }

// OverrideText is an override in words.
func OverrideText(o api.Override) string {
	if o.Kind == api.OverridePin {
		return fmt.Sprintf("pinned to %.4g %% of the requests by %s until %s%s", 100*o.Share.Or(0), OrUnknown(o.By),
			clock(o.Until), because(o.Reason))
	}
	return fmt.Sprintf("drained by %s until %s: it gets no new requests%s", OrUnknown(o.By), clock(o.Until),
		because(o.Reason))
}

// clock is a time for a sentence.
func clock(t api.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func BoolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// refusalMemory is for how long a refusal is a problem: what was refused tries again within seconds.
const refusalMemory = time.Minute

// Listed names the first of many.
func Listed(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return sprint("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// refusedRecently is how long a refusal is a problem: long enough to be seen, short enough for
// the problem to be current.
const refusedRecently = 5 * time.Minute

// within reports whether t is no longer ago than that.
func within(t api.Time, now time.Time, ago time.Duration) bool {
	return !t.IsZero() && now.Sub(t.Time) < ago
}

// lastWorked is the part of a sentence about when a source last worked.
func lastWorked(s api.SourceStatus, now time.Time) string {
	if s.LastSuccess.IsZero() {
		return ", and has never worked"
	}
	return fmt.Sprintf(", last worked %s ago", FormatSeconds(s.LastSuccess.Age(now).Or(0)))
}

// because is the part of a sentence that gives a cause, if there is one.
func because(cause string) string {
	if cause == "" {
		return ""
	}
	return ": " + cause
}

func OrUnknown(s string) string {
	if strings.TrimSpace(s) == "" {
		return "no reason given"
	}
	return s
}
