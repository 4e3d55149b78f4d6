// Package lag finds how late reports are besides their age.
//
// Gauges lag by an iteration of an engine or by an exporter's own interval, access logs wait in buffers, and no
// timestamp shows it. A law that takes late loads for present ones sends all that arrives meanwhile to the endpoint
// that was idle, then to the next one. But its own decisions come back in the reports: an endpoint gets its share of
// the arrivals, so the arrivals a that were read from it at t1, and were not at t0, the reading before, have, if
// reports are late by x, the log-likelihood
//
//	a·ln(w)    w  a fifth of an equal share + four fifths of the mean share from t0 − x to t1 − x
//
// Over all endpoints these are summed for each x of a few, and fade within minutes. The reports are late by the x with
// the largest sum, once it exceeds that of no lag by more than chance explains. One that is shorter than the time
// between two readings counts as none: an endpoint whose share was high gets requests, and its share falls, all between
// the two.
//
// Where shares hardly change there is no evidence, and a lag does no harm. A lag that is known evens out the shares of
// endpoints that batch continuously, so there it stands until little of its evidence is left: otherwise it would be
// forgotten and found again, each time by doing harm.
//
// It is not for requests whose endpoint a hash chose (affinity).
package lag
