package credentials

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"slices"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// An Identity has the names in the verified certificate of a client.
type Identity struct {
	// Name has all names of the certificate, so that it stays the same when the certificate is renewed. It is at most
	// longestName bytes long, and empty without a certificate.
	Name string
	DNS  []string // lower case
	URIs []string // SPIFFE IDs and others, without those that have a user, a query or a fragment
}

// longestName bounds the name of an identity, in bytes.
const longestName = 256

// PeerIdentity returns the identity of the client at the other end of a gRPC stream, the zero Identity if its
// connection has no verified certificate.
func PeerIdentity(ctx context.Context) Identity {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Identity{}
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return Identity{}
	}
	return identityOf(info.State.VerifiedChains[0][0])
}

func identityOf(c *x509.Certificate) Identity {
	var id Identity
	for _, u := range c.URIs {
		if u.User == nil && u.RawQuery == "" && !u.ForceQuery && u.Fragment == "" {
			id.URIs = append(id.URIs, u.String())
		}
	}
	for _, name := range c.DNSNames {
		id.DNS = append(id.DNS, strings.ToLower(name))
	}
	names := slices.Concat(id.URIs, id.DNS)
	slices.Sort(names)
	id.Name = strings.Join(slices.Compact(names), ",")
	if id.Name == "" {
		id.Name = c.Subject.String()
	}
	if id.Name == "" { // nothing else would distinguish its owner from others
		id.Name = "key " + fingerprint(string(c.RawSubjectPublicKeyInfo))
	}
	id.Name = strings.ToValidUTF8(id.Name, "\uFFFD")
	if len(id.Name) > longestName {
		const mark = " … "
		keep := longestName - len(mark) - 64
		id.Name = strings.ToValidUTF8(id.Name[:keep], "") + mark + fingerprint(id.Name)
	}
	return id
}

func fingerprint(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
