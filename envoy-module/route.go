package main

/*
#include "abi.h"
*/
import "C"

import (
	"net/http"
	"runtime"
	"runtime/cgo"
	"strconv"
	"time"
	"unsafe"

	"steelyard/internal/customrouter/leastlatency"
)

// Ids in Envoy's list of attributes.
const (
	responseCode        = 15
	responseCodeDetails = 16
)

// In the dynamic metadata of a request, under own: where Envoy connects, and its number, which is in the header of the
// request where that comes again. A client cannot set them, and they do not reach the backends.
var (
	backend = constant("backend")
	number  = constant("request")
	again   = constant("x-steelyard-request")
)

// headers has a request wait for its verdict, which may be there at once.
func (q *routing) headers(envoy unsafe.Pointer, r *C.request) C.int {
	first := header(envoy, again)
	// It is none of the backends' concern. Without a value the header is removed.
	C.envoy_dynamic_module_callback_http_set_header(envoy, C.request_headers, again, C.text{})
	scheduler := C.envoy_dynamic_module_callback_http_filter_scheduler_new(envoy)
	v := &visit{router: q.router, wake: func() {
		C.envoy_dynamic_module_callback_http_filter_scheduler_commit(scheduler, 0)
	}, free: func() { C.envoy_dynamic_module_callback_http_filter_scheduler_delete(scheduler) }}
	if q.again {
		v.first, _ = strconv.ParseUint(first, 10, 64) // 0 is no request
	}
	r.hold = C.uintptr_t(cgo.NewHandle(v))
	verdict, ok := v.arrive()
	switch {
	case !ok:
		return wait
	case verdict.Address == "":
		v.refuse(envoy, verdict.Refused)
		return wait
	}
	v.direct(envoy, verdict.Address)
	return goOn
}

// direct has the request go to an address. Envoy copies what it is given.
func (v *visit) direct(envoy unsafe.Pointer, address string) {
	C.envoy_dynamic_module_callback_http_set_dynamic_metadata_string(envoy, own, backend, textOf(address))
	runtime.KeepAlive(address)
	text := strconv.FormatUint(v.number, 10)
	C.envoy_dynamic_module_callback_http_set_dynamic_metadata_string(envoy, own, number, textOf(text))
	runtime.KeepAlive(text)
}

// settled has the request go on with its verdict.
func (v *visit) settled(envoy unsafe.Pointer) {
	verdict := v.result()
	if verdict.Address == "" {
		v.refuse(envoy, verdict.Refused)
		return
	}
	v.direct(envoy, verdict.Address)
	C.envoy_dynamic_module_callback_http_filter_continue_decoding(envoy)
}

func (v *visit) refuse(envoy unsafe.Pointer, reason leastlatency.Refusal) {
	respond(envoy, http.StatusServiceUnavailable, routerRefusals[reason], "steelyard_router_"+string(reason),
		[2]string{"retry-after", "1"})
}

// A request that has a handle is complete; its end follows.
//
//export completed
func completed(envoy unsafe.Pointer, handle C.uintptr_t) {
	defer guard()
	v, ok := cgo.Handle(handle).Value().(*visit)
	if !ok {
		return
	}
	var status C.uint64_t
	C.envoy_dynamic_module_callback_http_filter_get_attribute_int(envoy, responseCode, &status)
	var details C.text
	//nolint:gocritic // cgo writes 0 == 0 for the address of a variable
	C.envoy_dynamic_module_callback_http_filter_get_attribute_string(envoy, responseCodeDetails, &details)
	v.complete(time.Now(), int(status), C.GoStringN(details.data, C.int(min(details.length, maxValue))))
}
