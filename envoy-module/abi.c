#define _GNU_SOURCE
#include "abi.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

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
      "envoy_dynamic_module_callback_http_get_body_size",
      "envoy_dynamic_module_callback_http_get_body_chunks_size",
      "envoy_dynamic_module_callback_http_get_body_chunks",
      "envoy_dynamic_module_callback_http_received_buffered_request_body",
      "envoy_dynamic_module_callback_http_get_buffer_limit",
      "envoy_dynamic_module_callback_http_filter_config_define_counter",
      "envoy_dynamic_module_callback_http_filter_increment_counter",
      "envoy_dynamic_module_callback_http_filter_config_define_gauge",
      "envoy_dynamic_module_callback_http_filter_config_scheduler_new",
      "envoy_dynamic_module_callback_http_filter_config_scheduler_commit",
      "envoy_dynamic_module_callback_http_filter_config_scheduler_delete",
  };
  for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
    if (!dlsym(RTLD_DEFAULT, needed[i])) return needed[i];
  return NULL;
}

bool sets_gauges(void) { return envoy_dynamic_module_callback_http_filter_config_set_gauge; }

// These are in C, because they run for each request, or each piece of a body, and a call of Go costs more than what
// they do.
void *envoy_dynamic_module_on_http_filter_new(configuration *config, void *filter) {
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
  if (r && r->asked) forgotten(r->asked);
  free(r);
}

enum { go_on = 0, received = 0, buffered = 1, stop = 1, buffer_and_wait = 2 };

// choose chooses for a request of which enough has come, or has it wait in the queue.
static void choose(void *filter, request *r, bool whole) {
  r->waits = 0;
  r->held = begun(filter, r, whole);
}

// A body that waits is kept by Envoy, which stops reading at its own limit: so waits is never above that.
long envoy_dynamic_module_on_http_filter_request_body(void *filter, request *r, bool end) {
  if (!r) return go_on;
  if (r->waits) {
    uint64_t size = envoy_dynamic_module_callback_http_get_body_size(filter, received);
    if (!envoy_dynamic_module_callback_http_received_buffered_request_body(filter))
      size += envoy_dynamic_module_callback_http_get_body_size(filter, buffered);
    if (!end && size < r->waits) return buffer_and_wait;
    choose(filter, r, end);
  }
  return r->held ? buffer_and_wait : go_on;
}

// Trailers end a body too.
long envoy_dynamic_module_on_http_filter_request_trailers(void *filter, request *r) {
  if (!r) return go_on;
  if (r->waits) choose(filter, r, true);
  return r->held ? stop : go_on;
}

// names reports whether a list of endpoints, separated by commas, has the address.
static bool names(text list, text address) {
  while (list.length >= address.length) {
    const char *comma = memchr(list.data, ',', list.length);
    size_t length = comma ? (size_t)(comma - list.data) : list.length;
    if (length == address.length && !memcmp(list.data, address.data, length)) return true;
    if (!comma) return false;
    list.length -= length + 1;
    list.data = comma + 1;
  }
  return false;
}

// An answer of an endpoint that was not named: this Envoy does not have those that were, or does not use them.
long envoy_dynamic_module_on_http_filter_response_headers(void *filter, request *r, bool end) {
  text named, address;
  if (r && r->config->counts &&
      envoy_dynamic_module_callback_http_get_header(filter, request_headers, (text){DESTINATION, sizeof DESTINATION - 1}, &named, 0,
                                                    NULL) &&
      envoy_dynamic_module_callback_http_filter_get_attribute_string(filter, upstream_address, &address) &&
      !names(named, address))
    envoy_dynamic_module_callback_http_filter_increment_counter(filter, r->config->not_followed, NULL, 0, 1);
  return go_on;
}

// The first bytes of an answer show that the engine has the prompt: it sends the headers of a stream before.
long envoy_dynamic_module_on_http_filter_response_body(void *filter, request *r, bool end) {
  if (r && r->asked) {
    answered(filter, r->asked);
    r->asked = 0;
  }
  return go_on;
}

// Envoy refuses a module that lacks one of its hooks. Those below have nothing to do here: the filter uses neither
// callouts nor streams, and sees no trailers of responses. 0 is "continue" in all of them.
#define HOOK(name) \
  long envoy_dynamic_module_on_http_filter_##name(void) { return 0; }
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
HOOK(per_route_config_new)
HOOK(per_route_config_destroy)
