package weighting

// Gain is what a request is spared on average until the next push, in mean services of waiting, if the proxies go by
// the decision instead of the shares in force. inForce holds those shares in the order of Endpoints.
//
//	gain = Σ pᵢ · Lᵢ(nᵢ + A·pᵢ/2) − Σ qᵢ · Lᵢ(nᵢ + A·qᵢ/2)
//
// with p the shares in force and q those decided, A the Arrivals, nᵢ the load and Lᵢ its level, the inverse of V_i
// (package comment): a request meets what was there before and half of those that come with it. The level is what the
// fill evens out; below the last free slot no request waits, and it is the part of the slots that is taken. Under least
// latency there are no slots, and each request counts as a whole one: with many slots that is too much, and fewer
// pushes are held back for their gain.
func (d *Decision) Gain(inForce []float64) float64 {
	var gain float64
	for i, v := range d.vessels {
		gain += d.meets(v, inForce[i]) - d.meets(v, d.Endpoints[i].Share)
	}
	return gain
}

// meets is a vessel's part of the level that a request meets, by its share. Endpoints that are excluded from the fill
// hold more than there is; nothing depends on how much more.
func (d *Decision) meets(v Vessel, share float64) float64 {
	const above = 10 // services; a bound
	v.Load += d.Arrivals * share / 2
	return share * min(v.level(), max(0, d.WaterLevel)+above)
}
