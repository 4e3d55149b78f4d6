package conditions

import (
	"time"

	"steelyard/internal/api"
)

var noon = time.Date(2026, 3, 14, 12, 0, 0, 250e6, time.UTC)

func failure(message string) api.Problem {
	return api.Problem{Severity: api.SeverityError, Message: message}
}

func warning(message string) api.Problem {
	return api.Problem{Severity: api.SeverityWarning, Message: message}
}
