package proctest

// The parts of a configuration to which `steelyard bootstrap --attach` is attached, for tests: Existing, the attached
// text, Listener, further keys of its connection manager at 10 spaces, and RouterFilter at the end of its http_filters.
const (
	Existing = `
node: {id: mine, cluster: mine}
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}
`
	Listener = `
  listeners:
  - name: ingress
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: hcm
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: mine
`
	RouterFilter = `          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
`
)
