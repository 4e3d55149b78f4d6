package main

/*
#include "abi.h"
#include <stdlib.h>
*/
import "C"

import (
	"context"
	"runtime/cgo"
	"sync"
	"time"
	"unsafe"

	"steelyard/internal/loops"
	"steelyard/xds/loads/follow"
)

// routesInterval is how late the gauge of the routes may be.
const routesInterval = time.Second

// The gauge of the routes, and its label: a gauge without one would be that of the filter that set it last.
var (
	gaugeRoutes  = constant("picker_prefix_routes")
	labelCluster = constant("envoy_cluster_name")
)

// gauge has Envoy show the number of the routes of a configuration until stop is called. Where Envoy cannot set the
// gauge, or refuses it, there is none.
func (f *filter) gauge(config unsafe.Pointer) (stop func()) {
	if !C.sets_gauges() {
		return func() {}
	}
	var id C.size_t
	//nolint:gocritic // cgo writes 0 == 0 for the address of a variable
	if C.envoy_dynamic_module_callback_http_filter_config_define_gauge(config, gaugeRoutes, &labelCluster, 1,
		&id) != 0 {
		return func() {}
	}
	f.routes = uint64(id)
	scheduler := C.envoy_dynamic_module_callback_http_filter_config_scheduler_new(config)
	ctx, cancel := context.WithCancel(context.Background())
	var counting sync.WaitGroup
	counting.Go(func() {
		follow.Again(ctx, guard, func(ctx context.Context) {
			loops.Every(ctx, routesInterval, func(time.Time) {
				C.envoy_dynamic_module_callback_http_filter_config_scheduler_commit(scheduler, 0)
			})
		})
	})
	return func() {
		cancel()
		counting.Wait()
		C.envoy_dynamic_module_callback_http_filter_config_scheduler_delete(scheduler)
	}
}

// It is time to count the routes, in the main thread.
//
//export envoy_dynamic_module_on_http_filter_config_scheduled
func envoy_dynamic_module_on_http_filter_config_scheduled(config, handle unsafe.Pointer, event C.uint64_t) {
	defer guard()
	f := cgo.Handle((*C.configuration)(handle).handle).Value().(*filter)
	routes, _ := f.pool.Routes()
	count := C.uint64_t(routes.Own + routes.Others)
	cluster := constant(f.cluster)
	defer C.free(unsafe.Pointer(cluster.data))
	//nolint:gocritic // cgo writes 0 == 0 for the address of a variable
	C.envoy_dynamic_module_callback_http_filter_config_set_gauge(config, C.size_t(f.routes), &cluster, 1, count)
}
