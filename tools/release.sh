#!/usr/bin/env bash
# Archives, checksums and SBOMs of a version in dist/. The same commit gives the same bytes: no path and no time of the
# build gets into them. The binary for Linux is the one of the image (Dockerfile has the same flags).
#
#   tools/release.sh 0.1.0
#   PLATFORMS=linux/amd64 DIST=/tmp/dist tools/release.sh 0.1.0
#   REGISTRY=ghcr.io/OWNER tools/release.sh 0.1.0       # with a chart that takes its images from there
set -euo pipefail
cd "$(dirname "$0")/.."

version=${1:?usage: tools/release.sh VERSION}
platforms=${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64}
dist=${DIST:-dist}
committed=$(git log -1 --format=%ct)

# build OS ARCH FILE
build() {
    CGO_ENABLED=0 GOOS=$1 GOARCH=$2 go build -trimpath -buildvcs=false \
        -ldflags "-s -w -buildid= -X main.version=$version" -o "$3" ./cmd/steelyard
}

# module ARCH FILE builds the module inside Envoy, which needs C: with Zig's compiler, so that it is the same wherever
# it is built, and runs with the C library of any image of Envoy.
module() {
    CGO_ENABLED=1 GOOS=linux GOARCH=$1 CC=$PWD/.tools/bin/zig-cc go build -C envoy-module -buildmode=c-shared \
        -trimpath -buildvcs=false -ldflags '-s -w -buildid= -extldflags=-Wl,--strip-all' -o "$2" .
    rm "${2%.so}.h"
}

tools/zig.sh
rm -rf "$dist"
mkdir -p "$dist"
dist=$(cd "$dist" && pwd)

# Completions do not depend on the platform: those of this one's binary.
host=$(mktemp -d)
trap 'rm -rf "$host"' EXIT
build "$(go env GOHOSTOS)" "$(go env GOHOSTARCH)" "$host/steelyard"
mkdir "$host/completions"
"$host/steelyard" completion bash >"$host/completions/steelyard.bash"
"$host/steelyard" completion zsh >"$host/completions/_steelyard"
"$host/steelyard" completion fish >"$host/completions/steelyard.fish"

for platform in $platforms; do
    os=${platform%/*} arch=${platform#*/}
    name=steelyard_${version}_${os}_${arch}
    mkdir "$dist/$name"
    build "$os" "$arch" "$dist/$name/steelyard"
    cp LICENSE ./*.md steelyard.example.yaml "$dist/$name"
    cp -R docs "$host/completions" "$dist/$name"
    mkdir "$dist/$name/prometheus"
    cp deploy/prometheus/{recording,alerts,inhibit}.yaml deploy/grafana/steelyard.json "$dist/$name/prometheus"
    binaries=("$dist/$name/steelyard")
    if [ "$os" = linux ]; then
        cp -R deploy/systemd "$dist/$name"
        module "$arch" "$dist/$name/libsteelyard.so"
        binaries+=("$dist/$name/libsteelyard.so")
    fi
    go run -C tools ./sbom "$version" "$dist/$name/THIRD_PARTY_NOTICES.txt" "${binaries[@]}" >"$dist/$name.cdx.json"
    chmod -R u=rwX,go=rX "$dist/$name"
    tar --create --sort=name --mtime="@$committed" --owner=0 --group=0 --numeric-owner -C "$dist" "$name" |
        gzip --no-name -9 >"$dist/$name.tar.gz"
    rm -r "${dist:?}/$name"
done
# The chart, of this version.
mkdir "$host/chart"
cp -R manifests/chart "$host/chart/steelyard"
sed -i "s/^version: .*/version: $version/; s/^appVersion: .*/appVersion: $version/" "$host/chart/steelyard/Chart.yaml"
[ -z "${REGISTRY:-}" ] ||
    sed -i "s|^  repository: steelyard$|  repository: $REGISTRY/steelyard|" "$host/chart/steelyard/values.yaml"
tar --create --sort=name --mtime="@$committed" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
    -C "$host/chart" steelyard | gzip --no-name -9 >"$dist/steelyard-chart-$version.tgz"
(cd "$dist" && sha256sum -- * >checksums.txt)
ls -l "$dist"
