package assignment

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"steelyard/internal/envoyid"
)

// MetadataNamespace is the namespace of the filter metadata with the reason why an endpoint is DEGRADED.
const MetadataNamespace = "steelyard"

// maxReason limits the reason in bytes: every assignment carries it to every Envoy while the endpoint is flagged.
const maxReason = 96

func overloadMetadata(reason string) *corev3.Metadata {
	fields := map[string]*structpb.Value{"overloaded": structpb.NewBoolValue(true)}
	if reason = envoyid.Clip(strings.ToValidUTF8(reason, ""), maxReason); reason != "" {
		fields["reason"] = structpb.NewStringValue(reason)
	}
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
		MetadataNamespace: {Fields: fields},
	}}
}
