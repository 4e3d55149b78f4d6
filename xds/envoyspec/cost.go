package envoyspec

import (
	"time"

	"steelyard/weighting/push"
)

// PushCost is the CPU time that a push costs an Envoy, whose workers rebuild their schedules, and
// its size. Measured with one worker, idle but for the pushes, in a virtual machine
// (docs/placement.md); each further worker costs some 60 µs more, 150 with hundreds of endpoints, and
// a machine of one's own less.
var PushCost = push.Cost{CPU: 500 * time.Microsecond, CPUPerEndpoint: 3 * time.Microsecond, EndpointBytes: 30}
