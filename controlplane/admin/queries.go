package admin

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"steelyard/controlplane/admin/history"
	"steelyard/internal/api"
)

// defaultWindow is how far back the history goes by default.
const defaultWindow = 5 * time.Minute

// ordering is the order and the limit of a list, from the query.
type ordering struct {
	worstFirst bool
	limit      int // 0: all
}

func parseOrder(q url.Values) (ordering, error) {
	var o ordering
	switch sort := q.Get("sort"); sort {
	case "", "name":
	case "worst":
		o.worstFirst = true
	default:
		return o, fmt.Errorf("sort=%q is not known: write name or worst", sort)
	}
	var err error
	o.limit, err = parseCount(q, "limit")
	return o, err
}

// longestWindow is how far back the history goes.
const longestWindow = history.HistoryFor

func parseWindow(q url.Values, now time.Time) (history.WindowQuery, error) {
	window := defaultWindow
	if s := q.Get("window"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil || d <= 0 || d > longestWindow {
			return history.WindowQuery{}, fmt.Errorf("window=%q is not a duration above 0 and up to 1h: for "+
				"example, 5m", s)
		}
		window = d
	}
	fields, err := parseFields(q)
	if err != nil {
		return history.WindowQuery{}, err
	}
	points, err := parseCount(q, "points")
	return history.WindowQuery{Since: now.Add(-window), Points: points, Addresses: q["endpoint"], Fields: fields}, err
}

// parseFields reads the fields of endpoints; nil where none are named.
func parseFields(q url.Values) ([]string, error) {
	s := q.Get("fields")
	if s == "" {
		return nil, nil
	}
	fields := []string{}
	if s == "none" {
		return fields, nil
	}
	for _, field := range strings.Split(s, ",") {
		if !slices.Contains(api.HistoryFields(), field) {
			return nil, fmt.Errorf("fields=%q: %q is not known: write some of %s, or none", s, field,
				strings.Join(api.HistoryFields(), ","))
		}
		if !slices.Contains(fields, field) {
			fields = append(fields, field)
		}
	}
	return fields, nil
}

// parseCount reads a number that is not negative; one that is not given is 0.
func parseCount(q url.Values, key string) (int, error) {
	s := q.Get(key)
	if s == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s=%q is not a whole number of at least 0 (0 means all)", key, s)
	}
	return n, nil
}

func parseID(q url.Values, key string) (uint64, error) {
	s := q.Get(key)
	if s == "" {
		return 0, nil
	}
	id, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%s=%q is not the id of an event", key, s)
	}
	return id, nil
}

// parseAt reads the time that is asked about: a time, a duration that it is ago, or nothing for now.
func parseAt(q url.Values, now time.Time) (past bool, at time.Time, err error) {
	s := q.Get("at")
	if s == "" {
		return false, now, nil
	}
	if ago, err := time.ParseDuration(s); err == nil && ago >= 0 {
		return true, now.Add(-ago), nil
	}
	at, err = time.Parse(time.RFC3339, s)
	if err != nil || at.After(now) {
		return false, now, fmt.Errorf("at=%q is not a past time: for example, 2026-03-14T12:00:00Z, or 5m for five "+
			"minutes ago", s)
	}
	return true, at, nil
}
