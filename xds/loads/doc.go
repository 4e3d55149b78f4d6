// Package loads streams the loads of clusters to pickers, which choose an endpoint for each request (package picking).
// The service is steelyard.loads.v1 of loadsv1, on the xDS port.
//
// A picker gets what the law decided on: the load, the slots and the relative speed of each endpoint, in the law's unit
// of load, and what a request adds to it. A follower gets every change at most every 5 ms, and less often if updates
// are large: [BytesPerSecond] for each stream. Changes in between are sent together, newest state only, so a picker
// that does not read costs memory for one update. Without a change it gets an update each [Heartbeat], which shows that
// the loads still apply.
//
// A picker whose clusters are all unknown gets NOT_FOUND with the clusters that it may have meant, of those that it may
// use. Of several, those that are known are served. Each unknown name is logged once until the configuration changes.
//
// While there are no followers, a decision costs one assignment.
//
// Pickers that learn where prompts are cached share it ([Server.Share]): what one learns is passed on to the others
// that follow the cluster, at once, at most [LearnedPerSecond] prompts of each, and to the other replicas, which pass
// it on to their pickers ([Server.Take]). The server keeps the latest routes of each cluster, and a picker that comes
// is first sent these ([Server.Kept]).
package loads
