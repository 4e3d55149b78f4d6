package conditions

import (
	"cmp"
	"slices"
	"time"

	"steelyard/internal/api"
)

// When an expiry is a problem, and when it becomes an error.
const (
	ExpirySoon   = 14 * 24 * time.Hour
	expiryUrgent = 3 * 24 * time.Hour
)

// MaxCertificates bounds those that are shown, the first to expire first.
const MaxCertificates = 100

// afterwards is what happens when a certificate has expired, by its use.
var afterwards = map[string]string{
	api.UseXDS:           "Envoys refuse to connect",
	api.UseXDSClientCA:   "Envoys with certificates that it signed are refused",
	api.UseAdmin:         "browsers and Prometheus refuse to connect to the admin listener",
	api.UseAdminClientCA: "clients of the admin listener with certificates that it signed are refused",
	api.UseScrapeClient:  "model servers that ask for it refuse scrapes",
	api.UseScrapeCA:      "scrapes of model servers with certificates that it signed fail",
	api.UseRedisClient:   "Redis refuses new connections",
	api.UseRedisCA:       "new connections to a Redis with a certificate that it signed fail",
	api.UseGateway:       "Envoy Gateway gets no answers, and keeps the configuration that its Envoys have",

	api.UseGatewayClientCA: "Envoy Gateways with certificates that it signed are refused",
}

// certificateProblems returns the problems of all certificates. For an authority next to one that is
// valid for longer it is a warning: it may be the old one, which is no longer in use.
func certificateProblems(all []api.Certificate, now time.Time) []api.Problem {
	var out problemList
	for _, c := range all {
		if c.Error != "" {
			out.fail("certificate %s (%s) cannot be used%s: %s", c.File, c.Use, instead(c), c.Error)
		}
		left := c.NotAfter.Sub(now)
		if c.NotAfter.IsZero() || left > ExpirySoon {
			continue
		}
		severity := api.SeverityWarning
		if left <= expiryUrgent && !outlived(c, all, now) {
			severity = api.SeverityError
		}
		if left > 0 {
			out.add(severity, "certificate %s in %s (%s) expires in %s; then %s: renew it", c.Subject, c.File, c.Use,
				FormatSeconds(left.Seconds()), afterwards[c.Use])
		} else {
			out.add(severity, "certificate %s in %s (%s) expired %s ago: %s: renew it", c.Subject, c.File, c.Use,
				FormatSeconds(-left.Seconds()), afterwards[c.Use])
		}
	}
	return out
}

// instead is the part of a sentence about what is used in place of a file.
func instead(c api.Certificate) string {
	if c.Subject == "" {
		return ""
	}
	return ", its previous content is in use"
}

// outlived reports whether another certificate of the file serves the same use for longer.
func outlived(c api.Certificate, all []api.Certificate, now time.Time) bool {
	return slices.ContainsFunc(all, func(other api.Certificate) bool {
		return other.Use == c.Use && other.File == c.File && other.NotAfter.Sub(now) > ExpirySoon
	})
}

// CurrentCertificates leaves out those that expired long ago and have a successor, such as old
// authorities in the bundle of an operating system, and completes the rest.
func CurrentCertificates(all []api.Certificate, now time.Time) []api.Certificate {
	out := make([]api.Certificate, 0, len(all))
	for _, c := range all {
		if !c.NotAfter.IsZero() {
			left := c.NotAfter.Sub(now)
			if left < -ExpirySoon && outlived(c, all, now) {
				continue
			}
			c.DaysLeft = api.Num(left.Hours() / 24)
		}
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b api.Certificate) int {
		return cmp.Or(a.NotAfter.Compare(b.NotAfter.Time), cmp.Compare(a.Use, b.Use), cmp.Compare(a.File, b.File),
			cmp.Compare(a.Subject, b.Subject))
	})
	return out
}
