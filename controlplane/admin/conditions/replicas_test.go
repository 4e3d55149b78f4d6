package conditions

import (
	"strings"
	"testing"
	"time"

	"steelyard/internal/api"
)

func TestReplicasThatAreGoneOrCutOffAreProblems(t *testing.T) {
	ago := func(d time.Duration) api.Time { return api.At(noon.Add(-d)) }
	gone := []api.Replica{{Name: "b", State: "live", Follows: true, LastMessage: ago(time.Second / 10)},
		{Name: "c", Address: "10.0.0.3:18000", State: "gone", LastMessage: ago(3 * time.Second), Error: "refused"}}
	for name, c := range map[string]struct {
		replicas api.Replicas
		severity api.Severity
		text     string
	}{
		"none": {api.Replicas{}, "", ""},
		"connected": {api.Replicas{Enabled: true, Connected: true, Others: gone[:1],
			Messages: api.ReplicaMessages{Foreign: 4, LastForeign: ago(time.Minute)}}, "", ""},
		"one is gone": {api.Replicas{Enabled: true, Connected: true, Others: gone}, api.SeverityWarning,
			"replica c at 10.0.0.3:18000 is gone: refused; its last message came 3.0 s ago"},
		"one was never heard": {api.Replicas{Enabled: true, Connected: true, Others: []api.Replica{
			{Address: "10.0.0.4:18000", State: "unreachable", Error: "timeout"}}}, api.SeverityWarning,
			"replica 10.0.0.4:18000 is unreachable: timeout"},
		"one lacks the counts of this one": {api.Replicas{Enabled: true, Connected: true, Others: []api.Replica{
			{Name: "b", State: "live"}}}, api.SeverityWarning, "replica b does not follow this one"},
		"counts are missing": {api.Replicas{Enabled: true, Since: ago(5 * time.Second), Error: "timeout",
			Others: gone[:1]}, api.SeverityError, "counts of other replicas are missing for 5.0 s: timeout; this one " +
			"uses the counts of the Envoys that it knows of, and scrapes every endpoint"},
		"the others are not found again": {api.Replicas{Enabled: true, Connected: true, Lookup: "no such host",
			Others: gone[:1]}, api.SeverityWarning, "not found again: no such host; those found before stay"},
		"another version": {api.Replicas{Enabled: true, Connected: true, Messages: api.ReplicaMessages{Foreign: 4,
			LastForeign: ago(time.Second)}}, api.SeverityWarning, "4 messages of replicas of another version"},
	} {
		got := replicaProblems(c.replicas, noon)
		if c.text == "" {
			if len(got) != 0 {
				t.Errorf("%s: %v", name, got)
			}
			continue
		}
		if len(got) != 1 || got[0].Severity != c.severity || !strings.Contains(got[0].Message, c.text) {
			t.Errorf("%s: %v, want one %s with %q", name, got, c.severity, c.text)
		}
	}
}
