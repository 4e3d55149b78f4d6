package main

/*
#include "abi.h"
*/
import "C"

import (
	"runtime"
	"runtime/cgo"
	"unsafe"

	"steelyard/picking"
	"steelyard/picking/prefix"
	"steelyard/xds/loads/follow"
)

// queued has a request wait, by its prompt if that is not nil, where the cluster has a queue; false where it does not
// wait.
func queued(envoy unsafe.Pointer, r *C.request, f *filter, a follow.Arrival, prompt *prefix.Prompt) bool {
	var on bool
	a.Class, a.Tenant, on = f.pool.Queue(func(name string) string {
		defer runtime.KeepAlive(name)
		return header(envoy, textOf(name))
	})
	if !on {
		return false
	}
	if prompt != nil {
		a.Cached, a.Key = f.pool.Asked(prompt)
	}
	scheduler := C.envoy_dynamic_module_callback_http_filter_scheduler_new(envoy)
	h := &held{filter: f, size: a.Size, prompt: prompt, wake: func() {
		C.envoy_dynamic_module_callback_http_filter_scheduler_commit(scheduler, 0)
	}, free: func() { C.envoy_dynamic_module_callback_http_filter_scheduler_delete(scheduler) }}
	if !h.arrive(a) {
		h.free()
		f.count(envoy, countUnqueued)
		return false
	}
	r.hold = C.uintptr_t(cgo.NewHandle(h))
	return true
}

func (h *held) settled(envoy unsafe.Pointer) {
	switch o := h.result(); {
	case o.Refused != "":
		refuse(envoy, h.filter, o)
		return
	case o.Endpoint != "":
		name(envoy, h.filter, o.Endpoint, o.Reason())
	default:
		endpoints, reason := h.filter.choose(picking.Request{Size: h.size}, h.prompt)
		name(envoy, h.filter, endpoints, reason)
	}
	C.envoy_dynamic_module_callback_http_filter_continue_decoding(envoy)
}

// refuse answers a request that waited and gets no place.
func refuse(envoy unsafe.Pointer, f *filter, o follow.Outcome) {
	reason, answer := o.Reason(), o.Refusal()
	f.count(envoy, reason)
	C.envoy_dynamic_module_callback_http_set_dynamic_metadata_string(envoy, own, ownKey, textOf(reason))
	runtime.KeepAlive(reason)
	respond(envoy, answer.Status, answer.Body, answer.Details, answer.Headers...)
}

// name has the request go to the first of the endpoints, or, without any, by the weights. Envoy copies what it is
// given.
func name(envoy unsafe.Pointer, f *filter, endpoints, reason string) {
	f.count(envoy, reason)
	C.envoy_dynamic_module_callback_http_set_dynamic_metadata_string(envoy, own, ownKey, textOf(reason))
	runtime.KeepAlive(reason)
	if endpoints == "" {
		// A client must not choose. Without a value the header is removed.
		C.envoy_dynamic_module_callback_http_set_header(envoy, C.request_headers, destination, C.text{})
	} else {
		C.envoy_dynamic_module_callback_http_set_header(envoy, C.request_headers, destination, textOf(endpoints))
		C.envoy_dynamic_module_callback_http_set_dynamic_metadata_string(envoy, space, destination, textOf(endpoints))
		runtime.KeepAlive(endpoints)
	}
	C.envoy_dynamic_module_callback_http_clear_route_cache(envoy) // it may depend on the header
}
