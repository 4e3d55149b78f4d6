package extension

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"

	"steelyard/e2e/rig/kube"
	"steelyard/e2e/rig/proc"
)

// A Picker is a running endpoint picker, with the Kubernetes API that it reads.
type Picker struct {
	api     *kube.Server
	prober  *prober
	process *proc.Process
	address string
}

// Start runs the picker for these servers, with files in an existing folder, and returns when the picker knows all
// servers. They need different IPs and the same port, as Pods have. ctx bounds the start only.
func Start(ctx context.Context, dir string, servers []string) (*Picker, error) {
	p := new(Picker)
	if err := p.start(ctx, dir, servers); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the endpoint picker: %w", err), p.Close())
	}
	return p, nil
}

func (p *Picker) start(ctx context.Context, dir string, servers []string) error {
	port, err := commonPort(servers)
	if err != nil {
		return err
	}
	if p.api, err = kube.Start(ctx, kube.Options{Dir: dir}); err != nil {
		return err
	}
	if p.prober, err = startProber(ctx, p.api, servers); err != nil {
		return err
	}
	if err := writePool(ctx, p.api, port); err != nil {
		return err
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := p.api.WriteKubeconfig(kubeconfig, "", ""); err != nil {
		return err
	}
	free, err := proc.FreeAddresses(3)
	if err != nil {
		return err
	}
	p.address = free[0]
	p.process, err = proc.StartReady(ctx, proc.Spec{
		Program: proc.ProgramEndpointPicker, Name: "epp", Dir: dir,
		Env: []string{"KUBECONFIG=" + kubeconfig},
		Args: []string{
			"--pool-name", poolName, "--pool-namespace", namespace, "--pool-group", poolGroup,
			"--grpc-port", proc.Port(free[0]), "--grpc-health-port", proc.Port(free[1]),
			"--metrics-port", proc.Port(free[2]), "--metrics-endpoint-auth=false",
			"--zap-encoder", "json", "--v", "1", "--tracing=false", // as in the chart
		},
	}, func(ctx context.Context) error {
		return errors.Join(listens(ctx, p.address), knows(ctx, free[2], len(servers)))
	})
	return err
}

// commonPort returns the port that all servers have.
func commonPort(servers []string) (int, error) {
	common := 0
	for _, s := range servers {
		_, text, err := net.SplitHostPort(s)
		if err != nil {
			return 0, err
		}
		port, err := strconv.Atoi(text)
		if err != nil {
			return 0, err
		}
		if common != 0 && port != common {
			return 0, fmt.Errorf("the servers have the ports %d and %d, want one, as Pods differ in IPs", common, port)
		}
		common = port
	}
	return common, nil
}

// maxPage bounds the picker's metrics page, in bytes.
const maxPage = 16 << 20

// listens checks that something takes connections at an address.
func listens(ctx context.Context, address string) error {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return c.Close()
}

// knows checks that the picker has so many Pods, by its metrics page.
func knows(ctx context.Context, address string, pods int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(io.LimitReader(resp.Body, maxPage))
	if err != nil {
		return err
	}
	if n := strings.Count(string(page), "\ninference_pool_per_pod_queue_size{"); n != pods {
		return fmt.Errorf("the picker knows %d of %d Pods", n, pods)
	}
	return nil
}

// Address returns where Envoys ask, host:port.
func (p *Picker) Address() string { return p.address }

// Process returns the picker's process.
func (p *Picker) Process() *proc.Process { return p.process }

// Close ends everything. Nothing in it is worth a graceful end.
func (p *Picker) Close() error {
	var errs []error
	if p.prober != nil {
		errs = append(errs, p.prober.stop())
	}
	if p.process != nil {
		errs = append(errs, p.process.Kill())
	}
	if p.api != nil {
		errs = append(errs, p.api.Stop())
	}
	return errors.Join(errs...)
}
