// Package chaos runs a whole fleet under load while every part of it is killed, stopped
// and cut off at random, and holds the fleet to one promise: a request fails only
// where a server or an Envoy was ended with it in hand, and when the faults are over
// nothing of them is left.
//
// The parts are real: the steelyard binary, three Envoys from `steelyard bootstrap` in
// mode failsafe, with TLS on both sides of the xDS port, and a redis-server. The five
// model servers are simulated (e2e/rig/modelsim), in processes of their own, so that
// they can die. Steelyard logs to a pipe of one page whose reader can stall. TCP
// proxies stand between each Envoy and Steelyard, Steelyard and Redis, and Steelyard and
// each metrics page.
//
// # Faults
//
// Schedule makes them from a seed, and from nothing else: the same seed gives the same
// faults at the same times. When exactly a process is back depends on the machine, and
// a lane of faults that is late makes the next one later, too. Processes are killed
// (SIGKILL), stopped for a while (SIGSTOP) and restarted in order (SIGTERM); links are
// reset, hang and refuse; the configuration is changed, spoiled, and loses an endpoint
// for a while; certificates are replaced, which acts at the next restart of the process
// that reads them; the log reader stalls, or goes away until Steelyard's next start. Kind
// and lanes have the whole list. At most two
// of five servers and two of three Envoys are out at once.
//
// # The rule
//
// Clients send to the Envoys that are in rotation, as from a balancer that knows which
// are: an Envoy leaves before it is ended and comes back when it carries requests and
// has a fallback. Before an end in order it is drained. One that is stopped stays in rotation, and its
// requests wait. A request that fails is excused when
//
//   - the Envoy that it was given to was killed while it had it: it was given to the
//     Envoy before the SIGKILL, and failed after; or
//   - the server that Envoy's access log names for its last attempt was killed, or ended
//     by SIGTERM, while it may have had it: it was sent before the process was gone, and
//     failed after the signal was sent. For an Envoy that was stopped when the server
//     died, the server is gone when that Envoy goes on: it gives requests that have
//     waited to connections of which it has not heard yet that they are closed. Where the
//     Envoy was killed within half a second after its answer, before it wrote its log,
//     any such server will do.
//
// There is no other tolerance: not for a server that is down (Envoy tries another one),
// not for one that was stopped, not for an Envoy without endpoints, not for any time
// after a fault. SIGTERM excuses a server because a keep-alive connection can be closed
// in the moment in which Envoy sends a request over it, and HTTP/1.1 cannot tell.
//
// Steelyard itself must answer with a fresh decision within four seconds whenever it
// runs, must end by itself and with status 0 within five seconds of SIGTERM, and no
// process may end that nobody ended.
//
// Before and after the faults there is calm: requests, none of which may fail, until the
// admin API shows no problem, no flag, every Envoy in sync, and the configuration that
// is there; then, without requests, 0 in flight, running and queued at every endpoint.
// Memory, goroutines and descriptors of Steelyard are then compared with those of before.
// Steelyard is ended all through the faults, but not in their last third (and at most two
// minutes): one process lives through all others of that time.
package chaos
