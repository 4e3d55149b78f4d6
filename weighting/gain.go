package weighting

// Gain is what the requests until the next push are spared, each of them and in the
// mean, if the proxies go by the decision instead of the shares that are in force, in
// mean services of waiting. inForce holds those shares in the order of Endpoints.
//
//	gain = Σ pᵢ · Lᵢ(nᵢ + A·pᵢ/2) − Σ qᵢ · Lᵢ(nᵢ + A·qᵢ/2)
//
// with p the shares in force and q those decided, A the Arrivals, nᵢ the load and Lᵢ
// the level at which it stands (package comment): a request finds there what was there
// before and half of those that come with it. Level is what the fill evens out; below
// the last free slot nobody waits, and it is the part of the slots that is taken. By
// least latency there are no slots, and each request that is there counts a whole one: with
// many slots that is too much, and fewer pushes are held back for their gain.
func (d *Decision) Gain(inForce []float64) float64 {
	var gain float64
	for i, v := range d.vessels {
		gain += d.meets(v, inForce[i]) - d.meets(v, d.Endpoints[i].Share)
	}
	return gain
}

// meets is a vessel's part of the level that a request meets, by its share. Endpoints
// that are set aside hold more than there is; of how much more nothing depends.
func (d *Decision) meets(v vessel, share float64) float64 {
	const above = 10 // services
	v.load += d.Arrivals * share / 2
	return share * min(v.level(), max(0, d.WaterLevel)+above)
}
