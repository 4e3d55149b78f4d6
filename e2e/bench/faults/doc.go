// Command faults measures what one server that fails costs a pool of real Envoys, until nothing new goes there.
//
// For each fault, all rows start a fleet of their own and get the same requests at the same time. After the warm-up the
// fault hits the first server of each row, and lasts until the end. Three figures of the time after it:
//
//   - seconds until nothing new goes there: the end of the last two seconds in which the server got more than a tenth
//     of its fair share of the requests. Two tries in two seconds of a server that was ejected may be above that.
//   - requests lost: they failed for the client, or have no answer ten seconds after the last request was sent.
//   - its share of the requests, where 1 is as many as each of the others would get of a healthy pool.
//
// A fault of the metrics page is none of serving: there the share should stay near 1.
//
// All rows have the retries and the outlier detection of `steelyard bootstrap`; LEAST_REQUEST is Envoy's own with both.
package main
