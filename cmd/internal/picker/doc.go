// Package picker is `steelyard picker`: an external processor (ext_proc) that names the endpoint of each request, for
// Envoys and gateways that ask one. Package picking makes the choice; this one follows the loads of a running Steelyard
// and speaks the protocol.
//
// It answers the Endpoint Picker protocol of the Gateway API Inference Extension, so an InferencePool can name it: the
// endpoint and two others for retries in the header and the dynamic metadata (namespace envoy.lb)
// x-gateway-destination-endpoint, and 503 where none of the endpoints that the proxy allows for a request can be used.
// Where loads are missing or stale it names none, and the proxy balances on its own, with Steelyard's weights if
// it has them; with Options.Strict the answer is 503, as the protocol asks of a picker without endpoints.
//
// It needs the headers of a request only: bodies are sent on as they come. Any mode of bodies works, so that it can
// take the place of a picker that reads them. With Options.Prefix, and a proxy that buffers bodies, it reads prompts
// (package prefix): the choice is then in the answer to the first part of the body, and a route is learned from the
// headers of a successful answer, to the endpoint that gave it. The proxy then takes the content-length away from the
// request, and the picker sets it again: by it, the access log has the size of the request.
//
// # The queue
//
// Where the cluster has a queue, the request waits in it (package follow) before its headers are answered, or its body,
// where the choice waits for that. The picker asks the proxy for more time than its message_timeout, and the answer is
// the endpoint that was granted, a 429, or the choice that there would be without a queue. A place is held until the
// stream of its request ends. Envoy 1.40 ends that when no part of the request or the answer is to be sent on it any
// more, so the picker asks for the trailers of the answer (mode_override): they come, or the stream ends, with the last
// byte. A client that gives up ends the stream, too; while a request waits, a goroutine of its own receives.
//
// # States
//
// The picker is ready (gRPC health checking, and /readyz) when each of its clusters has an update that is not stale.
// The connection to Steelyard is followed again and again, at most 250 ms to 2 s apart.
package picker
