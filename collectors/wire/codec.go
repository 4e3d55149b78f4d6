package wire

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// A Message decodes itself. It is only received.
type Message interface {
	// UnmarshalWire reads a message. data belongs to the caller again when it returns.
	UnmarshalWire(data []byte) error
}

// Unreadable reports whether receiving from a stream failed because of the message: the codec refused it, or it was too
// long for gRPC before the codec got it.
func Unreadable(err error) bool {
	code := status.Code(err)
	return code == codes.Internal || code == codes.ResourceExhausted
}

// Codec returns a gRPC codec for a whole server (grpc.ForceServerCodecV2): a Message decodes itself, and all other
// messages use gRPC's own codec.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

type codec struct{ encoding.CodecV2 }

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(Message)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	return m.UnmarshalWire(whole.ReadOnlyData())
}
