// Package hooks reads and writes what Envoy Gateway asks its extension server, message by message, as files to be read:
// the tests of gateways record them from the real one, and those of package gateway play them.
package hooks

import (
	"bytes"
	"encoding/base64"
	"regexp"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"sigs.k8s.io/yaml"

	_ "steelyard/internal/extension"

	// What listeners, routes and clusters of Envoy Gateway have of other types.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/health_check/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
)

const begin = "---\n" // of each document

// The objects in the messages are JSON, which is bytes to them: base64 in a document, and JSON in the file.
var (
	asBytes  = regexp.MustCompile(`(?m)^( *(?:- )?unstructuredBytes: )(\S+)$`)
	asObject = regexp.MustCompile(`(?m)^( *(?:- )?unstructuredBytes: )(\{.*\})$`)
)

// Write makes a file of messages: YAML documents with their types, and the keys in order.
func Write(messages []proto.Message) ([]byte, error) {
	var text []byte
	for _, m := range messages {
		typed, err := anypb.New(m)
		if err != nil {
			return nil, err
		}
		document, err := protojson.Marshal(typed)
		if err != nil {
			return nil, err
		}
		if document, err = yaml.JSONToYAML(document); err != nil {
			return nil, err
		}
		text = append(append(text, begin...), document...)
	}
	return replace(text, asBytes, func(b []byte) []byte {
		object, _ := base64.StdEncoding.DecodeString(string(b)) // protojson has made it
		return object
	}), nil
}

// Read reads the messages of a file.
func Read(text []byte) (messages []proto.Message, err error) {
	text = replace(text, asObject, func(b []byte) []byte { return base64.StdEncoding.AppendEncode(nil, b) })
	for document := range bytes.SplitSeq(bytes.TrimPrefix(text, []byte(begin)), []byte("\n"+begin)) {
		typed := &anypb.Any{}
		if document, err = yaml.YAMLToJSON(document); err != nil {
			return nil, err
		}
		if err := protojson.Unmarshal(document, typed); err != nil {
			return nil, err
		}
		m, err := typed.UnmarshalNew()
		if err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
	return messages, nil
}

// replace replaces the values of lines.
func replace(text []byte, line *regexp.Regexp, by func([]byte) []byte) []byte {
	return line.ReplaceAllFunc(text, func(found []byte) []byte {
		m := line.FindSubmatch(found)
		return append(bytes.Clone(m[1]), by(m[2])...)
	})
}
