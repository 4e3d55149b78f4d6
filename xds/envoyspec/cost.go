package envoyspec

import (
	"time"

	"steelyard/weighting/push"
)

// PushCost is the CPU time that a push costs an Envoy, whose workers rebuild their schedules, and its size. It was
// measured in a virtual machine, with one worker that was idle except for the pushes (docs/placement.md). Each further
// worker costs about 60 µs more, or 150 with hundreds of endpoints; dedicated hardware needs less.
var PushCost = push.Cost{CPU: 500 * time.Microsecond, CPUPerEndpoint: 3 * time.Microsecond, EndpointBytes: 30}
