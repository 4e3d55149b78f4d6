package access

import (
	"slices"
	"strings"

	"steelyard/internal/credentials"
)

// A Rule defines which clusters the clients with a name may use.
type Rule struct {
	SAN      string   // pattern of a DNS name or, with ://, of a URI
	Clusters []string // patterns
}

// names reports whether the rule is about the client.
func (r Rule) names(id credentials.Identity) bool {
	if strings.Contains(r.SAN, "://") {
		return slices.ContainsFunc(id.URIs, func(uri string) bool { return matchParts(r.SAN, uri, "/") })
	}
	pattern := strings.ToLower(r.SAN)
	return slices.ContainsFunc(id.DNS, func(name string) bool { return matchParts(pattern, name, ".") })
}

// granted returns the patterns of the clusters that a client may use, nil if no rule is about it.
func granted(rules []Rule, id credentials.Identity) []string {
	var patterns []string
	for _, r := range rules {
		if r.names(id) {
			patterns = append(patterns, r.Clusters...)
		}
	}
	return patterns
}

// allows reports whether one of the patterns matches the cluster of a name.
func allows(patterns []string, name string) bool {
	cluster, _, _ := strings.Cut(name, "/") // only its variants have a slash
	return slices.ContainsFunc(patterns, func(p string) bool { return match(p, cluster) })
}

// matchParts matches part by part, so that no * reaches beyond its own.
func matchParts(pattern, text, separator string) bool {
	patterns, parts := strings.Split(pattern, separator), strings.Split(text, separator)
	if len(patterns) != len(parts) {
		return false
	}
	for i, p := range patterns {
		if parts[i] == "" && p != "" || !match(p, parts[i]) {
			return false
		}
	}
	return true
}

// match matches a pattern in which * stands for any characters. Its cost is at most the product of the lengths.
func match(pattern, text string) bool {
	star, resume := -1, 0
	p, t := 0, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, resume = p, t
			p++
		case p < len(pattern) && pattern[p] == text[t]:
			p++
			t++
		case star >= 0: // the latest * takes one more
			resume++
			p, t = star+1, resume
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
