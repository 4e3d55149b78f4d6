package conditions

import (
	"strings"
	"testing"
	"time"

	"steelyard/internal/api"
)

func TestReplicasThatAreGoneOrCutOffAreProblems(t *testing.T) {
	ago := func(d time.Duration) api.Time { return api.At(noon.Add(-d)) }
	gone := []api.Replica{{Name: "b", State: "live", LastMessage: ago(time.Second / 10)},
		{Name: "c", State: "gone", LastMessage: ago(3 * time.Second)}}
	for name, c := range map[string]struct {
		replicas api.Replicas
		severity api.Severity
		text     string
	}{
		"none": {api.Replicas{}, "", ""},
		"connected": {api.Replicas{Enabled: true, Connected: true, Others: gone[:1],
			Messages: api.ReplicaMessages{Foreign: 4, LastForeign: ago(time.Minute)}}, "", ""},
		"one is gone": {api.Replicas{Enabled: true, Connected: true, Others: gone}, api.SeverityWarning,
			"replica c is gone, its last message came 3.0 s ago"},
		"cut off": {api.Replicas{Enabled: true, Since: ago(5 * time.Second), Error: "refused", Others: gone},
			api.SeverityError, "cut off from the other replicas for 5.0 s: refused; this one uses only the counts " +
				"of its own Envoys, and scrapes every endpoint"},
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
