package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/transport"

	"steelyard/internal/files"
)

const (
	// maxFile bounds a kubeconfig and each file that it names, in bytes.
	maxFile = 1 << 20
	// tokenPeriod is how long the token of a file is used before it is read again, as in client-go.
	tokenPeriod = time.Minute
)

// fromFile reads a kubeconfig, and the namespace of its current context. client-go would wait for a named pipe.
func fromFile(ctx context.Context, path string) (*rest.Config, string, error) {
	content, err := files.ReadAll(ctx, path, maxFile)
	if err != nil {
		return nil, "", err
	}
	parsed, err := clientcmd.Load(content)
	if err != nil {
		return nil, "", err
	}
	for _, c := range parsed.Clusters {
		c.LocationOfOrigin = path
	}
	for _, u := range parsed.AuthInfos {
		u.LocationOfOrigin = path
	}
	if err := clientcmd.ResolveLocalPaths(parsed); err != nil {
		return nil, "", err
	}
	if err := readable(ctx, parsed); err != nil {
		return nil, "", err
	}
	loader := clientcmd.NewNonInteractiveClientConfig(*parsed, parsed.CurrentContext,
		&clientcmd.ConfigOverrides{}, nil)
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, "", err
	}
	namespace, _, err := loader.Namespace()
	return config, namespace, err
}

// readable reads each file that the current context names, before client-go does, which follows them by itself.
func readable(ctx context.Context, parsed *api.Config) error {
	current := parsed.Contexts[parsed.CurrentContext]
	if current == nil {
		return nil // client-go says what is missing
	}
	cluster := cmp.Or(parsed.Clusters[current.Cluster], new(api.Cluster))
	user := cmp.Or(parsed.AuthInfos[current.AuthInfo], new(api.AuthInfo))
	for _, file := range []struct{ key, path string }{
		{"certificate-authority", cluster.CertificateAuthority}, {"client-certificate", user.ClientCertificate},
		{"client-key", user.ClientKey}, {"tokenFile", user.TokenFile},
	} {
		if file.path == "" {
			continue
		}
		if _, err := files.ReadAll(ctx, file.path, maxFile); err != nil {
			return fmt.Errorf("%s: %w", file.key, err)
		}
	}
	return nil
}

// rereadToken makes a token that the API server refuses be read again for the next request. By itself, client-go reads
// the file once a minute, and waits for it.
func rereadToken(config *rest.Config) {
	if config.BearerTokenFile == "" {
		return
	}
	tokens := transport.NewCachedTokenSource(tokenFile(config.BearerTokenFile))
	config.BearerToken, config.BearerTokenFile = "", ""
	config.Wrap(transport.ResettableTokenSourceWrapTransport(tokens))
}

// A tokenFile is the path of a file that holds the token.
type tokenFile string

// Token reads the file.
func (f tokenFile) Token() (*oauth2.Token, error) {
	content, err := files.ReadAll(context.Background(), string(f), maxFile)
	if err != nil {
		return nil, fmt.Errorf("reading the token of the Kubernetes API: %w", err)
	}
	token := strings.TrimSpace(string(content))
	if token == "" {
		return nil, errors.New("reading the token of the Kubernetes API: " + string(f) + " is empty")
	}
	return &oauth2.Token{AccessToken: token, Expiry: time.Now().Add(tokenPeriod)}, nil
}
