package main

/*
#include "abi.h"
*/
import "C"

import (
	"runtime"
	"strings"
	"unsafe"

	"steelyard/picking"
	"steelyard/xds/loads/follow"
)

// reasonAside is the reason for requests after the third panic.
const reasonAside = "aside"

// reasons lists the reasons of all choices. Each has a counter of Envoy, picker_choices_ with the reason.
var reasons = []string{string(picking.ReasonFill), string(picking.ReasonPrefix), string(picking.ReasonOverride),
	string(picking.ReasonNoUpdate), string(picking.ReasonStale), reasonAside, follow.ReasonGranted,
	follow.ReasonCached, follow.ReasonRefused + "full", follow.ReasonRefused + "timeout"}

// The other counters, without the prefix picker_.
const (
	countPanics   = "panics"   // that an entry or a loop recovered from
	countUnqueued = "unqueued" // requests of a cluster with a queue that did not wait in it
	// countUnknown counts answers of endpoints that are not in the loads: nothing is learned of them.
	countUnknown = "unknown_endpoint"
	// countNotFollowed counts answers of endpoints that were not named, in abi.c.
	countNotFollowed = "not_followed"
)

// define makes the counters of a configuration. Those that Envoy refuses are left out.
func define(config unsafe.Pointer) map[string]uint64 {
	ids := make(map[string]uint64, len(reasons)+4)
	all := []string{countPanics, countUnqueued, countUnknown, countNotFollowed}
	for _, reason := range reasons {
		all = append(all, "choices_"+reason)
	}
	for _, name := range all {
		var id C.size_t
		series := "picker_" + name
		//nolint:gocritic // cgo writes 0 == 0 for the address of a variable
		if C.envoy_dynamic_module_callback_http_filter_config_define_counter(config, textOf(series), nil, 0, &id) == 0 {
			ids[strings.TrimPrefix(name, "choices_")] = uint64(id)
		}
		runtime.KeepAlive(series)
	}
	return ids
}

// count counts a choice for a reason, or one of another counter; and the panics since the last one, as only the worker
// of a request can count.
func (f *filter) count(envoy unsafe.Pointer, reason string) {
	f.addTo(envoy, reason, 1)
	if uncounted.Load() > 0 {
		f.addTo(envoy, countPanics, uncounted.Swap(0))
	}
}

func (f *filter) addTo(envoy unsafe.Pointer, counter string, n int64) {
	if id, ok := f.counters[counter]; ok {
		C.envoy_dynamic_module_callback_http_filter_increment_counter(envoy, C.size_t(id), nil, 0, C.uint64_t(n))
	}
}
