// The functions of Envoy 1.40 that the module calls, and those of the module that Envoy calls with arguments.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
  const char *data;
  size_t length;
} text;

extern bool envoy_dynamic_module_callback_http_get_header(void *filter, int map, text key, text *value, size_t index,
                                                          size_t *count);
extern bool envoy_dynamic_module_callback_http_set_header(void *filter, int map, text key, text value);
extern void envoy_dynamic_module_callback_http_set_dynamic_metadata_string(void *filter, text space, text key,
                                                                           text value);
extern void envoy_dynamic_module_callback_http_clear_route_cache(void *filter);

// A header of a response that the module sends.
typedef struct {
  const char *key;
  size_t key_length;
  const char *value;
  size_t value_length;
} header;

extern void envoy_dynamic_module_callback_http_send_response(void *filter, uint32_t status, header *headers,
                                                             size_t count, text body, text details);
extern void envoy_dynamic_module_callback_http_filter_continue_decoding(void *filter);

// A number or a text of a request, by its id in Envoy's list of attributes; false where it is not known.
extern bool envoy_dynamic_module_callback_http_filter_get_attribute_int(void *filter, int attribute, uint64_t *value);
extern bool envoy_dynamic_module_callback_http_filter_get_attribute_string(void *filter, int attribute, text *value);

// A scheduler calls envoy_dynamic_module_on_http_filter_scheduled in the worker of a request, from any thread, while
// the request is there.
extern void *envoy_dynamic_module_callback_http_filter_scheduler_new(void *filter);
extern void envoy_dynamic_module_callback_http_filter_scheduler_commit(void *scheduler, uint64_t event);
extern void envoy_dynamic_module_callback_http_filter_scheduler_delete(void *scheduler);

// A request is what Envoy keeps of each: the configuration of its filter, and, for one that waits or waited in a queue,
// a handle of Go.
typedef struct {
  void *config;
  uintptr_t hold; // 0: none
} request;

// missing is the first function of Envoy that does not exist in this process, or NULL.
const char *missing(void);

// completed and ended are the end of a request that has a handle, in Go: with what Envoy found, then for good.
extern void completed(void *filter, uintptr_t hold);
extern void ended(uintptr_t hold);
