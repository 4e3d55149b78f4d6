package kubernetes

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"

	"steelyard/internal/api"
	"steelyard/internal/files"
)

// TokenFile is where Kubernetes mounts the token of a Pod's service account.
const TokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// OwnPod is the Pod that the token in a file was made for: with TokenFile the Pod that this process runs in. Outside of
// a Pod, or in one without a token, all is empty.
func OwnPod(ctx context.Context, tokenFile string) api.OwnPod {
	token, err := files.ReadAll(ctx, tokenFile, maxFile)
	if err != nil {
		return api.OwnPod{}
	}
	return ownPodOf(string(token))
}

// ownPodOf reads whom a token was made for. Its signature does not matter: it is the process' own, and used for texts.
func ownPodOf(token string) (p api.OwnPod) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return p
	}
	var claims struct {
		Kubernetes struct {
			Namespace      string
			Pod            struct{ Name string }
			ServiceAccount struct{ Name string }
		} `json:"kubernetes.io"`
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(body, &claims) != nil || claims.Kubernetes.Pod.Name == "" {
		return p
	}
	k := claims.Kubernetes
	return api.OwnPod{Namespace: k.Namespace, Name: k.Pod.Name, ServiceAccount: k.ServiceAccount.Name}
}
