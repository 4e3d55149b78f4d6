package assignment

import (
	"strings"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// MetadataNamespace is the filter metadata that says why an endpoint is DEGRADED.
const MetadataNamespace = "steelyard"

// maxReason bounds the reason in bytes: it travels to every Envoy in every
// assignment while the flag is up.
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

// shorten cuts s to at most limit bytes, on a rune's edge, and drops what is not
// UTF-8: protobuf refuses to marshal such a string.
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
