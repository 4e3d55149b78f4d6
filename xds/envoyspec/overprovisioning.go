package envoyspec

// Overprovisioning is the factor of all assignments by which Envoy multiplies the share of healthy endpoints before it
// sends the rest to DEGRADED ones: with its default of 1.4, one flagged endpoint of three still got 7 % of the
// requests, more than its weight. With 10, flagged endpoints get none as long as a tenth of the pool is not flagged;
// the weights decide how much the other endpoints get.
const Overprovisioning = 10
