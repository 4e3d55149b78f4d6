package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"steelyard/e2e/rig/grpctest"
	"steelyard/internal/api"
)

// The alert for refused requests calls people at night: where Envoys only report, none is refused.
func TestWhereEnvoysOnlyReportThereIsNoRatioOfRequestsToRefuse(t *testing.T) {
	d, base := serve(t, parse(t, twoPools))
	client := grpctest.Connect(t, d.XDSAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	ask := func(ctx context.Context, name string) {
		t.Helper()
		if _, err := watchers["eds"](ctx, client, name); err != nil {
			t.Fatal(err)
		}
	}
	shows := func(ratio bool, recording bool) func() error {
		return func() error {
			var v api.Cluster
			var s api.Shadow
			err := errors.Join(get(base, "/api/v1/clusters/a", &v), get(base, "/api/v1/clusters/a/shadow", &s))
			if err != nil {
				return err
			}
			series, err := seriesOf(base)
			_, known := v.Decision.DropFraction.Value()
			if v.Decision.At.IsZero() || known != ratio || s.Recording != recording ||
				strings.Contains(series, `steelyard_drop_ratio{envoy_cluster_name="a"}`) != ratio {
				err = errors.Join(err, fmt.Errorf("decided at %v, ratio %v, recording %v", v.Decision.At,
					v.Decision.DropFraction, s.Recording))
			}
			return err
		}
	}
	eventually(t, "without an Envoy there is no ratio", shows(false, false))
	ask(t.Context(), "a/members")
	eventually(t, "an Envoy that only reports is recorded, and gives no ratio", shows(false, true))
	following, stop := context.WithCancel(t.Context())
	ask(following, "a")
	eventually(t, "with one that follows there is a ratio", shows(true, false))
	stop()
	eventually(t, "and none when it has gone", shows(false, true))
}

func seriesOf(base string) (string, error) {
	resp, err := http.Get(base + "/metrics")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}
