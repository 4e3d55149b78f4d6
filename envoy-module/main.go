package main

/*
#cgo darwin LDFLAGS: -Wl,-undefined,dynamic_lookup
#include "abi.h"
#include <stdlib.h>
*/
import "C"

import (
	"log/slog"
	"os"
	"runtime"
	"runtime/cgo"
	"sync/atomic"
	"time"
	"unsafe"

	"steelyard/internal/customrouter"
	"steelyard/picking"
	"steelyard/picking/prefix"
	"steelyard/xds/loads/follow"
)

// What Envoy calls with the results of the module.
const (
	goOn        = 0 // to the next filter
	waitForBody = 1 // only the body goes on, to this filter
	wait        = 4 // nothing goes on until the module says so; beyond Envoy's buffer the body is not read
	maxValue    = 256
)

var (
	textLog     = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("module", "steelyard")
	jsonLog     = slog.New(slog.NewJSONHandler(os.Stderr, nil)).With("module", "steelyard")
	logsJSON    atomic.Bool // as a router asks for it
	contentSize = constant("content-length")
	contentType = constant("content-type")
	expect      = constant("expect")
	path        = constant(":path")
	status      = constant(":status")
	destination = constant(C.DESTINATION)
	space       = constant("envoy.lb")
	own         = constant("steelyard")
	ownKey      = constant("picker")
	abiVersion  = C.CString("steelyard, for Envoy 1.40")
	loaded      = time.Now() // requests count the time when they came from then on
)

// constant is a text in C memory, for the life of the process.
func constant(s string) C.text { return C.text{data: C.CString(s), length: C.size_t(len(s))} }

// textOf is a Go string for the time of one call.
func textOf(s string) C.text {
	return C.text{data: (*C.char)(unsafe.Pointer(unsafe.StringData(s))), length: C.size_t(len(s))}
}

func main() {}

// logger is the log of the module.
func logger() *slog.Logger {
	if logsJSON.Load() {
		return jsonLog
	}
	return textLog
}

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

// configuredFor is the configuration of a request's filter: *filter or *routing.
func configuredFor(r *C.request) any { return cgo.Handle(r.config.handle).Value() }

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

// header is the first value of a header of the request, empty where there is none.
func header(envoy unsafe.Pointer, key C.text) string { return headerOf(envoy, C.request_headers, key) }

// headerOf returns a header of the request or of the answer.
func headerOf(envoy unsafe.Pointer, headers C.int, key C.text) string {
	var value C.text
	//nolint:gocritic // cgo writes 0 == 0 for the address of a variable
	if !C.envoy_dynamic_module_callback_http_get_header(envoy, headers, key, &value, 0, nil) {
		return ""
	}
	return C.GoStringN(value.data, C.int(min(value.length, maxValue)))
}

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

// A request that waited has ended, or its client gave up.
//
//export ended
func ended(handle C.uintptr_t) {
	defer guard()
	h := cgo.Handle(handle)
	h.Value().(waiter).end()
	h.Delete()
}

// refuse answers a request that waited and gets no place.
func refuse(envoy unsafe.Pointer, f *filter, o follow.Outcome) {
	reason, answer := o.Reason(), o.Refusal()
	f.count(envoy, reason)
	C.envoy_dynamic_module_callback_http_set_dynamic_metadata_string(envoy, own, ownKey, textOf(reason))
	runtime.KeepAlive(reason)
	respond(envoy, answer.Status, answer.Body, answer.Details, answer.Headers...)
}

// respond answers a request with these headers, at least one. Envoy copies what it is given.
func respond(envoy unsafe.Pointer, status int, body, details string, pairs ...[2]string) {
	memory := C.calloc(C.size_t(len(pairs)), C.size_t(unsafe.Sizeof(C.header{})))
	defer C.free(memory)
	headers := unsafe.Slice((*C.header)(memory), len(pairs))
	for i, pair := range pairs {
		key, value := C.CString(pair[0]), C.CString(pair[1])
		defer C.free(unsafe.Pointer(key))
		defer C.free(unsafe.Pointer(value))
		headers[i] = C.header{key: key, key_length: C.size_t(len(pair[0])), value: value,
			value_length: C.size_t(len(pair[1]))}
	}
	C.envoy_dynamic_module_callback_http_send_response(envoy, C.uint32_t(status), &headers[0], C.size_t(len(pairs)),
		textOf(body), textOf(details))
	runtime.KeepAlive(body)
	runtime.KeepAlive(details)
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
