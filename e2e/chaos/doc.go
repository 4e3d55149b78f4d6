// Package chaos runs a whole fleet under load while every part of it is killed, stopped and cut off at random. It
// checks one promise: a request fails only where a server or an Envoy was ended while it had the request, and when
// the faults are over no trace of them is left.
//
// The parts are real: the steelyard binary, three Envoys from `steelyard bootstrap` in mode failsafe, with TLS on
// both sides of the xDS port, and a redis-server. The five model servers are simulated (e2e/rig/modelsim), in
// processes of their own, so that they can die. Steelyard logs to a pipe of one page whose reader can stall or go
// away. TCP proxies stand between each Envoy and Steelyard, Steelyard and Redis, and Steelyard and each metrics page.
//
// A second run has a queue (Options.Queue): its Envoys have the module, and requests wait in them until a server has a
// place. The same rule holds for them, and when the faults are over, nothing waits and no place is held.
//
// # Faults
//
// Schedule makes the faults from a seed only: the same seed gives the same faults at the same times. The machine
// decides when exactly a process is back, and a lane of faults that is late delays its next fault, too. Processes are
// killed (SIGKILL), stopped for a while (SIGSTOP) and restarted in order (SIGTERM). Links are reset, hang and refuse
// connections. The configuration is changed, made invalid, and loses an endpoint for a while. Certificates are
// replaced, which takes effect at the next start of the process that reads them. The log reader stalls, or goes away
// until Steelyard's next start. Kind and lanes have the whole list. At most two of five servers and two of three
// Envoys are out at once.
//
// # The rule
//
// Clients send to the Envoys in rotation, like a load balancer that checks which Envoys are up: an Envoy leaves the
// rotation before it is ended and comes back when it carries requests and has a fallback. Before an orderly end it is
// drained. An Envoy that is stopped stays in rotation, and its requests wait. A failed request is excused when
//
//   - its Envoy was killed while it had the request: the request was given to the Envoy before the SIGKILL, and failed
//     after it; or
//   - the server that Envoy's access log names for the last attempt was killed, or ended by SIGTERM, while it may have
//     had the request: the request was sent before the process was gone, and failed after the signal was sent. For an
//     Envoy that was stopped when the server died, the server is gone when that Envoy continues: it may still assign
//     waiting requests to connections that are closed. Where the Envoy was killed within half a second
//     after its answer, before it wrote its log, any such server will do.
//
// There is no other tolerance: not for a server that is down (Envoy tries another one), not for one that was stopped,
// not for an Envoy without endpoints, not for any time after a fault. SIGTERM excuses a server because it can close a
// keep-alive connection in the moment in which Envoy sends a request over it, and HTTP/1.1 cannot distinguish the
// two.
//
// Steelyard itself must answer with a fresh decision within four seconds whenever it runs, and must end with status 0
// within five seconds of SIGTERM. No process may end unless a fault ends it.
//
// Before and after the faults there is calm: requests, none of which may fail, until the admin API shows no problem,
// no overload flag, every Envoy in sync, and the current configuration; then, without requests, 0 in flight, running
// and queued at every endpoint. Then Steelyard's memory, goroutines and descriptors are compared with those before
// the faults. Steelyard is ended all through the faults, but not in their last third (and at most two minutes): one
// process lives through all other faults of that time.
package chaos
