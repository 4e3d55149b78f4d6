package main

/*
#cgo linux LDFLAGS: -Wl,--unresolved-symbols=ignore-all
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
	"unsafe"
)

// What Envoy calls with the results of the module.
const (
	requestHeaders = 0 // the map of the request's headers
	goOn           = 0 // to the next filter
)

var (
	logHandler  = slog.NewTextHandler(os.Stderr, nil).WithAttrs([]slog.Attr{slog.String("module", "steelyard")})
	contentSize = constant("content-length")
	destination = constant("x-gateway-destination-endpoint")
	space       = constant("envoy.lb")
	own         = constant("steelyard")
	ownKey      = constant("picker")
	abiVersion  = C.CString("steelyard, for Envoy 1.40")
)

// constant is a text in C memory, for the life of the process.
func constant(s string) C.text { return C.text{data: C.CString(s), length: C.size_t(len(s))} }

// textOf is a Go string for the time of one call.
func textOf(s string) C.text {
	return C.text{data: (*C.char)(unsafe.Pointer(unsafe.StringData(s))), length: C.size_t(len(s))}
}

func main() {}

//export envoy_dynamic_module_on_program_init
func envoy_dynamic_module_on_program_init() *C.char {
	defer guard()
	if name := C.missing(); name != nil {
		slog.New(logHandler).Error("this Envoy does not have a function that the module needs: it is made for Envoy "+
			"1.40; load the module that belongs to this Envoy, or use steelyard picker", "function", C.GoString(name))
		return nil
	}
	return abiVersion
}

//export envoy_dynamic_module_on_http_filter_config_new
func envoy_dynamic_module_on_http_filter_config_new(envoy unsafe.Pointer, filterName, config C.text) (
	handle unsafe.Pointer) {
	defer guard()
	log := slog.New(logHandler)
	s, err := parse(C.GoStringN(config.data, C.int(config.length)))
	if err != nil {
		log.Error("configuration refused", "error", err)
		return nil
	}
	f, err := newFilter(s, log)
	if err != nil {
		log.Error("configuration refused", "error", err)
		return nil
	}
	// Envoy keeps C memory: a handle, which is a number, in it.
	handle = C.malloc(C.size_t(unsafe.Sizeof(cgo.Handle(0))))
	*(*cgo.Handle)(handle) = cgo.NewHandle(f)
	return handle
}

//export envoy_dynamic_module_on_http_filter_config_destroy
func envoy_dynamic_module_on_http_filter_config_destroy(handle unsafe.Pointer) {
	defer guard()
	h := *(*cgo.Handle)(handle)
	filterOf(handle).stop()
	h.Delete()
	C.free(handle)
}

func filterOf(handle unsafe.Pointer) *filter { return (*cgo.Handle)(handle).Value().(*filter) }

// A request needs no state: its filter is the configuration.
//
//export envoy_dynamic_module_on_http_filter_new
func envoy_dynamic_module_on_http_filter_new(config, envoy unsafe.Pointer) unsafe.Pointer {
	return config
}

//export envoy_dynamic_module_on_http_filter_destroy
func envoy_dynamic_module_on_http_filter_destroy(filter unsafe.Pointer) {}

//export envoy_dynamic_module_on_http_filter_request_headers
func envoy_dynamic_module_on_http_filter_request_headers(envoy, handle unsafe.Pointer, end C.bool) C.int {
	defer guard()
	if aside() {
		name(envoy, "", "aside")
		return goOn
	}
	var value C.text
	length := ""
	//nolint:gocritic // cgo writes 0 == 0 for the address of a variable
	if C.envoy_dynamic_module_callback_http_get_header(envoy, requestHeaders, contentSize, &value, 0, nil) {
		length = C.GoStringN(value.data, C.int(value.length))
	}
	endpoints, reason := filterOf(handle).choose(length)
	name(envoy, endpoints, reason)
	return goOn
}

// name has the request go to the first of the endpoints, or, without any, by the weights. Envoy copies what it is
// given.
func name(envoy unsafe.Pointer, endpoints, reason string) {
	C.envoy_dynamic_module_callback_http_set_dynamic_metadata_string(envoy, own, ownKey, textOf(reason))
	runtime.KeepAlive(reason)
	if endpoints == "" {
		// A client must not choose. Without a value the header is removed.
		C.envoy_dynamic_module_callback_http_set_header(envoy, requestHeaders, destination, C.text{})
	} else {
		C.envoy_dynamic_module_callback_http_set_header(envoy, requestHeaders, destination, textOf(endpoints))
		C.envoy_dynamic_module_callback_http_set_dynamic_metadata_string(envoy, space, destination, textOf(endpoints))
		runtime.KeepAlive(endpoints)
	}
	C.envoy_dynamic_module_callback_http_clear_route_cache(envoy) // it may depend on the header
}
