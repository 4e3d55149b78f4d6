// The functions of Envoy 1.40 that the module calls, and those of the module that Envoy calls with arguments.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
  const char *data;
  size_t length;
} text;

// The header and the metadata that name the endpoints of a request.
#define DESTINATION "x-gateway-destination-endpoint"

// Envoy's numbers: of the maps of headers, and of the attribute upstream.address.
enum { request_headers = 0, response_headers = 2, upstream_address = 41 };

// Envoy's functions are found when it loads the module. Weak, so that every linker leaves them open until then.
#define ENVOY extern __attribute__((weak))

ENVOY bool envoy_dynamic_module_callback_http_get_header(void *filter, int map, text key, text *value, size_t index,
                                                          size_t *count);
ENVOY bool envoy_dynamic_module_callback_http_set_header(void *filter, int map, text key, text value);
ENVOY void envoy_dynamic_module_callback_http_set_dynamic_metadata_string(void *filter, text space, text key,
                                                                           text value);
ENVOY void envoy_dynamic_module_callback_http_clear_route_cache(void *filter);

// A header of a response that the module sends.
typedef struct {
  const char *key;
  size_t key_length;
  const char *value;
  size_t value_length;
} header;

ENVOY void envoy_dynamic_module_callback_http_send_response(void *filter, uint32_t status, header *headers,
                                                             size_t count, text body, text details);
ENVOY void envoy_dynamic_module_callback_http_filter_continue_decoding(void *filter);

// A number or a text of a request, by its id in Envoy's list of attributes; false where it is not known.
ENVOY bool envoy_dynamic_module_callback_http_filter_get_attribute_int(void *filter, int attribute, uint64_t *value);
ENVOY bool envoy_dynamic_module_callback_http_filter_get_attribute_string(void *filter, int attribute, text *value);

// A scheduler calls envoy_dynamic_module_on_http_filter_scheduled in the worker of a request, from any thread, while
// the request is there.
ENVOY void *envoy_dynamic_module_callback_http_filter_scheduler_new(void *filter);
ENVOY void envoy_dynamic_module_callback_http_filter_scheduler_commit(void *scheduler, uint64_t event);
ENVOY void envoy_dynamic_module_callback_http_filter_scheduler_delete(void *scheduler);

// Bodies: the bytes so far, in pieces that are valid until the end of the entry.
ENVOY size_t envoy_dynamic_module_callback_http_get_body_size(void *filter, int body);
ENVOY size_t envoy_dynamic_module_callback_http_get_body_chunks_size(void *filter, int body);
ENVOY bool envoy_dynamic_module_callback_http_get_body_chunks(void *filter, int body, text *chunks);
ENVOY bool envoy_dynamic_module_callback_http_received_buffered_request_body(void *filter);
ENVOY uint64_t envoy_dynamic_module_callback_http_get_buffer_limit(void *filter);

// Counters: one is defined with the configuration, and counts in the worker of a request. 0 is success.
ENVOY int envoy_dynamic_module_callback_http_filter_config_define_counter(void *config, text name, text *labels,
                                                                           size_t count, size_t *id);
ENVOY int envoy_dynamic_module_callback_http_filter_increment_counter(void *filter, size_t id, text *labels,
                                                                       size_t count, uint64_t value);

// Gauges: one is set with the values of its labels, in the main thread.
ENVOY int envoy_dynamic_module_callback_http_filter_config_define_gauge(void *config, text name, text *labels,
                                                                         size_t count, size_t *id);
ENVOY int envoy_dynamic_module_callback_http_filter_config_set_gauge(void *config, size_t id, text *values,
                                                                      size_t count, uint64_t value);

// A scheduler of a configuration calls envoy_dynamic_module_on_http_filter_config_scheduled in the main thread, from
// any thread, while the configuration is there.
ENVOY void *envoy_dynamic_module_callback_http_filter_config_scheduler_new(void *config);
ENVOY void envoy_dynamic_module_callback_http_filter_config_scheduler_commit(void *scheduler, uint64_t event);
ENVOY void envoy_dynamic_module_callback_http_filter_config_scheduler_delete(void *scheduler);

// A configuration of the filter: its handle of Go, and Envoy's number of the counter of answers of other endpoints than
// those that were named, where it has that counter.
typedef struct {
  uintptr_t handle;
  bool counts;
  size_t not_followed;
} configuration;

// A request is what Envoy keeps of each: the configuration of its filter, and handles of Go, 0 for none.
typedef struct {
  configuration *config;
  uintptr_t hold;  // of one that waits or waited in the queue
  uintptr_t asked; // of one whose answer is to be learned from
  uint64_t waits;  // bytes of its body before it is chosen for; 0: it is, or never will be
  int64_t came;    // nanoseconds from when the module was loaded, of one whose body is waited for
  bool held;       // it waits in the queue, with what has come of its body
} request;

// missing is the first function of Envoy that does not exist in this process, or NULL.
const char *missing(void);

// sets_gauges reports whether Envoy can set a gauge, which it cannot before 1.39.
bool sets_gauges(void);

// In Go: a request that waits or waited is complete, and ends for good; the first part of a body, after which the
// request waits where this is true; the headers of an answer; and the end of a request without an answer.
extern void completed(void *filter, uintptr_t hold);
extern void ended(uintptr_t hold);
extern bool begun(void *filter, request *r, bool whole);
extern void answered(void *filter, uintptr_t asked);
extern void forgotten(uintptr_t asked);
