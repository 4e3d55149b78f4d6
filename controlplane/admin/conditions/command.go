package conditions

import (
	"cmp"
	"regexp"
	"strings"

	"steelyard/internal/api"
)

// Commands for the machine that Steelyard runs on; asRun has those for a Pod.
const (
	restartCommand     = "systemctl restart steelyard"
	logCommand         = "journalctl -u steelyard -n 5"
	connectionsCommand = "ss -tn state established"
)

// asRun is a command as it can be run where Steelyard is: in a Pod, by kubectl.
func asRun(s *api.Status, command string) string {
	rest, own := strings.CutPrefix(command, "steelyard ")
	switch pod := s.OwnPod; {
	case own && s.Program != "":
		return s.Program + " " + rest
	case pod.Name == "":
		return command
	case command == restartCommand:
		return sprint("kubectl -n %s %s", pod.Namespace, restartOf(pod.Name))
	case command == logCommand:
		return sprint("kubectl -n %s logs %s --tail 5", pod.Namespace, pod.Name)
	case command == connectionsCommand: // the image has no such program
		return ""
	}
	return command
}

// ofDeployment is the name of a Pod of a Deployment: the letters and digits are those that Kubernetes makes names of.
var ofDeployment = regexp.MustCompile(`^(.+)-[bcdfghjklmnpqrstvwxz2456789]{6,10}-[bcdfghjklmnpqrstvwxz2456789]{5}$`)

// restartOf restarts all replicas of a Deployment, one after the other: what needs a restart in one, such as a change
// of the configuration, mostly does in all. Of others it is the one Pod, whose controller makes another.
func restartOf(pod string) string {
	if m := ofDeployment.FindStringSubmatch(pod); m != nil {
		return "rollout restart deployment/" + m[1]
	}
	return "delete pod " + pod
}

// namespaceIn finds the namespace that an error of the Kubernetes API is about.
var namespaceIn = regexp.MustCompile(`in (?:the )?namespace "?([a-z0-9][a-z0-9-]*)`)

// rightsCommand lists what Steelyard may do in the namespace that an error names. Without its service account the
// answer would be about the person who runs the command. No right helps where the API does not answer or has no such
// resource, and of credentials that it refuses it says no more.
func rightsCommand(s *api.Status, problem string) string {
	pod := s.OwnPod
	switch {
	case strings.Contains(problem, "Steelyard may not "):
	case strings.Contains(problem, "install the CustomResourceDefinitions"):
		return "kubectl api-resources --api-group inference.networking.k8s.io"
	case strings.Contains(problem, "credentials") || strings.Contains(problem, "Unauthorized"):
		return ""
	default:
		return "kubectl get --raw /readyz"
	}
	if pod.ServiceAccount == "" {
		return "kubectl auth can-i --list"
	}
	namespace := pod.Namespace
	if m := namespaceIn.FindStringSubmatch(problem); m != nil {
		namespace = cmp.Or(m[1], namespace)
	}
	return sprint("kubectl auth can-i --list -n %s --as system:serviceaccount:%s:%s", namespace, pod.Namespace,
		pod.ServiceAccount)
}
