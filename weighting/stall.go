package weighting

// conduct is how an endpoint treats the requests that it has.
type conduct struct{}

// conduct looks for endpoints that stall or fail.
func (p *pool) conduct() {}

// vessel is the member as the fill sees it.
func (m *member) vessel() vessel { return m.holding(m.load) }
