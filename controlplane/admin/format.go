package admin

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"steelyard/controlplane/view"
)

// The formats below are those of the page. assets/page.js has the same ones
// under the same names, for the polls that follow.

// unknown stands where there is no value.
const unknown = "–"

func formatText(s string) string {
	if s == "" {
		return unknown
	}
	return s
}

func formatFixed(n view.Number, decimals int) string {
	v, known := n.Value()
	if !known {
		return unknown
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

func formatInt(n view.Number) string  { return formatFixed(n, 0) }
func formatNum1(n view.Number) string { return formatFixed(n, 1) }
func formatNum2(n view.Number) string { return formatFixed(n, 2) }
func formatCount(n uint64) string     { return strconv.FormatUint(n, 10) }

func formatPercent(n view.Number) string  { return formatFixed(percent(n), 1) }
func formatPercent2(n view.Number) string { return formatFixed(percent(n), 2) }

func percent(n view.Number) view.Number {
	v, known := n.Value()
	if !known {
		return n
	}
	return view.Num(100 * v)
}

// formatClock is the time of day, in the zone that logs are best compared in.
func formatClock(t view.Time) string { return t.UTC().Format("15:04:05") + " UTC" }

// formatDuration is a duration in the unit a person would say it in.
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

func formatYes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func formatReady(b bool) string {
	if b {
		return "ready"
	}
	return "not ready"
}

// formatReporting says how many Envoys report, and which do not. It is empty for what is
// no Envoy.
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

// formatFollows says whether an Envoy follows its runtime values.
func formatFollows(r Runtime) string {
	switch {
	case !r.Subscribed:
		return unknown
	case r.Nack != "":
		return "refuses"
	case r.InSync:
		return "yes"
	}
	return "not yet"
}

func formatProblems(problems []view.Problem) string {
	messages := make([]string, 0, len(problems))
	for _, p := range problems {
		messages = append(messages, p.Message)
	}
	return strings.Join(messages, "; ")
}

// The box in which a line of shares is drawn.
const (
	sparkWidth  = 120
	sparkHeight = 20
)

// spark is the path of a line of shares over equally spaced moments, with 0 at
// the bottom and top at the top; it breaks where the share is unknown.
func spark(shares []view.Number, top float64) string {
	var path strings.Builder
	pen := "M"
	for i, n := range shares {
		v, known := n.Value()
		if !known {
			pen = "M"
			continue
		}
		x := float64(sparkWidth)
		if len(shares) > 1 {
			x = sparkWidth * float64(i) / float64(len(shares)-1)
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", pen, x, sparkY(v, top))
		pen = "L"
	}
	return path.String()
}

// sparkY leaves a pixel above and below for the width of the line.
func sparkY(share, top float64) float64 {
	if top <= 0 {
		return sparkHeight - 1
	}
	return 1 + (sparkHeight-2)*(1-math.Min(1, share/top))
}
