package wire

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
)

// Codec is a gRPC codec for a whole server.
func Codec() encoding.CodecV2 { return encoding.GetCodecV2(proto.Name) }
