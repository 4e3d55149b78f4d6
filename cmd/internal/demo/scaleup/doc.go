// Package scaleup is the demo of the router (`steelyard-demo router`): replicas that answer one request at a time get
// more than they can do, and half of the time later there are more of them. It plays the same load twice, through an
// Envoy with its own round robin and through `steelyard router`, and compares what requests wait before and after the
// scale-up.
//
// Round robin leaves what waits at the old replicas, and goes on sending them as much as the new ones. The router holds
// what waits itself, so the new replicas take it.
//
// It needs the module: the environment variable ENVOY_DYNAMIC_MODULES_SEARCH_PATH names its folder, as `make
// demo-router` sets it.
package scaleup
