package admin

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"steelyard/controlplane/view"
)

// The formats below are those of the page before its script runs, and of the sentences.

// unknown stands where there is no value.
const unknown = "–"

func formatFixed(n view.Number, decimals int) string {
	v, known := n.Value()
	if !known {
		return unknown
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

func formatPercent(n view.Number) string {
	v, known := n.Value()
	if !known {
		return unknown
	}
	if v > 0 && v < 0.0005 {
		return "< 0.1 %"
	}
	return strconv.FormatFloat(100*v, 'f', 1, 64) + " %"
}

// formatClock is the time of day, in the zone that logs are best compared in.
func formatClock(t view.Time) string { return t.UTC().Format("15:04:05") + " UTC" }

// formatDuration formats a duration in the unit that a person would use.
func formatDuration(n view.Number) string {
	v, known := n.Value()
	if !known {
		return unknown
	}
	return formatSeconds(v)
}

func formatSeconds(v float64) string {
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

func formatAgo(t view.Time, now time.Time) string {
	n, known := t.Age(now).Value()
	switch {
	case !known:
		return "never"
	case n < 1:
		return "< 1 s ago" // milliseconds would flicker, and say nothing
	default:
		return formatSeconds(n) + " ago"
	}
}

// formatReporting says how many Envoys report, and which do not. It is empty for what is no Envoy.
func formatReporting(r view.Reporting) string {
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

func formatProblems(problems []view.Problem) string {
	messages := make([]string, 0, len(problems))
	for _, p := range problems {
		messages = append(messages, p.Message)
	}
	return strings.Join(messages, "; ")
}

// formatAge is an age in words, of a decision for example.
func formatAge(age view.Number) string {
	if _, known := age.Value(); !known {
		return "never"
	}
	return formatDuration(age) + " ago"
}

// formatBlame is the answer to whether Steelyard is the cause.
func formatBlame(b view.Blame) string {
	return map[view.Blame]string{view.BlameNo: "No.", view.BlameYes: "Yes.", view.BlameInPart: "In part.",
		view.BlameUnknown: "Not known."}[b]
}
