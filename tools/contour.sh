#!/usr/bin/env bash
# Provides .tools/bin/contour: the one that CONTOUR names, else one that is built from the Go modules that
# e2e/gateways/contour pins. That takes some three minutes on two cores, and is done again only when that folder or the
# version of Go changes.
. "$(dirname "$0")/lib.sh"

module=$root/e2e/gateways/contour

one_at_a_time
if [ -n "${CONTOUR:-}" ]; then
  given=$(command -v "$CONTOUR") || die "CONTOUR=$CONTOUR: there is no such program"
  link contour "$(realpath -s "$given")"
  exit
fi

dir=$tools/contour
stamp=$(cat "$module/go.mod" "$module/go.sum" "$0" | sha256sum)" $(go -C "$module" env GOVERSION)"
if ! have_stamp "$dir" "$stamp"; then
  version=$(go list -C "$module" -m -f '{{.Version}}' github.com/projectcontour/contour)
  say "building Contour $version, which takes some minutes"
  mkdir "$scratch/contour"
  CGO_ENABLED=0 go build -C "$module" -trimpath -ldflags '-s -w' -o "$scratch/contour/contour" \
    github.com/projectcontour/contour/cmd/contour || die "Contour was not built, see above"
  install_dir "$dir" "$stamp" "$scratch/contour"
  say "Contour $version is in .tools/bin"
fi
link contour ../contour/contour
