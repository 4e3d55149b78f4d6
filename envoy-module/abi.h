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

// missing is the first function of Envoy that does not exist in this process, or NULL.
const char *missing(void);
