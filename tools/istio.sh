#!/usr/bin/env bash
# Provides .tools/bin/pilot-discovery (istiod) and .tools/bin/pilot-agent: those that PILOT_DISCOVERY and PILOT_AGENT
# name, else ones that are built from the Go modules that e2e/gateways/istio pins. That takes some ten minutes on two
# cores, and is done again only when that folder or the version of Go changes.
. "$(dirname "$0")/lib.sh"

module=$root/e2e/gateways/istio

one_at_a_time
if [ -n "${PILOT_DISCOVERY:-}${PILOT_AGENT:-}" ]; then
  for given in "pilot-discovery ${PILOT_DISCOVERY:-}" "pilot-agent ${PILOT_AGENT:-}"; do
    path=$(command -v "${given#* }") || die "PILOT_DISCOVERY and PILOT_AGENT have to name two programs"
    link "${given%% *}" "$(realpath -s "$path")"
  done
  exit
fi

dir=$tools/istio
stamp=$(cat "$module/go.mod" "$module/go.sum" "$0" | sha256sum)" $(go -C "$module" env GOVERSION)"
if ! have_stamp "$dir" "$stamp"; then
  version=$(go list -C "$module" -m -f '{{.Version}}' istio.io/istio)
  say "building Istio $version, which takes some minutes"
  mkdir "$scratch/istio"
  CGO_ENABLED=0 go build -C "$module" -trimpath -ldflags '-s -w' -o "$scratch/istio/" \
    istio.io/istio/pilot/cmd/pilot-discovery istio.io/istio/pilot/cmd/pilot-agent ||
    die "Istio was not built, see above"
  install_dir "$dir" "$stamp" "$scratch/istio"
  say "Istio $version is in .tools/bin"
fi
link pilot-discovery ../istio/pilot-discovery
link pilot-agent ../istio/pilot-agent
