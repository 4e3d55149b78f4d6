package admin

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"steelyard/controlplane/view"
	"steelyard/internal/stat"

	"github.com/google/go-cmp/cmp"
)

const day = 24 * time.Hour

func TestACertificateIsAnIncidentFourteenThreeAndZeroDaysBeforeItsEnd(t *testing.T) {
	in := func(left time.Duration) Certificate {
		return Certificate{Use: UseXDS, File: "x.pem", Subject: "CN=x", NotAfter: view.At(noon.Add(left))}
	}
	for _, tt := range []struct {
		left     time.Duration
		severity view.Severity
		says     string
	}{
		{14*day + time.Second, "", ""},
		{14 * day, view.SeverityWarning, "certificate CN=x in x.pem (xds) expires in 14 d; then Envoys refuse to " +
			"connect: renew it"},
		{3*day + time.Hour, view.SeverityWarning, "certificate CN=x in x.pem (xds) expires in 3 d; then Envoys " +
			"refuse to connect: renew it"},
		{3 * day, view.SeverityError, "certificate CN=x in x.pem (xds) expires in 3 d; then Envoys refuse to " +
			"connect: renew it"},
		{time.Hour, view.SeverityError, "certificate CN=x in x.pem (xds) expires in 60 min; then Envoys refuse to " +
			"connect: renew it"},
		{-5 * day, view.SeverityError, "certificate CN=x in x.pem (xds) expired 5 d ago: Envoys refuse to connect: " +
			"renew it"},
	} {
		var want []view.Problem
		if tt.severity != "" {
			want = []view.Problem{{Severity: tt.severity, Message: tt.says}}
		}
		if diff := cmp.Diff(want, certificateProblems([]Certificate{in(tt.left)}, noon)); diff != "" {
			t.Errorf("%v left (-want +got):\n%s", tt.left, diff)
		}
	}
}

func TestEveryUseOfACertificateHasTheEffectOfItsExpiry(t *testing.T) {
	for _, use := range []string{UseXDS, UseXDSClientCA, UseAdmin, UseAdminClientCA, UseScrapeClient, UseScrapeCA,
		UseRedisClient, UseRedisCA} {
		if afterwards[use] == "" {
			t.Errorf("%s has none", use)
		}
	}
}

// A bundle has old authorities together with those that replaced them.
func TestAnAuthorityThatIsOutlivedIsAWarningAndForgottenAfterAWhile(t *testing.T) {
	in := func(subject string, left time.Duration) Certificate {
		return Certificate{Use: UseScrapeCA, File: "ca.pem", Subject: subject, NotAfter: view.At(noon.Add(left))}
	}
	all := []Certificate{in("CN=new", 900*day), in("CN=ending", day), in("CN=ended", -13*day), in("CN=old", -400*day)}
	s := shown(t, all)
	want := []string{"CN=ended -13", "CN=ending 1", "CN=new 900"}
	if diff := cmp.Diff(want, days(s.Certificates)); diff != "" {
		t.Errorf("shown (-want +got):\n%s", diff)
	}
	for _, p := range s.Problems {
		if strings.Contains(p.Message, "ca.pem") && p.Severity != view.SeverityWarning {
			t.Errorf("%+v", p)
		}
	}
	alone := shown(t, []Certificate{in("CN=old", -400*day)})
	if !has(alone.Problems, view.SeverityError, "certificate CN=old in ca.pem (scrape_ca) expired 400 d ago: scrapes "+
		"of model servers with certificates that it signed fail: renew it") {
		t.Errorf("without a successor: %+v", alone.Problems)
	}
}

func days(all []Certificate) []string {
	var out []string
	for _, c := range all {
		out = append(out, fmt.Sprintf("%s %.0f", c.Subject, c.DaysLeft.Or(0)))
	}
	return out
}

func shown(t *testing.T, all []Certificate) Status {
	t.Helper()
	return decode[Status](t, ask(t, handlerOf(fixed{status: Status{Certificates: all}}), http.MethodGet,
		"/api/v1/status"))
}

