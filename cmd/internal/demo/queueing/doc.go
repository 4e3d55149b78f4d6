// Package queueing is the demo of the queue (`steelyard-demo queue`): two real Envoys with the module, in front of
// simulated servers that execute one request at a time, and two classes of requests that each send as much as all
// servers can do. It prints what each class got, second by second, and shows the page.
//
// It needs the module: the environment variable ENVOY_DYNAMIC_MODULES_SEARCH_PATH names its folder, as `make
// demo-queue` sets it.
package queueing
