// Package queue is the queue of one cluster: it decides which of the requests that wait at all proxies is sent next,
// and to which endpoint. Package places (xds) serves it to the proxies.
//
// It is pure: time and random numbers are arguments.
//
// # Order
//
// A request belongs to a class and, in it, to a tenant. Between classes, weights are shares: each class with waiting
// requests has a position p_c, the lowest is next, and a request of class c moves it by 1 / weight_c (stride
// scheduling). A class that was empty begins at the position of the class that was served last, so that nothing is
// saved up, and no class waits forever. Strict classes come before all others, in the order of the list: they can
// starve the others. Inside a class, tenants take turns; inside a tenant, the first that came to its proxy is first.
//
// # Places
//
// An endpoint has as many places as it may have requests in flight. A request that is sent takes one, and frees it when
// it ends. Requests that were not sent by this queue occupy places too:
//
//	held     requests that were sent by the queue and have not ended
//	others   least value of max(0, round(in flight) − held) over one to two seconds
//	free     max in flight − held − others
//
// The least value is used because the reports of requests in flight are some milliseconds late: an endpoint whose
// request has just been replaced by the next one may be reported with two of them, or with none. While an endpoint has
// no reports, only what the queue has sent there counts. One with a fixed share, such as one that is tried, always has
// a place for the first request that the queue sends: others may be a gauge that stands still.
//
// Without a configured maximum, it is the number of requests that the endpoint executes at once; while that is not
// known, the endpoint has a place for any request.
//
// Among endpoints with a free place, the one is drawn that [picking.Picker] draws, which takes into account where a
// part of the prompt is cached. No request waits for a place there while another one is free. An endpoint that is to be
// avoided gets a request only where all are, and one that is drained only where all are drained.
//
// # What ends the waiting
//
// A request is granted an endpoint; or refused, because its class is full or because it waited for too long; or
// released, to go by the proxy's weights, when the queue is switched off or the loads are older than [picking.Stale].
// Where a class is full, the latest request of the tenant with the most of them is refused, so that a tenant that sends
// too much does not take the room of the others.
package queue
