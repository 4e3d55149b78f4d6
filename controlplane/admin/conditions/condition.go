package conditions

import (
	"fmt"
	"strings"
	"time"

	"steelyard/internal/api"
)

// The kinds of incidents. docs/admin-api.md describes them.
const (
	kindStuck          api.IncidentKind = "stuck"
	kindNoConfig       api.IncidentKind = "no_config"
	kindConfigRefused  api.IncidentKind = "config_refused"
	kindNoEnvoys       api.IncidentKind = "no_envoys"
	kindPortFull       api.IncidentKind = "port_full"
	kindCertificate    api.IncidentKind = "certificate"
	kindHandshakes     api.IncidentKind = "handshakes_refused"
	kindDenied         api.IncidentKind = "clients_denied"
	kindLog            api.IncidentKind = "log"
	kindPools          api.IncidentKind = "pools"
	kindGateway        api.IncidentKind = "envoy_gateway"
	kindPods           api.IncidentKind = "pod_actions"
	kindNotReady       api.IncidentKind = "not_ready"
	kindNoEndpoints    api.IncidentKind = "no_endpoints"
	kindNoDecision     api.IncidentKind = "no_decision"
	kindNoPush         api.IncidentKind = "no_push"
	kindDrops          api.IncidentKind = "drops"
	kindNoShedding     api.IncidentKind = "shedding_without_effect"
	kindNoQueue        api.IncidentKind = "queue_without_effect"
	kindNoOwner        api.IncidentKind = "queue_without_owner"
	kindSource         api.IncidentKind = "source"
	kindFull           api.IncidentKind = "full"
	kindOverloaded     api.IncidentKind = "overloaded"
	kindAsleep         api.IncidentKind = "asleep"
	kindNotFollowed    api.IncidentKind = "not_followed"
	kindDispute        api.IncidentKind = "dispute"
	kindEndpoint       api.IncidentKind = "endpoint"
	kindUnused         api.IncidentKind = "endpoint_unused"
	kindCounters       api.IncidentKind = "counters"
	kindRefuses        api.IncidentKind = "envoy_refuses"
	kindBehind         api.IncidentKind = "envoy_behind"
	kindUnknownCluster api.IncidentKind = "envoy_asks_unknown"
	kindSilent         api.IncidentKind = "envoy_silent"
	kindGone           api.IncidentKind = "envoy_gone"
)

// groupTitles end the sentence "Several endpoints of llama ...".
var groupTitles = map[api.IncidentKind]string{
	kindEndpoint:       "stall, fail or cannot be read",
	kindUnused:         "get nothing from the Envoys",
	kindCounters:       "have counters that are wrong",
	kindRefuses:        "refuse their weights",
	kindBehind:         "do not answer",
	kindUnknownCluster: "subscribe to a cluster that is not configured",
	kindSilent:         "do not report their requests",
	kindGone:           "disconnected without closing their streams",
	kindDispute:        "have reports that conflict with all others",
}

// sprint is Sprintf, with a shorter name for the sentences here.
func sprint(format string, args ...any) string { return fmt.Sprintf(format, args...) }

// newCondition returns a condition with its title; explain adds the sentences.
func newCondition(kind api.IncidentKind, severity api.Severity, subject api.Subject, title string) condition {
	return condition{Incident: api.Incident{ID: conditionID(kind, subject.Cluster, subject.Name), Kind: kind,
		Severity: severity, Subject: subject, Title: title, Steelyard: api.BlameUnknown,
		Because: "Nothing that Steelyard sees shows the cause."},
		keepFor: DefaultKeepFor}
}

func conditionID(kind api.IncidentKind, parts ...string) string {
	id := string(kind)
	for _, part := range parts {
		if part != "" {
			id += "/" + part
		}
	}
	return id
}

// explain adds why it is so, whether Steelyard is the cause, and what to do.
func (f condition) explain(why string, blame api.Blame, because, next, command string) condition {
	f.Why, f.Steelyard, f.Because, f.Next, f.Command = Clip(why, MaxEventText), blame, because, next, command
	return f
}

func checkCommand(file string) string {
	if file == "" {
		return ""
	}
	return "steelyard check --config " + quoted(file)
}

// quoted quotes s for a shell where that is necessary.
func quoted(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// An Observation is everything that was seen at one moment; incidents are found in it.
type Observation struct {
	Now       time.Time
	Status    api.Status
	Stuck     []string
	Clusters  []api.Cluster // with what the handler adds: Served, Counts
	Clients   []api.Client
	Elsewhere []api.OtherEnvoy
	Left      []api.LeftEnvoy
	Configs   []Configured    // that were applied, the latest last
	Refusing  map[string]bool // by cluster: its queue has just refused requests
}

// A Configured is a configuration that was applied.
type Configured struct {
	At         time.Time
	Generation uint64
	Clusters   []string // that it added or changed, sorted
}

// A condition is an incident of this moment only, as an alerting rule evaluates it once.
type condition struct {
	api.Incident
	// began is when it began, where that is known; else it began when it was first found.
	began time.Time
	// pendingFor is how long it has to last before it is shown, keepFor how long it is shown after it was last found.
	pendingFor, keepFor time.Duration
	// rank orders conditions of one id: the title of the highest stays.
	rank int
	// inhibitedBy is the id of the condition that shows the same cause of all its endpoints or Envoys.
	inhibitedBy string
}

// The bounds and times of incidents.
const (
	MaxIncidents = 200
	// DefaultKeepFor is how long an incident stays after its cause was last seen, so that it does not flicker.
	DefaultKeepFor = 10 * time.Second
	// afterConfig is how soon after a change of the configuration an incident has to begin to be blamed on it.
	afterConfig = 30 * time.Second
	// several is how many conditions of a kind in one cluster become one incident, until there are fewer than two.
	several = 4
)
