package conditions

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"steelyard/internal/api"
)

const day = 24 * time.Hour

func TestACertificateIsAnIncidentFourteenThreeAndZeroDaysBeforeItsEnd(t *testing.T) {
	in := func(left time.Duration) api.Certificate {
		return api.Certificate{Use: api.UseXDS, File: "x.pem", Subject: "CN=x", NotAfter: api.At(noon.Add(left))}
	}
	for _, tt := range []struct {
		left     time.Duration
		severity api.Severity
		says     string
	}{
		{14*day + time.Second, "", ""},
		{14 * day, api.SeverityWarning, "certificate CN=x in x.pem (xds) expires in 14 d; then Envoys refuse to " +
			"connect: renew it"},
		{3*day + time.Hour, api.SeverityWarning, "certificate CN=x in x.pem (xds) expires in 3 d; then Envoys " +
			"refuse to connect: renew it"},
		{3 * day, api.SeverityError, "certificate CN=x in x.pem (xds) expires in 3 d; then Envoys refuse to " +
			"connect: renew it"},
		{time.Hour, api.SeverityError, "certificate CN=x in x.pem (xds) expires in 60 min; then Envoys refuse to " +
			"connect: renew it"},
		{-5 * day, api.SeverityError, "certificate CN=x in x.pem (xds) expired 5 d ago: Envoys refuse to connect: " +
			"renew it"},
	} {
		var want []api.Problem
		if tt.severity != "" {
			want = []api.Problem{{Severity: tt.severity, Message: tt.says}}
		}
		if diff := cmp.Diff(want, certificateProblems([]api.Certificate{in(tt.left)}, noon)); diff != "" {
			t.Errorf("%v left (-want +got):\n%s", tt.left, diff)
		}
	}
}

func TestEveryUseOfACertificateHasTheEffectOfItsExpiry(t *testing.T) {
	for _, use := range []string{api.UseXDS, api.UseXDSClientCA, api.UseAdmin, api.UseAdminClientCA,
		api.UseScrapeClient, api.UseScrapeCA,
		api.UseRedisClient, api.UseRedisCA} {
		if afterwards[use] == "" {
			t.Errorf("%s has none", use)
		}
	}
}

func TestWhatVanishedAndWhatWasTurnedAwayAreProblemsForAWhile(t *testing.T) {
	p := well(api.Status{RefusedHandshakes: []api.RefusedHandshake{
		{Reason: "closed", Count: 9, LastAt: api.At(noon), LastPeer: "p", LastError: "EOF"}, // a port check
		{Reason: "expired", Count: 3, LastAt: api.At(noon.Add(-59 * time.Second)), LastPeer: "10.0.0.2:2",
			LastError: "it has expired"},
		{Reason: "no_certificate", Count: 3, LastAt: api.At(noon.Add(-60 * time.Second)), LastPeer: "p",
			LastError: "none"},
		{Reason: "other"},
	}})
	for i := range 12 {
		p.Left = append(p.Left, api.LeftEnvoy{Node: api.Node{NodeID: fmt.Sprint("edge-", i)}, Address: "10.0.0.1:1",
			Vanished: true,
			Clusters: []string{"llama", "mixtral"}, LeftAt: api.At(noon.Add(-5 * time.Minute)),
			LeftReason: "the connection was reset"})
	}
	p.Left[3].Silent = true
	var got []string
	for _, p := range StatusProblems(p) {
		got = append(got, p.Message)
		if silent := strings.Contains(p.Message, "does not answer"); silent != (p.Severity == api.SeverityError) {
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
