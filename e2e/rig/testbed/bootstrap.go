package testbed

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
)

// Silent are arguments of bootstrap for an Envoy that does not report its requests: its reports would take precedence
// over Redis and scrapes.
var Silent = []string{"--upstream-log=false", "--load-reports=false"}

// Exactly has Envoy follow the weights whatever requests it has open itself, so that traffic can be compared with the
// weights.
var Exactly = []string{"--lb-policy", "round_robin"}

// An Edit replaces a text of a bootstrap, which must have it, by another.
type Edit [2]string

// Edited returns a bootstrap with its edits.
func Edited(t testing.TB, text []byte, edits []Edit) []byte {
	t.Helper()
	for _, e := range edits {
		if !strings.Contains(string(text), e[0]) {
			t.Fatalf("the bootstrap does not contain %q", e[0])
		}
		text = []byte(strings.ReplaceAll(string(text), e[0], e[1]))
	}
	return text
}

// ToHTTP2 has an Envoy speak HTTP/2 to the servers.
var ToHTTP2 = Edit{"explicit_http_config: {http_protocol_options: {}}",
	"explicit_http_config: {http2_protocol_options: {}}"}

// Patient are the edits by which an Envoy waits for a picker that is short of CPU, instead of going by the weights.
var Patient = []Edit{{"message_timeout: 0.1s", "message_timeout: 10s"}, {"unhealthy_threshold: 2",
	"unhealthy_threshold: 1000"}}

// AsGateway has an Envoy ask its picker as gateways do: it sends it all bodies, and lets it override nothing but the
// time-out.
var AsGateway = []Edit{
	{"response_header_mode: SKIP", "response_header_mode: SEND"},
	{"request_body_mode: NONE", "request_body_mode: FULL_DUPLEX_STREAMED"},
	{"response_body_mode: NONE", "response_body_mode: FULL_DUPLEX_STREAMED"},
	{"request_trailer_mode: SKIP", "request_trailer_mode: SEND"},
	{"response_trailer_mode: SKIP", "response_trailer_mode: SEND"},
	{"allow_mode_override: true", "allow_mode_override: false"},
}

// Epochs returns what starts the processes of one Envoy. Each ends the one before it after the given time.
func Epochs(t *testing.T, text []byte, parentShutdown time.Duration) func(epoch int) *proc.Process {
	t.Helper()
	program, err := proc.Find(proc.ProgramEnvoy)
	if err != nil {
		t.Fatal(err)
	}
	dir := proctest.Dir(t)
	bootstrap, baseID := filepath.Join(dir, "bootstrap.yaml"), filepath.Join(dir, "base-id")
	if err := os.WriteFile(bootstrap, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return func(epoch int) *proc.Process {
		t.Helper()
		args := []string{
			"--config-path", bootstrap, "--concurrency", "1", "--log-level", "warning",
			"--drain-time-s", "1", "--parent-shutdown-time-s", strconv.Itoa(int(parentShutdown.Seconds())),
			"--restart-epoch", strconv.Itoa(epoch),
		}
		if epoch == 0 { // the first chooses what the others meet by
			args = append(args, "--use-dynamic-base-id", "--base-id-path", baseID)
		} else {
			id, err := os.ReadFile(baseID)
			if err != nil {
				t.Fatal(err)
			}
			args = append(args, "--base-id", string(id))
		}
		return proctest.Start(t, proc.Spec{Name: "envoy-" + strconv.Itoa(epoch), Path: program, Args: args, Dir: dir})
	}
}
