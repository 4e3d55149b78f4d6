#!/usr/bin/env bash
# Provides .tools/bin/envoy-gateway: the one that ENVOY_GATEWAY names, else one that is built from the Go modules that
# e2e/gateways/envoygateway pins. That takes some ten minutes on two cores, and is done again only when that folder or
# the version of Go changes.
. "$(dirname "$0")/lib.sh"

built envoy-gateway "Envoy Gateway" e2e/gateways/envoygateway github.com/envoyproxy/gateway cmd/envoy-gateway
