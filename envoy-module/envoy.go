package main

/*
#include "abi.h"
#include <stdlib.h>
*/
import "C"

import (
	"runtime"
	"runtime/cgo"
	"time"
	"unsafe"
)

// What Envoy calls with the results of the module.
const (
	goOn        = 0 // to the next filter
	waitForBody = 1 // only the body goes on, to this filter
	wait        = 4 // nothing goes on until the module says so; beyond Envoy's buffer the body is not read
	maxValue    = 256
)

var (
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

// configuredFor is the configuration of a request's filter: *filter or *routing.
func configuredFor(r *C.request) any { return cgo.Handle(r.config.handle).Value() }

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
