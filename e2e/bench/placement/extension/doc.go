// Package extension runs the endpoint picker of the Gateway API Inference Extension (EPP, v1.5) for a row of a bench.
//
//	load -> N real Envoys -> M simulated model servers
//	          | ext_proc        |  /metrics   | /health
//	          v                 v             v
//	         EPP <--------------+           prober
//	          ^ Pods                          | Ready
//	          +---- kube-apiserver <----------+
//
// Every choice is one that users of the extension have; of several, the one that suits the picker best:
//
//   - The picker runs with its own plugins and intervals, which are the chart's too, as one replica. It finds the Pods
//     through an InferencePool.
//   - There is no kubelet. A prober sets the condition Ready of each Pod as one would with the readiness probe of the
//     extension's example for vLLM: /health once a second, a second for the answer, one failure is enough. So a server
//     that refuses connections leaves the pool within a second. Nothing restarts a server: the faults of a bench last.
//   - Envoy asks for each request with its body and its answer (FULL_DUPLEX_STREAMED), and goes on without the picker
//     (failure_mode_allow). It sends the request to the named endpoint by override_host, as Istio, the Envoy of the
//     extension's guide, configures it. The ORIGINAL_DST cluster of the extension's own chart would send a retry to the
//     same server again; here it goes to another one, by LEAST_REQUEST.
//   - Retries, outlier detection and connections are those of `steelyard bootstrap`, as in all rows. Envoy sends a
//     request also to an ejected endpoint if the picker names it.
//   - Prompts are shorter than a block of the picker's prefix cache, so its scorer of prefixes has no preference.
package extension
