package admin

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"steelyard/controlplane/admin/conditions"
	"steelyard/internal/api"
)

// A bundle has old authorities together with those that replaced them.
func TestAnAuthorityThatIsOutlivedIsAWarningAndForgottenAfterAWhile(t *testing.T) {
	in := func(subject string, left time.Duration) api.Certificate {
		return api.Certificate{Use: api.UseScrapeCA, File: "ca.pem", Subject: subject, NotAfter: api.At(noon.Add(left))}
	}
	all := []api.Certificate{in("CN=new", 900*day), in("CN=ending", day), in("CN=ended", -13*day),
		in("CN=old", -400*day)}
	s := shown(t, all)
	want := []string{"CN=ended -13", "CN=ending 1", "CN=new 900"}
	if diff := cmp.Diff(want, days(s.Certificates)); diff != "" {
		t.Errorf("shown (-want +got):\n%s", diff)
	}
	for _, p := range s.Problems {
		if strings.Contains(p.Message, "ca.pem") && p.Severity != api.SeverityWarning {
			t.Errorf("%+v", p)
		}
	}
	alone := shown(t, []api.Certificate{in("CN=old", -400*day)})
	if !has(alone.Problems, api.SeverityError, "certificate CN=old in ca.pem (scrape_ca) expired 400 d ago: scrapes "+
		"of model servers with certificates that it signed fail: renew it") {
		t.Errorf("without a successor: %+v", alone.Problems)
	}
}

func days(all []api.Certificate) []string {
	var out []string
	for _, c := range all {
		out = append(out, fmt.Sprintf("%s %.0f", c.Subject, c.DaysLeft.Or(0)))
	}
	return out
}

func shown(t *testing.T, all []api.Certificate) api.Status {
	t.Helper()
	return decode[api.Status](t, ask(t, handlerOf(fixed{status: api.Status{Certificates: all}}), http.MethodGet,
		"/api/v1/status"))
}

func TestOnlySoManyCertificatesAreShownTheFirstToExpireFirst(t *testing.T) {
	var all []api.Certificate
	for i := range 250 {
		all = append(all, api.Certificate{Use: api.UseScrapeCA, File: fmt.Sprint(i), Subject: "CN=x",
			NotAfter: api.At(noon.Add(time.Duration(i-5) * day))})
	}
	s := shown(t, all)
	if n := len(s.Certificates); n != conditions.MaxCertificates || s.Certificates[0].File != "0" ||
		s.Certificates[n-1].File != "99" {
		t.Errorf("%d shown, from %s to %s", n, s.Certificates[0].File, s.Certificates[n-1].File)
	}
	body := ask(t, handlerOf(fixed{status: api.Status{Certificates: all}}), http.MethodGet, "/metrics").body
	if n := strings.Count(body, "\nsteelyard_certificate_expiry_timestamp_seconds{"); n != conditions.MaxCertificates {
		t.Errorf("%d series", n)
	}
}

func TestExpiryIsASeriesOfEachCertificateAndOfTheLatestOfOneName(t *testing.T) {
	all := []api.Certificate{
		{Use: api.UseXDS, File: "x.pem", Subject: "CN=x", NotAfter: api.At(time.Unix(1_900_000_000, 0))},
		{Use: api.UseScrapeCA, File: "ca.pem", Subject: "CN=a", NotAfter: api.At(time.Unix(1_800_000_000, 0))},
		{Use: api.UseScrapeCA, File: "ca.pem", Subject: "CN=a", NotAfter: api.At(time.Unix(1_950_000_000, 0))},
		{Use: api.UseRedisClient, File: "r.pem", Error: "no such file"},
	}
	body := ask(t, handlerOf(fixed{status: api.Status{Certificates: all}}), http.MethodGet, "/metrics").body
	for _, want := range []string{
		`steelyard_certificate_expiry_timestamp_seconds{file="x.pem",subject="CN=x",use="xds"} 1.9e+09`,
		`steelyard_certificate_expiry_timestamp_seconds{file="ca.pem",subject="CN=a",use="scrape_ca"} 1.95e+09`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("/metrics does not have %s", want)
		}
	}
	if n := strings.Count(body, "\nsteelyard_certificate_expiry_timestamp_seconds{"); n != 2 {
		t.Errorf("%d series, want 2", n)
	}
}

const day = 24 * time.Hour
