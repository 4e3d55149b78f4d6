#!/usr/bin/env bash
# Pushes the images and the chart of a version to a registry, after tools/release.sh has made dist/, and signs them and
# the checksums with cosign: without a key, by the identity of the workflow that runs it. The images have an SBOM and
# their provenance for each platform. Needs docker with buildx, helm, cosign and jq, logged in to the registry.
#
#   tools/publish.sh 0.1.0 ghcr.io/OWNER
set -euo pipefail
cd "$(dirname "$0")/.."

version=${1:?usage: tools/publish.sh VERSION REGISTRY}
registry=${2:?usage: tools/publish.sh VERSION REGISTRY}
dist=${DIST:-dist}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
[ -f "$dist/steelyard-chart-$version.tgz" ] || { echo "$dist has no chart of $version: tools/release.sh" >&2; exit 1; }

# Tags of bases move, so the images are built on their current digests.
pinned() { printf '%s@%s' "$1" "$(docker buildx imagetools inspect "$1" --format '{{.Manifest.Digest}}')"; }

# image NAME ARGUMENTS... builds an image for both platforms, pushes it, and signs it.
image() {
    local name=$registry/$1
    shift
    docker buildx build --platform linux/amd64,linux/arm64 --build-arg VERSION="$version" \
        --build-arg SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)" --sbom=true --provenance=mode=max \
        --metadata-file "$scratch/metadata.json" \
        --output "type=image,name=$name:$version,push=true,rewrite-timestamp=true" "$@" .
    cosign sign --yes "$name@$(jq -er '."containerimage.digest"' "$scratch/metadata.json")"
}

image steelyard --build-arg BASE="$(pinned gcr.io/distroless/static-debian12:nonroot)"
image steelyard-router --target router --build-arg ENVOY="$(pinned envoyproxy/envoy:v1.40.0)"

helm push "$dist/steelyard-chart-$version.tgz" "oci://$registry/charts" 2>&1 | tee "$scratch/pushed"
digest=$(sed -n 's/^Digest: //p' "$scratch/pushed")
cosign sign --yes "$registry/charts/steelyard@${digest:?helm push printed no digest}"

cosign sign-blob --yes --bundle "$dist/checksums.txt.sigstore.json" "$dist/checksums.txt"
