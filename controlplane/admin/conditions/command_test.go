package conditions

import (
	"strings"
	"testing"
	"time"

	"steelyard/internal/api"
)

func TestACommandToCopyIsOneThatRunsWhereSteelyardIsReached(t *testing.T) {
	const account = "--as system:serviceaccount:models:balancer"
	replica := api.OwnPod{Namespace: "models", Name: "my-steelyard-7c9d4b6f8-fghjk", ServiceAccount: "balancer"}
	member := api.OwnPod{Namespace: "models", Name: "steelyard-0"}
	for _, c := range []struct {
		pod           api.OwnPod
		command, want string
	}{
		{api.OwnPod{}, "steelyard top llama", "steelyard top llama"},
		{api.OwnPod{}, restartCommand, "systemctl restart steelyard"},
		{api.OwnPod{}, logCommand, "journalctl -u steelyard -n 5"},
		{replica, "steelyard top llama", "kubectl -n models exec my-steelyard-7c9d4b6f8-fghjk -- /steelyard top llama"},
		{replica, "kubectl get --raw /api", "kubectl get --raw /api"},
		{replica, "", ""},
		{replica, restartCommand, "kubectl -n models rollout restart deployment/my-steelyard"},
		{member, restartCommand, "kubectl -n models delete pod steelyard-0"},
		{replica, logCommand, "kubectl -n models logs my-steelyard-7c9d4b6f8-fghjk --tail 5"},
		{replica, connectionsCommand, ""},
		{replica, rightsCommand(&api.Status{OwnPod: replica}, "Steelyard may not create pods/eviction in namespace "+
			"others: apply manifests/components/pod-eviction there"),
			"kubectl auth can-i --list -n others " + account},
		{replica, rightsCommand(&api.Status{OwnPod: replica}, "Steelyard may not watch nodes"),
			"kubectl auth can-i --list -n models " + account},
		{api.OwnPod{}, rightsCommand(&api.Status{}, "Steelyard may not watch nodes"), "kubectl auth can-i --list"},
		{replica, rightsCommand(&api.Status{OwnPod: replica}, "connection refused"), "kubectl get --raw /readyz"},
		{replica, rightsCommand(&api.Status{OwnPod: replica}, "the Kubernetes API has no inferencepools: install the "+
			"CustomResourceDefinitions of the Gateway API Inference Extension"),
			"kubectl api-resources --api-group inference.networking.k8s.io"},
		{replica, rightsCommand(&api.Status{OwnPod: replica}, "the Kubernetes API server refuses the credentials"), ""},
	} {
		if got := asRun(&api.Status{Program: c.pod.Program(), OwnPod: c.pod}, c.command); got != c.want {
			t.Errorf("%q in %q is %q, want %q", c.command, c.pod.Name, got, c.want)
		}
	}
}

// Each incident that says what to run in a Pod says what can be run from where kubectl is.
func TestNoIncidentOfAPodNamesAProgramOfAMachine(t *testing.T) {
	pod := api.OwnPod{Namespace: "models", Name: "steelyard-7c9d4b6f8-fghjk", ServiceAccount: "steelyard"}
	p := &Observation{Now: noon, Stuck: []string{"loop"}, Status: api.Status{Program: pod.Program(), OwnPod: pod,
		LastReload: api.Reload{Error: "the section xds: " + api.RestartToChange},
		Log:        api.LogStatus{Error: "broken pipe"}}}
	p.Status.Pools.Error, p.Status.Pods.Error = "forbidden", "forbidden"
	p.Clusters = []api.Cluster{{Name: "llama", Decision: api.Decision{At: api.At(noon.Add(-time.Hour))}}}
	for _, c := range conditions(p) {
		for _, program := range []string{"systemctl", "journalctl", "steelyard "} {
			if strings.HasPrefix(c.Command, program) {
				t.Errorf("%s: %s", c.Title, c.Command)
			}
		}
	}
}
