package main

/*
#include "abi.h"
*/
import "C"

import (
	"runtime/cgo"
	"sync"
	"time"
	"unsafe"

	"steelyard/picking"
	"steelyard/picking/prefix"
	"steelyard/xds/loads/follow"
)

// The bodies of a request.
const (
	received = 0 // what came with this entry
	buffered = 1 // what Envoy kept before
)

// An asked is a request whose prompt is learned once it is answered.
type asked struct {
	filter *filter
	prompt prefix.Prompt
}

// begun chooses for a request by the first part of its body, or by all of it, or has it wait in the queue.
//
//export begun
func begun(envoy unsafe.Pointer, r *C.request, whole C.bool) (waits C.bool) {
	defer guard()
	f := configuredFor(r).(*filter)
	if aside() {
		name(envoy, f, "", reasonAside)
		return false
	}
	b := buffers.Get().(*buffer)
	defer buffers.Put(b)
	b.fill(envoy, f.prefixBytes)
	a := &asked{filter: f}
	var size int64
	a.prompt, size = b.first.Read(f.pool.Reader(), header(envoy, path), sizeOf(header(envoy, contentSize)), bool(whole))
	if len(a.prompt.Steps) > 0 {
		r.asked = C.uintptr_t(cgo.NewHandle(a))
	}
	if queued(envoy, r, f, follow.Arrival{Size: size, Since: loaded.Add(time.Duration(r.came))}, &a.prompt) {
		return true
	}
	endpoints, reason := f.choose(picking.Request{Size: size}, &a.prompt)
	name(envoy, f, endpoints, reason)
	return false
}

// answered learns where a request was answered, retries included.
//
//export answered
func answered(envoy unsafe.Pointer, handle C.uintptr_t) {
	defer guard()
	h := cgo.Handle(handle)
	defer h.Delete()
	a := h.Value().(*asked)
	if code := headerOf(envoy, C.response_headers, status); len(code) != 3 || code[0] != '2' {
		return
	}
	var address C.text
	//nolint:gocritic // cgo writes 0 == 0 for the address of a variable
	if C.envoy_dynamic_module_callback_http_filter_get_attribute_string(envoy, C.upstream_address, &address) {
		endpoint := C.GoStringN(address.data, C.int(min(address.length, maxValue)))
		if a.filter.pool.Unknown(endpoint) {
			a.filter.addTo(envoy, countUnknown, 1)
		}
		a.filter.pool.Learn(&a.prompt, endpoint, time.Now())
	}
}

// forgotten is the end of a request that was not answered.
//
//export forgotten
func forgotten(handle C.uintptr_t) {
	defer guard()
	cgo.Handle(handle).Delete()
}

// A buffer takes the first part of a body from Envoy.
type buffer struct {
	first  prefix.First
	chunks []C.text
}

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// fill takes in what has come of a body, at most so much of it.
func (b *buffer) fill(envoy unsafe.Pointer, most int) {
	b.first.Reset()
	if !C.envoy_dynamic_module_callback_http_received_buffered_request_body(envoy) {
		b.add(envoy, buffered, most)
	}
	b.add(envoy, received, most)
}

// add appends one of the two parts.
func (b *buffer) add(envoy unsafe.Pointer, body C.int, most int) {
	n := int(C.envoy_dynamic_module_callback_http_get_body_chunks_size(envoy, body))
	if n == 0 {
		return
	}
	if cap(b.chunks) < n {
		b.chunks = make([]C.text, n)
	}
	b.chunks = b.chunks[:n]
	if !C.envoy_dynamic_module_callback_http_get_body_chunks(envoy, body, &b.chunks[0]) {
		return
	}
	for _, c := range b.chunks {
		if c.length > 0 {
			b.first.Add(unsafe.Slice((*byte)(unsafe.Pointer(c.data)), int(c.length)), most)
		}
	}
	clear(b.chunks) // they are Envoy's
}
