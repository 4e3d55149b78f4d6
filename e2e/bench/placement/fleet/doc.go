// Package fleet starts what one row of the bench needs: simulated model servers, real Envoys in front of them, and, if
// the policy has one, a control plane of its own with its Redis.
//
//	load -> N real Envoys -> M simulated model servers
//	             ^                 |  /metrics      | in-flight counts
//	             | EDS             v                v
//	             +---- steelyard serve <---- redis-server
//
// Rows share nothing but the machine: they can run at the same time, and a failure of one does not affect the others.
// Envoys run with one worker, and all of them have the listener, the cluster settings and the connection pool of
// `steelyard bootstrap`; a row without Steelyard has the same text with a fixed list of endpoints, the policy of its
// name, and without the parts that connect to Steelyard. Package extension has what the row inference_extension needs.
//
// The package also reads what the processes of a row have cost so far. It measures nothing else and does not evaluate
// anything. Package bench calls it.
package fleet
