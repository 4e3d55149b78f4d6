package main

/*
#include "abi.h"
*/
import "C"

import (
	"runtime"
	"unsafe"

	"steelyard/picking"
)

// reasonAside is that of a request after the third panic.
const reasonAside = "aside"

// reasons are those of all choices. Each has a counter of Envoy, picker_choices_ with the reason.
var reasons = []string{string(picking.ReasonFill), string(picking.ReasonPrefix), string(picking.ReasonNoUpdate),
	string(picking.ReasonStale), reasonAside, reasonGranted, reasonRefused + "full", reasonRefused + "timeout"}

// define makes the counters of a configuration. Those that Envoy refuses are left out.
func define(config unsafe.Pointer) map[string]uint64 {
	ids := make(map[string]uint64, len(reasons))
	for _, reason := range reasons {
		var id C.size_t
		series := "picker_choices_" + reason
		//nolint:gocritic // cgo writes 0 == 0 for the address of a variable
		if C.envoy_dynamic_module_callback_http_filter_config_define_counter(config, textOf(series), nil, 0, &id) == 0 {
			ids[reason] = uint64(id)
		}
		runtime.KeepAlive(series)
	}
	return ids
}

// count counts a choice for a reason.
func (f *filter) count(envoy unsafe.Pointer, reason string) {
	if id, ok := f.counters[reason]; ok {
		C.envoy_dynamic_module_callback_http_filter_increment_counter(envoy, C.size_t(id), nil, 0, 1)
	}
}
