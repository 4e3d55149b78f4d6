#!/usr/bin/env bash
# Provides .tools/bin/kube-apiserver: the one that KUBE_APISERVER names, else one
# that is built from the Go modules that e2e/kubernetes/apiserver pins. That takes
# some three minutes on two cores, and is done again only when that folder or the
# version of Go changes.
. "$(dirname "$0")/lib.sh"

module=$root/e2e/kubernetes/apiserver

one_at_a_time
if [ -n "${KUBE_APISERVER:-}" ]; then
  given=$(command -v "$KUBE_APISERVER") || die "KUBE_APISERVER=$KUBE_APISERVER: there is no such program"
  link kube-apiserver "$(realpath -s "$given")"
  exit
fi

dir=$tools/apiserver
stamp=$(cat "$module/go.mod" "$module/go.sum" "$0" | sha256sum)" $(go -C "$module" env GOVERSION)"
if ! have_stamp "$dir" "$stamp"; then
  version=$(go list -C "$module" -m -f '{{.Version}}' k8s.io/kubernetes)
  say "building kube-apiserver $version, which takes some minutes"
  mkdir "$scratch/apiserver"
  # Clients parse the version; without it the server says v0.0.0.
  CGO_ENABLED=0 go build -C "$module" -trimpath \
    -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" \
    -o "$scratch/apiserver/kube-apiserver" k8s.io/kubernetes/cmd/kube-apiserver ||
    die "kube-apiserver was not built, see above"
  found=$("$scratch/apiserver/kube-apiserver" --version)
  [ "$found" = "Kubernetes $version" ] || die "what was built says '$found', not 'Kubernetes $version'"
  install_dir "$dir" "$stamp" "$scratch/apiserver"
  say "kube-apiserver $version is in .tools/bin"
fi
link kube-apiserver ../apiserver/kube-apiserver
