#define _GNU_SOURCE
#include "abi.h"
#include <dlfcn.h>
#include <stdlib.h>

const char *missing(void) {
  static const char *const needed[] = {
      "envoy_dynamic_module_callback_http_get_header",
      "envoy_dynamic_module_callback_http_set_header",
      "envoy_dynamic_module_callback_http_set_dynamic_metadata_string",
      "envoy_dynamic_module_callback_http_clear_route_cache",
      "envoy_dynamic_module_callback_http_send_response",
      "envoy_dynamic_module_callback_http_filter_continue_decoding",
      "envoy_dynamic_module_callback_http_filter_get_attribute_int",
      "envoy_dynamic_module_callback_http_filter_get_attribute_string",
      "envoy_dynamic_module_callback_http_filter_scheduler_new",
      "envoy_dynamic_module_callback_http_filter_scheduler_commit",
      "envoy_dynamic_module_callback_http_filter_scheduler_delete",
  };
  for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
    if (!dlsym(RTLD_DEFAULT, needed[i])) return needed[i];
  return NULL;
}

// These three are in C, because they run for each request, and a call of Go costs more than what they do.
void *envoy_dynamic_module_on_http_filter_new(void *config, void *filter) {
  request *r = calloc(1, sizeof *r);
  if (r) r->config = config;
  return r;
}

void envoy_dynamic_module_on_http_filter_stream_complete(void *filter, request *r) {
  if (r && r->hold) completed(filter, r->hold);
}

void envoy_dynamic_module_on_http_filter_destroy(void *handle) {
  request *r = handle;
  if (r && r->hold) ended(r->hold);
  free(r);
}

// Envoy refuses a module that lacks one of its hooks. Those below have nothing to do here: the filter uses neither
// callouts nor streams, and sees no bodies, trailers or responses. 0 is "continue" in all of them.
#define HOOK(name) \
  long envoy_dynamic_module_on_http_filter_##name(void) { return 0; }
HOOK(request_body)
HOOK(request_trailers)
HOOK(response_headers)
HOOK(response_body)
HOOK(response_trailers)
HOOK(http_callout_done)
HOOK(http_stream_headers)
HOOK(http_stream_data)
HOOK(http_stream_trailers)
HOOK(http_stream_complete)
HOOK(http_stream_reset)
HOOK(downstream_above_write_buffer_high_watermark)
HOOK(downstream_below_write_buffer_low_watermark)
HOOK(local_reply)
HOOK(config_http_callout_done)
HOOK(config_http_stream_headers)
HOOK(config_http_stream_data)
HOOK(config_http_stream_trailers)
HOOK(config_http_stream_complete)
HOOK(config_http_stream_reset)
HOOK(config_scheduled)
HOOK(per_route_config_new)
HOOK(per_route_config_destroy)
