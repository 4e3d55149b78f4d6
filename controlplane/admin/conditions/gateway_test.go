package conditions

import (
	"strings"
	"testing"
	"time"

	"steelyard/internal/api"
)

func TestAPoolThatIsNotServedIsAnIncident(t *testing.T) {
	s := calm()
	s.Status.Pools = api.Pools{Enabled: true, Answered: true, Found: 2, Pickers: 1}
	s.Status.EnvoyGateway = api.EnvoyGateway{Enabled: true, Calls: 1, Pools: []api.GatewayPool{
		{Gateway: "models/eg", Namespace: "models", Name: "llama", Cluster: "models.llama"},
		{Gateway: "models/eg", Namespace: "models", Name: "picked", Picker: "epp"}}}
	if all := s.after(2 * time.Second); len(all) != 0 {
		t.Errorf("pools that are served or left to a picker are incidents: %+v", all)
	}
	s.Status.EnvoyGateway.Pools = append(s.Status.EnvoyGateway.Pools, api.GatewayPool{Gateway: "models/eg",
		Namespace: "others", Name: "far", Reason: "pools.namespaces does not have the namespace others"})
	if i := only(t, s.after(2*time.Second)); !strings.Contains(i.Why, "others/far") || i.Severity != api.SeverityError {
		t.Errorf("the incident is %+v", i)
	}
	s.Status.EnvoyGateway.Pools = nil
	s.after(time.Minute)
	s.Status.EnvoyGateway.LastError = "reading the weights of httproute/models/llama/rule/0: forbidden"
	if i := only(t, s.after(2*time.Second)); i.Why != s.Status.EnvoyGateway.LastError ||
		!strings.Contains(i.Command, "annotate httproute") {
		t.Errorf("the incident is %+v", i)
	}
}

func TestAPoolWithoutAClusterAndAStatusThatIsNotWrittenAreWarnings(t *testing.T) {
	s := calm()
	s.Status.Pools = api.Pools{Enabled: true, Answered: true, Found: 1,
		Unserved: []api.UnservedPool{{Namespace: "models", Name: "grpc",
			Reason: "its appProtocol is kubernetes.io/h2c"}}}
	if i := only(t, s.after(2*time.Second)); !strings.Contains(i.Why, "models/grpc: its appProtocol") ||
		i.Severity != api.SeverityWarning {
		t.Errorf("the incident is %+v", i)
	}
	s.Status.Pools.Unserved, s.Status.Pools.StatusError = nil, "Steelyard may not patch inferencepools/status"
	if all := s.after(2 * time.Minute); !hasTitle(all, "The status of InferencePools is not written") {
		t.Errorf("the incidents are %+v", all)
	}
}

func TestPoolsThatWereNeverReadAreAnError(t *testing.T) {
	s := calm()
	s.Status.Pools = api.Pools{Enabled: true, Answered: true, Error: "connection refused"}
	if i := only(t, s.after(time.Minute)); i.Severity != api.SeverityWarning {
		t.Errorf("pools are known: %+v", i)
	}
	s.Status.Pools = api.Pools{Enabled: true, Error: "connection refused\nSteelyard may not watch inferencepools"}
	if i := only(t, s.after(time.Minute)); i.Severity != api.SeverityError ||
		i.Why != "connection refused; Steelyard may not watch inferencepools" {
		t.Errorf("none is known: %+v", i)
	}
}

func TestAnAnnotationWithoutEffectIsAWarning(t *testing.T) {
	s := calm()
	s.Status.EnvoyGateway = api.EnvoyGateway{Enabled: true, Calls: 1, Ignored: []string{
		"httproute/models/llama/rule/0: gateway.envoyproxy.io/steelyard-module needs envoy_gateway.module_xds"}}
	i := only(t, s.after(2*time.Second))
	if !strings.Contains(i.Why, "module_xds") || i.Severity != api.SeverityWarning {
		t.Errorf("the incident is %+v", i)
	}
}

func TestAGatewayThatNeverAsksIsAnIncidentWhileNoEnvoyFollows(t *testing.T) {
	s := calm()
	s.Status.Pools = api.Pools{Enabled: true, Answered: true, Found: 1}
	s.Status.EnvoyGateway.Enabled = true
	if all := s.after(2 * time.Minute); len(all) != 0 { // Steelyard was started again, and nothing has changed since
		t.Errorf("with an Envoy that follows, there are %+v", all)
	}
	s.Clients = nil
	if all := s.after(2 * time.Minute); !hasTitle(all, "Envoy Gateway has not asked yet") {
		t.Errorf("without, there are %+v", all)
	}
}

func hasTitle(all []api.Incident, title string) bool {
	for _, i := range all {
		if i.Title == title {
			return true
		}
	}
	return false
}
