package conditions

import (
	"fmt"
	"time"

	"steelyard/internal/api"
)

const (
	// ackPatience is how long an Envoy may take to answer an assignment. On a healthy stream it takes milliseconds.
	ackPatience = 5 * time.Second
	// decisionPatience is how old a decision may be before the loop counts as stuck. It steps many times a second.
	decisionPatience = 5 * time.Second
	// logPatience is how long a write of the log may take before its reader counts as
	// stalled, and logMemory how long dropped lines are a problem.
	logPatience = time.Second
	logMemory   = 10 * time.Minute
)

// A problemList collects problems.
type problemList []api.Problem

func (l *problemList) add(s api.Severity, format string, args ...any) {
	*l = append(*l, api.Problem{Severity: s, Message: fmt.Sprintf(format, args...)})
}

func (l *problemList) warn(format string, args ...any) { l.add(api.SeverityWarning, format, args...) }

func (l *problemList) fail(format string, args ...any) { l.add(api.SeverityError, format, args...) }

// Worst is the highest severity among problems, empty when there are none.
func Worst(problems []api.Problem) api.Severity {
	var w api.Severity
	for _, p := range problems {
		if Rank(p.Severity) > Rank(w) {
			w = p.Severity
		}
	}
	return w
}

func Rank(s api.Severity) int {
	switch s {
	case api.SeverityError:
		return 2
	case api.SeverityWarning:
		return 1
	default:
		return 0
	}
}
