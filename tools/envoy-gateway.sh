#!/usr/bin/env bash
# Provides .tools/bin/envoy-gateway: the one that ENVOY_GATEWAY names, else one that is built from the Go modules that
# e2e/gateways/envoygateway pins. That takes some ten minutes on two cores, and is done again only when that folder or
# the version of Go changes.
. "$(dirname "$0")/lib.sh"

module=$root/e2e/gateways/envoygateway

one_at_a_time
if [ -n "${ENVOY_GATEWAY:-}" ]; then
  given=$(command -v "$ENVOY_GATEWAY") || die "ENVOY_GATEWAY=$ENVOY_GATEWAY: there is no such program"
  link envoy-gateway "$(realpath -s "$given")"
  exit
fi

dir=$tools/envoy-gateway
stamp=$(cat "$module/go.mod" "$module/go.sum" "$0" | sha256sum)" $(go -C "$module" env GOVERSION)"
if ! have_stamp "$dir" "$stamp"; then
  version=$(go list -C "$module" -m -f '{{.Version}}' github.com/envoyproxy/gateway)
  say "building Envoy Gateway $version, which takes some minutes"
  mkdir "$scratch/envoy-gateway"
  CGO_ENABLED=0 go build -C "$module" -trimpath -ldflags '-s -w' -o "$scratch/envoy-gateway/envoy-gateway" \
    github.com/envoyproxy/gateway/cmd/envoy-gateway || die "Envoy Gateway was not built, see above"
  install_dir "$dir" "$stamp" "$scratch/envoy-gateway"
  say "Envoy Gateway $version is in .tools/bin"
fi
link envoy-gateway ../envoy-gateway/envoy-gateway
