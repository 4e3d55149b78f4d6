package admin

import "time"

// refusalsLogged is the least time between two log lines of one kind of refusal.
const refusalsLogged = time.Minute

// A logLimit is when a line about refusals was last written.
type logLimit struct{ last time.Time }

// due reports whether a line may be written now, and notes that it is.
func (l *logLimit) due(now time.Time) bool {
	if !l.last.IsZero() && now.Sub(l.last) < refusalsLogged {
		return false
	}
	l.last = now
	return true
}
