// Command envoy-module is the picker inside Envoy: a shared library (make module builds libsteelyard.so) that Envoy
// 1.40 loads as a dynamic module. Its HTTP filter names the endpoint of each request, as `steelyard picker` does, by
// the same choice (package picking) and the same stream of loads (package follow), without the hop.
//
// The filter looks at the headers of a request, and, with prefix_bytes, at the first part of its body. With a choice it
// sets the header x-gateway-destination-endpoint and the dynamic metadata of the same name (namespace envoy.lb), which
// the policy override_host of the clusters reads, and has the route chosen again. Without one, it removes the header:
// the request goes by the weights. The reason of each choice is in the dynamic metadata steelyard, key picker, for the
// access log, and is counted in Envoy's statistics (picker_choices_REASON).
//
// # Bodies
//
// With prefix_bytes, a request with a body of JSON is stopped at its headers. Envoy keeps the body until so many bytes
// have come, or its end, or as much as its own buffer takes: there it would read no further. Then the prompt is read
// (package prefix), the endpoint chosen, and the body streams on. Pieces before that are counted in C, without a call
// of Go. When the first bytes of an answer with status 2xx come, the module learns that the endpoint that gave it
// has the prompt, also where the answer is cut off later: the prompt is computed by then.
//
// # The queue
//
// Where the cluster has a queue, the filter stops the request at its headers, or once the first part of its body has
// been read, has it wait (package follow), with what the routes have of its prompt, and returns to the worker. The
// verdict arrives on a goroutine, which wakes the worker by Envoy's scheduler; the worker then goes on with the
// endpoint that was granted, answers 429, or chooses as without a queue. Beyond Envoy's buffer, the body of a request
// that waits is not read. The end of a request frees its place: Envoy destroys the filter of each, however it ends.
//
// # The router
//
// The filter named router is that of `steelyard router` (package customrouter): it holds each request until its queue
// has a backend, and sets the metadata by which Envoy connects. Envoy's details of the response code show how the
// request ended. The API is served on a Unix socket, from within the module. Where no connection can be made, Envoy
// retries through a second listener, whose filter of the same name has the request wait once more: a header that was
// set the first time has its number.
//
// # What keeps Envoy alive
//
// The module runs in Envoy's process. So each entry recovers from a panic, and after the third the filter steps aside
// for good: requests go by the weights. Memory that Envoy keeps is C memory. The module never blocks a worker: a choice
// takes a lock that is held for some microseconds, and 256 KB of a body are read in 0.2 ms.
//
// # Versions
//
// The interface of dynamic modules belongs to a version of Envoy. When it is loaded, the module looks up every function
// of Envoy that it needs; if one is missing it refuses to load and names the version that it was made for. A gauge is
// all that it does without: Envoy 1.38 cannot set it. Envoy logs a warning about the version string in any case,
// because only modules built from its own header have its hash.
package main
