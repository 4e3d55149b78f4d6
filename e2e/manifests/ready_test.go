package manifests

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	envoybootstrap "steelyard/envoy-bootstrap"
)

// TestTheExamplesReadinessSaysWhetherItCanRoute: without Steelyard, an Envoy of the example is ready if it has model
// servers from DNS, and is not if it has none, although it runs.
func TestTheExamplesReadinessSaysWhetherItCanRoute(t *testing.T) {
	probe := deployment(t, build(t, "overlays/example-envoy"), "gateway").Containers[0].ReadinessProbe.HTTPGet
	server, err := modelsim.Start(modelsim.Options{Slots: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	away, err := proc.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		fallback []string
		ready    int
	}{
		"with model servers":              {[]string{server.Address()}, http.StatusOK},
		"with a name that nobody has yet": {[]string{"llama.steelyard.invalid:8000"}, http.StatusServiceUnavailable},
		"without a fallback":              {nil, http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := exampleEnvoy
			o.XDS, o.Listen, o.Admin, o.Fallback = away, "127.0.0.1:0", "127.0.0.1:0", c.fallback
			o.TLS, o.SecretsDir = envoybootstrap.TLS{}, ""
			text, err := envoybootstrap.Render(o)
			if err != nil {
				t.Fatal(err)
			}
			envoy := proctest.Envoy(t, proc.EnvoyConfig{Bootstrap: text, Dir: proctest.Dir(t)})
			listener, err := envoy.Listener(t.Context(), "ingress")
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "the probe is answered", func() error {
				return answers(t.Context(), "http://"+listener+probe.Path, c.ready)
			})
			if c.ready == http.StatusOK {
				if err := answers(t.Context(), "http://"+listener+"/health", c.ready); err != nil {
					t.Errorf("a request: %v", err)
				}
			}
		})
	}
}

func answers(ctx context.Context, url string, want int) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.StatusCode != want {
		return fmt.Errorf("it answers %d, want %d", response.StatusCode, want)
	}
	return nil
}
