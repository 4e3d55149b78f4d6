package security

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/testbed"
	"steelyard/internal/api"
)

// series returns the value of the first series of a metric that has these labels.
func (f *fleet) series(name string, labels map[string]string) (float64, error) {
	text, err := f.Answer("/metrics")
	if err != nil {
		return 0, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return 0, err
	}
	for _, m := range families[name].GetMetric() {
		found := 0
		for _, l := range m.GetLabel() {
			if labels[l.GetName()] == l.GetValue() {
				found++
			}
		}
		if found == len(labels) {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue(), nil
		}
	}
	return 0, fmt.Errorf("no series %s%v", name, labels)
}

// TestCertificatesInTheirLastDaysAreProblems: one that has three days left, and one whose last seconds pass in the
// test. The Envoy that has it stays connected, and is refused when it connects again.
func TestCertificatesInTheirLastDaysAreProblems(t *testing.T) {
	t.Parallel()
	if _, err := proc.BuildSteelyard(); err != nil { // which takes its time
		t.Fatal(err)
	}
	const threeDays = 3 * 24 * time.Hour
	a := testbed.NewAuthority(t)
	days := time.Now().Add(threeDays)
	_, _, cert, key := a.Issue("steelyard", days)
	_, _, envoyCert, envoyKey := a.Issue("envoy", time.Now().Add(time.Hour))
	// Time for two processes to start, on a machine that has other things to do.
	soon := time.Now().Add(10 * time.Second)
	_, _, scrapeCert, scrapeKey := a.Issue("scrape", soon)
	_, _, lateCert, lateKey := a.Issue("late", soon)
	f := withoutEnvoys(t, testbed.Plan{
		Servers: testbed.Pool(t, 1),
		Listen:  fmt.Sprintf(", tls: {cert_file: %s, key_file: %s, client_ca_file: %s}", cert, key, a.File),
		Cluster: fmt.Sprintf("scrape: {scheme: https, tls: {ca_file: %s, cert_file: %s, key_file: %s}}",
			a.File, scrapeCert, scrapeKey),
	})
	f.launch("good", "--xds-ca-file", a.File, "--xds-cert-file", envoyCert, "--xds-key-file", envoyKey)
	f.launch("late", "--xds-ca-file", a.File, "--xds-cert-file", lateCert, "--xds-key-file", lateKey)
	here := func(node string, want bool) func() error {
		return func() error {
			there, err := f.connected(node)
			if err == nil && there != want {
				err = fmt.Errorf("%s is connected: %v", node, there)
			}
			return err
		}
	}
	f.Eventually("the Envoy whose certificate is about to expire is connected", here("late", true))
	if left := time.Until(soon); left <= 0 {
		t.Fatalf("the certificate expired %v ago: the machine is too slow for this test", -left)
	}
	f.Eventually("both certificates that expire soon are problems", func() error {
		return errors.Join(
			f.HasProblem(api.SeverityError, cert+" (xds) expires in 3 d",
				"; then Envoys refuse to connect: renew it"),
			f.HasProblem(api.SeverityError, scrapeCert+" (scrape_client) expires in ",
				" s; then model servers that ask for it refuse scrapes"))
	})
	for use, end := range map[string]time.Time{"xds": days, "scrape_client": soon} {
		got, err := f.series("steelyard_certificate_expiry_timestamp_seconds", map[string]string{"use": use})
		if err != nil || got != float64(end.Unix()) {
			t.Errorf("the series of %s is %v (%v), want %v", use, got, err, end.Unix())
		}
	}

	f.Eventually("the certificate has expired, and that is a problem", func() error {
		return f.HasProblem(api.SeverityError, scrapeCert+" (scrape_client) expired ",
			"model servers that ask for it refuse scrapes: renew it")
	})
	if err := here("late", true)(); err != nil {
		t.Errorf("a connection does not end with its certificate: %v", err)
	}
	if err := f.Control.Stop(); err != nil {
		t.Fatal(err)
	}
	f.Control = f.StartControl("steelyard-2")
	f.Eventually("the refusal is counted and a problem", func() error {
		n, err := f.series("steelyard_refused_handshakes_total", map[string]string{"reason": "expired"})
		if err == nil && n == 0 {
			err = fmt.Errorf("none is counted")
		}
		if err != nil {
			return err
		}
		return f.HasProblem(api.SeverityWarning, "TLS handshakes on the xDS port are refused (expired)", "127.0.0.1")
	})
	f.Eventually("the other Envoy is back", here("good", true))
	if err := here("late", false)(); err != nil {
		t.Error(err)
	}
}
