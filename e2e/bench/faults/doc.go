// Command faults measures what one server that fails costs a pool of real Envoys, until nothing new goes there.
//
// For each fault, all rows start a fleet of their own and get the same requests at the same time. After the warm-up the
// fault hits the first server of each row, and lasts until the end. Three figures of the time after it:
//
//   - seconds until only tries go there: from the fault to the last request of traffic. More than a third of the fair
//     share in a second is traffic, so one request now and then, by which Envoy or Steelyard finds out whether the
//     server is well again, is none.
//   - requests lost: they failed for the client, or have no answer ten seconds after the last request was sent.
//   - its share of the requests, where 1 is as many as each of the others would get of a healthy pool.
//
// A fault of the metrics page is none of serving: there the share should stay near 1.
//
// All rows have the retries and the outlier detection of `steelyard bootstrap`; LEAST_REQUEST is Envoy's own with both.
// How the row of the Inference Extension's picker is set up, and why, is in the comment of package extension: it is the
// only row that also has readiness probes, because the picker relies on them.
package main
