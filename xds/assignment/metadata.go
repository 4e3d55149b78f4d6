package assignment

import (
	"strings"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// MetadataNamespace is the namespace of the filter metadata with the reason why an endpoint is DEGRADED.
const MetadataNamespace = "steelyard"

// maxReason limits the reason in bytes: every assignment carries it to every Envoy while the endpoint is flagged.
const maxReason = 96

func overloadMetadata(reason string) *corev3.Metadata {
	fields := map[string]*structpb.Value{"overloaded": structpb.NewBoolValue(true)}
	if reason = shorten(reason, maxReason); reason != "" {
		fields["reason"] = structpb.NewStringValue(reason)
	}
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
		MetadataNamespace: {Fields: fields},
	}}
}

// shorten returns at most limit bytes of s, up to the end of a rune, without invalid UTF-8, which protobuf refuses to
// marshal.
func shorten(s string, limit int) string {
	s = strings.ToValidUTF8(s, "")
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
