package kube

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	authentication "k8s.io/api/authentication/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"steelyard/e2e/rig/proc"
)

// Options say how to run the API.
type Options struct {
	Dir string // an existing folder for data, certificates and logs
	// APIServerArgs are more arguments of kube-apiserver, such as --etcd-compaction-interval=1s.
	APIServerArgs []string
}

// A Server is an etcd with a kube-apiserver. Its methods may be called from any
// goroutine, except that KillAPI and StartAPI exclude each other.
type Server struct {
	dir     string
	args    []string // of kube-apiserver
	address string   // of kube-apiserver
	token   string   // of an administrator
	etcd    *proc.Process
	api     *proc.Process
}

// Start runs both and returns when the API is ready. ctx bounds the start only.
func Start(ctx context.Context, o Options) (*Server, error) {
	s := &Server{dir: o.Dir, token: secret()}
	addrs, err := proc.FreeAddresses(3)
	if err != nil {
		return nil, err
	}
	s.address = addrs[2]
	if err := writeIdentities(s.dir, s.token); err != nil {
		return nil, fmt.Errorf("making certificates: %w", err)
	}
	if s.etcd, err = startEtcd(ctx, s.dir, addrs[0], addrs[1]); err != nil {
		return nil, err
	}
	s.args = append(apiServerArgs(s.dir, s.address, "http://"+addrs[0]), o.APIServerArgs...)
	if err := s.StartAPI(ctx); err != nil {
		return nil, errors.Join(err, s.etcd.Kill())
	}
	return s, nil
}

func startEtcd(ctx context.Context, dir, client, peer string) (*proc.Process, error) {
	return proc.StartReady(ctx, proc.Spec{Program: proc.ProgramEtcd, Dir: dir, Name: "etcd", Args: []string{
		"--data-dir", filepath.Join(dir, "etcd"), "--name", "etcd",
		"--listen-client-urls", "http://" + client, "--advertise-client-urls", "http://" + client,
		"--listen-peer-urls", "http://" + peer, "--initial-advertise-peer-urls", "http://" + peer,
		"--initial-cluster", "etcd=http://" + peer,
	}}, proc.AnswersHTTP("http://"+client+"/health"))
}

func apiServerArgs(dir, address, etcd string) []string {
	host, port, _ := net.SplitHostPort(address) // made by FreeAddresses
	in := func(name string) string { return filepath.Join(dir, name) }
	return []string{
		"--etcd-servers", etcd,
		"--bind-address", host, "--secure-port", port,
		"--tls-cert-file", in(serverCertFile), "--tls-private-key-file", in(serverKeyFile),
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", in(accountKeyFile), "--service-account-signing-key-file", in(accountKeyFile),
		"--service-cluster-ip-range", "10.96.0.0/16",
		"--authorization-mode", "RBAC", "--token-auth-file", in(tokensFile),
		// There is one API server, and it is not reached through the Service `kubernetes`.
		"--endpoint-reconciler-type", "none",
		// No controller makes the account `default` of a namespace, without which this plugin refuses Pods.
		"--disable-admission-plugins", "ServiceAccount",
	}
}

// StartAPI runs kube-apiserver, after KillAPI on the same port and data, and returns when it is ready.
func (s *Server) StartAPI(ctx context.Context) error {
	p, err := proc.StartReady(ctx, proc.Spec{Program: proc.ProgramAPIServer, Dir: s.dir, Name: "kube-apiserver",
		Args: s.args}, s.ready)
	if err == nil {
		s.api = p
	}
	return err
}

// ready asks the API server whether it is ready: its bootstrap roles exist too.
func (s *Server) ready(ctx context.Context) error {
	transport, err := rest.TransportFor(s.Admin())
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", req.URL, resp.Status)
	}
	return nil
}

// KillAPI kills kube-apiserver; etcd and its data stay.
func (s *Server) KillAPI() error { return s.api.Kill() }

// PauseAPI freezes kube-apiserver: its connections stay open and nothing answers.
func (s *Server) PauseAPI() error { return s.api.Pause() }

// ResumeAPI lets a paused kube-apiserver go on.
func (s *Server) ResumeAPI() error { return s.api.Resume() }

// Stop ends both. Nothing in them is worth a graceful end, which takes kube-apiserver a minute while clients watch.
func (s *Server) Stop() error { return errors.Join(s.api.Kill(), s.etcd.Kill()) }

// URL returns the URL of the API server.
func (s *Server) URL() string { return "https://" + s.address }

// Address returns host:port of the API server.
func (s *Server) Address() string { return s.address }

// CAFile holds the authority of the API server's certificate.
func (s *Server) CAFile() string { return filepath.Join(s.dir, authorityFile) }

// Admin returns the configuration of a client that may do everything, without a limit to its rate.
func (s *Server) Admin() *rest.Config { return s.config(s.token) }

func (s *Server) config(token string) *rest.Config {
	return &rest.Config{
		Host: s.URL(), BearerToken: token, QPS: -1, Timeout: time.Minute,
		TLSClientConfig: rest.TLSClientConfig{CAFile: s.CAFile()},
	}
}

// Client returns a client that may do everything.
func (s *Server) Client() (kubernetes.Interface, error) { return kubernetes.NewForConfig(s.Admin()) }

// Dynamic returns a client of any resource that may do everything.
func (s *Server) Dynamic() (dynamic.Interface, error) { return dynamic.NewForConfig(s.Admin()) }

// Token makes a token of a service account, which must exist. The API server refuses a lifetime under ten minutes.
func (s *Server) Token(ctx context.Context, namespace, account string, lifetime time.Duration) (string, error) {
	client, err := s.Client()
	if err != nil {
		return "", err
	}
	seconds := int64(lifetime.Seconds())
	request := &authentication.TokenRequest{Spec: authentication.TokenRequestSpec{ExpirationSeconds: &seconds}}
	answer, err := client.CoreV1().ServiceAccounts(namespace).
		CreateToken(ctx, account, request, meta.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("making a token of service account %s/%s: %w", namespace, account, err)
	}
	return answer.Status.Token, nil
}

// WriteKubeconfig writes a kubeconfig for a client that authenticates with the token in tokenFile, which is read again
// when it changes. An empty tokenFile is the administrator's. server is the URL that the client connects to, URL when
// empty.
func (s *Server) WriteKubeconfig(path, server, tokenFile string) error {
	user := &clientcmdapi.AuthInfo{TokenFile: tokenFile}
	if tokenFile == "" {
		user.Token = s.token
	}
	if server == "" {
		server = s.URL()
	}
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			"test": {Server: server, CertificateAuthority: s.CAFile()},
		},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"test": user},
		Contexts:       map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: "test"}},
		CurrentContext: "test",
	}, path)
}

func secret() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// writeIdentities makes what the API server proves itself and others by.
func writeIdentities(dir, token string) error {
	if err := writeCertificates(dir); err != nil {
		return err
	}
	line := token + ",admin,admin,system:masters\n"
	return os.WriteFile(filepath.Join(dir, tokensFile), []byte(line), 0o600)
}
