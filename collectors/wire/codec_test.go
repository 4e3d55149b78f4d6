package wire

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"steelyard/e2e/rig/grpctest"
)

// note is a message that reads itself.
type note struct {
	text string
	err  error
}

func (n *note) UnmarshalWire(data []byte) error {
	n.text = string(data)
	return n.err
}

func TestAMessageReadsItself(t *testing.T) {
	data := mem.BufferSlice{mem.SliceBuffer("steel"), mem.SliceBuffer("yard")}
	var got note
	if err := Codec().Unmarshal(data, &got); err != nil || got.text != "steelyard" {
		t.Errorf("read %q, %v", got.text, err)
	}
	broken := errors.New("broken")
	if err := Codec().Unmarshal(data, &note{err: broken}); !errors.Is(err, broken) {
		t.Errorf("reading: %v", err)
	}
}

func TestOtherMessagesAreLeftToGRPC(t *testing.T) {
	own, grpcs := Codec(), encoding.GetCodecV2(protocodec.Name)
	if own.Name() != grpcs.Name() {
		t.Errorf("the codec is called %q, want %q", own.Name(), grpcs.Name())
	}
	message := &discoveryv3.DiscoveryResponse{VersionInfo: "1", TypeUrl: "type", Nonce: "n"}
	mine, err := own.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := grpcs.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(mine.Materialize(), theirs.Materialize()) {
		t.Errorf("%x, want %x", mine.Materialize(), theirs.Materialize())
	}
	var back discoveryv3.DiscoveryResponse
	if err := own.Unmarshal(mine, &back); err != nil || !proto.Equal(message, &back) {
		t.Errorf("%v, %v", &back, err)
	}
	if _, err := own.Marshal("no message"); err == nil {
		t.Error("a string was written as a message")
	}
}

// echo answers an EDS request with its contents.
type echo struct {
	endpointservice.UnimplementedEndpointDiscoveryServiceServer
}

func (echo) StreamEndpoints(stream endpointservice.EndpointDiscoveryService_StreamEndpointsServer) error {
	r, err := stream.Recv()
	if err != nil {
		return err
	}
	return stream.Send(&discoveryv3.DiscoveryResponse{VersionInfo: r.GetVersionInfo(), Nonce: r.GetNode().GetId()})
}

func TestEDSRunsOverTheCodec(t *testing.T) {
	address, _ := grpctest.Serve(t, func(s *grpc.Server) {
		endpointservice.RegisterEndpointDiscoveryServiceServer(s, echo{})
	}, grpc.ForceServerCodecV2(Codec()))
	conn := grpctest.Connect(t, address)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := endpointservice.NewEndpointDiscoveryServiceClient(conn).StreamEndpoints(ctx)
	if err != nil {
		t.Fatal(err)
	}
	id := strings.Repeat("long", 20_000) // of several frames
	if err := stream.Send(&discoveryv3.DiscoveryRequest{VersionInfo: "7", Node: &corev3.Node{Id: id}}); err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if answer.GetVersionInfo() != "7" || answer.GetNonce() != id {
		t.Errorf("version %q, %d bytes of nonce", answer.GetVersionInfo(), len(answer.GetNonce()))
	}
}