func TestOnlySoManyCertificatesAreShownTheFirstToExpireFirst(t *testing.T) {
	var all []Certificate
	for i := range 250 {
		all = append(all, Certificate{Use: UseScrapeCA, File: fmt.Sprint(i), Subject: "CN=x",
			NotAfter: view.At(noon.Add(time.Duration(i-5) * day))})
	}
	s := shown(t, all)
	if n := len(s.Certificates); n != maxCertificates || s.Certificates[0].File != "0" ||
		s.Certificates[n-1].File != "99" {
		t.Errorf("%d shown, from %s to %s", n, s.Certificates[0].File, s.Certificates[n-1].File)
	}
	body := ask(t, handlerOf(fixed{status: Status{Certificates: all}}), http.MethodGet, "/metrics").body
	if n := strings.Count(body, "\nsteelyard_certificate_expiry_timestamp_seconds{"); n != maxCertificates {
		t.Errorf("%d series", n)
	}
}

func TestExpiryIsASeriesOfEachCertificateAndOfTheLatestOfOneName(t *testing.T) {
	all := []Certificate{
		{Use: UseXDS, File: "x.pem", Subject: "CN=x", NotAfter: view.At(time.Unix(1_900_000_000, 0))},
		{Use: UseScrapeCA, File: "ca.pem", Subject: "CN=a", NotAfter: view.At(time.Unix(1_800_000_000, 0))},
		{Use: UseScrapeCA, File: "ca.pem", Subject: "CN=a", NotAfter: view.At(time.Unix(1_950_000_000, 0))},
		{Use: UseRedisClient, File: "r.pem", Error: "no such file"},
	}
	body := ask(t, handlerOf(fixed{status: Status{Certificates: all}}), http.MethodGet, "/metrics").body
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

func TestWhatVanishedAndWhatWasTurnedAwayAreProblemsForAWhile(t *testing.T) {
	p := well(Status{RefusedHandshakes: []stat.RefusedHandshake{
		{Reason: "closed", Count: 9, LastAt: view.At(noon), LastPeer: "p", LastError: "EOF"}, // a port check
		{Reason: "expired", Count: 3, LastAt: view.At(noon.Add(-59 * time.Second)), LastPeer: "10.0.0.2:2",
			LastError: "it has expired"},
		{Reason: "no_certificate", Count: 3, LastAt: view.At(noon.Add(-60 * time.Second)), LastPeer: "p",
			LastError: "none"},
		{Reason: "other"},
	}})
	for i := range 12 {
		p.left = append(p.left, LeftEnvoy{Node: stat.Node{NodeID: fmt.Sprint("edge-", i)}, Address: "10.0.0.1:1",
			Vanished: true,
			Clusters: []string{"llama", "mixtral"}, LeftAt: view.At(noon.Add(-5 * time.Minute)),
			LeftReason: "the connection was reset"})
	}
	p.left[3].Silent = true
	var got []string
	for _, p := range statusProblems(p) {
		got = append(got, p.Message)
		if silent := strings.Contains(p.Message, "does not answer"); silent != (p.Severity == view.SeverityError) {
			t.Errorf("%+v", p)
		}
	}
	want := []string{"TLS handshakes on the xDS port are refused (expired): 3 since the start, the last 59.0 s ago " +
		"with 10.0.0.2:2: it has expired"}
	for i := range 10 {
		want = append(want, fmt.Sprintf("Envoy edge-%[1]d disconnected without closing its streams: edge-%[1]d "+
			"(10.0.0.1:1): the connection was reset. It subscribed to llama, mixtral.", i))
	}
	want[4] = "Envoy edge-3 does not answer: Neither assignments nor pings were answered, so Steelyard closed its " +
		"connection at 11:55:00 UTC."
	want = append(want, "2 more Envoys disconnected without closing their streams: see gone_envoys of /api/v1/status")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}
