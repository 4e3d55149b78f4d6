#!/usr/bin/env bash
# Provides .tools/bin/epp, the endpoint picker of the Gateway API Inference Extension: the one that EPP names, else one
# that is built from the Go modules that e2e/bench/epp pins. That takes some minutes on two cores, and is done again
# only when that folder or the version of Go changes.
. "$(dirname "$0")/lib.sh"

module=$root/e2e/bench/epp

one_at_a_time
if [ -n "${EPP:-}" ]; then
  given=$(command -v "$EPP") || die "EPP=$EPP: there is no such program"
  link epp "$(realpath -s "$given")"
  exit
fi

dir=$tools/epp
stamp=$(cat "$module/go.mod" "$module/go.sum" "$0" | sha256sum)" $(go -C "$module" env GOVERSION)"
if ! have_stamp "$dir" "$stamp"; then
  version=$(go list -C "$module" -m -f '{{.Version}}' sigs.k8s.io/gateway-api-inference-extension)
  say "building the endpoint picker $version, which takes some minutes"
  mkdir "$scratch/epp"
  CGO_ENABLED=0 go build -C "$module" -trimpath -ldflags '-s -w' -o "$scratch/epp/epp" \
    sigs.k8s.io/gateway-api-inference-extension/cmd/epp || die "the endpoint picker was not built, see above"
  install_dir "$dir" "$stamp" "$scratch/epp"
  say "the endpoint picker $version is in .tools/bin"
fi
link epp ../epp/epp
