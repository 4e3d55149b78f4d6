package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"steelyard/cmd/internal/authority"
	"steelyard/controlplane/discovery/kubernetes"
)

// certificates has the flags of the command.
type certificates struct {
	dir, authority, client, kubeconfig string
	services                           []string
	api                                *kubernetes.Client
}

func certificatesCommand() *cobra.Command {
	var o certificates
	c := &cobra.Command{
		Use:   "certificates --dir DIR",
		Short: "Make the certificates of an installation on Kubernetes that has no issuer",
		Long: `Make the certificates of an installation on Kubernetes that has no issuer such as
cert-manager. The first one that runs makes an authority and writes it into a Secret;
all others use it. DIR gets the certificate of the listeners (tls.crt, tls.key) and the
authority (ca.crt), the Secret of --client the same for Envoys. Certificates that are
there and valid stay. All are valid for ten years.

Both Secrets have to exist, empty or not, in the namespace of the Pod.`,
		Example: `  steelyard certificates --dir /etc/steelyard-tls --service steelyard-xds --service steelyard-admin`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.dir == "" {
				return usagef("--dir is missing: write the folder for the certificate of the listeners")
			}
			o.api, err = kubernetes.New(kubernetes.Options{Kubeconfig: o.kubeconfig, Log: slog.New(slog.DiscardHandler),
				Requested: func(string, string, string) {}})
			if errors.Is(err, kubernetes.ErrNoConfiguration) { // which advises on the configuration of serve
				return usagef("this process runs in no Pod with a service account: write --kubeconfig FILE")
			}
			if err != nil {
				return err
			}
			return o.make(cmd.Context(), time.Now())
		},
	}
	f := c.Flags()
	f.StringVar(&o.dir, "dir", "", "folder for the certificate of the listeners (required)")
	f.StringArrayVar(&o.services, "service", nil, "a Service of the listeners; repeat for more")
	f.StringVar(&o.authority, "authority", "steelyard-ca", "Secret of the authority")
	f.StringVar(&o.client, "client", "steelyard-envoy-tls", "Secret for Envoys")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig (default: the service account of the Pod)")
	return c
}

// The keys of a Secret of the type kubernetes.io/tls, and of what cert-manager writes.
const (
	certKey, keyKey, caKey = "tls.crt", "tls.key", "ca.crt"
	// envoyName is in the certificate of Envoys; xds.clients may name it.
	envoyName = "gateway.envoys.steelyard"
)

// make makes what is missing. Several replicas may do so at the same time.
func (o *certificates) make(ctx context.Context, now time.Time) error {
	a, err := again(func() (*authority.Authority, error) { return o.signer(ctx, now) })
	if err != nil {
		return fmt.Errorf("the authority in the Secret %s: %w", o.authority, err)
	}
	if _, err := again(func() (any, error) { return nil, o.forEnvoys(ctx, a, now) }); err != nil {
		return fmt.Errorf("the certificate for Envoys in the Secret %s: %w", o.client, err)
	}
	return o.forListeners(a, now)
}

// again repeats what another replica was faster in.
func again[T any](try func() (T, error)) (T, error) {
	for {
		if v, err := try(); !errors.Is(err, kubernetes.ErrChanged) {
			return v, err
		}
	}
}

// signer reads the authority, or makes it. One that cannot be used is an error: replacing it would cut off all Envoys.
func (o *certificates) signer(ctx context.Context, now time.Time) (*authority.Authority, error) {
	secret, err := o.api.Secret(ctx, o.authority)
	if err != nil {
		return nil, err
	}
	if len(secret.Data[certKey])+len(secret.Data[keyKey]) > 0 {
		return authority.Load(authority.Pair{Cert: secret.Data[certKey], Key: secret.Data[keyKey]}, now)
	}
	a, err := authority.New(o.authority, now)
	if err != nil {
		return nil, err
	}
	return a, o.api.FillSecret(ctx, secret, map[string][]byte{certKey: a.Cert, keyKey: a.Key})
}

func (o *certificates) forEnvoys(ctx context.Context, a *authority.Authority, now time.Time) error {
	secret, err := o.api.Secret(ctx, o.client)
	if err != nil {
		return err
	}
	has := authority.Pair{Cert: secret.Data[certKey], Key: secret.Data[keyKey]}
	if a.Signed(has, envoyName, now) && string(secret.Data[caKey]) == string(a.Cert) {
		return nil
	}
	made, err := a.Client(envoyName, now)
	if err != nil {
		return err
	}
	return o.api.FillSecret(ctx, secret, map[string][]byte{certKey: made.Cert, keyKey: made.Key, caKey: a.Cert})
}

// forListeners writes the certificate of the listeners, which is this Pod's own.
func (o *certificates) forListeners(a *authority.Authority, now time.Time) error {
	var hosts []string // the first one is the name by which replicas know each other
	for _, service := range o.services {
		host := strings.Join([]string{service, o.api.Namespace(), "svc"}, ".")
		hosts = append(hosts, host, host+".cluster.local")
	}
	made, err := a.Server(append(hosts, "localhost", "127.0.0.1", "::1"), now)
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{certKey: made.Cert, keyKey: made.Key, caKey: a.Cert} {
		if err := os.WriteFile(filepath.Join(o.dir, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}
