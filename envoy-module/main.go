package main

/*
#cgo darwin LDFLAGS: -Wl,-undefined,dynamic_lookup
#include "abi.h"
#include <stdlib.h>
*/
import "C"

import (
	"log/slog"
	"runtime/cgo"
	"time"
	"unsafe"

	"steelyard/internal/customrouter"
	"steelyard/picking"
	"steelyard/xds/loads/follow"
)

func main() {}

//export envoy_dynamic_module_on_program_init
func envoy_dynamic_module_on_program_init() *C.char {
	defer guard()
	if name := C.missing(); name != nil {
		logger().Error("this Envoy does not have a function that the module needs: it is made for Envoy "+
			"1.40; load the module that belongs to this Envoy, or use steelyard picker", "function", C.GoString(name))
		return nil
	}
	return abiVersion
}

//export envoy_dynamic_module_on_http_filter_config_new
func envoy_dynamic_module_on_http_filter_config_new(envoy unsafe.Pointer, filterName, config C.text) (
	handle unsafe.Pointer) {
	defer guard()
	log := logger()
	f, err := configured(C.GoStringN(filterName.data, C.int(filterName.length)),
		C.GoStringN(config.data, C.int(config.length)), log)
	if err != nil {
		log.Error("configuration refused", "error", err)
		return nil
	}
	// Envoy keeps C memory: a handle, which is a number, in it.
	c := (*C.configuration)(C.calloc(1, C.size_t(unsafe.Sizeof(C.configuration{}))))
	c.handle = C.uintptr_t(cgo.NewHandle(f))
	if f, ok := f.(*filter); ok {
		f.counters = define(envoy)
		id, ok := f.counters[countNotFollowed]
		c.counts, c.not_followed = C.bool(ok), C.size_t(id)
		if f.prefixBytes > 0 {
			f.ends = append(f.ends, f.gauge(envoy))
		}
	}
	return unsafe.Pointer(c)
}

//export envoy_dynamic_module_on_http_filter_config_destroy
func envoy_dynamic_module_on_http_filter_config_destroy(handle unsafe.Pointer) {
	defer guard()
	h := cgo.Handle((*C.configuration)(handle).handle)
	h.Value().(stopper).stop()
	h.Delete()
	C.free(handle)
}

// A stopper is a configuration of a filter: *filter or *routing. stop is called once.
type stopper interface{ stop() }

// configured makes the filter of a name.
func configured(name, config string, log *slog.Logger) (stopper, error) {
	if name == customrouter.FilterName {
		return newRouting(config, log)
	}
	s, err := parse(config)
	if err != nil {
		return nil, err
	}
	return newFilter(s, log)
}

//export envoy_dynamic_module_on_http_filter_request_headers
func envoy_dynamic_module_on_http_filter_request_headers(envoy unsafe.Pointer, r *C.request, end C.bool) C.int {
	defer guard()
	if r == nil {
		return goOn
	}
	config := configuredFor(r)
	if q, ok := config.(*routing); ok { // it does not step aside: without it there is no backend
		return q.headers(envoy, r)
	}
	f := config.(*filter)
	if aside() {
		name(envoy, f, "", reasonAside)
		return goOn
	}
	if !bool(end) && f.readsBody(header(envoy, contentType), header(envoy, expect)) {
		limit := C.envoy_dynamic_module_callback_http_get_buffer_limit(envoy)
		r.waits = C.uint64_t(waitsFor(f.prefixBytes, uint64(limit)))
		r.came = C.int64_t(time.Since(loaded))
		return waitForBody
	}
	size := sizeOf(header(envoy, contentSize))
	if queued(envoy, r, f, follow.Arrival{Size: size}, nil) {
		return wait
	}
	endpoints, reason := f.choose(picking.Request{Size: size}, nil)
	name(envoy, f, endpoints, reason)
	return goOn
}

// The waiting of a request is over.
//
//export envoy_dynamic_module_on_http_filter_scheduled
func envoy_dynamic_module_on_http_filter_scheduled(envoy unsafe.Pointer, r *C.request, event C.uint64_t) {
	defer guard()
	r.held = false
	settled := false
	defer func() {
		if !settled { // after a panic it goes on, by the weights; a request of a router, to a 503
			C.envoy_dynamic_module_callback_http_filter_continue_decoding(envoy)
		}
	}()
	cgo.Handle(r.hold).Value().(waiter).settled(envoy)
	settled = true
}

// A waiter is a request that waits or waited: *held or *visit.
type waiter interface {
	settled(envoy unsafe.Pointer)
	end()
}

// A request that waited has ended, or its client gave up.
//
//export ended
func ended(handle C.uintptr_t) {
	defer guard()
	h := cgo.Handle(handle)
	h.Value().(waiter).end()
	h.Delete()
}
