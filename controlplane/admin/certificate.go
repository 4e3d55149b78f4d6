package admin

import (
	"cmp"
	"slices"
	"time"

	"steelyard/controlplane/view"
)

// The uses of certificates.
const (
	UseXDS           = "xds"             // presented to Envoys
	UseXDSClientCA   = "xds_client_ca"   // authorities for Envoys
	UseAdmin         = "admin"           // presented to people and Prometheus
	UseAdminClientCA = "admin_client_ca" // authorities for them
	UseScrapeClient  = "scrape_client"   // presented to model servers
	UseScrapeCA      = "scrape_ca"       // authorities for model servers
	UseRedisClient   = "redis_client"    // presented to Redis
	UseRedisCA       = "redis_ca"        // authorities for Redis
)

// A Certificate is one that Steelyard uses: the one of a chain that expires first, or an authority.
type Certificate struct {
	// what for: `xds`, `xds_client_ca`, `admin`, `admin_client_ca`, `scrape_client`, `scrape_ca`, `redis_client` or
	// `redis_ca`
	Use      string    `json:"use"`
	File     string    `json:"file"`      // path of the file
	Subject  string    `json:"subject"`   // whose it is; of a chain, the certificate that expires first
	NotAfter view.Time `json:"not_after"` // when it expires
	Error    string    `json:"error"`     // why the file cannot be used now

	// Filled in by the handler.

	DaysLeft view.Number `json:"days_left"` // until `not_after`; below 0 once it has expired
}

// When an expiry is a problem, and when it becomes an error.
const (
	expirySoon   = 14 * 24 * time.Hour
	expiryUrgent = 3 * 24 * time.Hour
)

// maxCertificates bounds those that are shown, the first to expire first.
const maxCertificates = 100

// afterwards is what happens when a certificate has expired, by its use.
var afterwards = map[string]string{
	UseXDS:           "Envoys refuse to connect",
	UseXDSClientCA:   "Envoys with certificates that it signed are refused",
	UseAdmin:         "browsers and Prometheus refuse to connect to the admin listener",
	UseAdminClientCA: "clients of the admin listener with certificates that it signed are refused",
	UseScrapeClient:  "model servers that ask for it refuse scrapes",
	UseScrapeCA:      "scrapes of model servers with certificates that it signed fail",
	UseRedisClient:   "Redis refuses new connections",
	UseRedisCA:       "new connections to a Redis with a certificate that it signed fail",
}

// certificateProblems returns the problems of all certificates. For an authority next to one that is
// valid for longer it is a warning: it may be the old one, which is no longer in use.
func certificateProblems(all []Certificate, now time.Time) []view.Problem {
	var out problemList
	for _, c := range all {
		if c.Error != "" {
			out.fail("certificate %s (%s) cannot be used%s: %s", c.File, c.Use, instead(c), c.Error)
		}
		left := c.NotAfter.Sub(now)
		if c.NotAfter.IsZero() || left > expirySoon {
			continue
		}
		severity := view.SeverityWarning
		if left <= expiryUrgent && !outlived(c, all, now) {
			severity = view.SeverityError
		}
		if left > 0 {
			out.add(severity, "certificate %s in %s (%s) expires in %s; then %s: renew it", c.Subject, c.File, c.Use,
				formatSeconds(left.Seconds()), afterwards[c.Use])
		} else {
			out.add(severity, "certificate %s in %s (%s) expired %s ago: %s: renew it", c.Subject, c.File, c.Use,
				formatSeconds(-left.Seconds()), afterwards[c.Use])
		}
	}
	return out
}

// instead is the part of a sentence about what is used in place of a file.
func instead(c Certificate) string {
	if c.Subject == "" {
		return ""
	}
	return ", its previous content is in use"
}

// outlived reports whether another certificate of the file serves the same use for longer.
func outlived(c Certificate, all []Certificate, now time.Time) bool {
	return slices.ContainsFunc(all, func(other Certificate) bool {
		return other.Use == c.Use && other.File == c.File && other.NotAfter.Sub(now) > expirySoon
	})
}

// currentCertificates leaves out those that expired long ago and have a successor, such as old
// authorities in the bundle of an operating system, and completes the rest.
func currentCertificates(all []Certificate, now time.Time) []Certificate {
	out := make([]Certificate, 0, len(all))
	for _, c := range all {
		if !c.NotAfter.IsZero() {
			left := c.NotAfter.Sub(now)
			if left < -expirySoon && outlived(c, all, now) {
				continue
			}
			c.DaysLeft = view.Num(left.Hours() / 24)
		}
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b Certificate) int {
		return cmp.Or(a.NotAfter.Compare(b.NotAfter.Time), cmp.Compare(a.Use, b.Use), cmp.Compare(a.File, b.File),
			cmp.Compare(a.Subject, b.Subject))
	})
	return out
}
